//! Our own terminal: its size, and raw mode, in which every key is passed to the remote program. However this program ends, the terminal is
//! restored.

use std::io;
use std::sync::{Mutex, Once, PoisonError};

use client::WindowSize;
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

/// The mode of the terminal before raw mode. It is a static, because the panic hook needs it too.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Keeps our terminal in raw mode. Dropping it restores the terminal.
pub(crate) struct RawTerminal(());

impl RawTerminal {
    /// Makes the terminal at our stdin raw. `None` if stdin is not a terminal.
    pub(crate) fn enter() -> io::Result<Option<Self>> {
        if !is_terminal_at_stdin() {
            return Ok(None);
        }
        restore_before_a_panic_is_reported();
        make_raw()?;
        Ok(Some(Self(())))
    }

    /// Restores the terminal until [`resume`](Self::resume), for the shell that continues while we are stopped.
    pub(crate) fn suspend(&self) {
        restore();
    }

    /// Makes the terminal raw again. Its mode at this moment is what is restored at the end.
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

/// Whether our stdin is a terminal.
pub(crate) fn is_terminal_at_stdin() -> bool {
    isatty(stdin())
}

/// The size of our terminal. `None` if we have no terminal, or if it has no size.
pub(crate) fn window_size() -> Option<WindowSize> {
    let size = [stdout(), stdin(), stderr()].into_iter().find_map(|fd| tcgetwinsize(fd).ok())?;
    // The size of a terminal is 0 until it is set.
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
        // Not after the output that the terminal has still to show, because a terminal that was stopped (Ctrl-S) would block us.
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
