//! The progress line of long work: one line on stderr if that is a terminal, and nothing otherwise. This module
//! counts and draws; it does not copy or search anything itself.

mod progress_terminal;

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use indicatif::{FormattedDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle, TermLike as _};
use rustix::fs::{FileType, fstat};
use tokio::io::{AsyncWriteExt as _, Stdout};

use super::print::report;
use progress_terminal::ProgressTerminal;

/// How often indicatif may draw the line in a second.
const MAX_DRAWS_PER_SECOND: u8 = 20;
/// How often the line is drawn while nothing else draws it.
pub(crate) const DRAW_INTERVAL: Duration = Duration::from_millis(200);
/// Work that takes less time than this shows no line.
const SHOWN_AFTER: Duration = Duration::from_millis(400);

/// Columns that [`COPY_LINE`] needs for all but the number of files, which is `{msg}`.
const COPY_COLUMNS: usize = 66;
const COPY_LINE: &str =
    "{percent:>3}%  {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  ETA {time_left}  {msg}";
/// The line of a copy on a terminal with fewer columns than [`COPY_COLUMNS`].
const SHORT_COPY_LINE: &str = "{percent:>3}%  {binary_bytes_per_sec}";
/// The line while a copy waits until a lost connection is back.
const LOST_LINE: &str = "{percent:>3}%  connection lost, reconnecting…";
const SEARCH_LINE: &str = "searching  {elapsed_precise}  {found}  {per_sec}";

/// The line that shows the progress of one command.
pub(crate) struct ProgressLine {
    bar: ProgressBar,
    /// If false, the line is never drawn.
    is_wanted: bool,
    kind: LineKind,
    copied_files: AtomicU64,
    /// True while a thread writes to stdout, for which the line is erased.
    is_printing: Arc<AtomicBool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineKind {
    /// Counts bytes and files. The total of bytes grows while directories are listed.
    Copy,
    /// Counts found files. The total is not known, so no remaining time is shown.
    Search,
}

impl ProgressLine {
    /// The line of a copy. If `is_quiet`, it is never drawn.
    pub(crate) fn of_copy(is_quiet: bool) -> Self {
        Self::new(LineKind::Copy, Some(0), !is_quiet)
    }

    /// The line of a search. It is not drawn if stdout is a pipe or a socket: the program that reads from there may
    /// draw on the same terminal, as `less` does.
    pub(crate) fn of_search() -> Self {
        let stdout = fstat(rustix::stdio::stdout()).map(|stat| FileType::from_raw_mode(stat.st_mode));
        let is_pipe = stdout.is_ok_and(|kind| matches!(kind, FileType::Fifo | FileType::Socket));
        Self::new(LineKind::Search, None, !is_pipe)
    }

    fn new(kind: LineKind, length: Option<u64>, is_wanted: bool) -> Self {
        let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::hidden());
        let is_printing = Arc::default();
        Self { bar, is_wanted, kind, copied_files: AtomicU64::new(0), is_printing }
    }

    /// Adds bytes that are still to be copied.
    pub(crate) fn expect_bytes(&self, bytes: u64) {
        self.bar.inc_length(bytes);
    }

    /// Counts bytes that were copied.
    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// Counts a file that was copied.
    pub(crate) fn add_copied_file(&self) {
        self.copied_files.fetch_add(1, Relaxed);
    }

    /// Counts a file that was found.
    pub(crate) fn add_found_file(&self) {
        self.bar.inc(1);
    }

    /// Draws the line, unless the work has just begun. `is_lost`: the work waits until a lost connection is back.
    pub(crate) fn draw(&self, is_lost: bool) {
        if !self.is_wanted || self.bar.elapsed() < SHOWN_AFTER {
            return;
        }
        // indicatif finds out whether stderr is a terminal that can erase a line.
        if self.bar.is_hidden() && !ProgressDrawTarget::stderr().is_hidden() {
            let target = ProgressDrawTarget::term_like_with_hz(Box::new(ProgressTerminal), MAX_DRAWS_PER_SECOND);
            self.bar.set_draw_target(target);
        }
        self.lay_out(terminal_columns(), is_lost);
        self.bar.tick();
    }

    /// Prints a line on stderr that stays, above the progress line.
    pub(crate) fn report(&self, sentence: &str) {
        self.bar.suspend(|| report(sentence));
    }

    /// Writes to stdout, and erases the line meanwhile. A thread does the writing, because a terminal may block
    /// (Ctrl-S).
    pub(crate) async fn print(&self, stdout: &mut Stdout, bytes: Vec<u8>) -> io::Result<()> {
        if self.bar.is_hidden() {
            return stdout.write_all(&bytes).await;
        }
        stdout.flush().await?;
        let (bar, is_printing) = (self.bar.clone(), Arc::clone(&self.is_printing));
        is_printing.store(true, Relaxed);
        let printing = tokio::task::spawn_blocking(move || {
            let printed = bar.suspend(|| {
                let mut stdout = io::stdout();
                stdout.write_all(&bytes).and_then(|()| stdout.flush())
            });
            is_printing.store(false, Relaxed);
            printed
        });
        printing.await.map_err(io::Error::from)?
    }

    /// Erases the line for good. If a thread still prints, it has erased the line already, and waiting for the thread
    /// could take for ever.
    pub(crate) fn clear(&self) {
        if !self.is_printing.load(Relaxed) {
            self.bar.finish_and_clear();
        }
    }

    /// Fits the line into a terminal of this width. The line is kept short: if the terminal becomes narrower, it
    /// breaks a long line into two, of which only one would be erased.
    fn lay_out(&self, columns: usize, is_lost: bool) {
        let template = match self.kind {
            LineKind::Copy if is_lost => LOST_LINE,
            LineKind::Copy if columns < COPY_COLUMNS => SHORT_COPY_LINE,
            LineKind::Copy => COPY_LINE,
            LineKind::Search => SEARCH_LINE,
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        self.bar.set_style(style.with_key("time_left", time_left).with_key("found", found_files));
        let room = columns.saturating_sub(COPY_COLUMNS);
        self.bar.set_message(self.file_count().chars().take(room).collect::<String>());
    }

    fn file_count(&self) -> String {
        // One file that is still being copied needs no count.
        match self.copied_files.load(Relaxed) {
            0 => String::new(),
            1 => "1 file".to_owned(),
            files => format!("{files} files"),
        }
    }
}

/// The columns of the terminal that the line can use.
fn terminal_columns() -> usize {
    ProgressTerminal.width().into()
}

/// Writes the remaining time that indicatif estimates. While nothing is copied, it writes dashes, because indicatif
/// would say that no time is left.
fn time_left(state: &ProgressState, out: &mut dyn std::fmt::Write) {
    let is_stalled = state.per_sec() < 1.0 && state.len().is_none_or(|length| state.pos() < length);
    // Writing to memory does not fail.
    let _ignored =
        if is_stalled { out.write_str("--:--:--") } else { write!(out, "{}", FormattedDuration(state.eta())) };
}

/// Writes how many files were found.
fn found_files(state: &ProgressState, out: &mut dyn std::fmt::Write) {
    // Writing to memory does not fail.
    let _ignored = match state.pos() {
        1 => out.write_str("1 file found"),
        files => write!(out, "{files} files found"),
    };
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use indicatif::TermLike;

    use super::*;

    /// A terminal of 100 columns that collects the text that is written to it.
    #[derive(Clone, Debug, Default)]
    struct WrittenText(Arc<Mutex<String>>);

    impl TermLike for WrittenText {
        fn width(&self) -> u16 {
            100
        }
        fn move_cursor_up(&self, _lines: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _lines: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _columns: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _columns: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn drawn_text(line: &ProgressLine, is_lost: bool) -> String {
        let terminal = WrittenText::default();
        line.bar.set_draw_target(ProgressDrawTarget::term_like(Box::new(terminal.clone())));
        line.lay_out(100, is_lost);
        line.bar.force_draw();
        terminal.0.lock().unwrap().trim_end().to_owned()
    }

    #[test]
    fn the_line_of_a_copy_shows_bytes_rate_time_and_files_or_a_lost_connection() {
        let line = ProgressLine::of_copy(false);
        line.expect_bytes(2 << 30);
        assert!(drawn_text(&line, false).contains("  0%  0 B of 2.00 GiB  0 B/s  ETA --:--:--"));
        line.add_bytes(512 << 20);
        line.add_copied_file();
        let text = drawn_text(&line, false);
        assert!(text.contains(" 25%  512.00 MiB of 2.00 GiB  "), "{text}");
        assert!(text.ends_with("  1 file"), "{text}");
        assert!(drawn_text(&line, true).ends_with(" 25%  connection lost, reconnecting…"));
    }

    #[test]
    fn the_line_of_a_search_shows_its_time_and_the_found_files() {
        let line = ProgressLine::of_search();
        line.add_found_file();
        assert!(drawn_text(&line, false).contains("searching  00:00:00  1 file found  "));
    }
}
