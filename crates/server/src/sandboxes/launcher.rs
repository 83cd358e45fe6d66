//! Starts the launchers of sandboxes. A launcher is a process of the server's own program that makes a sandbox and then starts commands
//! in it (see the crate `sandbox`). This module also remembers whether the machine allows namespaces.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sandbox::{EnforcementPlan, ResidentSandbox};
use spawn::{CancelFlag, Child, ChildIo, SessionTags, Signal, SpawnCommand, SpawnError, Spawner, Stdio};
use tokio::runtime::Handle;

use super::in_the_way::AllSandboxes;
use super::refusal::SandboxRefusal;
use crate::placeholder_list::PlaceholderList;

/// How long Landlock is used where namespaces were refused, before namespaces are tried again.
const NAMESPACES_RETRY_TIME: Duration = Duration::from_secs(60);

/// Starts the launcher of a sandbox as a process of the session that uses it, for all sessions of a server.
pub(crate) struct LauncherFactory {
    program: PathBuf,
    args: Vec<String>,
    spawner: Arc<Spawner>,
    /// The runtime that watches the launchers.
    runtime: Handle,
    tmpdir: Option<OsString>,
    placeholders: Arc<PlaceholderList>,
    all: Arc<AllSandboxes>,
    /// The time of the last attempt to make a sandbox of namespaces, if this machine did not allow it. None if that attempt had any other
    /// result.
    namespaces_refused_at: Mutex<Option<Instant>>,
}

impl LauncherFactory {
    /// Must be called inside the tokio runtime that is to watch the launchers. `program` and `args` come from the configuration.
    pub(crate) fn new(
        (program, args): (PathBuf, Vec<String>),
        spawner: Arc<Spawner>,
        tmpdir: Option<OsString>,
    ) -> Self {
        let placeholders = PlaceholderList::new(spawner.guard_notes());
        Self {
            program,
            args,
            spawner,
            runtime: Handle::current(),
            tmpdir,
            all: AllSandboxes::new(Arc::clone(&placeholders)),
            placeholders,
            namespaces_refused_at: Mutex::default(),
        }
    }

    /// The sandboxes of all sessions.
    pub(crate) fn all_sandboxes(&self) -> Arc<AllSandboxes> {
        Arc::clone(&self.all)
    }

    /// The variable `TMPDIR` of the server, for policies of file operations that refer to it.
    pub(super) fn tmpdir(&self) -> Option<&OsStr> {
        self.tmpdir.as_deref()
    }

    /// The paths at which sandboxes of this server use placeholders.
    pub(super) fn placeholders(&self) -> Arc<PlaceholderList> {
        Arc::clone(&self.placeholders)
    }

    /// Whether this machine has just refused to make namespaces. The reason may pass, for example if other programs have used up all
    /// namespaces of the user.
    pub(super) fn lacks_namespaces(&self) -> bool {
        self.namespaces_refused_at.lock().is_some_and(|refused_at| refused_at.elapsed() < NAMESPACES_RETRY_TIME)
    }

    /// Starts a launcher and lets it make the sandbox.
    pub(super) fn build(
        &self,
        plan: &EnforcementPlan,
        tags: &SessionTags,
    ) -> Result<(ResidentSandbox, LauncherProcess), SandboxRefusal> {
        let _inside_runtime = self.runtime.enter();
        let command = SpawnCommand {
            argv: [self.program.clone().into()].into_iter().chain(self.args.iter().map(Into::into)).collect(),
            arg0: None,
            // Variables can change what a program does, for example which libraries it loads. Only the command gets those of the client.
            env: Vec::new(),
            cwd: "/".into(),
            stdio: Stdio::Socket { descriptor: sandbox::SOCKET_FD },
            umask: None,
            limits: None,
        };
        // With a tag, the launcher is killed with its session, and by the guard.
        let spawned = self.spawner.spawn(&command, tags.next(), &Arc::<CancelFlag>::default());
        let spawned = spawned.map_err(SandboxRefusal::Launcher)?;
        let launcher = LauncherProcess(spawned.child);
        let ChildIo::Socket(socket) = spawned.io else { return Err(SandboxRefusal::Launcher(SpawnError::Cancelled)) };
        let built = ResidentSandbox::build(socket, plan).map_err(SandboxRefusal::Build);
        if let EnforcementPlan::Namespaces(_) = plan {
            let is_missing = |error: &SandboxRefusal| error.missing_namespaces().is_some();
            *self.namespaces_refused_at.lock() = built.as_ref().is_err_and(is_missing).then(Instant::now);
        }
        Ok((built?, launcher))
    }
}

/// The process of a launcher. A launcher ends when its socket is closed, but not while somebody has stopped it. So it is also killed.
pub(super) struct LauncherProcess(Child);

impl Drop for LauncherProcess {
    fn drop(&mut self) {
        let _has_ended = self.0.signal(Signal::KILL);
    }
}
