//! Joins the standard streams of a child to us: makes pipes or a terminal, and says what the child must do to have them as 0, 1 and
//! 2. Everything is undone by dropping.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::command::{StdinMode, Stdio};
use crate::descriptors;
use crate::pty::Pty;
use crate::streams::{ChildInput, ChildOutput};
use crate::vfork::FileActions;

/// Our ends of the standard streams of a child.
#[derive(Debug)]
pub enum ChildIo {
    /// A pipe each.
    Pipes {
        /// Present if the child was started with [`StdinMode::Piped`].
        stdin: Option<ChildInput>,
        /// The child's stdout.
        stdout: ChildOutput,
        /// The child's stderr.
        stderr: ChildOutput,
        /// To be kept until the child has exited, and no longer.
        held: HeldEnds,
    },
    /// One terminal for all three.
    Pty {
        /// Our side of it.
        pty: Pty,
        /// To be kept until the child has exited, and no longer.
        held: HeldEnds,
    },
    /// What a child that was started with [`Stdio::Report`] reports.
    Report(ChildOutput),
}

/// The child's ends of its output streams, which we hold open too. While this lives, that output does not end.
///
/// A leader that has redirected its standard streams, as `ssh` and `gpg` do before they ask for a password, can open `/dev/tty` until
/// it exits, so a terminal must not end before that. The end of a pipe could be told earlier, but nobody needs it before the exit, and
/// noticing it costs a wake-up. Keep this until the leader has exited, and then drop it, or the output will never end.
#[derive(Debug, Default)]
pub struct HeldEnds {
    _ends: Vec<OwnedFd>,
}

impl HeldEnds {
    pub(crate) fn new(ends: Vec<OwnedFd>) -> Self {
        Self { _ends: ends }
    }
}

/// Streams of a child that is about to be started.
pub(crate) struct Wiring {
    io: ChildIo,
    /// The child's ends of its pipes, open until the child has its own copies.
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
                let (report, theirs) = descriptors::pipe()?;
                actions.open(0, c"/dev/null", libc::O_RDWR);
                actions.duplicate(0, 1);
                actions.duplicate(0, 2);
                // The last action: the number may be in use for something that an earlier action needs.
                actions.duplicate(theirs.as_raw_fd(), descriptor);
                Ok(Self { io: ChildIo::Report(ChildOutput::from_pipe(report)?), child_ends: vec![theirs] })
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
                Some(ChildInput::from_pipe(ours)?)
            }
        };
        let (stdout, theirs) = descriptors::pipe()?;
        connect(theirs, 1, actions);
        let (stderr, theirs) = descriptors::pipe()?;
        connect(theirs, 2, actions);
        let (stdout, stderr, held) =
            (ChildOutput::from_pipe(stdout)?, ChildOutput::from_pipe(stderr)?, HeldEnds::default());
        Ok(Self { io: ChildIo::Pipes { stdin, stdout, stderr, held }, child_ends })
    }

    /// Once the child has its own copies of its ends. With `hold_pipes` the ends of its output pipes are held, else only a terminal is.
    pub(crate) fn finish(mut self, hold_pipes: bool) -> ChildIo {
        if let ChildIo::Pipes { stdin, held, .. } = &mut self.io
            && hold_pipes
        {
            // Its end of stdin comes first, if it has one. Holding that would hide that nobody reads the input any more.
            self.child_ends.drain(..usize::from(stdin.is_some()));
            *held = HeldEnds::new(self.child_ends);
        }
        self.io
    }
}
