//! `process/terminate`: the process and everything it started, gone when the answer comes.

use std::sync::Arc;

use protocol::{ProcessId, ProcessIdParams, TerminateResult, WireError};
use spawn::Survivors;
use tokio::time::{Instant, timeout_at};

use super::NamedProcess;
use crate::connection::Call;
use crate::limits::{DELIVERY_PATIENCE, START_PATIENCE};
use crate::process::{Process, Stop};
use crate::server_state::ServerState;
use crate::session::{Session, StartOutcome, StartReservation};

pub(super) fn terminate(call: Call, _: ProcessIdParams, _: &Arc<Session>, named: NamedProcess) {
    terminate_named(call, named);
}

pub(super) fn terminate_named(call: Call, named: NamedProcess) {
    let process = match named {
        NamedProcess::Started(process) => process,
        NamedProcess::Unknown => return call.finish(Ok(TerminateResult { running: false })),
        NamedProcess::NeverStarted(given_up) => {
            return call.finish(given_up.map(|()| TerminateResult { running: true }));
        }
    };
    let running = !process.has_exited();
    process.mark_terminated();
    // Not a task of the connection: what was begun is finished even if the client is gone.
    let shared = Arc::clone(&call.connection.shared);
    shared.clone().tasks.spawn(async move {
        let result = shared.kill(&process).await;
        wait_delivered(&process, Instant::now() + DELIVERY_PATIENCE).await;
        let result = result.map_err(|survivors| not_terminated(&process.id, &survivors));
        call.finish(result.map(|()| TerminateResult { running }));
    });
}

fn not_terminated(id: &ProcessId, survivors: &Survivors) -> WireError {
    WireError::internal(format!("failed to terminate process {id}: {survivors}"))
}

/// Waits until the last event was handed to the connection. What the client lets wait is not waited for.
async fn wait_delivered(process: &Process, deadline: Instant) {
    process.stop(Stop::Drain);
    loop {
        let news = process.changed.notified();
        tokio::pin!(news);
        news.as_mut().enable();
        if process.delivery(|delivery| delivery.is_sent_or_paused()) {
            return;
        }
        if timeout_at(deadline, news).await.is_err() {
            return;
        }
    }
}

/// A terminate waits behind a start. If that one hangs, or still waits for its turn, it is given up: its id is free again, and the terminate
/// is answered when it is certain that the program will not run.
pub(super) fn give_up_start_later(shared: &Arc<ServerState>, session: &Arc<Session>, reservation: StartReservation) {
    let (shared, session) = (Arc::clone(shared), Arc::clone(session));
    shared.clone().tasks.spawn(async move {
        tokio::time::sleep(START_PATIENCE).await;
        let Some(waiting) = session.table.abandon(&reservation) else { return };
        let given_up = shared.kill_cancelled_start(&session, &reservation).await;
        let given_up = given_up.map_err(|survivors| not_terminated(reservation.id(), &survivors));
        for deferred in waiting {
            deferred(StartOutcome::GivenUp(given_up.clone()));
        }
    });
}
