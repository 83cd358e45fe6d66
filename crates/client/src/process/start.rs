//! Starting a process, or taking up one that runs, and talking to its stdin.

use std::sync::Arc;
use std::time::Duration;

use protocol::{
    Base64Bytes, Method, ProcessId, ProcessIdParams, ReadParams, StartParams, StartResult, WriteParams, WriteResult,
    WriteStatus, error_kind, methods,
};
use recovery::{Exit, WriteSize};

use super::entry::Entry;
use super::handle::ExecProcess;
use crate::client::Handle;
use crate::error::ExecServerError;
use crate::job::Job;
use crate::rpc::{CallError, PendingCall, Slot};
use crate::shared::{CallOptions, Shared};

/// How long a write waits before it is sent again to a server that has no room for input. Each further wait is twice as long.
const FIRST_CROWDED_PAUSE: Duration = Duration::from_millis(10);
/// The longest of these waits: a process that reads again is given input within this time.
const LONGEST_CROWDED_PAUSE: Duration = Duration::from_secs(1);

/// Starts a process. If the connection ends before the answer, the process is not adopted: it is ended over the next connection.
pub(crate) async fn start(handle: &Arc<Handle>, params: StartParams) -> Result<ExecProcess, ExecServerError> {
    let shared = &handle.shared;
    let params = shared.to_remote(params)?;
    loop {
        let (generation, rpc) = shared.rpc(shared.options.when_recovering).await?;
        let entry = Entry::new(params.process_id.clone());
        if !shared.inbound.add(&entry) {
            let text = format!("session already registered for process {}", entry.id);
            return Err(ExecServerError::Protocol(text));
        }
        let mut unfinished = Unfinished { shared, entry: &entry, has_begun: false, call: None };
        unfinished.has_begun = shared.link.lock().link.start_began(generation);
        if unfinished.has_begun {
            match rpc.begin(Method::ProcessStart.name(), &params, Slot::Ordinary).await {
                Ok(call) => match unfinished.answer(call).await {
                    Ok(result) => {
                        entry.set_recoverable();
                        unfinished.succeed();
                        shared.inbound.handle(&entry, entry.look_again());
                        return Ok(ExecProcess::new(handle, &entry, result.sandbox_type));
                    }
                    Err(CallError::Failed(error)) => return Err(error),
                    Err(CallError::Lost) => {
                        shared.inbound.job(Job::Terminate(entry.id.clone()));
                        return Err(shared.lost(&rpc));
                    }
                    Err(CallError::NotSent) => {}
                },
                Err(CallError::Failed(error)) => return Err(error),
                Err(CallError::Lost | CallError::NotSent) => {}
            }
        }
        drop(unfinished);
        shared.has_left(generation).await;
    }
}

/// A start that has not succeeded: dropping it, at whatever point, leaves nothing behind.
struct Unfinished<'a> {
    shared: &'a Shared,
    entry: &'a Arc<Entry>,
    has_begun: bool,
    call: Option<PendingCall>,
}

impl Unfinished<'_> {
    async fn answer(&mut self, call: PendingCall) -> Result<StartResult, CallError> {
        let call = self.call.insert(call);
        let answer = call.wait().await;
        self.call = None;
        answer
    }

    fn succeed(mut self) {
        self.settle();
        std::mem::forget(self);
    }

    fn settle(&mut self) {
        if std::mem::take(&mut self.has_begun) {
            self.shared.start_settled();
        }
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.shared.inbound.remove(self.entry);
        match self.call.take() {
            // The caller has gone away. Whoever waits for the answer in its place settles the start.
            Some(call) => self.shared.inbound.job(Job::AbandonedStart { process: self.entry.id.clone(), call }),
            None => self.settle(),
        }
    }
}

/// Takes up a process of a resumed session. What is no longer retained of its output is skipped, and counted. Its events are taken from
/// before the first read on: the server takes for received what it has pushed behind the answer.
pub(crate) async fn attach(handle: &Arc<Handle>, process_id: ProcessId) -> Result<ExecProcess, ExecServerError> {
    let shared = &handle.shared;
    let entry = Entry::of_others(process_id);
    if !shared.inbound.add(&entry) {
        return Err(ExecServerError::Protocol(format!("session already registered for process {}", entry.id)));
    }
    let removed_if_dropped = RemoveOnDrop { shared, entry: Some(&entry) };
    let answer = super::read::read(shared, ReadParams::after(entry.id.clone(), 0)).await?;
    let skipped = if answer.gap { answer.oldest_seq.unwrap_or(answer.next_seq).saturating_sub(1) } else { 0 };
    let lost = if answer.gap { answer.dropped_bytes.unwrap_or(0) } else { 0 };
    if let (true, Some(code), Some(seq)) = (answer.exited, answer.exit_code, answer.exit_seq)
        && seq <= skipped
    {
        entry.note_exit(Exit { code, sandbox_denied: Some(answer.sandbox_denied), timed_out: answer.timed_out });
    }
    let taken_up_after = answer.next_seq.saturating_sub(1);
    entry.skip(skipped, lost);
    entry.set_recoverable();
    let consequence = entry.catch_up(answer).map_err(|error| ExecServerError::ProcessFailed(error.to_string()))?;
    removed_if_dropped.disarm();
    let process = ExecProcess::attached(handle, &entry, skipped, taken_up_after, lost);
    shared.inbound.handle(&entry, consequence);
    Ok(process)
}

/// A process whose taking up is given up is not followed.
struct RemoveOnDrop<'a> {
    shared: &'a Shared,
    entry: Option<&'a Arc<Entry>>,
}

impl RemoveOnDrop<'_> {
    fn disarm(mut self) {
        self.entry = None;
    }
}

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            self.shared.inbound.remove(entry);
        }
    }
}

/// Writes once, over as many connections as it takes, and in pieces where a connection or a message does not carry the whole. While the
/// server has no room for input, the write waits and is sent again. No other write of this client comes between the pieces. If the call is
/// dropped, the process may have got the first of them.
pub(crate) async fn write(shared: &Shared, entry: &Entry, bytes: Vec<u8>) -> Result<WriteStatus, ExecServerError> {
    // A write of the smallest size is never divided, so nobody needs to know.
    let can_be_divided = bytes.len() <= WriteSize::LEAST_BYTES || shared.capabilities().await?.process_write_query;
    let mut rest = bytes.as_slice();
    let _alone = entry.writing.lock().await;
    let (mut most_if_crowded, mut pause) = (usize::MAX, FIRST_CROWDED_PAUSE);
    loop {
        let most = shared.write_size.lock().bytes(can_be_divided).min(most_if_crowded);
        let (piece, others) = rest.split_at(most.min(rest.len()));
        match write_piece(shared, entry, piece, can_be_divided).await {
            // It has not arrived: what is sent next is smaller.
            Ok(None) => {}
            Ok(Some(WriteStatus::Accepted)) if !others.is_empty() => (rest, pause) = (others, FIRST_CROWDED_PAUSE),
            Ok(Some(status)) => return Ok(status),
            Err(error) if error.is_of_kind(error_kind::INPUT_CROWDED) => {
                most_if_crowded = WriteSize::FAIR_BYTES;
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_CROWDED_PAUSE);
            }
            Err(error) if error.is_of_kind(error_kind::MESSAGE_TOO_LARGE) => {
                if !shared.write_size.lock().handle_too_large(piece.len()) {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// None: the server has not taken it.
async fn write_piece(
    shared: &Shared,
    entry: &Entry,
    piece: &[u8],
    can_be_divided: bool,
) -> Result<Option<WriteStatus>, ExecServerError> {
    let (process_id, write_id) = (entry.id.clone(), Some(entry.next_write_id()));
    let mut params = WriteParams { process_id, chunk: Base64Bytes(piece.to_vec()), write_id };
    if let Some(WriteResult { status, .. }) =
        shared.call_until_lost::<methods::ProcessWrite>(&params, CallOptions::WAIT).await?
    {
        shared.write_size.lock().handle_taken(piece.len());
        return Ok(Some(status));
    }
    shared.write_size.lock().handle_lost();
    if can_be_divided && piece.len() > WriteSize::LEAST_BYTES {
        // A write of nothing under the same id only asks. Sent to a server over a newer connection, the answer is final: what comes over an
        // older one is not taken any more.
        params.chunk = Base64Bytes(Vec::new());
        let known = shared.call::<methods::ProcessWrite>(&params, CallOptions::WAIT).await?;
        return Ok(match known {
            WriteResult { status: WriteStatus::Accepted, repeated: false } => None,
            WriteResult { status, .. } => Some(status),
        });
    }
    let result = shared.call::<methods::ProcessWrite>(&params, CallOptions::WAIT).await?;
    shared.write_size.lock().handle_taken(piece.len());
    Ok(Some(result.status))
}

/// Ends the stdin; ending it again changes nothing.
pub(crate) async fn close_stdin(shared: &Shared, process_id: &ProcessId) -> Result<(), ExecServerError> {
    let params = ProcessIdParams { process_id: process_id.clone() };
    shared.call::<methods::ProcessCloseStdin>(&params, CallOptions::WAIT).await.map(drop)
}
