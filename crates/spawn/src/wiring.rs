//! Joins the standard streams of a child to us: makes pipes or a terminal, and says what the child must do to have them as 0, 1 and
//! 2. Everything is undone by dropping.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::command::{StdinMode, Stdio};
use crate::descriptors;
use crate::pty::{HeldSlave, Pty};
use crate::streams::{Input, Output};
use crate::vfork::FileActions;

/// Our ends of the standard streams of a child.
#[derive(Debug)]
pub enum ChildIo {
    /// A pipe each.
    Pipes {
        /// Present if the child was started with [`StdinMode::Piped`].
        stdin: Option<Input>,
        /// The child's stdout.
        stdout: Output,
        /// The child's stderr.
        stderr: Output,
    },
    /// One terminal for all three.
    Pty {
        /// Our side of it.
        pty: Pty,
        /// To be kept until the child has exited, and no longer.
        slave: HeldSlave,
    },
    /// What a child that was started with [`Stdio::Report`] reports.
    Report(Output),
}

/// Streams of a child that is about to be started.
pub(crate) struct Wiring {
    pub(crate) io: ChildIo,
    /// Kept open until the child has its own copies; if we held them longer, its output would never end.
    pub(crate) child_ends: Vec<OwnedFd>,
}

impl Wiring {
    pub(crate) fn new(stdio: Stdio, actions: &mut FileActions) -> io::Result<Self> {
        match stdio {
            Stdio::Pipes { stdin } => Self::pipes(stdin, actions),
            Stdio::Pty(size) => {
                let (pty, path, slave) = Pty::open(size)?;
                actions.open(0, &path, libc::O_RDWR);
                actions.duplicate(0, 1);
                actions.duplicate(0, 2);
                Ok(Self { io: ChildIo::Pty { pty, slave }, child_ends: Vec::new() })
            }
            Stdio::Report { descriptor } => {
                let (report, theirs) = descriptors::pipe()?;
                actions.open(0, c"/dev/null", libc::O_RDWR);
                actions.duplicate(0, 1);
                actions.duplicate(0, 2);
                // The last action: the number may be in use for something that an earlier action needs.
                actions.duplicate(theirs.as_raw_fd(), descriptor);
                Ok(Self { io: ChildIo::Report(Output::from_pipe(report)?), child_ends: vec![theirs] })
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
                let (theirs, ours) = descriptors::pipe()?;
                connect(theirs, 0, actions);
                Some(Input::from_pipe(ours)?)
            }
        };
        let (stdout, theirs) = descriptors::pipe()?;
        connect(theirs, 1, actions);
        let (stderr, theirs) = descriptors::pipe()?;
        connect(theirs, 2, actions);
        Ok(Self {
            io: ChildIo::Pipes { stdin, stdout: Output::from_pipe(stdout)?, stderr: Output::from_pipe(stderr)? },
            child_ends,
        })
    }
}
