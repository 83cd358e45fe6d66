//! The sandboxes of a session. A sandbox is made for the first request with a policy, and later requests that lead to the
//! same plan use it again. It ends with its session, when it has not been used for a while, and with the server. The crate
//! `sandbox` makes sandboxes; this module decides how long they live.

mod command_list;
mod in_the_making;
mod in_the_way;
mod launcher;
mod mechanism;
mod proxy_limit;
mod refusal;
mod session_sandbox;
mod start;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Instant;

use files::FileRoot;
use parking_lot::Mutex;
use protocol::{SandboxContext, WireError};
use sandbox::{
    EnforcementPlan, FilePolicy, LandlockUnfit, PlaceholderOwner, Placeholders, PlanError, PlannedSandbox,
    SandboxNetwork, plan_for_owner,
};
use spawn::SessionTags;

use self::in_the_making::PlansInTheMaking;
pub(crate) use self::in_the_way::AllSandboxes;
use self::in_the_way::SandboxList;
pub(crate) use self::launcher::LauncherFactory;
pub(crate) use self::mechanism::MechanismChoice;
use self::proxy_limit::ProxySandboxCount;
pub(crate) use self::refusal::SandboxRefusal;
pub(crate) use self::session_sandbox::SessionSandbox;
use self::session_sandbox::is_unused;
pub(crate) use self::start::SandboxStart;
use crate::limits::{MAX_SANDBOXES, POLICY_RECHECK_TIME, SANDBOX_IDLE_TIME};
use crate::sandbox_policy::file_sandbox_policy;

/// The most plans for one request. A further plan is made if files that the last one names have changed before the sandbox was ready.
const MAX_PLANS: usize = 3;

/// The sandbox that file operations with a policy have used last.
struct RecentPolicy {
    context: SandboxContext,
    sandbox: Weak<SessionSandbox>,
    /// When the server last looked whether the files that the policy names have changed.
    checked: Instant,
}

/// All sandboxes of a session.
pub(crate) struct SessionSandboxes {
    /// None: the server was configured without a launcher.
    launcher: Option<Arc<LauncherFactory>>,
    /// Policies of recent file operations, at most [`MAX_SANDBOXES`]. The newest is the last.
    recent: Mutex<VecDeque<RecentPolicy>>,
    /// The sandboxes that requests may use again, at most [`MAX_SANDBOXES`].
    known: Arc<SandboxList>,
    /// Counts the sandboxes of commands with a proxy.
    proxied: Arc<ProxySandboxCount>,
    /// The session, as the owner of its placeholders.
    placeholder_owner: PlaceholderOwner,
    /// The sandboxes that are being made for [`known`](Self::known).
    making: PlansInTheMaking,
}

impl SessionSandboxes {
    pub(crate) fn new(launcher: Option<Arc<LauncherFactory>>) -> Self {
        let notes = launcher.as_ref().map(|launcher| launcher.placeholders());
        let placeholder_owner = notes.map_or_else(PlaceholderOwner::default, |notes| PlaceholderOwner::new(notes));
        Self {
            launcher,
            recent: Mutex::default(),
            known: Arc::default(),
            proxied: Arc::default(),
            placeholder_owner,
            making: PlansInTheMaking::default(),
        }
    }

    /// The root of the sandbox for file operations with this policy, if its files were looked at within [`POLICY_RECHECK_TIME`].
    /// Otherwise the files that the policy names may have changed. Does not block.
    pub(crate) fn recent_file_root(&self, context: &SandboxContext) -> Option<FileRoot> {
        let recent = self.recent.lock();
        let known = recent.iter().find(|known| known.context == *context)?;
        if known.checked.elapsed() >= POLICY_RECHECK_TIME {
            return None;
        }
        let sandbox = known.sandbox.upgrade().filter(|sandbox| sandbox.is_whole())?;
        sandbox.touch();
        sandbox.file_root()
    }

    /// The root of the sandbox for file operations with this policy, which is made if there is none. Blocks.
    pub(crate) fn file_root(&self, context: &SandboxContext, tags: &SessionTags) -> Result<FileRoot, WireError> {
        let tmpdir = self.launcher.as_ref().and_then(|launcher| launcher.tmpdir());
        let policy = file_sandbox_policy(context, tmpdir)?;
        // File operations use no network, so they share the sandbox of commands without a network.
        let sandbox = self.obtain(tags, &policy, SandboxNetwork::None).map_err(|error| match error {
            SandboxRefusal::NotConfigured => {
                WireError::invalid_request("filesystem sandbox cannot be enforced on this executor")
            }
            _ if error.missing_namespaces().is_some() => WireError::invalid_request(format!(
                "failed to prepare fs sandbox: {error}; file operations with a policy need user namespaces"
            )),
            _ => WireError::invalid_request(format!("failed to prepare fs sandbox: {error}")),
        })?;
        let mut recent = self.recent.lock();
        recent.retain(|known| known.context != *context);
        if recent.len() >= MAX_SANDBOXES {
            recent.pop_front();
        }
        let (context, checked) = (context.clone(), Instant::now());
        recent.push_back(RecentPolicy { context, sandbox: Arc::downgrade(&sandbox), checked });
        sandbox.file_root().ok_or_else(|| WireError::internal("the server has no descriptor left for the sandbox"))
    }

    /// The sandbox of namespaces for a policy, which is made if there is none. Blocks.
    pub(crate) fn obtain(
        &self,
        tags: &SessionTags,
        policy: &FilePolicy,
        network: SandboxNetwork,
    ) -> Result<Arc<SessionSandbox>, SandboxRefusal> {
        let launcher = self.launcher.as_ref().ok_or(SandboxRefusal::NotConfigured)?;
        while_files_change(|| {
            let PlannedSandbox { plan, placeholders } = self.plan(launcher, policy, network)?;
            self.find_or_make(launcher, tags, plan.into(), placeholders)
        })
    }

    /// A sandbox that no other request uses, with a network in which only the proxy of its command is reached. The sandbox ends when the result
    /// is dropped. Blocks.
    pub(crate) fn make_own(
        &self,
        tags: &SessionTags,
        policy: &FilePolicy,
    ) -> Result<Arc<SessionSandbox>, SandboxRefusal> {
        let launcher = self.launcher.as_ref().ok_or(SandboxRefusal::NotConfigured)?;
        let share = self.proxied.take_share().ok_or(SandboxRefusal::TooManyProxies)?;
        let made = while_files_change(|| {
            let PlannedSandbox { plan, placeholders } = self.plan(launcher, policy, SandboxNetwork::LoopbackOnly)?;
            let plan = plan.into();
            let built = launcher.build(&plan, tags)?;
            Ok((plan, placeholders, built))
        });
        match made {
            Ok((plan, placeholders, built)) => {
                Ok(SessionSandbox::new(Arc::new(plan), placeholders, built, Some(share)))
            }
            Err(SandboxRefusal::Build(namespaces)) if namespaces.is_about_missing_namespaces() => {
                Err(SandboxRefusal::NoSubstitute { namespaces, landlock: LandlockUnfit::ManagedNetwork })
            }
            Err(other) => Err(other),
        }
    }

    /// Makes the plan for a policy, and ends unused sandboxes that are in the way of it. Blocks.
    fn plan(
        &self,
        launcher: &LauncherFactory,
        policy: &FilePolicy,
        network: SandboxNetwork,
    ) -> Result<PlannedSandbox, PlanError> {
        let planned = self.plan_with_room(launcher, policy, network)?;
        if end_those_in_the_way_of(policy, &planned.placeholders, launcher) {
            return self.plan_with_room(launcher, policy, network);
        }
        Ok(planned)
    }

    /// Makes the plan for a policy. If there are too many placeholders, ends all unused sandboxes that have some: ending them one by one would
    /// mean to make the plan again for each. Blocks.
    fn plan_with_room(
        &self,
        launcher: &LauncherFactory,
        policy: &FilePolicy,
        network: SandboxNetwork,
    ) -> Result<PlannedSandbox, PlanError> {
        loop {
            match plan_for_owner(policy, network, &self.placeholder_owner) {
                Err(PlanError::TooManyPlaceholders) if self.known.end_unused(|_| true) => {}
                Err(PlanError::NoRoomForPlaceholders) if launcher.all_sandboxes().end_unused(|_| true) => {}
                other => return other,
            }
        }
    }

    /// The sandbox that was made from this plan, if its launcher still runs and no mount was lost. A sandbox that has lost a mount stays in
    /// the list while commands run in it. Blocks.
    fn find(&self, plan: &EnforcementPlan) -> Option<Arc<SessionSandbox>> {
        loop {
            let usable = |sandbox: &&Arc<SessionSandbox>| sandbox.is_made_from(plan) && sandbox.is_whole();
            let candidate = self.known.lock().iter().find(usable).cloned();
            let Some(sandbox) = candidate else {
                self.end_broken();
                return None;
            };
            // Not while the list is locked, because looking at files can hang. A sandbox that fails here is not usable any more.
            if sandbox.resident.has_its_mounts(plan) {
                sandbox.touch();
                return Some(sandbox);
            }
        }
    }

    /// Ends the sandboxes whose launchers have ended, and unused ones that have lost a mount. Blocks.
    fn end_broken(&self) {
        let is_over = |sandbox: &mut Arc<SessionSandbox>| {
            sandbox.resident.has_ended() || (sandbox.resident.has_lost_mounts() && is_unused(sandbox))
        };
        // Dropped after the lock, which tasks wait for.
        let _broken: Vec<_> = self.known.lock().extract_if(.., is_over).collect();
    }

    fn find_or_make(
        &self,
        launcher: &LauncherFactory,
        tags: &SessionTags,
        plan: EnforcementPlan,
        placeholders: Placeholders,
    ) -> Result<Arc<SessionSandbox>, SandboxRefusal> {
        // A claim counts as a sandbox that is being made, so none is taken for a sandbox that exists.
        if let Some(known) = self.find(&plan) {
            return Ok(known);
        }
        let plan = Arc::new(plan);
        let claim = self.making.claim(&plan);
        // Another request may have made it meanwhile.
        if let Some(known) = self.find(&plan) {
            return Ok(known);
        }
        let evicted = self.make_room()?;
        let built = launcher.build(&plan, tags);
        let built = match built {
            Ok(built) => built,
            Err(error) => {
                self.known.lock().extend(evicted);
                return Err(error);
            }
        };
        let made = SessionSandbox::new(plan, placeholders, built, None);
        launcher.all_sandboxes().add(&self.known);
        self.known.lock().push(Arc::clone(&made));
        drop(claim);
        // Can block.
        drop(evicted);
        Ok(made)
    }

    /// If the session has as many sandboxes as it may, those that are being made included, takes out the one that has been unused for the
    /// longest time.
    fn make_room(&self) -> Result<Option<Arc<SessionSandbox>>, SandboxRefusal> {
        if self.known.lock().len() + self.making.count() <= MAX_SANDBOXES {
            return Ok(None);
        }
        self.take_oldest_unused().map(Some).ok_or(SandboxRefusal::TooMany)
    }

    /// Takes out the sandbox that has been unused for the longest time. Dropping it can block.
    fn take_oldest_unused(&self) -> Option<Arc<SessionSandbox>> {
        let mut known = self.known.lock();
        let unused = known.iter().enumerate().filter(|(_, sandbox)| is_unused(sandbox));
        let (oldest, _) = unused.min_by_key(|(_, sandbox)| sandbox.last_use())?;
        Some(known.remove(oldest))
    }

    /// Takes out the sandboxes that have been unused for [`SANDBOX_IDLE_TIME`]. Dropping them can block.
    pub(crate) fn take_idle(&self, now: Instant) -> Vec<Arc<SessionSandbox>> {
        let is_idle = |sandbox: &mut Arc<SessionSandbox>| {
            // `is_unused` comes first, because it also forgets commands that have ended, which frees their descriptors.
            is_unused(sandbox) && now.saturating_duration_since(sandbox.last_use()) >= SANDBOX_IDLE_TIME
        };
        self.known.lock().extract_if(.., is_idle).collect()
    }

    /// Takes out all sandboxes, at the end of the session. Dropping them can block.
    pub(crate) fn take_all(&self) -> Vec<Arc<SessionSandbox>> {
        std::mem::take(&mut *self.known.lock())
    }
}

/// Plans and makes a sandbox, and does so again if files that the plan names have changed before the sandbox was ready.
fn while_files_change<T>(mut make: impl FnMut() -> Result<T, SandboxRefusal>) -> Result<T, SandboxRefusal> {
    for _ in 1..MAX_PLANS {
        match make() {
            Err(SandboxRefusal::Build(error)) if error.is_about_changed_files() => {}
            other => return other,
        }
    }
    make().map_err(|refusal| match refusal {
        SandboxRefusal::Build(error) if error.is_about_changed_files() => SandboxRefusal::Unsteady(error),
        other => other,
    })
}

/// Ends unused sandboxes, of any session, that have a placeholder where this policy allows to write: with the placeholder, a command
/// could not write there. Placeholders in `needed` stay, because the plan of the policy uses them itself. Returns whether it has ended a
/// sandbox. Blocks.
fn end_those_in_the_way_of(policy: &FilePolicy, needed: &Placeholders, launcher: &LauncherFactory) -> bool {
    let needed = needed.paths();
    launcher
        .all_sandboxes()
        .end_unused(|placeholders| policy.writable_among(placeholders.as_slice()).any(|path| !needed.contains(path)))
}
