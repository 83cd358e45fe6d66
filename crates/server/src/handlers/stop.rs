//! `process/terminate`: kills a process and everything that it has started. When all of them have ended, the last
//! events are sent, for at most [`DELIVERY_PATIENCE`]. Then comes the answer; it is an error if a process survives.

use std::sync::Arc;

use protocol::{ProcessId, ProcessIdParams, TerminateResult, WireError};
use spawn::Survivors;
use tokio::time::{Instant, timeout_at};

use super::NamedProcess;
use crate::connection::Call;
use crate::limits::{DELIVERY_PATIENCE, START_PATIENCE};
use crate::process::{Process, StopRequest};
use crate::server_state::ServerState;
use crate::session::{Session, StartOutcome, StartReservation};

pub(super) fn terminate(call: Call, _: ProcessIdParams, _: &Arc<Session>, named: NamedProcess) {
    terminate_named(call, named);
}

/// As [`terminate`], for a method with other params (`command/exec/terminate`).
pub(super) fn terminate_named(call: Call, named: NamedProcess) {
    let process = match named {
        NamedProcess::Started(process) => process,
        NamedProcess::Unknown => return call.finish(Ok(TerminateResult { running: false })),
        // The start was under way when the request arrived, so the client is told that the process was running.
        NamedProcess::NeverStarted(killed) => {
            return call.finish(killed.map(|()| TerminateResult { running: true }));
        }
    };
    let running = !process.has_exited();
    process.mark_terminated();
    // A task of the server and not of the connection: the kill is finished even if the connection ends.
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

/// Makes the process task read the rest of the output and close the process. Then waits until the last event was
/// handed to the connection, or until the deadline. Paused events are not waited for.
async fn wait_delivered(process: &Process, deadline: Instant) {
    process.stop(StopRequest::Drain);
    loop {
        let changed = process.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        if process.delivery(|delivery| delivery.is_sent_or_paused()) {
            return;
        }
        if timeout_at(deadline, changed).await.is_err() {
            return;
        }
    }
}

/// Called for a `process/terminate` that waits for the start of its process. If the start is not done after
/// [`START_PATIENCE`], it is cancelled and its id is free again. The requests that waited for the start, among them
/// the `process/terminate`, are answered when it is certain that the program will not run, or that it cannot be
/// killed.
pub(super) fn cancel_start_later(shared: &Arc<ServerState>, session: &Arc<Session>, reservation: StartReservation) {
    let (shared, session) = (Arc::clone(shared), Arc::clone(session));
    shared.clone().tasks.spawn(async move {
        tokio::time::sleep(START_PATIENCE).await;
        let Some(waiting) = session.table.abandon(&reservation) else { return };
        let killed = shared.kill_cancelled_start(&session, &reservation).await;
        let killed = killed.map_err(|survivors| not_terminated(reservation.id(), &survivors));
        for deferred in waiting {
            deferred(StartOutcome::Cancelled(killed.clone()));
        }
    });
}
