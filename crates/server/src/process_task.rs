//! The process task: one tokio task for each process of a client. It reads output into the event log, writes queued input, logs the exit,
//! and closes the process when its output streams have ended.

use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::Duration;

use protocol::{ExitResources, Stream};
use session::{Delivery, LoggedExit, Pace};
use spawn::{Child, ChildExitStatus, ChildInput, ChildIo, ChildOutput, ReadOutcome};
use tokio::time::{Instant, sleep_until};

use crate::metrics::ProcessOutcome;
use crate::process::{ExitReason, Process, StopRequest};
use crate::process_limits::exit_resources;
use crate::server_state::ServerState;
use crate::session::Session;
use crate::survive::survive;

/// Bytes of one read. Large enough that the cost of the system call does not matter, small enough to stay in the processor cache.
const READ_BYTES: usize = 128 << 10;

/// Number of reads of one stream before other tasks of this thread may run.
const READS_AT_ONCE: usize = 4;

/// A longer timeout of a process counts as this one, so that computing the deadline cannot overflow.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

thread_local! {
    /// A read buffer that all process tasks of a thread share. It holds bytes only between a read and the append that follows.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One output stream of the process.
struct OutputPump {
    /// None when the stream has ended or was closed.
    output: Option<ChildOutput>,
    stream: Stream,
    /// Bytes that were in the pipe when the process exited, and are not read yet. They are logged before the exit.
    /// When draining begins, the bytes in the pipe are counted again, and the stream is closed after they were read.
    bytes_before_exit: usize,
    /// Whether the pipe was enlarged. That is done after a large read, because a large pipe saves wake-ups when a process writes much.
    enlarged: bool,
    /// Decides when a fast stream is paused.
    pace: Pace,
    /// The stream is not read before this time, so that more output gathers for one read.
    paused_until: Option<Instant>,
}

impl OutputPump {
    fn new(output: ChildOutput, stream: Stream) -> Self {
        Self { output: Some(output), ..Self::closed(stream) }
    }

    fn closed(stream: Stream) -> Self {
        Self {
            output: None,
            stream,
            bytes_before_exit: 0,
            enlarged: false,
            pace: Pace::default(),
            paused_until: None,
        }
    }

    async fn readable(&self) {
        if let Some(until) = self.paused_until {
            sleep_until(until).await;
        }
        match &self.output {
            Some(output) => output.readable().await,
            None => std::future::pending().await,
        }
    }

    fn has_unread_bytes(&self) -> bool {
        self.output.as_ref().is_some_and(|output| output.available() > 0)
    }

    fn note_bytes_before_exit(&mut self) {
        self.bytes_before_exit = self.output.as_ref().map_or(0, ChildOutput::available);
    }

    fn has_read_all_before_exit(&self) -> bool {
        self.output.is_none() || self.bytes_before_exit == 0
    }

    fn close(&mut self) {
        self.output = None;
        self.bytes_before_exit = 0;
    }
}

/// The exit code that is logged if the real exit code is unknown.
const UNKNOWN_EXIT_CODE: i32 = -1;

/// A process with the values that its task needs.
struct ProcessTask {
    process: Arc<Process>,
    /// Weak, so that a process does not keep a session alive that has ended.
    session: Weak<Session>,
    shared: Arc<ServerState>,
}

/// Runs until the process is closed. After `timeout` the process and all its descendants are killed.
pub(crate) async fn run(
    process: Arc<Process>,
    session: Weak<Session>,
    io: ChildIo,
    timeout: Option<Duration>,
    shared: Arc<ServerState>,
) {
    let task = ProcessTask { process, session, shared };
    let deadline = timeout.map(|timeout| Instant::now() + timeout.min(LONGEST_TIMEOUT));
    // `survive` returns None if `carry` has panicked.
    if survive(task.carry(io, deadline)).await.is_none() {
        task.clean_up_after_panic();
    }
    task.announce();
    let ProcessTask { process, session, shared } = task;
    shared.janitor.forget_process_later(&process, &session);
    if let Some(deadline) = deadline {
        shared.janitor.kill_leftovers_at(deadline.into_std(), process.tag, session);
    }
}

impl ProcessTask {
    /// Ends the sandbox of the process, if no other process uses it.
    fn end_own_sandbox(&self) {
        self.shared.end_sandboxes_in_background(self.process.take_own_sandbox().into_iter().collect());
    }

    /// Kills and closes the process, because its task has panicked. The client gets an exit event and a close event.
    fn clean_up_after_panic(&self) {
        let process = &self.process;
        process.note_reaped();
        self.kill_in_background();
        process.close_stdin();
        process.close_terminal();
        drop(process.take_network_proxy());
        self.end_own_sandbox();
        process.delivery(|delivery| {
            if delivery.log().exit_event().is_none() {
                delivery.exit(LoggedExit {
                    code: UNKNOWN_EXIT_CODE,
                    sandbox_denied: false,
                    timed_out: false,
                    resources: ExitResources::NONE,
                });
            }
            delivery.close();
        });
    }

    fn kill_in_background(&self) {
        self.shared.kill_in_background(Arc::clone(&self.process), self.session.upgrade());
    }

    /// Called after an event was added to the log: wakes requests that wait for events, and queues the process at the attached connection.
    fn announce(&self) {
        self.process.changed.notify_waiters();
        if let Some(session) = self.session.upgrade() {
            session.queue_if_ready(&self.process);
        }
    }

    /// Carries bytes until the process has exited and its output streams have ended.
    async fn carry(&self, io: ChildIo, deadline: Option<Instant>) {
        let process = &self.process;
        // `held_ends` are writing ends of the output streams that the server itself holds open until the exit.
        let (mut pumps, mut held_ends) = match io {
            ChildIo::Pipes { stdin, stdout, stderr, held } => {
                // The queue has its own handle. Another handle would keep the pipe open after the client has closed stdin.
                drop(stdin);
                ([OutputPump::new(stdout, Stream::Stdout), OutputPump::new(stderr, Stream::Stderr)], Some(held))
            }
            ChildIo::Pty { pty, held } => {
                ([OutputPump::new(pty.reader(), Stream::Pty), OutputPump::closed(Stream::Pty)], Some(held))
            }
            // Only the launcher of a sandbox has a socket, and no process task runs for it.
            ChildIo::Socket(_) => ([OutputPump::closed(Stream::Stdout), OutputPump::closed(Stream::Stderr)], None),
            // Only the shell of a snapshot has a pipe for reports, and no process task runs for that shell.
            ChildIo::Report(report) => {
                ([OutputPump::new(report, Stream::Stdout), OutputPump::closed(Stream::Stderr)], None)
            }
        };
        // One future for the whole loop, because each new future would make a system call.
        let mut reaped = std::pin::pin!(reaped(process.child()));
        let mut timer_armed = deadline.is_some();
        let deadline = deadline.unwrap_or_else(Instant::now);
        let mut status: Option<ChildExitStatus> = None;
        let mut timed_out = false;
        let mut ended_by_server = false;
        let mut exit_logged = false;
        let mut draining = false;

        loop {
            let can_read = process.allowed_output_bytes() > 0;
            let input = process.input();
            let has_queued_stdin = process.has_queued_stdin();
            let [first, second] = &pumps;
            tokio::select! {
                () = first.readable(), if can_read => self.read_output(&mut pumps[0], ChildOutput::try_read),
                () = second.readable(), if can_read => {
                    // The order between two pipes is unknown, but a program that writes to both mostly writes to stdout first. So stdout is
                    // read first if it has bytes. These bytes may be gone by now, if the program has opened its own stdout pipe for reading.
                    // Then `read_now` returns `WouldBlock` at once.
                    if pumps[0].has_unread_bytes() {
                        self.read_output(&mut pumps[0], ChildOutput::read_now);
                    }
                    self.read_output(&mut pumps[1], ChildOutput::try_read);
                }
                exit = &mut reaped, if status.is_none() => {
                    status = Some(exit);
                    ended_by_server = timed_out || process.was_terminated();
                    self.note_exit(exit);
                    pumps.iter_mut().for_each(OutputPump::note_bytes_before_exit);
                    // From now on a stream ends when the last descendant has closed it, which mostly has happened
                    // already.
                    drop(held_ends.take());
                    pumps.iter_mut().for_each(|pump| self.read_output(pump, ChildOutput::read_now));
                    // Input was meant for this process only. A descendant that has inherited stdin must not get it.
                    process.close_stdin();
                }
                () = writable(input.as_ref()), if has_queued_stdin => process.write_queued_stdin(),
                () = process.task_woken() => process.write_queued_stdin(),
                () = sleep_until(deadline), if timer_armed => {
                    timer_armed = false;
                    // The timeout is for the process and its descendants. If the process itself has exited in time, its exit event does not
                    // say `timed_out`, even if descendants are killed now.
                    timed_out = status.is_none();
                    self.kill_in_background();
                }
            }

            let stop = process.requested_stop();
            if stop == StopRequest::Discard {
                pumps.iter_mut().for_each(OutputPump::close);
            }
            let Some(status) = status else { continue };
            if stop == StopRequest::Drain && !draining {
                draining = true;
                pumps.iter_mut().for_each(OutputPump::note_bytes_before_exit);
            }
            for pump in &mut pumps {
                // A descendant may have read these bytes from the pipe. Then `read_now` finds the pipe empty and
                // returns at once.
                while pump.bytes_before_exit > 0 && process.allowed_output_bytes() > 0 {
                    self.read_output(pump, ChildOutput::read_now);
                }
                if draining && pump.bytes_before_exit == 0 {
                    pump.close();
                }
            }
            if !exit_logged && pumps.iter().all(OutputPump::has_read_all_before_exit) {
                exit_logged = true;
                let resources =
                    process.child().and_then(|child| child.account()).map_or(ExitResources::NONE, exit_resources);
                let ended_by_limit = resources.limit_reached.is_some_and(|reached| reached.ended);
                let is_ended = ended_by_server || ended_by_limit || process.was_ended_by_client_signal(status.code());
                let reason = if is_ended { ExitReason::Ended } else { ExitReason::OwnOrUnknown };
                let sandbox_denied = process.was_denied(status.code(), reason);
                let exit = LoggedExit { code: status.code(), sandbox_denied, timed_out, resources };
                process.delivery(|delivery| delivery.exit(exit));
                self.announce();
            }
            if exit_logged && pumps.iter().all(|pump| pump.output.is_none()) {
                break;
            }
        }
        process.close_stdin();
        process.close_terminal();
        if let Some(proxy) = process.take_network_proxy() {
            proxy.shut_down().await;
        }
        self.end_own_sandbox();
        process.release_child();
        process.delivery(Delivery::close);
    }

    /// Reads available output, with at most [`READS_AT_ONCE`] reads and as much as the event log has room for, and
    /// appends it to the log.
    fn read_output(&self, pump: &mut OutputPump, read: ReadFunction) {
        let (process, shared) = (&self.process, &self.shared);
        let mut got = 0;
        pump.paused_until = None;
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.resize(READ_BYTES, 0);
            for _ in 0..READS_AT_ONCE {
                let Some(output) = &pump.output else { break };
                let room = process.allowed_output_bytes().min(READ_BYTES);
                if room == 0 {
                    break;
                }
                match read(output, &mut scratch[..room]) {
                    Ok(ReadOutcome::Data(count)) => {
                        if count >= READ_BYTES / 4 && !pump.enlarged {
                            output.enlarge();
                            pump.enlarged = true;
                        }
                        pump.bytes_before_exit = pump.bytes_before_exit.saturating_sub(count);
                        let dropped = process.delivery(|delivery| delivery.append(pump.stream, scratch, count));
                        shared.metrics.output_read(count);
                        if dropped > 0 {
                            shared.metrics.output_dropped(dropped);
                        }
                        got += count;
                    }
                    Ok(ReadOutcome::WouldBlock) => {
                        pump.paused_until = pump.pace.emptied(got, Instant::now().into_std()).map(Instant::from_std);
                        // The pipe is empty. If bytes from before the exit were still expected, a descendant has read them. Output that comes
                        // later is logged after the exit.
                        pump.bytes_before_exit = 0;
                        break;
                    }
                    Ok(ReadOutcome::End) | Err(_) => {
                        pump.close();
                        break;
                    }
                }
            }
        });
        if got > 0 {
            self.announce();
            shared.reclaim_if_tight();
        }
    }

    /// The process was reaped. Wakes the tasks that wait for that, and counts the process in the metrics.
    fn note_exit(&self, status: ChildExitStatus) {
        let process = &self.process;
        process.note_reaped();
        let ending = if process.was_terminated() {
            ProcessOutcome::terminated
        } else if status.code() == 0 {
            ProcessOutcome::success
        } else {
            ProcessOutcome::error
        };
        self.shared.metrics.process_finished(ending, process.started.elapsed());
    }
}

async fn reaped(child: Option<Arc<Child>>) -> ChildExitStatus {
    match child {
        Some(child) => child.wait().await,
        None => std::future::pending().await,
    }
}

async fn writable(input: Option<&ChildInput>) {
    match input {
        Some(input) => input.writable().await,
        None => std::future::pending().await,
    }
}

/// [`ChildOutput::try_read`], which reads only after tokio has noticed that the stream is readable, or
/// [`ChildOutput::read_now`], which always tries to read. Neither waits for output.
type ReadFunction = fn(&ChildOutput, &mut [u8]) -> std::io::Result<ReadOutcome>;
