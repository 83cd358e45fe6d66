//! Kills process trees: processes with everything that they have started. A tree is found by its tag, a number that
//! all descendants of a process inherit. A kill for which the caller waits is tried once, and survivors are returned
//! or logged. A kill in the background is repeated; see [`ServerState::kill_until_gone`].

use std::sync::Arc;
use std::time::Duration;

use spawn::{Child, KillFuture, SurvivalReason, Survivors, Tag};

use super::ServerState;
use crate::process::{Process, StopRequest};
use crate::session::{Session, StartReservation};

/// Pause before a failed background kill is tried again. The pause doubles up to [`LONGEST_KILL_PAUSE`], because each attempt reads the
/// `/proc` entries of all processes of the machine.
const FIRST_KILL_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_KILL_PAUSE: Duration = Duration::from_secs(30);

impl ServerState {
    /// Kills a process and everything that it has started. Returns when all of them have ended and the process has
    /// been reaped. Then the process task closes the process, even if another process holds its pipes open.
    pub(crate) async fn kill(&self, process: &Process) -> Result<(), Survivors> {
        self.spawner.kill_tree(process.tag, self.config.kill_patience).await?;
        process.wait_reaped().await;
        process.stop(StopRequest::Drain);
        Ok(())
    }

    /// Kills a process and everything that it has started, in the background. `session` is the session of the process; None if it has
    /// ended.
    pub(crate) fn kill_in_background(self: &Arc<Self>, process: Arc<Process>, session: Option<Arc<Session>>) {
        let shared = Arc::clone(self);
        self.tasks.spawn(async move {
            // While the session exists, the tag of the process is not given to another process.
            let _session = session;
            let kill = || shared.spawner.kill_tree(process.tag, shared.config.kill_patience);
            if shared.kill_until_gone(kill).await {
                process.wait_reaped().await;
                process.stop(StopRequest::Drain);
            }
        });
    }

    /// Kills, in the background, all processes with this tag: descendants that a closed process has left running, or
    /// processes of a start that has failed or was cancelled.
    pub(crate) fn kill_leftovers_in_background(self: &Arc<Self>, tag: Tag, session: Arc<Session>) {
        let shared = Arc::clone(self);
        self.tasks.spawn(async move {
            // `session` lives until the kill is done, so that the tag is not given to another process before.
            shared.kill_until_gone(|| shared.spawner.kill_tree(tag, shared.config.kill_patience)).await;
            drop(session);
        });
    }

    /// Kills the processes of a start after its cancellation. If this returns `Ok`, the program certainly does not
    /// run. If processes survive, they are also killed again in the background.
    pub(crate) async fn kill_cancelled_start(
        self: &Arc<Self>,
        session: &Arc<Session>,
        reservation: &StartReservation,
    ) -> Result<(), Survivors> {
        let killed = self.spawner.kill_tree(reservation.tag, self.config.kill_patience).await;
        if killed.is_err() {
            self.kill_leftovers_in_background(reservation.tag, Arc::clone(session));
        }
        killed
    }

    /// Kills a process that is in no process table: its start was cancelled meanwhile, or it is the shell of a
    /// snapshot. Survivors are only logged. Returns after `child` has ended.
    pub(crate) async fn kill_unclaimed(&self, child: &Child, tag: Tag) {
        // In a sandbox, the first process of the PID namespace ends only after the child was reaped.
        let (killed, _) = tokio::join!(self.spawner.kill_tree(tag, self.config.kill_patience), child.wait());
        if let Err(survivors) = killed {
            tracing::warn!(pid = child.pid(), "{survivors}");
        }
    }

    /// Calls `kill` again and again until no process is left. Gives up and returns false if only processes of another user are left, or if
    /// the server shuts down, when all processes are killed anyway.
    pub(super) async fn kill_until_gone(&self, kill: impl Fn() -> KillFuture) -> bool {
        let mut pause = FIRST_KILL_PAUSE;
        while let Err(survivors) = kill().await {
            tracing::warn!("{survivors}");
            if matches!(survivors.reason, SurvivalReason::NotPermitted) {
                return false;
            }
            if self.closing.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return false;
            }
            pause = LONGEST_KILL_PAUSE.min(pause * 2);
        }
        true
    }
}
