//! `process/read`: returns the retained output after an event that the client names. If there is no later event yet,
//! the request can wait for one.

use std::sync::Arc;
use std::time::Duration;

use protocol::{Base64Bytes, OutputChunk, ReadParams, ReadResult, SandboxDenial};
use session::{CHUNK_OVERHEAD_BYTES, EventLog, Page, PartOfChunk, ReadAnswer};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use super::{NamedProcess, check_access, unknown_process};
use crate::connection::Call;
use crate::outbound::CoveredEvents;
use crate::process::Process;
use crate::session::Session;

pub(super) fn read(call: Call, params: ReadParams, session: &Arc<Session>, named: NamedProcess) {
    let Some(process) = named.process() else {
        return call.finish::<()>(Err(unknown_process(&params.process_id)));
    };
    let after = params.after_seq.unwrap_or(0);
    let wait = Duration::from_millis(params.wait_ms.unwrap_or(0)).min(call.connection.shared.config.max_wait);
    let session = Arc::clone(session);
    let connection = Arc::clone(&call.connection);
    if wait.is_zero() || process.delivery(|delivery| delivery.log().has_news_after(after)) {
        // `read_answers` limits the unsent answers to reads. Mostly there is a permit at once, so no task is needed.
        if let Ok(permit) = Arc::clone(&connection.read_answers).try_acquire_owned() {
            return answer(call, &process, &session, &params, permit);
        }
    }
    connection.spawn(async move {
        tokio::select! {
            () = wait_for_events(&process, after, Instant::now() + wait) => {}
            () = call.connection.input_ended() => {}
        }
        let Ok(permit) = Arc::clone(&call.connection.read_answers).acquire_owned().await else { return };
        match check_access(&call.connection, &session) {
            Ok(()) => answer(call, &process, &session, &params, permit),
            Err(error) => call.finish::<()>(Err(error)),
        }
    });
}

/// Waits until the process has events after the sequence number `after`, or until the deadline. Waiting begins before the check, so that no
/// event between the two is missed.
async fn wait_for_events(process: &Process, after: u64, deadline: Instant) {
    loop {
        let changed = process.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        if process.delivery(|delivery| delivery.log().has_news_after(after)) {
            return;
        }
        if timeout_at(deadline, changed).await.is_err() {
            return;
        }
    }
}

fn answer(call: Call, process: &Arc<Process>, session: &Session, params: &ReadParams, permit: OwnedSemaphorePermit) {
    let reader = call.connection.number();
    // `catches_up`: the server has learned from this read which events the client has, so it sends the later events
    // as notifications.
    let (result, covers, catches_up) = process.delivery(|delivery| {
        let known_part = params.part.map(|part| PartOfChunk { seq: part.seq, offset: part.offset });
        let after = params.after_seq.unwrap_or(0);
        let ReadAnswer { page, catches_up } = delivery.read(reader, after, params.max_bytes, known_part);
        let covers = catches_up.then(|| CoveredEvents {
            process: Arc::clone(process),
            through: page.next_seq - 1,
            output_bytes: page.chunks.iter().map(|chunk| chunk.bytes.len() + CHUNK_OVERHEAD_BYTES).sum(),
        });
        (read_result(delivery.log(), page, process.denials.list()), covers, catches_up)
    });
    let outbound = Arc::clone(&call.connection.outbound);
    let is_partial = result.partial;
    let is_queued = call.finish_covering(Ok(result), covers, Some(permit.into()));
    // A client that has read only a part of a chunk is still catching up.
    if catches_up || is_partial {
        outbound.note_catch_up();
    }
    if catches_up {
        process.delivery(|delivery| {
            if is_queued { delivery.note_answer_queued(reader) } else { delivery.note_answer_refused(reader) }
        });
        session.queue_if_ready(process);
        // The request has acknowledged earlier events, so the event log may have room for more output.
        process.wake_task();
    }
}

fn read_result(log: &EventLog, page: Page, sandbox_denials: Vec<SandboxDenial>) -> ReadResult {
    let exit = log.exit_event();
    let chunks = page.chunks.into_iter().map(|chunk| OutputChunk {
        seq: chunk.seq,
        stream: chunk.stream,
        chunk: Base64Bytes(chunk.bytes.to_vec()),
    });
    ReadResult {
        chunks: chunks.collect(),
        next_seq: page.next_seq,
        exited: exit.is_some(),
        exit_code: exit.map(|(_, exit)| exit.code),
        closed: log.is_closed(),
        failure: None,
        sandbox_denied: exit.is_some_and(|(_, exit)| exit.sandbox_denied),
        sandbox_denials: if exit.is_some() { sandbox_denials } else { Vec::new() },
        oldest_seq: log.oldest_seq(),
        exit_seq: exit.map(|(seq, _)| seq),
        timed_out: exit.is_some_and(|(_, exit)| exit.timed_out),
        usage: exit.and_then(|(_, exit)| exit.resources.usage),
        limit_reached: exit.and_then(|(_, exit)| exit.resources.limit_reached),
        gap: page.gap,
        dropped_bytes: page.gap.then(|| log.dropped_bytes()),
        partial: page.is_partial,
    }
}
