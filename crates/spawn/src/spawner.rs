//! The entry point of this crate: starts processes, kills trees, and starts the guard again if it has ended. A
//! process that the server has started is the *leader* of a *tree*, which consists of the leader and all of its
//! descendants. A server has one [`Spawner`]. The other modules do the work: `vfork` makes the child, `kill_thread`
//! kills trees, and `guard` runs a process that kills all trees after the server has ended.

mod in_sandbox;

use std::collections::HashSet;
use std::ffi::OsStr;
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
use crate::cgroup::{CgroupLimits, Controllers, ServerCgroup, TreeCgroup, remove_empty_cgroups};
use crate::child::{Accounting, Child};
use crate::children::{StartingLeader, children, reap_unclaimed_children};
use crate::command::SpawnCommand;
use crate::descriptors::{above_stdio, watch};
use crate::error::SpawnError;
use crate::exec_args::{ExecArgs, program};
use crate::execute::execute;
use crate::guard::{Guard, GuardProgram};
use crate::guard_notes::GuardNotes;
use crate::host::HostProcess;
use crate::hunt::HuntPurpose;
use crate::kill_thread::{KillFuture, KillThread};
use crate::limits::{LimitPlan, MemoryLimitScope, SpawnLimits, UnenforceableLimit, WatchedLimits};
use crate::lock::lock;
use crate::lookup::ProgramCandidates;
use crate::procfs;
use crate::rlimit::{self, ChildLimits};
use crate::spawn_thread::SpawnThread;
use crate::tag::{Scope, ServerInstance, SessionNumbers, SessionTags, Tag};
use crate::vfork::FileActions;
use crate::wiring::{ChildIo, Wiring};

/// Starts processes and kills their trees. All threads of a server share one spawner.
#[derive(Debug)]
pub struct Spawner {
    instance: ServerInstance,
    sessions: Arc<SessionNumbers>,
    /// Whether processes get tags. The error says why not.
    tags: Result<(), String>,
    /// None if the server runs without a guard.
    guard: Mutex<Option<Guard>>,
    /// None if the kernel or a sandbox does not let a thread have its own descriptor table.
    spawn_thread: Option<SpawnThread>,
    kill_thread: KillThread,
    /// In which trees with limits get a cgroup each. The error says why this server cannot use cgroups.
    cgroup: Result<ServerCgroup, String>,
    notes: Option<Arc<GuardNotes>>,
}

/// From this many children on, a start goes through the [`SpawnThread`]: copying the descriptor table of the server then costs more than
/// sending the few descriptors that the child needs to a thread with its own table.
const SPAWN_THREAD_MIN_CHILDREN: usize = 100;

/// With fewer other children than this, the server holds a new child's ends of its output pipes open, so that the
/// exit of a child wakes the server once and not once for each pipe. This costs two descriptors for each child, and
/// with more children the server is awake anyway.
const HOLD_PIPES_BELOW_CHILDREN: usize = 16;

/// A started process and the server's ends of its streams.
#[derive(Debug)]
pub struct Spawned {
    /// Waits for the process and signals it.
    pub child: Child,
    /// The server's ends of the standard streams, in the form that [`SpawnCommand::stdio`] asked for.
    pub io: ChildIo,
}

impl Spawner {
    /// Makes a spawner. `_host` comes from [`HostProcess::dedicate`] or [`HostProcess::shared`], which say what they
    /// require of this process. On return, the thread that kills processes runs, and so does the guard if `guard` is
    /// given.
    pub fn new(_host: HostProcess, guard: Option<GuardProgram>) -> io::Result<Self> {
        let instance = ServerInstance::unused(&instances_in_use()?);
        let sessions = SessionNumbers::new(instance);
        let tags = rlimit::check_tag(sessions.new_session().next());
        // Before the guard is started, because this process may have to change its own cgroup, and the guard looks there
        // for cgroups of the server.
        let cgroup = ServerCgroup::new(instance);
        // Without memory for the notes, the guard works without them.
        let notes = GuardNotes::new().ok().map(Arc::new);
        let guard = guard.map(|program| Guard::start(program, instance, notes.clone())).transpose()?;
        let (spawn_thread, kill_thread) = (SpawnThread::start(), KillThread::start()?);
        Ok(Self { instance, sessions, tags, guard: Mutex::new(guard), notes, spawn_thread, kill_thread, cgroup })
    }

    /// The notes that the guard can read after the server has ended. None if they could not be made.
    pub fn guard_notes(&self) -> Option<Arc<GuardNotes>> {
        self.notes.clone()
    }

    /// Reserves tags for the processes of a new session of a client.
    pub fn session_tags(&self) -> SessionTags {
        self.sessions.new_session()
    }

    /// Whether processes get tags. A tag is stored as the soft limit `RLIMIT_RTTIME` of a process, so processes get
    /// none if the hard limit is lower than the tags. Without tags, a process whose parent has ended and that has
    /// left the kernel session (`setsid`) of its leader is found only by [`Self::kill_all`] in a dedicated process
    /// ([`HostProcess::dedicate`]), and no guard finds it.
    pub fn tags_work(&self) -> bool {
        self.tags.is_ok()
    }

    /// As [`Self::tags_work`]. The error is a sentence that says what is in the way and what to do.
    pub fn check_tags(&self) -> Result<(), String> {
        self.tags.clone()
    }

    /// Whether a process with these limits can be started here. If not, the error says which limit cannot be enforced, why, and
    /// what to do.
    pub fn check_limits(&self, limits: &SpawnLimits) -> Result<(), UnenforceableLimit> {
        self.limit_plan(limits).map(drop)
    }

    /// What a limit of memory applies to.
    pub fn memory_limit_scope(&self) -> MemoryLimitScope {
        let controllers = self.cgroup.as_ref().map_or_else(|_| Controllers::default(), ServerCgroup::controllers);
        if controllers.memory { MemoryLimitScope::Tree } else { MemoryLimitScope::EachProcess }
    }

    fn limit_plan(&self, limits: &SpawnLimits) -> Result<LimitPlan, UnenforceableLimit> {
        match &self.cgroup {
            Ok(cgroup) => {
                let missing = cgroup.missing_controllers();
                LimitPlan::new(limits, cgroup.controllers(), missing.as_deref().unwrap_or_default())
            }
            Err(problem) => LimitPlan::new(limits, Controllers::default(), problem),
        }
    }

    fn make_cgroup(&self, limits: CgroupLimits, tag: Tag) -> io::Result<TreeCgroup> {
        let cgroup = self.cgroup.as_ref().map_err(|problem| io::Error::other(problem.clone()))?;
        cgroup.make_tree_cgroup(limits, tag)
    }

    /// Starts a process. Returns [`SpawnError::Cancelled`] if the flag is set before the child executes the program. If the flag is set
    /// later, while the kernel opens the program, the start goes on, and the caller must end the child with [`Self::kill_tree`].
    ///
    /// Usually blocks for a fraction of a millisecond. Blocks up to 31 ms longer if the program is open for writing,
    /// and for as long as opening the working directory or the program blocks, for example on a dead network mount.
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
        let plan = command.limits.map(|limits| self.limit_plan(&limits)).transpose()?;
        let args = Arc::new(ExecArgs::new(command)?);
        let program = program(command)?;
        let candidates = ProgramCandidates::new(program, &command.env)?;
        let cwd = open_directory(&command.cwd)?;
        let cgroup_failed = SpawnError::resource("make a cgroup for the limits of the process");
        let cgroup = plan.as_ref().and_then(|plan| plan.cgroup).map(|limits| self.make_cgroup(limits, tag));
        let cgroup = cgroup.transpose().map_err(cgroup_failed)?;
        let cgroup_procs = cgroup.as_ref().map(TreeCgroup::open_procs).transpose();
        let cgroup_procs = cgroup_procs.map_err(SpawnError::resource("open the cgroup of the process"))?;
        let mut actions = FileActions::default();
        if let Some(procs) = &cgroup_procs {
            actions.enter_cgroup(procs.as_fd());
        }
        actions.change_directory(cwd.as_fd());
        let wiring = Wiring::new(command.stdio, &mut actions)
            .map_err(SpawnError::resource("open the standard streams of the process"))?;
        if let Some(mask) = command.umask {
            actions.set_umask(mask);
        }
        actions.end_if_cancelled(Arc::clone(cancelled));

        let actions = Arc::new(actions);
        let starting = StartingLeader::new(tag);
        let other_children = children().leader_count();
        let spawn_thread = self.spawn_thread.as_ref().filter(|_| other_children >= SPAWN_THREAD_MIN_CHILDREN);
        let other_fds = [Some(cwd.as_fd()), cgroup_procs.as_ref().map(AsFd::as_fd)];
        let fds_for_child: Vec<_> =
            wiring.child_ends.iter().map(AsFd::as_fd).chain(other_fds.into_iter().flatten()).collect();
        let resources = plan.as_ref().map_or(&[][..], |plan| &plan.resources);
        let limits = ChildLimits::new(self.tags_work().then_some(tag), resources);
        let spawned = candidates.first_that_runs(cwd.as_fd(), |path| {
            // `spawn` returns None if the spawn thread is busy or has failed. Then this thread starts the child itself.
            spawn_thread
                .and_then(|thread| thread.spawn(path, &args, &actions, &limits, &fds_for_child))
                .unwrap_or_else(|| execute(path, &args, &actions, &limits))
        });
        let started = spawned.map_err(|error| match error {
            Errno::CANCELED if cancelled.is_cancelled() => SpawnError::Cancelled,
            Errno::MFILE | Errno::NFILE => SpawnError::resource("open a descriptor for the process")(error),
            _ => not_executed(command, program, error.into()),
        })?;
        let pid = started.pid;
        starting.started(pid);
        // The spawn thread returns no pidfd, so `Child::new` opens one. Closing `cwd` first leaves a descriptor number
        // for the pidfd.
        drop(cwd);
        drop(cgroup_procs);
        let accounting = plan.map(|plan| Accounting { watched: WatchedLimits::new(&plan), cgroup });
        let child = Child::new(started, tag, accounting, None).map_err(|error| {
            kill_unwatched(pid, tag);
            SpawnError::resource("watch the process")(error)
        })?;
        Ok(Spawned { child, io: wiring.finish(other_children < HOLD_PIPES_BELOW_CHILDREN) })
    }

    /// Kills a tree: the process that was started with this tag, and all of its descendants. The future completes
    /// when all of them have ended; the leader may be left as a zombie for [`Child::wait`]. The future completes with
    /// an error if some processes may not be killed or have not ended after the timeout, which starts when the thread
    /// that kills processes begins with this tree.
    pub fn kill_tree(&self, tag: Tag, timeout: Duration) -> KillFuture {
        self.kill_thread.request(Scope::Tree(tag), HuntPurpose::Kill { timeout })
    }

    /// Like [`Self::kill_tree`], for all trees of a client's session at once.
    pub fn kill_session(&self, tags: &SessionTags, timeout: Duration) -> KillFuture {
        self.kill_thread.request(tags.scope(), HuntPurpose::Kill { timeout })
    }

    /// Like [`Self::kill_tree`], for all trees of this server. In a process that is dedicated to the server
    /// ([`HostProcess::dedicate`]), also kills children of this process that have no tag and are neither in the
    /// kernel session (`setsid`) of this process nor in that of a leader.
    pub fn kill_all(&self, timeout: Duration) -> KillFuture {
        self.kill_thread.request(Scope::Everything(self.instance), HuntPurpose::Kill { timeout })
    }

    /// Sends a signal once to every process that [`Self::kill_all`] would find now. Processes that this user may not
    /// signal are skipped. The future completes when the signals are sent, and not when the processes have ended.
    pub fn signal_all(&self, signal: Signal) -> KillFuture {
        self.kill_thread.request(Scope::Everything(self.instance), HuntPurpose::Signal(signal))
    }

    /// Returns those of `tags` that a process still has. A process that has ended counts until it is reaped. Returns
    /// all of `tags` if `/proc` cannot be read, and none if processes get no tags (see [`Self::tags_work`]). Blocks
    /// while it reads the limits of every process of the machine.
    pub fn still_running(&self, tags: &HashSet<Tag>) -> HashSet<Tag> {
        if !self.tags_work() {
            return HashSet::new();
        }
        let mut running = HashSet::new();
        let listed = procfs::each_process(|pid| running.extend(rlimit::tag_of(pid).filter(|tag| tags.contains(tag))));
        if listed.is_ok() { running } else { tags.clone() }
    }

    /// Reaps the ended processes of this server that no [`Child`] waits for: those whose `Child` was dropped, and in a process that is
    /// dedicated to the server ([`HostProcess::dedicate`]) also the orphans of its trees. Removes the cgroups of trees that have ended. Call it periodically. It costs little when no
    /// child has ended.
    pub fn reap_orphans(&self) {
        // After an error, the next call tries again.
        let _ignored = reap_unclaimed_children();
        remove_empty_cgroups();
    }

    /// Whether the guard has ended, so that [`Self::ensure_guard`] must be called. False while another thread uses
    /// the guard, for example to start a new one, and false without a guard. Never blocks, and costs one system call.
    pub fn needs_guard(&self) -> bool {
        let guard = self.guard.try_lock();
        guard.is_ok_and(|guard| guard.as_ref().is_some_and(Guard::has_ended))
    }

    /// Sends `SIGCONT` to the guard, in case another process has stopped it. Call it periodically. Never blocks, and
    /// costs one system call. Does nothing while another thread uses the guard.
    pub fn continue_guard(&self) {
        if let Ok(guard) = self.guard.try_lock() {
            guard.iter().for_each(Guard::resume);
        }
    }

    /// Waits until the current guard has ended, or for ever if this spawner has no guard. Fails at once if the process has no descriptor
    /// left to watch the guard with. Must be called inside a tokio runtime.
    pub async fn wait_for_guard_end(&self) -> io::Result<()> {
        let pidfd = lock(&self.guard).as_ref().map(Guard::clone_pidfd);
        match pidfd {
            Some(pidfd) => watch(pidfd?, Interest::READABLE)?.readable().await.map(drop),
            None => std::future::pending().await,
        }
    }

    /// Starts a new guard if the old one has ended. Does nothing if this spawner was made without a guard. Blocks
    /// like [`Self::spawn`].
    pub fn ensure_guard(&self) -> io::Result<()> {
        lock(&self.guard).as_mut().map_or(Ok(()), Guard::restart_if_ended)
    }
}

/// The servers of which at least one process of this machine has a tag.
fn instances_in_use() -> io::Result<HashSet<ServerInstance>> {
    let mut instances = HashSet::new();
    procfs::each_process(|pid| instances.extend(rlimit::tag_of(pid).map(Tag::instance)))?;
    Ok(instances)
}

/// Opens the working directory of a child. The server does this and not the child, so that an error is known to be
/// about the directory. The path gets a `.` at its end because opening a directory does not check the permission to
/// enter it, and opening `directory/.` does.
fn open_directory(path: &Path) -> Result<OwnedFd, SpawnError> {
    let inside = if path.as_os_str().is_empty() { path.into() } else { path.join(".") };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(&inside, flags, Mode::empty())
        .map_err(|error| match error {
            Errno::INVAL if path.as_os_str().as_encoded_bytes().contains(&0) => SpawnError::NulByte { place: "cwd" },
            other => SpawnError::Cwd { path: path.into(), source: other.into() },
        })
        .and_then(|directory| above_stdio(directory).map_err(SpawnError::resource("open the working directory")))
}

/// Why a program was not executed. A limit of memory makes the kernel fail in two ways: the program does not fit, or its arguments do not.
fn not_executed(command: &SpawnCommand, program: &OsStr, source: io::Error) -> SpawnError {
    let limit = command.limits.and_then(|limits| limits.memory_bytes);
    let argument_bytes = || {
        let argv: usize = command.argv.iter().map(|argument| argument.len()).sum();
        let env: usize = command.env.iter().map(|(name, value)| name.len() + value.len()).sum();
        (argv + env) as u64
    };
    let is_limit = limit.is_some_and(|limit| match source.kind() {
        io::ErrorKind::OutOfMemory => true,
        io::ErrorKind::ArgumentListTooLong => argument_bytes() >= limit / 2,
        _ => false,
    });
    let path = program.into();
    if is_limit { SpawnError::MemoryLimit { path, source } } else { SpawnError::Program { path, source } }
}

/// Kills the process group of a child that cannot be watched, usually because descriptors have run out, and reaps the
/// child.
fn kill_unwatched(pid: Pid, tag: Tag) {
    // The child may have ended already.
    let _ignored = rustix::process::kill_process_group(pid, Signal::KILL);
    let _status_not_needed = rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
    children().remove_reaped_leader(pid, tag);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{StdinMode, Stdio};

    #[test]
    fn a_program_or_arguments_that_do_not_fit_into_a_memory_limit_are_told_apart_from_other_failures() {
        let error = |memory_bytes: Option<u64>, errno: Errno| {
            let command = SpawnCommand {
                argv: vec!["program".into(), "x".repeat(1000).into()],
                arg0: None,
                env: Vec::new(),
                cwd: "/".into(),
                stdio: Stdio::Pipes { stdin: StdinMode::Null },
                umask: None,
                limits: memory_bytes.map(|bytes| SpawnLimits { memory_bytes: Some(bytes), ..SpawnLimits::default() }),
            };
            not_executed(&command, OsStr::new("program"), errno.into())
        };
        for (memory_bytes, errno, is_limit) in [
            (Some(500), Errno::NOMEM, true),
            (Some(500), Errno::TOOBIG, true),
            // Far more than the arguments need, so there are other reasons.
            (Some(1 << 20), Errno::TOOBIG, false),
            (Some(1 << 20), Errno::NOENT, false),
            (None, Errno::NOMEM, false),
        ] {
            let error = error(memory_bytes, errno);
            assert_eq!(matches!(error, SpawnError::MemoryLimit { .. }), is_limit, "{memory_bytes:?} {error}");
        }
    }
}
