//! The handle to one process.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use protocol::{
    MemoryScope, ProcessId, ProcessIdParams, ReadParams, ReadResult, ResizeParams, SandboxType, Signal, SignalParams,
    StartResult, Stream, WindowSize, WriteStatus, methods,
};
use tokio::sync::watch;

use super::follow::ProcessEvents;
use super::receiver::ExecProcessEventReceiver;
use super::stdio::{ProcessReader, ProcessStdin};
use super::write;
use crate::client_core::{CallOptions, ClientHandle};
use crate::error::ExecServerError;
use crate::records::{ExecProcessEvent, ExitStatus, ProcessOutput, ProcessProgress, ProcessRecord};

/// A process in the environment (the machine of the server).
///
/// The client keeps the output for the first subscriber. Until there is a subscriber, the process has to wait once it
/// has written a few MiB, like a process whose pipe is not read. This needs the extension `processFlow`; without it,
/// the client drops the oldest output. [`wait`](Self::wait) and [`read`](Self::read) discard the kept output, because
/// their callers do not subscribe.
///
/// Dropping the handle kills the process and all its descendants, unless [`detach`](Self::detach) was called.
pub struct ExecProcess {
    handle: Arc<ClientHandle>,
    record: Arc<ProcessRecord>,
    sandbox_type: Option<SandboxType>,
    memory_limit_scope: Option<MemoryScope>,
    /// A subscription from the first event on. The first user who subscribes gets it.
    first_subscription: Mutex<Option<ExecProcessEventReceiver>>,
    /// Sequence number of the last event that the server no longer retained when the client attached to the process.
    /// 0 if there is none.
    skipped_through: u64,
    last_seq_before_attach: u64,
    lost_bytes: u64,
}

impl ExecProcess {
    pub(crate) fn new(handle: &Arc<ClientHandle>, record: &Arc<ProcessRecord>, answer: Option<&StartResult>) -> Self {
        Self {
            handle: Arc::clone(handle),
            record: Arc::clone(record),
            sandbox_type: answer.and_then(|answer| answer.sandbox_type),
            memory_limit_scope: answer.and_then(|answer| answer.memory_limit_scope),
            first_subscription: Mutex::new(Some(ExecProcessEventReceiver::first(handle, record))),
            skipped_through: 0,
            last_seq_before_attach: 0,
            lost_bytes: 0,
        }
    }

    /// A handle to a process that an earlier client has started. The process is detached: it outlives the handle.
    pub(crate) fn attached(
        handle: &Arc<ClientHandle>,
        record: &Arc<ProcessRecord>,
        skipped_through: u64,
        last_seq_before_attach: u64,
        lost_bytes: u64,
    ) -> Self {
        let mut process = Self::new(handle, record, None);
        (process.skipped_through, process.last_seq_before_attach, process.lost_bytes) =
            (skipped_through, last_seq_before_attach, lost_bytes);
        process.detach();
        process
    }

    /// The id with which the process was started. It is unique in the session.
    pub fn process_id(&self) -> &ProcessId {
        &self.record.id
    }

    /// The kind of sandbox around the process. `None` if the server does not say, and after
    /// [`attach`](crate::ExecServerClient::attach).
    pub fn sandbox_type(&self) -> Option<SandboxType> {
        self.sandbox_type
    }

    /// What the limit of memory of the process applies to. `None` if its memory is not limited, and after
    /// [`attach`](crate::ExecServerClient::attach).
    pub fn memory_limit_scope(&self) -> Option<MemoryScope> {
        self.memory_limit_scope
    }

    /// Bytes of output that the server no longer retained when the client attached to the process. 0 for a process
    /// that this client has started.
    pub fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }

    /// Sequence number of the last event that had happened when the client attached to the process: events up to this number are old. 0 for
    /// a process that this client has started.
    pub fn last_seq_before_attach(&self) -> u64 {
        self.last_seq_before_attach
    }

    /// Lets the process outlive this handle and the client, for as long as the server keeps the session.
    pub fn detach(&self) {
        self.record.detach();
        self.handle.core.leaves_processes.store(true, Ordering::Relaxed);
    }

    /// All events, each once and in order, up to the last. Missed events are read from the server.
    pub fn events(&self) -> ProcessEvents {
        ProcessEvents::new(self.subscribe_events(), self.skipped_through)
    }

    /// The events as the server pushes them. A subscriber gets [`EventsLagged`] and has to read the missed events
    /// itself if the client had dropped the first events before the subscription. If the server lacks the extension
    /// `processFlow`, this also happens to a subscriber that is too slow.
    ///
    /// [`EventsLagged`]: crate::EventsLagged
    pub fn subscribe_events(&self) -> ExecProcessEventReceiver {
        let first_subscription = self.first_subscription.lock().take();
        first_subscription.unwrap_or_else(|| ExecProcessEventReceiver::new(&self.handle, &self.record))
    }

    /// Watches the sequence number of the last event, which changes with every event. The receiver is also woken,
    /// without a change of the number, when the client cannot follow the process any longer.
    pub fn subscribe_wake(&self) -> watch::Receiver<u64> {
        self.record.subscribe_wake()
    }

    /// The output of the process on stdout or on its terminal.
    pub fn stdout(&self) -> ProcessReader {
        ProcessReader::new(self.events(), |stream| matches!(stream, Stream::Stdout | Stream::Pty))
    }

    /// The output of the process on stderr. Empty for a process on a terminal.
    pub fn stderr(&self) -> ProcessReader {
        ProcessReader::new(self.events(), |stream| stream == Stream::Stderr)
    }

    /// The stdin of the process.
    pub fn stdin(&self) -> ProcessStdin {
        ProcessStdin::new(&self.handle, &self.record)
    }

    /// Waits until the process has exited, and discards the output if there is no subscriber. Descendants of the
    /// process may still write.
    pub async fn wait(&self) -> Result<ExitStatus, ExecServerError> {
        drop(self.first_subscription.lock().take());
        let mut wake = self.record.subscribe_wake();
        loop {
            wake.borrow_and_update();
            match self.record.progress() {
                ProcessProgress::Exited(exit) if exit.sandbox_denied.is_some() => return Ok(exit.into()),
                // An old server says only in the answer to a read whether the sandbox denied something.
                ProcessProgress::Exited(exit) => {
                    let answer = self.read_after(self.record.last_seq()).await?;
                    return Ok(ExitStatus {
                        sandbox_denied: answer.sandbox_denied,
                        sandbox_denials: answer.sandbox_denials,
                        ..exit.into()
                    });
                }
                ProcessProgress::Failed(text) => return Err(ExecServerError::ProcessFailed(text)),
                ProcessProgress::Running => {}
            }
            if wake.changed().await.is_err() {
                return Err(ExecServerError::Closed);
            }
        }
    }

    /// Collects all output until the process has exited and its streams have ended.
    pub async fn wait_with_output(&self) -> Result<ProcessOutput, ExecServerError> {
        let mut events = self.events();
        let (mut stdout, mut stderr, mut status) = (Vec::new(), Vec::new(), None);
        while let Some(event) = events.next().await {
            match event {
                ExecProcessEvent::Output(output) if output.stream == Stream::Stderr => stderr.extend(output.chunk),
                ExecProcessEvent::Output(output) => stdout.extend(output.chunk),
                ExecProcessEvent::Exited { .. } => status = event.exit_status(),
                ExecProcessEvent::Closed { .. } => {}
                ExecProcessEvent::Failed(text) => return Err(ExecServerError::ProcessFailed(text)),
            }
        }
        match (status, self.record.progress()) {
            (Some(status), _) => Ok(ProcessOutput { status, stdout, stderr }),
            (None, ProcessProgress::Exited(exit)) => Ok(ProcessOutput { status: exit.into(), stdout, stderr }),
            (None, _) => Err(ExecServerError::Protocol("the process closed and never exited".to_owned())),
        }
    }

    /// Reads output that the server retains. [`ReadParams`] explains the parameters. If the client cannot follow the
    /// process any longer, `failure` of the answer says why.
    pub async fn read(
        &self,
        after_seq: Option<u64>,
        max_bytes: Option<u64>,
        wait_ms: Option<u64>,
    ) -> Result<ReadResult, ExecServerError> {
        drop(self.first_subscription.lock().take());
        if let Some(failure) = self.record.failure() {
            return Ok(failed_read(self.record.last_seq(), failure));
        }
        let params = ReadParams { process_id: self.record.id.clone(), after_seq, max_bytes, wait_ms, part: None };
        super::read::read(&self.handle.core, params).await
    }

    async fn read_after(&self, seq: u64) -> Result<ReadResult, ExecServerError> {
        self.read(Some(seq), None, Some(0)).await
    }

    /// Writes to the stdin of the process, each byte once. If a connection is lost, the write goes on over the next
    /// connection.
    pub async fn write(&self, bytes: impl Into<Vec<u8>>) -> Result<WriteStatus, ExecServerError> {
        write::write(&self.handle.core, &self.record, bytes.into()).await
    }

    /// Closes the stdin of the process. Needs the extension `processCloseStdin`.
    pub async fn close_stdin(&self) -> Result<(), ExecServerError> {
        write::close_stdin(&self.handle.core, &self.record.id).await
    }

    /// Sends a signal to the process group. The request is not repeated if the connection is lost before the answer.
    pub async fn signal(&self, signal: Signal) -> Result<(), ExecServerError> {
        let params = SignalParams { process_id: self.record.id.clone(), signal };
        self.handle.core.call_for_user::<methods::ProcessSignal>(&params).await.map(drop)
    }

    /// Changes the size of the terminal of the process. Needs the extension `processResize`.
    pub async fn resize(&self, size: WindowSize) -> Result<(), ExecServerError> {
        let params = ResizeParams { process_id: self.record.id.clone(), size };
        self.handle.core.call::<methods::ProcessResize>(&params, CallOptions::WAIT).await.map(drop)
    }

    /// Kills the process and all its descendants. Returns true if the process was still running.
    pub async fn terminate(&self) -> Result<bool, ExecServerError> {
        let params = ProcessIdParams { process_id: self.record.id.clone() };
        Ok(self.handle.core.call_for_user::<methods::ProcessTerminate>(&params).await?.running)
    }
}

/// The answer to a read of a process that the client cannot follow any longer.
fn failed_read(last_seq: u64, failure: String) -> ReadResult {
    ReadResult { next_seq: last_seq + 1, exited: true, closed: true, failure: Some(failure), ..ReadResult::default() }
}

impl Drop for ExecProcess {
    fn drop(&mut self) {
        if self.record.is_over() {
            return;
        }
        drop(self.first_subscription.get_mut().take());
        self.record.set_handle_dropped();
        // If there are subscribers, the record stays, and they still get all events.
        self.handle.core.inbound.remove_if_unused(&self.record);
        self.handle.core.inbound.terminate_unless_detached(&self.record);
    }
}
