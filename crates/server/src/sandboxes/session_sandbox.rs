//! One sandbox of a session, with its launcher and its placeholders.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use files::{FileRoot, FileSandbox};
use parking_lot::Mutex;
use sandbox::{EnforcementPlan, PlaceholderPaths, Placeholders, ResidentSandbox};

use super::command_list::CommandList;
use super::launcher::LauncherProcess;
use super::proxy_limit::ProxySandboxShare;

/// A sandbox of a session.
pub(crate) struct SessionSandbox {
    plan: Arc<EnforcementPlan>,
    pub(super) resident: ResidentSandbox,
    /// When the sandbox was asked for last.
    used: Mutex<Instant>,
    pub(super) commands: Arc<CommandList>,
    _launcher: LauncherProcess,
    /// Dropped after the launcher, because the mounts of the sandbox are on these directories.
    placeholders: Placeholders,
    /// Only for a sandbox of a command with a proxy. Dropped last, so that a sandbox that is ending still counts.
    _share: Option<ProxySandboxShare>,
}

impl SessionSandbox {
    pub(super) fn new(
        plan: Arc<EnforcementPlan>,
        placeholders: Placeholders,
        (resident, launcher): (ResidentSandbox, LauncherProcess),
        share: Option<ProxySandboxShare>,
    ) -> Arc<Self> {
        Arc::new(Self {
            plan,
            resident,
            used: Mutex::new(Instant::now()),
            commands: Arc::default(),
            _launcher: launcher,
            placeholders,
            _share: share,
        })
    }

    /// Whether the sandbox was made from an equal plan.
    pub(super) fn is_made_from(&self, plan: &EnforcementPlan) -> bool {
        *self.plan == *plan
    }

    /// Whether its launcher still runs, and its mounts are in their places.
    pub(super) fn is_whole(&self) -> bool {
        !self.resident.has_ended() && !self.resident.has_lost_mounts()
    }

    /// The paths of the placeholders that the sandbox uses.
    pub(super) fn placeholder_paths(&self) -> &Arc<PlaceholderPaths> {
        self.placeholders.paths()
    }

    /// Notes that the sandbox is used now.
    pub(super) fn touch(&self) {
        *self.used.lock() = Instant::now();
    }

    /// When the sandbox was used last.
    pub(super) fn last_use(&self) -> Instant {
        *self.used.lock()
    }

    /// The socket on which the proxy of the command listens, in the network of the sandbox. None if the sandbox has no such socket, or if the
    /// server has no descriptor left.
    pub(crate) fn listener(&self) -> Option<OwnedFd> {
        self.resident.listener()?.try_clone_to_owned().ok()
    }

    /// The root directory of the sandbox, for file operations. The result keeps the sandbox alive. None if the sandbox is not made of
    /// namespaces, or if the server has no descriptor left.
    pub(crate) fn file_root(self: &Arc<Self>) -> Option<FileRoot> {
        let root = self.resident.root()?.try_clone_to_owned().ok()?;
        Some(FileRoot::sandbox(root, Arc::clone(self) as Arc<_>))
    }

    /// Whether commands have a `/proc`. If not, theirs is empty.
    pub(crate) fn has_proc(&self) -> bool {
        self.resident.has_proc()
    }
}

/// Whether only the list of the session refers to the sandbox, and no command runs in it. Commands of a sandbox without namespaces do not
/// count, because they go on without their launcher.
pub(super) fn is_unused(sandbox: &Arc<SessionSandbox>) -> bool {
    sandbox.commands.is_empty() && Arc::strong_count(sandbox) == 1
}

impl FileSandbox for SessionSandbox {
    fn is_placeholder(&self, path: &Path) -> bool {
        let placeholders = self.placeholders.paths();
        // The path may lead through links, and the paths of placeholders do not.
        !placeholders.is_empty() && path.canonicalize().is_ok_and(|real| placeholders.contains(&real))
    }
}
