//! Creates the pipes or the terminal for the standard streams of a child, and adds to [`FileActions`] what the child
//! must do to get them as its descriptors 0, 1 and 2. A child that writes a report ([`Stdio::Report`]) gets a pipe at
//! another descriptor instead. Dropping a [`Wiring`] closes all of its descriptors. This module starts nothing;
//! [`ChildIo`] is what the caller gets in the end.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use crate::command::{StdinMode, Stdio};
use crate::descriptors;
use crate::pty::Pty;
use crate::streams::{ChildInput, ChildOutput};
use crate::vfork::FileActions;

/// The server's ends of the standard streams of a child.
#[derive(Debug)]
pub enum ChildIo {
    /// The streams of a child that was started with [`Stdio::Pipes`].
    Pipes {
        /// None if the child was started with [`StdinMode::Null`].
        stdin: Option<ChildInput>,
        /// Reads the child's stdout.
        stdout: ChildOutput,
        /// Reads the child's stderr.
        stderr: ChildOutput,
        /// Keep this until the child has exited, and then drop it.
        held: HeldEnds,
    },
    /// The terminal of a child that was started with [`Stdio::Pty`].
    Pty {
        /// The master side of the terminal.
        pty: Pty,
        /// Keep this until the child has exited, and then drop it.
        held: HeldEnds,
    },
    /// Reads the report of a child that was started with [`Stdio::Report`].
    Report(ChildOutput),
    /// The server's end of the sockets of a child that was started with [`Stdio::Socket`]. It blocks.
    Socket(OwnedFd),
}

/// The child's ends of its output streams, which the server holds open too. While this value exists and is not empty,
/// reading that output does not reach its end. Drop it when the child has exited.
///
/// For a terminal: a child that has redirected its standard streams, as `ssh` and `gpg` do before they ask for a
/// password, can still open `/dev/tty` until it exits, so reading from the terminal must not end before that. For
/// pipes: the end of a pipe is of no use before the exit, and noticing it would wake the server one more time. With
/// many children this value is empty for pipes.
#[derive(Debug, Default)]
pub struct HeldEnds {
    ends: Vec<OwnedFd>,
}

impl HeldEnds {
    pub(crate) fn new(ends: Vec<OwnedFd>) -> Self {
        Self { ends }
    }
}

/// The descriptors of a child that another process makes.
pub(crate) struct MakerDescriptors {
    /// Stdin, stdout and stderr.
    pub(crate) standard: [OwnedFd; 3],
    /// The pipe of a report, or the socket.
    pub(crate) extra: Option<OwnedFd>,
}

/// The streams of a child that is about to be started.
pub(crate) struct Wiring {
    io: ChildIo,
    /// The child's ends of its pipes. They stay open until the child has its own copies.
    pub(crate) child_ends: Vec<OwnedFd>,
}

impl Wiring {
    pub(crate) fn new(stdio: Stdio, actions: &mut FileActions) -> io::Result<Self> {
        match stdio {
            Stdio::Pipes { stdin } => Self::pipes(stdin, actions),
            Stdio::Pty(size) => {
                let (pty, path, held) = Pty::open(size)?;
                actions.open(0, &path, libc::O_RDWR);
                actions.duplicate(0, 1);
                actions.duplicate(0, 2);
                Ok(Self { io: ChildIo::Pty { pty, held }, child_ends: Vec::new() })
            }
            Stdio::Report { descriptor } => {
                let (report, child_end) = descriptors::pipe()?;
                actions.open(0, c"/dev/null", libc::O_RDWR);
                actions.duplicate(0, 1);
                actions.duplicate(0, 2);
                // No later action may use a descriptor of the server, because this action replaces the one that has
                // this number now.
                actions.duplicate(child_end.as_raw_fd(), descriptor);
                Ok(Self { io: ChildIo::Report(ChildOutput::from_pipe(report)?), child_ends: vec![child_end] })
            }
            Stdio::Socket { descriptor } => {
                let (ours, child_end) = descriptors::socket_pair()?;
                actions.open(0, c"/dev/null", libc::O_RDWR);
                actions.duplicate(0, 1);
                actions.duplicate(0, 2);
                actions.duplicate(child_end.as_raw_fd(), descriptor);
                Ok(Self { io: ChildIo::Socket(ours), child_ends: vec![child_end] })
            }
        }
    }

    fn pipes(stdin: StdinMode, actions: &mut FileActions) -> io::Result<Self> {
        let mut child_ends = Vec::with_capacity(3);
        let mut connect = |child_end: OwnedFd, target, actions: &mut FileActions| {
            actions.duplicate(child_end.as_raw_fd(), target);
            child_ends.push(child_end);
        };
        let stdin = match stdin {
            StdinMode::Null => {
                actions.open(0, c"/dev/null", libc::O_RDONLY);
                None
            }
            StdinMode::Piped => {
                let (child_end, our_end) = descriptors::pipe()?;
                connect(child_end, 0, actions);
                Some(ChildInput::from_pipe(our_end)?)
            }
        };
        let (stdout, child_end) = descriptors::pipe()?;
        connect(child_end, 1, actions);
        let (stderr, child_end) = descriptors::pipe()?;
        connect(child_end, 2, actions);
        let (stdout, stderr, held) =
            (ChildOutput::from_pipe(stdout)?, ChildOutput::from_pipe(stderr)?, HeldEnds::default());
        Ok(Self { io: ChildIo::Pipes { stdin, stdout, stderr, held }, child_ends })
    }

    /// The descriptors that a child gets which another process makes: its standard streams, and the report if it writes one.
    pub(crate) fn descriptors_for_maker(&self) -> io::Result<MakerDescriptors> {
        let null = || {
            let flags = OFlags::RDWR | OFlags::CLOEXEC;
            descriptors::above_stdio(rustix::fs::open(c"/dev/null", flags, Mode::empty())?)
        };
        let copy = |end: &OwnedFd| end.try_clone();
        let (standard, extra) = match (&self.io, self.child_ends.as_slice()) {
            (ChildIo::Pipes { .. }, [stdin, stdout, stderr]) => ([copy(stdin)?, copy(stdout)?, copy(stderr)?], None),
            (ChildIo::Pipes { .. }, [stdout, stderr]) => ([null()?, copy(stdout)?, copy(stderr)?], None),
            (ChildIo::Pty { held, .. }, _) => match held.ends.as_slice() {
                [slave, ..] => ([copy(slave)?, copy(slave)?, copy(slave)?], None),
                [] => return Err(io::ErrorKind::NotConnected.into()),
            },
            (_, [end, ..]) => ([null()?, null()?, null()?], Some(copy(end)?)),
            _ => return Err(io::ErrorKind::NotConnected.into()),
        };
        Ok(MakerDescriptors { standard, extra })
    }

    /// Call this once the child has its own copies of its ends. With `hold_pipes` the child's ends of the output pipes stay open in
    /// [`HeldEnds`], and otherwise they are closed. The slave of a terminal is held in both cases.
    pub(crate) fn finish(mut self, hold_pipes: bool) -> ChildIo {
        if let ChildIo::Pipes { stdin, held, .. } = &mut self.io
            && hold_pipes
        {
            // The first element is the end of stdin, if the child has a pipe for it. It is closed, because holding it open would hide that
            // the child has closed its stdin.
            self.child_ends.drain(..usize::from(stdin.is_some()));
            *held = HeldEnds::new(self.child_ends);
        }
        self.io
    }
}
