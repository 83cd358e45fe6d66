//! How far a copy has come: one line on a terminal, nothing anywhere else.

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::super::print::complain;

/// How often the line is drawn.
pub(crate) const INTERVAL: Duration = Duration::from_millis(200);
/// A copy that is over by then needs no line.
const FIRST_AFTER: Duration = Duration::from_millis(400);

/// What is counted, and when it began.
pub(crate) struct Progress {
    is_shown: bool,
    began: Instant,
    expected: AtomicU64,
    done: AtomicU64,
    files: AtomicU64,
    is_on_screen: AtomicBool,
}

impl Progress {
    pub(crate) fn new(is_quiet: bool) -> Self {
        Self {
            is_shown: !is_quiet && std::io::stderr().is_terminal(),
            began: Instant::now(),
            expected: AtomicU64::new(0),
            done: AtomicU64::new(0),
            files: AtomicU64::new(0),
            is_on_screen: AtomicBool::new(false),
        }
    }

    /// So much more is to be copied.
    pub(crate) fn expect(&self, bytes: u64) {
        self.expected.fetch_add(bytes, Relaxed);
    }

    /// So much more was copied.
    pub(crate) fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Relaxed);
    }

    /// A file is in its place.
    pub(crate) fn file_done(&self) {
        self.files.fetch_add(1, Relaxed);
    }

    /// Says something that stays, above the line.
    pub(crate) fn say(&self, sentence: &str) {
        self.clear();
        complain(sentence);
    }

    /// Draws the line.
    pub(crate) fn draw(&self, is_lost: bool) {
        let elapsed = self.began.elapsed();
        if !self.is_shown || elapsed < FIRST_AFTER {
            return;
        }
        let text = line(self.done.load(Relaxed), self.expected.load(Relaxed), self.files.load(Relaxed), elapsed);
        let text = if is_lost { format!("{text}  connection lost, reconnecting…") } else { text };
        let width = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(80, |size| usize::from(size.ws_col));
        let text: String = text.chars().take(width.max(20) - 1).collect();
        self.is_on_screen.store(true, Relaxed);
        let _nobody_looks = write!(std::io::stderr(), "\r{text}\x1b[K");
    }

    /// Takes the line away.
    pub(crate) fn clear(&self) {
        if self.is_on_screen.swap(false, Relaxed) {
            let _nobody_looks = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(done: u64, expected: u64, files: u64, elapsed: Duration) -> String {
    let rate = done as f64 / elapsed.as_secs_f64().max(0.001);
    let left = expected.saturating_sub(done);
    let percent = if expected == 0 { 100 } else { (u128::from(done) * 100 / u128::from(expected)).min(100) };
    // Of a single one it is known that it is not done.
    let files = match files {
        0 => String::new(),
        1 => "  1 file".to_owned(),
        _ => format!("  {files} files"),
    };
    let eta = match left as f64 / rate {
        seconds if seconds.is_finite() && seconds < 360_000.0 => clock(seconds.ceil() as u64),
        _ => "-:--".to_owned(),
    };
    format!("{percent:3}%  {} of {}  {}/s  ETA {eta}{files}", size(done), size(expected), size(rate as u64))
}

fn clock(seconds: u64) -> String {
    match seconds {
        0..3600 => format!("{}:{:02}", seconds / 60, seconds % 60),
        _ => format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60),
    }
}

fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut amount, mut unit) = (bytes as f64, 0);
    while amount >= 1024.0 && unit + 1 < units.len() {
        amount /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{amount:.1} {}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_much_how_fast_and_how_long() {
        let text = line(512 << 20, 2 << 30, 1, Duration::from_secs(4));
        assert_eq!(text, " 25%  512.0 MiB of 2.0 GiB  128.0 MiB/s  ETA 0:12  1 file");
        assert_eq!(line(0, 0, 3, Duration::from_secs(1)), "100%  0 B of 0 B  0 B/s  ETA -:--  3 files");
        assert_eq!((clock(59), clock(3661)), ("0:59".into(), "1:01:01".into()));
    }
}
