//! The terminal at stderr as indicatif draws on it. It looks narrower than it is, because indicatif fills the whole
//! width with spaces. This module does not know what is drawn.

use std::io::{self, Write as _};

use indicatif::TermLike;
use rustix::termios::tcgetwinsize;

/// Columns at the end of the row that stay free. The terminal shows `^C` or `^Z` there when the user types Ctrl-C or
/// Ctrl-Z. If the terminal had to begin another row for that, the row with the progress would not be erased.
const FREE_COLUMNS: u16 = 3;
/// The size of a terminal that does not tell its size: columns and rows.
const USUAL_SIZE: (u16, u16) = (80, 24);

/// The terminal at stderr, without its last columns.
#[derive(Debug)]
pub(super) struct ProgressTerminal;

impl TermLike for ProgressTerminal {
    fn width(&self) -> u16 {
        size().0.saturating_sub(FREE_COLUMNS).max(1)
    }

    fn height(&self) -> u16 {
        size().1
    }

    fn move_cursor_up(&self, rows: usize) -> io::Result<()> {
        move_cursor(rows, 'A')
    }

    fn move_cursor_down(&self, rows: usize) -> io::Result<()> {
        move_cursor(rows, 'B')
    }

    fn move_cursor_right(&self, columns: usize) -> io::Result<()> {
        move_cursor(columns, 'C')
    }

    fn move_cursor_left(&self, columns: usize) -> io::Result<()> {
        move_cursor(columns, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.write_str(&format!("{text}\n"))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        io::stderr().write_all(text.as_bytes())
    }

    fn clear_line(&self) -> io::Result<()> {
        self.write_str("\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Columns and rows of the terminal at stderr. Some terminals report 0 for an unknown size.
fn size() -> (u16, u16) {
    match tcgetwinsize(rustix::stdio::stderr()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
        _ => USUAL_SIZE,
    }
}

fn move_cursor(count: usize, direction: char) -> io::Result<()> {
    if count == 0 { Ok(()) } else { ProgressTerminal.write_str(&format!("\x1b[{count}{direction}")) }
}
