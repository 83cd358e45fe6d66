//! Our own terminal: its size, and raw mode, in which every key is passed to the remote program. The terminal is
//! restored when [`RawTerminal`] is dropped, and before a panic is reported.

use std::io;
use std::sync::{Mutex, Once, PoisonError};

use client::WindowSize;
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

/// The settings of the terminal before raw mode. `None` while the terminal is not raw. This is a static, because the
/// panic hook needs it too.
static SETTINGS_BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

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

    /// Makes the terminal raw again. The shell may have changed the settings since [`suspend`](Self::suspend); the
    /// changed settings are restored at the end.
    pub(crate) fn resume(&self) -> io::Result<()> {
        // Without a `suspend` before, the terminal is still raw, and raw settings must not be saved.
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
    *SETTINGS_BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
    tcsetattr(stdin(), OptionalActions::Now, &raw)?;
    Ok(())
}

fn restore() {
    if let Some(before) = SETTINGS_BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // `Now` does not wait until the terminal has shown all output, because a terminal that was stopped (Ctrl-S)
        // would block us. An error means that the terminal is gone.
        let _ignored = tcsetattr(stdin(), OptionalActions::Now, &before);
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
