//! Finds the sandbox for a request, or makes it. Making one takes milliseconds and looks at files, so this runs on a thread that may block.

use std::ffi::OsStr;
use std::sync::Arc;

use protocol::WireError;
use sandbox::{NetworkRule, SandboxNetwork};

use super::start::StartSpec;
use crate::sandbox_policy::process_sandbox_rules;
use crate::sandboxes::{MechanismChoice, SandboxRefusal, SessionSandbox};
use crate::session::Session;

/// The sandbox in which a process starts. None if it starts without one.
pub(super) async fn sandbox_for_process(
    spec: &StartSpec,
    session: &Arc<Session>,
) -> Result<Option<Arc<SessionSandbox>>, WireError> {
    let Some(context) = spec.sandbox.clone() else { return Ok(None) };
    let (cwd, tmpdir) = (spec.cwd.clone(), spec.env.get(OsStr::new("TMPDIR")).cloned());
    let owner = Arc::clone(session);
    let is_proxied = spec.proxy.is_some();
    let find = move || {
        let rules = process_sandbox_rules(&context, &cwd, tmpdir.as_deref())?;
        let network = match rules.network {
            NetworkRule::Restricted => SandboxNetwork::None,
            NetworkRule::Enabled => SandboxNetwork::Host,
        };
        // A command must not reach the proxy of another command, so each of them has a network, and with it a sandbox, of its own.
        let choice = if context.use_legacy_landlock { MechanismChoice::Landlock } else { MechanismChoice::Best };
        let found = if is_proxied && choice == MechanismChoice::Best {
            owner.sandboxes.make_own(&owner.tags, &rules.files)
        } else {
            let network = if is_proxied { SandboxNetwork::LoopbackOnly } else { network };
            owner.sandboxes.obtain_for_command(&owner.tags, &rules.files, network, choice)
        };
        found.map_err(|error| match error {
            SandboxRefusal::NotConfigured => WireError::invalid_params(error.to_string()),
            _ => WireError::invalid_params(format!("failed to prepare process sandbox: {error}")),
        })
    };
    let found = session.files.operations.run(find).await;
    found
        .unwrap_or_else(|| Err(WireError::internal("the server has failed to make the sandbox; its log says why")))
        .map(Some)
}
