//! Our own terminal: its size, and raw mode, in which every key is a byte for the program at the other end. Whatever way we leave by, it
//! is put back as it was.

use std::io;
use std::sync::{Mutex, Once, PoisonError};

use client::WindowSize;
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

/// How the terminal was before, while it is raw. Not part of the value that is dropped: a panic must find it too.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// A terminal in raw mode. Dropped, it is as it was before.
pub(crate) struct RawTerminal(());

impl RawTerminal {
    /// Makes the terminal at our stdin raw; none if there is no terminal.
    pub(crate) fn enter() -> io::Result<Option<Self>> {
        if !is_terminal_at_stdin() {
            return Ok(None);
        }
        restore_before_a_panic_is_reported();
        make_raw()?;
        Ok(Some(Self(())))
    }

    /// As it was before, until [`resume`](Self::resume): whoever stops us gets a terminal that can be used.
    pub(crate) fn suspend(&self) {
        restore();
    }

    /// Raw again, also if somebody else has changed it meanwhile.
    pub(crate) fn resume(&self) -> io::Result<()> {
        restore();
        make_raw()
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Whether somebody can type.
pub(crate) fn is_terminal_at_stdin() -> bool {
    isatty(stdin())
}

/// The size of the terminal we are in, if we are in one.
pub(crate) fn window_size() -> Option<WindowSize> {
    let size = [stdout(), stdin(), stderr()].into_iter().find_map(|fd| tcgetwinsize(fd).ok())?;
    // A terminal that was never told its size has none.
    (size.ws_row > 0 && size.ws_col > 0).then_some(WindowSize { rows: size.ws_row, cols: size.ws_col })
}

fn make_raw() -> io::Result<()> {
    let before = tcgetattr(stdin())?;
    let mut raw = before.clone();
    raw.make_raw();
    *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
    tcsetattr(stdin(), OptionalActions::Now, &raw)?;
    Ok(())
}

fn restore() {
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // Not after what is still to be shown: a terminal that was told to wait would make us wait too.
        let _gone = tcsetattr(stdin(), OptionalActions::Now, &before);
    }
}

fn restore_before_a_panic_is_reported() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            report(panic);
        }));
    });
}
