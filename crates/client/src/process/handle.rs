//! A handle to one process.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use protocol::{
    ProcessId, ProcessIdParams, ReadParams, ReadResult, ResizeParams, SandboxType, Signal, SignalParams, Stream,
    WindowSize, WriteStatus, methods,
};
use tokio::sync::watch;

use super::entry::{Entry, Progress};
use super::event::ExecProcessEvent;
use super::follow::ProcessEvents;
use super::outcome::{ExitStatus, ProcessOutput};
use super::receiver::ExecProcessEventReceiver;
use super::stdio::{ProcessReader, ProcessStdin};
use crate::client::Handle;
use crate::error::ExecServerError;
use crate::shared::CallOptions;

/// A process in the environment.
///
/// Its output is kept for whoever subscribes first; until then, as with a pipe nobody reads, the process waits once it has written a few
/// MiB. [`wait`](Self::wait) and [`read`](Self::read) say that nobody will subscribe.
///
/// Dropping the handle ends the process and everything it has started, unless [`detach`](Self::detach) was called.
pub struct ExecProcess {
    handle: Arc<Handle>,
    entry: Arc<Entry>,
    sandbox_type: Option<SandboxType>,
    /// Sees everything from the beginning; the first subscriber gets it.
    first: Mutex<Option<ExecProcessEventReceiver>>,
    /// Events before this one were gone when the process was taken up.
    skipped: u64,
    /// The last event that had happened when the process was taken up.
    taken_up_after: u64,
    lost_bytes: u64,
}

impl ExecProcess {
    pub(crate) fn new(handle: &Arc<Handle>, entry: &Arc<Entry>, sandbox_type: Option<SandboxType>) -> Self {
        Self {
            handle: Arc::clone(handle),
            entry: Arc::clone(entry),
            sandbox_type,
            first: Mutex::new(Some(ExecProcessEventReceiver::first(handle, entry))),
            skipped: 0,
            taken_up_after: 0,
            lost_bytes: 0,
        }
    }

    /// A process that was running before.
    pub(crate) fn attached(
        handle: &Arc<Handle>,
        entry: &Arc<Entry>,
        skipped: u64,
        taken_up_after: u64,
        lost_bytes: u64,
    ) -> Self {
        let mut process = Self::new(handle, entry, None);
        (process.skipped, process.taken_up_after, process.lost_bytes) = (skipped, taken_up_after, lost_bytes);
        process.detach();
        process
    }

    /// The id it was started with.
    pub fn process_id(&self) -> &ProcessId {
        &self.entry.id
    }

    /// What confines it; none from a server that does not say.
    pub fn sandbox_type(&self) -> Option<SandboxType> {
        self.sandbox_type
    }

    /// How much of its output was gone when it was taken up.
    pub fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }

    /// The last event that had happened when it was taken up: what comes up to there is old. 0 for a process that this client has started.
    pub fn taken_up_after(&self) -> u64 {
        self.taken_up_after
    }

    /// The process shall outlive this handle, and the client, for as long as the server keeps the session.
    pub fn detach(&self) {
        self.entry.detach();
        self.handle.shared.leaves_processes.store(true, Ordering::Relaxed);
    }

    /// Every event once, in order, to the end.
    pub fn events(&self) -> ProcessEvents {
        ProcessEvents::new(self.subscribe_events(), self.skipped)
    }

    /// The events as they are pushed. Whoever is too slow for a server that cannot wait has to read what was missed.
    pub fn subscribe_events(&self) -> ExecProcessEventReceiver {
        let first = self.first.lock().take();
        first.unwrap_or_else(|| ExecProcessEventReceiver::new(&self.handle, &self.entry))
    }

    /// Changes with every event; the value is the last event's number.
    pub fn subscribe_wake(&self) -> watch::Receiver<u64> {
        self.entry.subscribe_wake()
    }

    /// What it writes to its stdout or its terminal, as tokio's streams are read.
    pub fn stdout(&self) -> ProcessReader {
        ProcessReader::new(self.events(), |stream| matches!(stream, Stream::Stdout | Stream::Pty))
    }

    /// What it writes to its stderr.
    pub fn stderr(&self) -> ProcessReader {
        ProcessReader::new(self.events(), |stream| stream == Stream::Stderr)
    }

    /// Its stdin, as tokio's streams are written.
    pub fn stdin(&self) -> ProcessStdin {
        ProcessStdin::new(&self.handle, &self.entry)
    }

    /// Waits for its exit and discards what nobody has subscribed to. Its descendants may still write.
    pub async fn wait(&self) -> Result<ExitStatus, ExecServerError> {
        drop(self.first.lock().take());
        let mut wake = self.entry.subscribe_wake();
        loop {
            wake.borrow_and_update();
            match self.entry.progress() {
                Progress::Exited(exit) if exit.sandbox_denied.is_some() => return Ok(exit.into()),
                // An old server tells only those who ask.
                Progress::Exited(exit) => {
                    let answer = self.read_after(self.entry.last_seq()).await?;
                    return Ok(ExitStatus { sandbox_denied: answer.sandbox_denied, ..exit.into() });
                }
                Progress::Failed(text) => return Err(ExecServerError::ProcessFailed(text)),
                Progress::Running => {}
            }
            if wake.changed().await.is_err() {
                return Err(ExecServerError::Closed);
            }
        }
    }

    /// Collects everything it writes until its streams have ended.
    pub async fn wait_with_output(&self) -> Result<ProcessOutput, ExecServerError> {
        let mut events = self.events();
        let (mut stdout, mut stderr, mut status) = (Vec::new(), Vec::new(), None);
        while let Some(event) = events.next().await {
            match event {
                ExecProcessEvent::Output(output) if output.stream == Stream::Stderr => stderr.extend(output.chunk),
                ExecProcessEvent::Output(output) => stdout.extend(output.chunk),
                ExecProcessEvent::Exited { exit_code, sandbox_denied, timed_out, .. } => {
                    let sandbox_denied = sandbox_denied.unwrap_or(false);
                    status = Some(ExitStatus { code: exit_code, sandbox_denied, timed_out });
                }
                ExecProcessEvent::Closed { .. } => {}
                ExecProcessEvent::Failed(text) => return Err(ExecServerError::ProcessFailed(text)),
            }
        }
        match (status, self.entry.progress()) {
            (Some(status), _) => Ok(ProcessOutput { status, stdout, stderr }),
            (None, Progress::Exited(exit)) => Ok(ProcessOutput { status: exit.into(), stdout, stderr }),
            (None, _) => Err(ExecServerError::Protocol("the process closed and never exited".to_owned())),
        }
    }

    /// Reads retained output. If the process can no longer be followed, the answer says so in `failure`.
    pub async fn read(
        &self,
        after_seq: Option<u64>,
        max_bytes: Option<u64>,
        wait_ms: Option<u64>,
    ) -> Result<ReadResult, ExecServerError> {
        drop(self.first.lock().take());
        if let Some(failure) = self.entry.failure() {
            return Ok(failed_read(self.entry.last_seq(), failure));
        }
        let params = ReadParams { process_id: self.entry.id.clone(), after_seq, max_bytes, wait_ms, part: None };
        super::read::read(&self.handle.shared, params).await
    }

    async fn read_after(&self, seq: u64) -> Result<ReadResult, ExecServerError> {
        self.read(Some(seq), None, Some(0)).await
    }

    /// Writes to its stdin, once, over as many connections as it takes.
    pub async fn write(&self, bytes: impl Into<Vec<u8>>) -> Result<WriteStatus, ExecServerError> {
        super::start::write(&self.handle.shared, &self.entry, bytes.into()).await
    }

    /// Ends its stdin. Extension `processCloseStdin`.
    pub async fn close_stdin(&self) -> Result<(), ExecServerError> {
        super::start::close_stdin(&self.handle.shared, &self.entry.id).await
    }

    /// Sends a signal. If the connection ends before the answer, it is not sent again.
    pub async fn signal(&self, signal: Signal) -> Result<(), ExecServerError> {
        let params = SignalParams { process_id: self.entry.id.clone(), signal };
        self.handle.shared.call_for_user::<methods::ProcessSignal>(&params).await.map(drop)
    }

    /// Changes the size of its terminal. Extension `processResize`.
    pub async fn resize(&self, size: WindowSize) -> Result<(), ExecServerError> {
        let params = ResizeParams { process_id: self.entry.id.clone(), size };
        self.handle.shared.call::<methods::ProcessResize>(&params, CallOptions::WAIT).await.map(drop)
    }

    /// Ends it and everything it has started. True if it had not exited by itself.
    pub async fn terminate(&self) -> Result<bool, ExecServerError> {
        let params = ProcessIdParams { process_id: self.entry.id.clone() };
        Ok(self.handle.shared.call_for_user::<methods::ProcessTerminate>(&params).await?.running)
    }
}

/// What a read of a process says that can no longer be followed.
fn failed_read(last_seq: u64, failure: String) -> ReadResult {
    ReadResult { next_seq: last_seq + 1, exited: true, closed: true, failure: Some(failure), ..ReadResult::default() }
}

impl Drop for ExecProcess {
    fn drop(&mut self) {
        if self.entry.is_over() {
            return;
        }
        // Whoever has subscribed still learns how it ends.
        drop(self.first.get_mut().take());
        self.entry.let_go();
        self.handle.shared.inbound.remove_if_unwatched(&self.entry);
        self.handle.shared.inbound.end_if_ours(&self.entry);
    }
}
