//! Chooses how the sandbox of a command is enforced: by namespaces, which can enforce every policy, or by Landlock, if
//! the machine does not allow namespaces or the request asks for it. Landlock is used only for policies that it enforces
//! exactly, so a command is never less confined than its policy says.

use std::sync::Arc;

use sandbox::{FilePolicy, LandlockUnfit, Placeholders, SandboxNetwork, plan_landlock};
use spawn::SessionTags;

use super::{SandboxRefusal, SessionSandbox, SessionSandboxes, end_those_in_the_way_of, while_files_change};

/// Which mechanism a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MechanismChoice {
    /// Namespaces if the machine allows them, otherwise Landlock.
    Best,
    /// Landlock. The request is refused if Landlock cannot enforce its policy.
    Landlock,
}

impl SessionSandboxes {
    /// The sandbox for a command with this policy, which is made if there is none. Blocks.
    pub(crate) fn obtain_for_command(
        &self,
        tags: &SessionTags,
        policy: &FilePolicy,
        network: SandboxNetwork,
        choice: MechanismChoice,
    ) -> Result<Arc<SessionSandbox>, SandboxRefusal> {
        if choice == MechanismChoice::Landlock {
            return self.obtain_landlock(tags, policy, network)?.map_err(SandboxRefusal::Landlock);
        }
        let lacks_namespaces = self.launcher.as_ref().is_some_and(|launcher| launcher.lacks_namespaces());
        // Saves an attempt that would probably fail. A policy that Landlock cannot enforce is tried with namespaces in any case.
        if lacks_namespaces && let Ok(sandbox) = self.obtain_landlock(tags, policy, network)? {
            return Ok(sandbox);
        }
        match self.obtain(tags, policy, network) {
            Err(SandboxRefusal::Build(namespaces)) if namespaces.is_about_missing_namespaces() => self
                .obtain_landlock(tags, policy, network)?
                .map_err(|landlock| SandboxRefusal::NoSubstitute { namespaces, landlock }),
            other => other,
        }
    }

    /// As `obtain`, with Landlock instead of namespaces. The inner error says why Landlock cannot enforce the policy.
    fn obtain_landlock(
        &self,
        tags: &SessionTags,
        policy: &FilePolicy,
        network: SandboxNetwork,
    ) -> Result<Result<Arc<SessionSandbox>, LandlockUnfit>, SandboxRefusal> {
        let launcher = self.launcher.as_ref().ok_or(SandboxRefusal::NotConfigured)?;
        if let Err(unfit) = plan_landlock(policy, network) {
            return Ok(Err(unfit));
        }
        end_those_in_the_way_of(policy, &Placeholders::default(), launcher);
        while_files_change(|| match plan_landlock(policy, network) {
            Ok(plan) => self.find_or_make(launcher, tags, plan.into(), Placeholders::default()).map(Ok),
            Err(unfit) => Ok(Err(unfit)),
        })
    }
}
