//! The master side of a pseudoterminal: reading, writing, resizing and signalling. The child opens the slave itself. Because the child
//! leads a new session without a terminal, the kernel makes the slave its controlling terminal. The server holds the slave open too, so
//! that reading from the master does not end before the child has exited.

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
use crate::streams::{ChildInput, ChildOutput, TerminalMaster};
use crate::wiring::HeldEnds;

/// Ctrl-D, the end-of-file character of a new terminal.
const DEFAULT_EOF_BYTE: u8 = 4;

/// The terminal of a child. When this value, its clones and all readers and writers made from it are dropped, the kernel hangs up the
/// terminal: the child gets `SIGHUP`.
#[derive(Clone)]
pub struct Pty {
    master: TerminalMaster,
}

impl Pty {
    /// Opens a new terminal. Returns it with the path of its slave and with an open descriptor of the slave.
    pub(crate) fn open(size: TerminalSize) -> io::Result<(Self, CString, HeldEnds)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = above_stdio(rustix::pty::openpt(flags)?)?;
        rustix::pty::grantpt(&master)?;
        rustix::pty::unlockpt(&master)?;
        let slave = rustix::pty::ptsname(&master, Vec::new())?;
        let pty = Self { master: TerminalMaster::new(master)? };
        pty.resize(size)?;
        // Without NOCTTY this could become the controlling terminal of the server, if the server leads a session.
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let held = HeldEnds::new(vec![above_stdio(rustix::fs::open(&slave, flags, Mode::empty())?)?]);
        Ok((pty, slave, held))
    }

    /// Reads what the child writes to the terminal, and the echo of the input.
    pub fn reader(&self) -> ChildOutput {
        self.master.reader()
    }

    /// Writes to the terminal as a keyboard does.
    pub fn writer(&self) -> ChildInput {
        self.master.writer()
    }

    /// Changes the size of the terminal. The foreground processes get `SIGWINCH` if the size differs from the old one.
    pub fn resize(&self, size: TerminalSize) -> io::Result<()> {
        let size = Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(rustix::termios::tcsetwinsize(&self.master, size)?)
    }

    /// The byte that ends the input of a program that reads lines. Usually Ctrl-D; the child can choose another one, for example with
    /// `stty`.
    pub fn eof_byte(&self) -> u8 {
        rustix::termios::tcgetattr(&self.master)
            .map_or(DEFAULT_EOF_BYTE, |termios| termios.special_codes[SpecialCodeIndex::VEOF])
    }

    /// Signals the foreground process group of the terminal. Does nothing if there is none.
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

    /// Asks the kernel to signal the foreground group of the terminal. This cannot reach another group that has just
    /// got the number of an ended one. The kernel accepts only the signals that a keyboard can send. Returns whether
    /// it has accepted this signal.
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
