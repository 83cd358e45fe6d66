//! The log on stderr. In a server, a thread of its own writes the log: the reader of stderr may be slow or may have
//! stopped reading, and no task of the server may wait for that reader. `RUST_LOG` decides which messages are logged.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};
use std::panic;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tracing_subscriber::EnvFilter;

use crate::colours;

/// Bytes of lines that may wait for the thread of the log. While the thread writes, it can hold as many bytes again.
/// Further lines are dropped and counted.
const WAITING_BYTES: usize = 256 << 10;

/// The longest line in bytes. A longer line is cut. The text of a panic counts as one line.
const LONGEST_LINE_BYTES: usize = 16 << 10;

/// Longest time that a server waits at its end until the last lines are written.
const LAST_LINES_PATIENCE: Duration = Duration::from_secs(1);

/// Starts a log without a thread, for a command such as `run`. `default_filter` is used if `RUST_LOG` is not set or
/// not valid.
pub(crate) fn start_unqueued(default_filter: &str) {
    let _error_if_already_started = tracing_subscriber::fmt()
        .with_env_filter(filter(default_filter))
        .with_ansi(colours::are_wanted_on(&io::stderr()))
        .with_writer(io::stderr)
        // By default tracing reports a failed write with `eprintln!`, which panics if stderr cannot be written.
        .log_internal_errors(false)
        .try_init();
}

/// The log of a server. Dropping it waits for the lines that are not written yet, for at most
/// [`LAST_LINES_PATIENCE`].
pub(crate) struct ServerLog {
    queue: Arc<LogQueue>,
}

impl ServerLog {
    /// Starts the log and its thread. `default_filter` is used if `RUST_LOG` is not set or not valid. The text of a
    /// panic is logged whatever the filter is.
    pub(crate) fn start(default_filter: &str) -> io::Result<Self> {
        let queue = Arc::new(LogQueue::default());
        let (for_thread, for_events, for_panics) = (Arc::clone(&queue), Arc::clone(&queue), Arc::clone(&queue));
        thread::Builder::new().name("log".into()).spawn(move || for_thread.write_all_to(&mut io::stderr()))?;
        let make_writer = move || EventWriter(Arc::clone(&for_events));
        let _error_if_already_started = tracing_subscriber::fmt()
            .with_env_filter(filter(default_filter))
            .with_ansi(colours::are_wanted_on(&io::stderr()))
            .with_writer(make_writer)
            .try_init();
        panic::set_hook(Box::new(move |panic| for_panics.push(panic_text(panic).as_bytes())));
        Ok(Self { queue })
    }
}

impl Drop for ServerLog {
    fn drop(&mut self) {
        self.queue.wait_until_written(LAST_LINES_PATIENCE);
    }
}

fn filter(default_filter: &str) -> EnvFilter {
    EnvFilter::try_from_default_env().unwrap_or_else(|_| default_filter.into())
}

fn panic_text(panic: &panic::PanicHookInfo<'_>) -> String {
    let thread = thread::current();
    let mut text = format!("thread '{}' {panic}\n", thread.name().unwrap_or("<unnamed>"));
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        text.push_str(&format!("{backtrace}\n"));
    }
    text
}

/// Takes the text of one event of `tracing`, and queues it as a line of the log.
struct EventWriter(Arc<LogQueue>);

impl Write for EventWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Lines that wait for the thread that writes them.
#[derive(Default)]
struct LogQueue {
    lines: Mutex<WaitingLines>,
    /// Notified when a line was added.
    added: Condvar,
    /// Notified when the thread has written the lines that it took.
    written: Condvar,
}

#[derive(Default)]
struct WaitingLines {
    bytes: Vec<u8>,
    /// Number of lines that came after the waiting lines and were dropped for lack of room.
    dropped: u64,
    /// Whether the thread writes lines that it has taken.
    is_writing: bool,
}

impl LogQueue {
    fn lock(&self) -> MutexGuard<'_, WaitingLines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: &[u8]) {
        self.lock().push(line);
        self.added.notify_one();
    }

    /// Takes and writes lines as they come. Never returns.
    fn write_all_to(&self, out: &mut impl Write) {
        let mut lines = self.lock();
        loop {
            lines = self.added.wait_while(lines, |lines| lines.is_empty()).unwrap_or_else(PoisonError::into_inner);
            let text = lines.take();
            lines.is_writing = true;
            drop(lines);
            // An error is ignored, because there is no other place to report it.
            let _unreportable_error = out.write_all(&text).and_then(|()| out.flush());
            lines = self.lock();
            lines.is_writing = false;
            self.written.notify_all();
        }
    }

    /// Waits until all lines are written, but not longer than `patience`.
    fn wait_until_written(&self, patience: Duration) {
        let is_pending = |lines: &mut WaitingLines| lines.is_writing || !lines.is_empty();
        let _written_or_timed_out = self.written.wait_timeout_while(self.lock(), patience, is_pending);
    }
}

impl WaitingLines {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.dropped == 0
    }

    fn push(&mut self, line: &[u8]) {
        let (line, end): (&[u8], &[u8]) = match line.get(..LONGEST_LINE_BYTES) {
            Some(beginning) if line.len() > LONGEST_LINE_BYTES => (beginning, "…\n".as_bytes()),
            _ => (line, b""),
        };
        // After a dropped line, every line is dropped until the thread takes the waiting lines. So all dropped lines
        // are missing at one place of the log, and the log has their number there.
        if self.dropped > 0 || self.bytes.len() + line.len() + end.len() > WAITING_BYTES {
            self.dropped += 1;
            return;
        }
        self.bytes.extend_from_slice(line);
        self.bytes.extend_from_slice(end);
    }

    /// Takes all waiting lines, followed by a line with the number of dropped lines if there are any.
    fn take(&mut self) -> Vec<u8> {
        let mut text = std::mem::take(&mut self.bytes);
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            let line =
                format!("exec-server: {dropped} lines of the log were dropped here, because stderr was not read\n");
            text.extend_from_slice(line.as_bytes());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_dropped_line_all_lines_are_dropped_and_counted_until_the_next_take() {
        let mut lines = WaitingLines::default();
        let line = [b'x'; 1023].iter().chain(b"\n").copied().collect::<Vec<u8>>();
        for _ in 0..WAITING_BYTES / line.len() + 3 {
            lines.push(&line);
        }
        lines.push(b"small\n");
        let text = String::from_utf8(lines.take()).unwrap();
        assert!(
            text.ends_with("x\nexec-server: 4 lines of the log were dropped here, because stderr was not read\n")
        );
        assert!(text.len() < WAITING_BYTES + 100);
        lines.push(b"small\n");
        assert_eq!(lines.take(), b"small\n");
        assert!(lines.is_empty());
    }

    #[test]
    fn a_long_line_is_cut() {
        let mut lines = WaitingLines::default();
        lines.push(&vec![b'x'; LONGEST_LINE_BYTES * 2]);
        assert_eq!(lines.take(), format!("{}…\n", "x".repeat(LONGEST_LINE_BYTES)).into_bytes());
    }
}
