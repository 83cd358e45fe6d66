//! Starts and kills the login shell from which a shell snapshot is captured: the variables, aliases and functions
//! that the profile of the user sets (see `snapshot.rs`). The shell is a process of the session that no client sees.

use std::sync::Arc;

use spawn::{Child, SpawnCommand, SpawnError, Spawned, Tag};

use crate::sandboxes::SessionSandbox;
use crate::server_state::ServerState;
use crate::session::Session;
use crate::snapshot::ShellRunner;
use crate::start_cancel::StartCancel;
use crate::starter::{StartPlace, StartRefusal};

/// Starts and kills one capture shell, as a process of `session`.
pub(super) struct SessionShell<'a> {
    shared: &'a Arc<ServerState>,
    session: &'a Session,
    /// Marks the shell and its descendants, so that all of them can be found and killed.
    tag: Tag,
    /// The sandbox of the command, in which the shell runs too.
    sandbox: Option<Arc<SessionSandbox>>,
}

impl<'a> SessionShell<'a> {
    pub(super) fn new(
        shared: &'a Arc<ServerState>,
        session: &'a Session,
        sandbox: Option<Arc<SessionSandbox>>,
    ) -> Self {
        Self { shared, session, tag: session.tags.next(), sandbox }
    }
}

impl ShellRunner for SessionShell<'_> {
    async fn start(&self, command: SpawnCommand, cancel: &StartCancel) -> Option<Result<Spawned, SpawnError>> {
        let place = self.sandbox.clone().map_or(StartPlace::Host, StartPlace::Sandbox);
        let started = self.shared.starter.start(self.session.job_owner(), command, self.tag, cancel, place).await;
        // Nobody wants to know what the shell was refused. Without the descriptor of its filter, which is dropped here, the kernel fails
        // refused calls with ENOSYS.
        Some(started?.map(|started| started.spawned).map_err(|refusal| match refusal {
            StartRefusal::Spawn(error) => error,
            // The sandbox exists already.
            StartRefusal::Sandbox(_) => SpawnError::Cancelled,
        }))
    }

    fn kill_in_background(&self, shell: Child) {
        let (shared, tag) = (Arc::clone(self.shared), self.tag);
        self.shared.tasks.spawn(async move { shared.kill_unclaimed(&shell, tag).await });
    }
}
