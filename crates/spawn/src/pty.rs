//! A pseudoterminal seen from its master side. The child opens the slave itself: as the leader of a new session it thereby gets
//! the terminal as its controlling terminal. We hold the slave open too, so that the terminal has no end before its leader has.

use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::pty::OpenptFlags;
use rustix::termios::{SpecialCodeIndex, Winsize};

use crate::command::TerminalSize;
use crate::descriptors::above_stdio;
use crate::streams::{ChildInput, ChildOutput, Duplex};
use crate::wiring::HeldEnds;

/// Ctrl-D, what a terminal starts with as its end-of-file character.
const DEFAULT_EOF_BYTE: u8 = 4;

/// The terminal of a child. It hangs up when this, its clones and all readers and writers made from it are dropped.
#[derive(Clone)]
pub struct Pty {
    master: Duplex,
}

impl Pty {
    /// A new terminal, the path of its slave, and the slave held open.
    pub(crate) fn open(size: TerminalSize) -> io::Result<(Self, CString, HeldEnds)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = above_stdio(rustix::pty::openpt(flags)?)?;
        rustix::pty::grantpt(&master)?;
        rustix::pty::unlockpt(&master)?;
        let slave = rustix::pty::ptsname(&master, Vec::new())?;
        let pty = Self { master: Duplex::new(master)? };
        pty.resize(size)?;
        // Without NOCTTY it would become the controlling terminal of a server that leads a session.
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let held = HeldEnds::new(vec![above_stdio(rustix::fs::open(&slave, flags, Mode::empty())?)?]);
        Ok((pty, slave, held))
    }

    /// What the child writes to the terminal, and the echo.
    pub fn reader(&self) -> ChildOutput {
        self.master.reader()
    }

    /// The keyboard.
    pub fn writer(&self) -> ChildInput {
        self.master.writer()
    }

    /// Changes the size; the foreground processes get `SIGWINCH` if it is another one.
    pub fn resize(&self, size: TerminalSize) -> io::Result<()> {
        let size = Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(rustix::termios::tcsetwinsize(&self.master, size)?)
    }

    /// The byte that means end of input to a program that reads lines.
    pub fn eof_byte(&self) -> u8 {
        rustix::termios::tcgetattr(&self.master)
            .map_or(DEFAULT_EOF_BYTE, |termios| termios.special_codes[SpecialCodeIndex::VEOF])
    }

    /// Signals the foreground process group; fine if there is none.
    pub fn signal_foreground(&self, signal: Signal) -> io::Result<()> {
        if self.signal_through_terminal(signal) {
            return Ok(());
        }
        let Ok(group) = rustix::termios::tcgetpgrp(&self.master) else { return Ok(()) };
        match rustix::process::kill_process_group(group, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks the terminal to signal its foreground group, which cannot hit a group that has just taken the number of a dead one.
    /// The kernel does it for the signals of the keyboard only.
    fn signal_through_terminal(&self, signal: Signal) -> bool {
        let fd = self.master.as_fd().as_raw_fd();
        // SAFETY: TIOCSIG takes its argument by value and the descriptor is open as long as `self` lives.
        unsafe { libc::ioctl(fd, libc::TIOCSIG, signal.as_raw()) == 0 }
    }
}

impl fmt::Debug for Pty {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Pty({})", self.master.as_fd().as_raw_fd())
    }
}
