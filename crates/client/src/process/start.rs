//! Starting a process, or attaching to a process that an earlier client of the session has started.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use protocol::{Method, ProcessId, ReadParams, StartParams, StartResult};
use recovery::Exit;

use super::handle::ExecProcess;
use crate::client_core::{ClientCore, ClientHandle};
use crate::error::ExecServerError;
use crate::jobs::BackgroundJob;
use crate::records::{NetworkPolicyDecider, ProcessDecider, ProcessRecord};
use crate::rpc::{CallError, CallSlot, PendingCall};

/// Starts a process. If the connection is lost before the answer, the start fails, and a job kills the process over the next connection.
/// If the answer cannot be decoded, the start fails too, and a job kills the process.
pub(crate) async fn start(
    handle: &Arc<ClientHandle>,
    params: StartParams,
    network_decider: Option<Arc<dyn NetworkPolicyDecider>>,
) -> Result<ExecProcess, ExecServerError> {
    let core = &handle.core;
    // Another server would ignore the limits, and the process would run without them.
    if params.limits.is_some() && !core.capabilities().await?.process_limits {
        return Err(ExecServerError::Protocol("the server cannot limit what a process uses".to_owned()));
    }
    if params.sandbox.is_some() {
        core.uses_sandboxes.store(true, Ordering::Relaxed);
    }
    let params = core.map_paths_of_start(params)?;
    core.wait_for_room_for_job().await?;
    loop {
        let (generation, rpc) = core.rpc(core.options.when_recovering).await?;
        let network_decider = network_decider.clone().map(ProcessDecider::new);
        let record = ProcessRecord::new(params.process_id.clone(), network_decider);
        if !core.inbound.add(&record) {
            // The published protocol prescribes this text. With "session" it means the record of a process.
            let text = format!("session already registered for process {}", record.id);
            return Err(ExecServerError::Protocol(text));
        }
        let mut unfinished = UnfinishedStart { core, record: &record, is_counted: false, call: None };
        unfinished.is_counted = core.link.lock().reconnection.note_start_sent(generation);
        if unfinished.is_counted {
            match rpc.begin(Method::ProcessStart.name(), &params, CallSlot::Ordinary).await {
                Ok(call) => match unfinished.answer(call).await {
                    Ok(result) => {
                        record.set_recoverable();
                        unfinished.succeed();
                        core.inbound.handle(&record, record.publish_early_events());
                        return Ok(ExecProcess::new(handle, &record, Some(&result)));
                    }
                    Err(CallError::Failed(error)) => {
                        // After any answer but a refusal, the process may run, and its sandbox is not known.
                        if !matches!(error, ExecServerError::Server { .. }) {
                            core.inbound.add_job(BackgroundJob::Terminate(record.id.clone()));
                        }
                        return Err(error);
                    }
                    Err(CallError::Lost) => {
                        core.inbound.add_job(BackgroundJob::Terminate(record.id.clone()));
                        return Err(core.lost_call_error(&rpc));
                    }
                    Err(CallError::NotSent) => {}
                },
                Err(CallError::Failed(error)) => return Err(error),
                Err(CallError::Lost | CallError::NotSent) => {}
            }
        }
        // The request was not sent. It is sent over the next connection.
        drop(unfinished);
        core.wait_while_current(generation).await;
    }
}

/// A start that has not succeeded yet. Dropping the value removes the record. If the request was sent and not
/// answered, a job then waits for the answer and kills the process.
struct UnfinishedStart<'a> {
    core: &'a ClientCore,
    record: &'a Arc<ProcessRecord>,
    /// Whether the start counts as in flight, so that `note_start_finished` must be called once.
    is_counted: bool,
    /// Set while the answer is awaited.
    call: Option<PendingCall>,
}

impl UnfinishedStart<'_> {
    /// Waits for the answer. If the future is dropped, `self` still holds the call.
    async fn answer(&mut self, call: PendingCall) -> Result<StartResult, CallError> {
        let call = self.call.insert(call);
        let answer = call.wait().await;
        self.call = None;
        answer
    }

    fn succeed(mut self) {
        self.note_finished();
        std::mem::forget(self);
    }

    fn note_finished(&mut self) {
        if std::mem::take(&mut self.is_counted) {
            self.core.note_start_finished();
        }
    }
}

impl Drop for UnfinishedStart<'_> {
    fn drop(&mut self) {
        self.core.inbound.remove(self.record);
        match self.call.take() {
            // The caller has dropped its future. A job waits for the answer instead.
            Some(call) => {
                self.core.inbound.add_job(BackgroundJob::AbandonedStart { process: self.record.id.clone(), call });
            }
            None => self.note_finished(),
        }
    }
}

/// Attaches to a process of a resumed session. Output that the server no longer retains is skipped and counted. The
/// record of the process (the client's state of it) is added before the first read, because the server pushes events
/// right after its answer to that read and counts them as received.
pub(crate) async fn attach(
    handle: &Arc<ClientHandle>,
    process_id: ProcessId,
) -> Result<ExecProcess, ExecServerError> {
    let core = &handle.core;
    let record = ProcessRecord::of_resumed(process_id);
    if !core.inbound.add(&record) {
        // The same text as in `start`.
        return Err(ExecServerError::Protocol(format!("session already registered for process {}", record.id)));
    }
    let remove_on_drop = RemoveOnDrop { core, record: Some(&record) };
    let answer = super::read::read(core, ReadParams::after(record.id.clone(), 0)).await?;
    let skipped_through = if answer.gap { answer.oldest_seq.unwrap_or(answer.next_seq).saturating_sub(1) } else { 0 };
    let lost_bytes = if answer.gap { answer.dropped_bytes.unwrap_or(0) } else { 0 };
    if let (Some(exit), Some(seq)) = (Exit::of_answer(&answer), answer.exit_seq)
        && seq <= skipped_through
    {
        // The exit event was skipped, so the record learns about the exit from the answer.
        record.note_exit(exit);
    }
    let last_seq_before_attach = answer.next_seq.saturating_sub(1);
    record.skip(skipped_through, lost_bytes);
    record.set_recoverable();
    let consequence = record.catch_up(answer).map_err(|error| ExecServerError::ProcessFailed(error.to_string()))?;
    remove_on_drop.disarm();
    let process = ExecProcess::attached(handle, &record, skipped_through, last_seq_before_attach, lost_bytes);
    core.inbound.handle(&record, consequence);
    Ok(process)
}

/// Removes the record of a process when attaching fails or is given up.
struct RemoveOnDrop<'a> {
    core: &'a ClientCore,
    record: Option<&'a Arc<ProcessRecord>>,
}

impl RemoveOnDrop<'_> {
    fn disarm(mut self) {
        self.record = None;
    }
}

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(record) = self.record {
            self.core.inbound.remove(record);
        }
    }
}
