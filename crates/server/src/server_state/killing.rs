//! Kills processes and what they have started, once for a caller that is told of survivors, and again and again where nobody is.

use std::sync::Arc;
use std::time::Duration;

use spawn::{Child, KillFuture, SurvivalReason, Survivors, Tag};

use super::ServerState;
use crate::process::{Process, Stop};
use crate::session::{Session, StartReservation};

/// How long a kill that has failed and of which nobody is told waits before it is tried again, at first and at most. Each try costs
/// looks at all processes of the machine.
const KILL_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

impl ServerState {
    /// Kills a process and everything it started; returns when they are gone and the process has been reaped.
    pub(crate) async fn kill(&self, process: &Process) -> Result<(), Survivors> {
        self.spawner.kill_tree(process.tag, self.config.kill_patience).await?;
        process.wait_reaped().await;
        process.stop(Stop::Drain);
        Ok(())
    }

    /// `session` is that of the process; none if it is over.
    pub(crate) fn kill_in_background(self: &Arc<Self>, process: Arc<Process>, session: Option<Arc<Session>>) {
        let shared = Arc::clone(self);
        self.tasks.spawn(async move {
            // The tag of the process is not given to another process while its session exists.
            let _session = session;
            let kill = || shared.spawner.kill_tree(process.tag, shared.config.kill_patience);
            if shared.kill_until_gone(kill).await {
                process.wait_reaped().await;
                process.stop(Stop::Drain);
            }
        });
    }

    /// Kills what is left of a tree whose process is closed.
    pub(crate) fn end_rest_in_background(self: &Arc<Self>, tag: Tag, session: Arc<Session>) {
        let shared = Arc::clone(self);
        self.tasks.spawn(async move {
            shared.kill_until_gone(|| shared.spawner.kill_tree(tag, shared.config.kill_patience)).await;
            drop(session);
        });
    }

    /// Kills what a start has made that was cancelled before. When this is over, it is certain that its program does not run, unless there
    /// are survivors: those are killed again and again.
    pub(crate) async fn kill_cancelled_start(
        self: &Arc<Self>,
        session: &Arc<Session>,
        reservation: &StartReservation,
    ) -> Result<(), Survivors> {
        let killed = self.spawner.kill_tree(reservation.tag, self.config.kill_patience).await;
        if killed.is_err() {
            self.end_rest_in_background(reservation.tag, Arc::clone(session));
        }
        killed
    }

    /// Kills a process that nobody wants any more and that has no place in a table.
    pub(crate) async fn kill_unclaimed(&self, child: &Child, tag: Tag) {
        if let Err(survivors) = self.spawner.kill_tree(tag, self.config.kill_patience).await {
            tracing::warn!(pid = child.pid(), "{survivors}");
        }
        child.wait().await;
    }

    /// Kills again and again until nobody is left, or nobody but processes of another user. For kills whose failure nobody is told, so that
    /// nobody else would try again. At the end of the server everything is killed anyway. False if somebody may be left.
    pub(super) async fn kill_until_gone(&self, kill: impl Fn() -> KillFuture) -> bool {
        let (mut pause, longest_pause) = KILL_PAUSES;
        while let Err(survivors) = kill().await {
            tracing::warn!("{survivors}");
            if matches!(survivors.reason, SurvivalReason::NotPermitted) {
                return false;
            }
            if self.closing.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return false;
            }
            pause = longest_pause.min(pause * 2);
        }
        true
    }
}
