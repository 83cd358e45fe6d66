//! The spawner: starts processes under tags and ends the trees they grow into. There is one for each server; it joins the other
//! files of this crate and has no rules of its own.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tokio::io::Interest;

use crate::cancel_flag::CancelFlag;
use crate::child::Child;
use crate::children::{Announcement, any_has_ended, children};
use crate::command::SpawnCommand;
use crate::descriptors::{above_stdio, set_inherited_fds_close_on_exec, watch};
use crate::ender::{Ender, KillFuture};
use crate::error::SpawnError;
use crate::execute::execute;
use crate::guard::{Guard, GuardProgram};
use crate::hunt::{self, Purpose};
use crate::image::{Image, program};
use crate::launcher::Launcher;
use crate::lock::lock;
use crate::lookup::Candidates;
use crate::procfs;
use crate::rlimit::{self, ChildLimits};
use crate::signals;
use crate::tag::{Instance, Scope, SessionNumbers, SessionTags, Tag};
use crate::vfork::FileActions;
use crate::wiring::{ChildIo, Wiring};

/// Starts processes and ends their trees. Shared by all threads of a server.
#[derive(Debug)]
pub struct Spawner {
    instance: Instance,
    sessions: Arc<SessionNumbers>,
    tags_work: bool,
    guard: Mutex<Option<Guard>>,
    launcher: Option<Launcher>,
    ender: Ender,
}

/// With so many processes, copying the descriptor table of the server costs more than handing the few that matter to a thread
/// with a table of its own.
const CROWD: usize = 100;

/// With so few processes, we hold their ends of their pipes, so that one wake-up tells their end. It costs two descriptors each, and
/// with more processes the server is awake anyway.
const FEW: usize = 16;

/// A process that was started.
#[derive(Debug)]
pub struct Spawned {
    /// The process.
    pub child: Child,
    /// Our ends of its standard streams.
    pub io: ChildIo,
}

impl Spawner {
    /// Prepares this process for having children: it becomes the one that orphans of their trees come to, what it has inherited is
    /// not passed on, and it may open as many files as the hard limit allows. The guard, if wanted, is running on return, and so is the thread that ends processes.
    pub fn new(guard: Option<GuardProgram>) -> io::Result<Self> {
        set_inherited_fds_close_on_exec()?;
        rlimit::raise_open_files();
        signals::keep_exit_statuses();
        signals::survive_large_writes();
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let instance = Instance::unused(&instances_in_use()?);
        let sessions = SessionNumbers::new(instance);
        let tags_work = rlimit::can_be_set(sessions.new_session().next());
        let guard = guard.map(|program| Guard::start(program, instance)).transpose()?;
        let (launcher, ender) = (Launcher::start(), Ender::start()?);
        Ok(Self { instance, sessions, tags_work, guard: Mutex::new(guard), launcher, ender })
    }

    /// Tags for the processes of one session.
    pub fn session_tags(&self) -> SessionTags {
        self.sessions.new_session()
    }

    /// Whether trees are found by tag. If not, because the hard limit of realtime CPU time is set, a process that detaches itself
    /// from its parents and its session is only found by [`Self::kill_all`], and by no guard.
    pub fn tags_work(&self) -> bool {
        self.tags_work
    }

    /// Starts a process, unless the flag is set before the program is executed. If the flag is set while the kernel opens the program, the
    /// child is left to [`Self::kill_tree`]. Blocks for a fraction of a millisecond, or for as long as the file system of the program does.
    ///
    /// # Panics
    /// Outside of a tokio runtime with IO enabled.
    pub fn spawn(
        &self,
        command: &SpawnCommand,
        tag: Tag,
        cancelled: &Arc<CancelFlag>,
    ) -> Result<Spawned, SpawnError> {
        if cancelled.is_cancelled() {
            return Err(SpawnError::Cancelled);
        }
        let image = Arc::new(Image::new(command)?);
        let program = program(command)?;
        let candidates = Candidates::new(program, &command.env)?;
        let cwd = open_directory(&command.cwd)?;
        let mut actions = FileActions::default();
        actions.change_directory(cwd.as_fd());
        let wiring =
            Wiring::new(command.stdio, &mut actions).map_err(SpawnError::resource("make its standard streams"))?;
        if let Some(mask) = command.umask {
            actions.set_umask(mask);
        }
        actions.end_if_cancelled(Arc::clone(cancelled));

        let actions = Arc::new(actions);
        let announcement = Announcement::new(tag);
        let company = children().count();
        let launcher = self.launcher.as_ref().filter(|_| company >= CROWD);
        let sent: Vec<_> = wiring.child_ends.iter().map(AsFd::as_fd).chain([cwd.as_fd()]).collect();
        let limits = ChildLimits::new(self.tags_work.then_some(tag));
        let spawned = candidates.first_that_runs(cwd.as_fd(), |path| {
            launcher
                .and_then(|launcher| launcher.launch(path, &image, &actions, limits, &sent))
                .unwrap_or_else(|| execute(path, &image, &actions, &limits))
        });
        let executing = spawned.map_err(|error| match error {
            Errno::CANCELED if cancelled.is_cancelled() => SpawnError::Cancelled,
            Errno::MFILE | Errno::NFILE => SpawnError::resource("open a descriptor for the process")(error),
            _ => SpawnError::Program { path: program.into(), source: error.into() },
        })?;
        let pid = executing.pid;
        announcement.settle(pid);
        // The launcher gives us no descriptor of the child. The number of this one is then free for it.
        drop(cwd);
        let child = Child::adopt(executing, tag).map_err(|error| {
            abandon(pid, tag);
            SpawnError::resource("watch the process")(error)
        })?;
        Ok(Spawned { child, io: wiring.finish(company < FEW) })
    }

    /// Kills a process and everything it has started. The end has come when all of it is gone; the leader may be left as a zombie
    /// for [`Child::wait`]. The patience counts from when the thread that ends processes turns to it.
    pub fn kill_tree(&self, tag: Tag, patience: Duration) -> KillFuture {
        self.ender.ask(Scope::Tree(tag), Purpose::Kill { patience })
    }

    /// The same for all processes of a session at once.
    pub fn kill_session(&self, tags: &SessionTags, patience: Duration) -> KillFuture {
        self.ender.ask(tags.scope(), Purpose::Kill { patience })
    }

    /// The same for all processes of this server, including children of it that have thrown away tag and session.
    pub fn kill_all(&self, patience: Duration) -> KillFuture {
        self.ender.ask(Scope::Everything(self.instance), Purpose::Kill { patience })
    }

    /// Signals every process of this server that one look at all processes of the machine finds, as far as it is permitted.
    pub fn signal_all(&self, signal: Signal) -> KillFuture {
        self.ender.ask(Scope::Everything(self.instance), Purpose::Signal(signal))
    }

    /// Those of the tags that a process still carries, or all of them if `/proc` cannot be read; none where trees are not found by tag.
    /// Blocks for one look at all processes of the machine.
    pub fn still_running(&self, tags: &HashSet<Tag>) -> HashSet<Tag> {
        if !self.tags_work {
            return HashSet::new();
        }
        let mut carried = HashSet::new();
        let seen = procfs::each_process(|pid| carried.extend(rlimit::tag_of(pid).filter(|tag| tags.contains(tag))));
        if seen.is_ok() { carried } else { tags.clone() }
    }

    /// Reaps ended orphans that have come to us. To be called now and then; costs one system call when there are none.
    pub fn reap_orphans(&self) {
        if any_has_ended() {
            let _next_time = hunt::reap_strangers();
        }
    }

    /// Whether the guard has been killed and nobody is starting another. Never blocks, and costs one system call.
    pub fn needs_guard(&self) -> bool {
        let guard = self.guard.try_lock();
        guard.is_ok_and(|guard| guard.as_ref().is_some_and(Guard::has_ended))
    }

    /// Lets the guard go on if somebody has stopped it. To be called now and then. Never blocks, and costs one system call.
    pub fn continue_guard(&self) {
        if let Ok(guard) = self.guard.try_lock() {
            guard.iter().for_each(Guard::continue_if_stopped);
        }
    }

    /// Waits until the guard that there is now has been killed; for ever if no guard was wanted. Fails at once if there is no descriptor to
    /// watch it with. Must be called inside a runtime.
    pub async fn wait_for_guard_end(&self) -> io::Result<()> {
        let end = lock(&self.guard).as_ref().map(Guard::end);
        match end {
            Some(end) => watch(end?, Interest::READABLE)?.readable().await.map(drop),
            None => std::future::pending().await,
        }
    }

    /// Starts a new guard if the old one has been killed. Blocks for as long as starting a process does.
    pub fn ensure_guard(&self) -> io::Result<()> {
        lock(&self.guard).as_mut().map_or(Ok(()), Guard::revive)
    }
}

fn instances_in_use() -> io::Result<HashSet<Instance>> {
    let mut instances = HashSet::new();
    procfs::each_process(|pid| instances.extend(rlimit::tag_of(pid).map(Tag::instance)))?;
    Ok(instances)
}

/// Opened by us and not by the child, so that an error is known to be about the directory. The dot at the end asks for permission
/// to enter it, which opening alone does not.
fn open_directory(path: &Path) -> Result<OwnedFd, SpawnError> {
    let inside = if path.as_os_str().is_empty() { path.into() } else { path.join(".") };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(&inside, flags, Mode::empty())
        .map_err(|error| match error {
            Errno::INVAL if path.as_os_str().as_encoded_bytes().contains(&0) => SpawnError::NulByte { place: "cwd" },
            other => SpawnError::Cwd { path: path.into(), source: other.into() },
        })
        .and_then(|directory| above_stdio(directory).map_err(SpawnError::resource("open the cwd")))
}

/// Ends a child that nobody can watch, because descriptors have run out.
fn abandon(pid: Pid, tag: Tag) {
    let _is_ours = rustix::process::kill_process_group(pid, Signal::KILL);
    let _nobody_asks = rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
    children().forget_reaped(pid, tag);
}
