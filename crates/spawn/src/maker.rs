//! Children that another process, the launcher of a sandbox, makes for the server. The child is a child of the server all the same, so
//! everything but the start is as with any other child. This crate does not know how the sandbox works: the caller
//! implements [`ChildMaker`].

use std::ffi::CString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// Makes children in a sandbox.
pub trait ChildMaker: Send + Sync {
    /// Makes a child and waits until it executes its program. The server shuts down its end of `connection` to cancel the
    /// start. Directly before the program is executed, the child must check that the start was not cancelled.
    fn make(&self, child: &ChildRequest<'_>, connection: StartConnection<'_>) -> Result<MadeChild, MakeError>;
}

/// A child that runs.
#[derive(Debug)]
pub struct MadeChild {
    /// The process id.
    pub pid: i32,
    /// A socket. The server shuts it down when it has reaped the child, to tell the sandbox. None: the sandbox need not know.
    pub lifeline: Option<Arc<OwnedFd>>,
}

/// Both ends of the socket pair of a start.
#[derive(Debug)]
pub struct StartConnection<'a> {
    /// The end that the server keeps.
    pub server_end: BorrowedFd<'a>,
    /// The end for the process that makes the child. [`ChildMaker::make`] must close it after it was sent to that process.
    pub maker_end: OwnedFd,
}

/// The child to make.
#[derive(Clone, Copy, Debug)]
pub struct ChildRequest<'a> {
    /// Paths of the program, in the order in which they are tried.
    pub candidates: &'a [CString],
    /// Whether the candidates come from a search along `PATH`, so that missing ones are skipped.
    pub searched: bool,
    /// The arguments, `argv[0]` first.
    pub argv: &'a [CString],
    /// The whole environment, as `NAME=VALUE`.
    pub env: &'a [CString],
    /// The working directory.
    pub cwd: &'a Path,
    /// The file mode creation mask. None: that of the server.
    pub umask: Option<u32>,
    /// The resource limit that is the tag: number of the resource, soft limit, hard limit. It must be the first thing that the child
    /// sets. None: processes have no tags.
    pub tag: Option<(u32, u64, u64)>,
    /// Further resource limits, in the order in which they are set.
    pub limits: &'a [(u32, u64, u64)],
    /// Whether stdin is a terminal, which becomes the controlling terminal of the child.
    pub terminal: bool,
    /// Stdin, stdout and stderr.
    pub standard: [BorrowedFd<'a>; 3],
    /// A further descriptor, and the number that it gets in the child.
    pub extra: Option<(BorrowedFd<'a>, i32)>,
    /// The file `cgroup.procs` of the cgroup that the child enters, open for writing. None: the child stays in the cgroup of its maker.
    pub cgroup_procs: Option<BorrowedFd<'a>>,
}

/// Why no child was made.
#[derive(Debug)]
pub enum MakeError {
    /// The working directory could not be entered.
    Cwd(io::Error),
    /// The program could not be executed.
    Program(io::Error),
    /// The start was cancelled.
    Cancelled,
    /// The sandbox could not make the child. The text continues a sentence that begins with "cannot".
    Resource(&'static str, io::Error),
}
