//! The process that a [`Spawner`](crate::Spawner) runs in. Some protections need changes that concern the whole
//! process, and a program with other work and other children must not get them by surprise. So a spawner makes no
//! such changes itself; a program asks for them with [`HostProcess::dedicate`].

use std::io;

use crate::children::children;
use crate::descriptors::set_inherited_fds_close_on_exec;
use crate::rlimit;
use crate::signals;

/// Says whether the process of a server does anything else. A program needs this value to make a [`Spawner`](crate::Spawner). A program
/// with other work or other children uses [`Self::shared`]. A program whose only purpose is the server calls [`Self::dedicate`].
///
/// In both cases a child that the program starts itself, for example with [`std::process::Command`], never gets a [`Tag`](crate::Tag), the
/// number by which the server finds its own processes.
#[derive(Clone, Copy, Debug)]
#[must_use = "a Spawner is made with this value"]
pub struct HostProcess(());

impl HostProcess {
    /// The process has other work too, and may start children of its own. Nothing that belongs to the whole process is changed: no limit,
    /// no signal, no descriptor flag. The server signals and reaps only processes that it has started, and their descendants.
    ///
    /// In return the program must do some things itself:
    /// - It must not ignore `SIGCHLD`, and must not wait for children that it has not started (`waitpid(-1)`). Otherwise the exit statuses
    ///   of the server's processes are lost, and are reported as -1.
    /// - It should raise its soft limit of open files (`RLIMIT_NOFILE`): the server needs at least three descriptors
    ///   for each process.
    /// - If the size of files is limited (`RLIMIT_FSIZE`), it should ignore `SIGXFSZ`. Otherwise an upload beyond the limit ends the
    ///   program.
    ///
    /// When a tree (a process that the server has started, and its descendants) is killed, a process of the tree can
    /// be missed if it has removed its tag and all of its ancestors in the tree have ended.
    pub fn shared() -> Self {
        Self(())
    }

    /// Prepares this process to be a server and nothing else. It must have no children of its own that lead a session, and no program that
    /// it starts may leave such a process behind: [`Spawner::kill_all`](crate::Spawner::kill_all) would kill it. Call this at the beginning
    /// of `main`. The changes concern the whole process and last until it ends:
    /// - It becomes the child subreaper: every orphan among its descendants becomes its child. So orphans that have removed their tag are
    ///   found too, and the server reaps the orphans that have ended.
    /// - Every open descriptor from 3 on becomes close-on-exec.
    /// - The soft limit of open files (`RLIMIT_NOFILE`) is raised to the hard limit. Processes of the server get the old limit.
    /// - `SIGXFSZ` is ignored, so that a write beyond the limit of file sizes fails with an error.
    /// - `SIGCHLD` gets its default action if it was ignored, so that exit statuses are not lost.
    pub fn dedicate() -> io::Result<Self> {
        set_inherited_fds_close_on_exec()?;
        rlimit::raise_open_files();
        signals::keep_exit_statuses();
        signals::ignore_file_size_signal();
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        children().adopt_orphans();
        Ok(Self(()))
    }
}
