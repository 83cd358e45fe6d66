//! The one task of a process: carries bytes between its streams and the event log, notices its exit, and closes.

use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::Duration;

use protocol::Stream;
use session::{Delivery, LoggedExit, Pace};
use spawn::{Child, ChildExitStatus, ChildInput, ChildIo, ChildOutput, ReadOutcome};
use tokio::time::{Instant, sleep_until};

use crate::metrics::ProcessOutcome;
use crate::process::{Process, Stop};
use crate::server_state::ServerState;
use crate::session::Session;
use crate::survive::survive;

/// One read. Large enough that the cost of a system call disappears, small enough to stay in the cache.
const READ_BYTES: usize = 128 << 10;

/// Reads of one stream before other tasks of this thread get their turn.
const READS_PER_TURN: usize = 4;

/// A process that is done in a year is not done by a timer.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

thread_local! {
    /// ServerState by all processes of a thread: bytes are in it only between a read and the append that follows.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One output stream of the process.
struct OutputPump {
    output: Option<ChildOutput>,
    stream: Stream,
    /// What was in the pipe when the process exited; it belongs before the exit.
    owed: usize,
    /// A full read shows that the process is busy writing; then a larger pipe saves wake-ups.
    enlarged: bool,
    pace: Pace,
    /// Until then it gathers.
    rests_until: Option<Instant>,
}

impl OutputPump {
    fn new(output: ChildOutput, stream: Stream) -> Self {
        Self { output: Some(output), ..Self::closed(stream) }
    }

    fn closed(stream: Stream) -> Self {
        Self { output: None, stream, owed: 0, enlarged: false, pace: Pace::default(), rests_until: None }
    }

    async fn readable(&self) {
        if let Some(until) = self.rests_until {
            sleep_until(until).await;
        }
        match &self.output {
            Some(output) => output.readable().await,
            None => std::future::pending().await,
        }
    }

    fn has_waiting(&self) -> bool {
        self.output.as_ref().is_some_and(|output| output.available() > 0)
    }

    fn note_what_is_owed(&mut self) {
        self.owed = self.output.as_ref().map_or(0, ChildOutput::available);
    }

    fn settled(&self) -> bool {
        self.output.is_none() || self.owed == 0
    }

    fn close(&mut self) {
        self.output = None;
        self.owed = 0;
    }
}

/// Stands for an exit code that nobody will learn.
const UNKNOWN_EXIT_CODE: i32 = -1;

/// A process, and what its task needs beside it.
struct ProcessTask {
    process: Arc<Process>,
    /// Not kept alive by its processes: it ends when its client does not come back.
    session: Weak<Session>,
    shared: Arc<ServerState>,
}

/// Runs until the process is closed. After `timeout` the whole tree of the process is killed.
pub(crate) async fn run(
    process: Arc<Process>,
    session: Weak<Session>,
    io: ChildIo,
    timeout: Option<Duration>,
    shared: Arc<ServerState>,
) {
    let task = ProcessTask { process, session, shared };
    let deadline = timeout.map(|timeout| Instant::now() + timeout.min(NEVER));
    if survive(task.carry(io, deadline)).await.is_none() {
        task.clean_up_after_panic();
    }
    task.announce();
    let ProcessTask { process, session, shared } = task;
    shared.janitor.forget_process_later(&process, &session);
    if let Some(deadline) = deadline {
        shared.janitor.end_rest_of_tree_at(deadline.into_std(), process.tag, session);
    }
}

impl ProcessTask {
    /// Kills and closes the process, because no task looks after it any more. Its client learns that it is over.
    fn clean_up_after_panic(&self) {
        let process = &self.process;
        process.note_reaped();
        self.kill_in_background();
        process.close_stdin();
        process.close_terminal();
        process.delivery(|delivery| {
            if delivery.log().exit_event().is_none() {
                delivery.exit(LoggedExit { code: UNKNOWN_EXIT_CODE, sandbox_denied: false, timed_out: false });
            }
            delivery.close();
        });
    }

    fn kill_in_background(&self) {
        self.shared.kill_in_background(Arc::clone(&self.process), self.session.upgrade());
    }

    /// An event was added: wakes the reads that wait for it, and queues the process at the attached connection.
    fn announce(&self) {
        self.process.changed.notify_waiters();
        if let Some(session) = self.session.upgrade() {
            session.queue_if_ready(&self.process);
        }
    }

    async fn carry(&self, io: ChildIo, deadline: Option<Instant>) {
        let process = &self.process;
        let (mut pumps, mut held_ends) = match io {
            ChildIo::Pipes { stdin, stdout, stderr, held } => {
                // The queue has its own; one kept here would keep the pipe open after its end.
                drop(stdin);
                ([OutputPump::new(stdout, Stream::Stdout), OutputPump::new(stderr, Stream::Stderr)], Some(held))
            }
            ChildIo::Pty { pty, held } => {
                ([OutputPump::new(pty.reader(), Stream::Pty), OutputPump::closed(Stream::Pty)], Some(held))
            }
            ChildIo::Report(report) => {
                ([OutputPump::new(report, Stream::Stdout), OutputPump::closed(Stream::Stderr)], None)
            }
        };
        // Kept over the turns of the loop: each new one would ask the kernel again.
        let mut reaped = std::pin::pin!(reaped(process.child()));
        let mut timer_armed = deadline.is_some();
        let deadline = deadline.unwrap_or_else(Instant::now);
        let mut status: Option<ChildExitStatus> = None;
        let mut timed_out = false;
        let mut exit_told = false;
        let mut draining = false;

        loop {
            let can_read = process.room() > 0;
            let input = process.input();
            let has_input = process.has_input();
            let [first, second] = &pumps;
            tokio::select! {
                () = first.readable(), if can_read => self.read_turn(&mut pumps[0], ChildOutput::try_read),
                () = second.readable(), if can_read => {
                    // Two pipes have no common order, but a program that writes to both mostly writes to stdout first. It is not waited for,
                    // because the program may have opened the pipe too and take back what is in it.
                    if pumps[0].has_waiting() {
                        self.read_turn(&mut pumps[0], ChildOutput::read_now);
                    }
                    self.read_turn(&mut pumps[1], ChildOutput::try_read);
                }
                exit = &mut reaped, if status.is_none() => {
                    status = Some(exit);
                    self.note_exit(exit);
                    pumps.iter_mut().for_each(OutputPump::note_what_is_owed);
                    // From now on each stream ends when the last process has closed it; most have ended with this one.
                    drop(held_ends.take());
                    pumps.iter_mut().for_each(|pump| self.read_turn(pump, ChildOutput::read_now));
                    // Nobody is left to read it, or whoever is was never meant to get it.
                    process.close_stdin();
                }
                () = writable(input.as_ref()), if has_input => process.feed(),
                () = process.task_woken() => process.feed(),
                () = sleep_until(deadline), if timer_armed => {
                    timer_armed = false;
                    // The time is for the whole tree. The exit of a process that was in time says so, whoever it has left behind.
                    timed_out = status.is_none();
                    self.kill_in_background();
                }
            }

            let stop = process.requested_stop();
            if stop == Stop::Discard {
                pumps.iter_mut().for_each(OutputPump::close);
            }
            let Some(status) = status else { continue };
            if stop == Stop::Drain && !draining {
                draining = true;
                pumps.iter_mut().for_each(OutputPump::note_what_is_owed);
            }
            for pump in &mut pumps {
                // What is owed is not waited for, because a descendant may take it back.
                while pump.owed > 0 && process.room() > 0 {
                    self.read_turn(pump, ChildOutput::read_now);
                }
                if draining && pump.owed == 0 {
                    pump.close();
                }
            }
            if !exit_told && pumps.iter().all(OutputPump::settled) {
                exit_told = true;
                let exit = LoggedExit { code: status.code(), sandbox_denied: false, timed_out };
                process.delivery(|delivery| delivery.exit(exit));
                self.announce();
            }
            if exit_told && pumps.iter().all(|pump| pump.output.is_none()) {
                break;
            }
        }
        process.close_stdin();
        process.close_terminal();
        process.release_child();
        process.delivery(Delivery::close);
    }

    /// Reads what is there, as far as the event log has room, and appends it.
    fn read_turn(&self, pump: &mut OutputPump, read: Read) {
        let (process, shared) = (&self.process, &self.shared);
        let mut got = 0;
        pump.rests_until = None;
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.resize(READ_BYTES, 0);
            for _ in 0..READS_PER_TURN {
                let Some(output) = &pump.output else { break };
                let room = process.room().min(READ_BYTES);
                if room == 0 {
                    break;
                }
                match read(output, &mut scratch[..room]) {
                    Ok(ReadOutcome::Data(count)) => {
                        if count >= READ_BYTES / 4 && !pump.enlarged {
                            output.enlarge();
                            pump.enlarged = true;
                        }
                        pump.owed = pump.owed.saturating_sub(count);
                        let dropped = process.delivery(|delivery| delivery.append(pump.stream, scratch, count));
                        shared.metrics.output(count);
                        if dropped > 0 {
                            shared.metrics.output_dropped(dropped);
                        }
                        got += count;
                    }
                    Ok(ReadOutcome::WouldBlock) => {
                        pump.rests_until = pump.pace.emptied(got, Instant::now().into_std()).map(Instant::from_std);
                        // Less was there than was thought; whatever comes now is late output.
                        pump.owed = 0;
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

    /// The process was reaped.
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

/// One of the two ways to read from an output.
type Read = fn(&ChildOutput, &mut [u8]) -> std::io::Result<ReadOutcome>;
