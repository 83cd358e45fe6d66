//! The sandboxes of a session. A sandbox is made for the first request with a policy, and later requests that lead to the
//! same plan use it again. It ends with its session, when it has not been used for a while, and with the server. The crate
//! `sandbox` makes sandboxes; this module decides how long they live, and starts their launchers.

mod mechanism;

use std::collections::{HashMap, VecDeque};
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use files::FileRoot;
use parking_lot::Mutex;
use protocol::{SandboxContext, WireError};
use sandbox::{
    BuildError, EnforcementPlan, FilePolicy, LandlockUnfit, Placeholder, PlanError, ResidentSandbox, SandboxNetwork,
    StartReply, StartRequest, StartStage, plan_with_notes,
};
use spawn::{
    CancelFlag, Child, ChildIo, ChildMaker, ChildRequest, MakeError, SessionTags, SpawnCommand, SpawnError, Spawner,
    StartConnection, Stdio,
};
use tokio::runtime::Handle;

pub(crate) use self::mechanism::MechanismChoice;
use crate::limits::{MAX_SANDBOXES, POLICY_RECHECK_TIME, SANDBOX_IDLE_TIME};
use crate::placeholder_list::PlaceholderList;
use crate::sandbox_policy::file_sandbox_policy;

/// How often a plan is made again because files that it names have changed before the sandbox was ready.
const MAX_PLANS: usize = 3;

/// Starts the launcher of a sandbox as a process of the session that uses it.
pub(crate) struct SandboxLauncher {
    program: PathBuf,
    args: Vec<String>,
    spawner: Arc<Spawner>,
    /// The runtime that watches the launchers.
    runtime: Handle,
    /// The variable `TMPDIR` of the server, for policies of file operations that refer to it.
    tmpdir: Option<OsString>,
    placeholders: Arc<PlaceholderList>,
    /// The last attempt to make a sandbox of namespaces has shown that this machine does not allow them.
    lacks_namespaces: AtomicBool,
}

impl SandboxLauncher {
    /// Must be called inside the tokio runtime that is to watch the launchers. `program` is that of the configuration.
    pub(crate) fn new(
        (program, args): (PathBuf, Vec<String>),
        spawner: Arc<Spawner>,
        tmpdir: Option<OsString>,
    ) -> Self {
        let placeholders = PlaceholderList::new(spawner.guard_notes());
        Self {
            program,
            args,
            spawner,
            runtime: Handle::current(),
            tmpdir,
            placeholders,
            lacks_namespaces: AtomicBool::new(false),
        }
    }

    /// Starts a launcher and lets it make the sandbox.
    fn build(&self, plan: &EnforcementPlan, tags: &SessionTags) -> Result<(ResidentSandbox, Child), SandboxRefusal> {
        let _inside_runtime = self.runtime.enter();
        let command = SpawnCommand {
            argv: [self.program.clone().into()].into_iter().chain(self.args.iter().map(Into::into)).collect(),
            arg0: None,
            // Variables can change what a program does, for example which libraries it loads. Only the command gets those of the client.
            env: Vec::new(),
            cwd: "/".into(),
            stdio: Stdio::Socket { descriptor: sandbox::SOCKET_FD },
            umask: None,
            limits: None,
        };
        // With a tag, the launcher is killed with its session, and by the guard.
        let spawned = self.spawner.spawn(&command, tags.next(), &Arc::<CancelFlag>::default());
        let spawned = spawned.map_err(SandboxRefusal::Launcher)?;
        let ChildIo::Socket(socket) = spawned.io else { return Err(SandboxRefusal::Launcher(SpawnError::Cancelled)) };
        let built = ResidentSandbox::build(socket, plan).map_err(SandboxRefusal::Build);
        if let EnforcementPlan::Namespaces(_) = plan {
            let is_missing = |error: &SandboxRefusal| error.missing_namespaces().is_some();
            self.lacks_namespaces.store(built.as_ref().is_err_and(is_missing), Ordering::Relaxed);
        }
        Ok((built?, spawned.child))
    }
}

/// Why a session has no sandbox for a policy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxRefusal {
    #[error("sandbox runtime paths are not configured")]
    NotConfigured,
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("{}", sandbox::explain_build_error(.0))]
    Build(BuildError),
    #[error("{}; Landlock is no substitute: {landlock}", sandbox::explain_build_error(.namespaces))]
    NoSubstitute { namespaces: BuildError, landlock: LandlockUnfit },
    #[error("the request asks for Landlock (`useLegacyLandlock`), which cannot enforce it: {0}")]
    Landlock(LandlockUnfit),
    #[error("the launcher of the sandbox was not started: {0}")]
    Launcher(SpawnError),
    #[error(
        "the session uses {MAX_SANDBOXES} sandboxes at once, which is the most; end processes, or use fewer different policies"
    )]
    TooMany,
    #[error("files that the policy names are being changed all the time; try again")]
    Unsteady,
}

impl SandboxRefusal {
    /// The error of a build, if it says that this machine does not allow namespaces.
    fn missing_namespaces(&self) -> Option<&BuildError> {
        match self {
            Self::Build(error) => Some(error).filter(|error| error.is_about_missing_namespaces()),
            _ => None,
        }
    }
}

/// A sandbox of a session.
pub(crate) struct SessionSandbox {
    plan: EnforcementPlan,
    resident: ResidentSandbox,
    /// When the sandbox was asked for last.
    used: Mutex<Instant>,
    /// For each command a socket whose other end is closed when the command and all of its descendants have ended.
    commands: Mutex<Vec<OwnedFd>>,
    /// For each command that has just been started, by its process id, the descriptor of its filter.
    filters: Mutex<HashMap<u32, OwnedFd>>,
    _launcher: Child,
    /// Dropped last, because the mounts of the sandbox are on these directories.
    _placeholders: Vec<Placeholder>,
}

impl SessionSandbox {
    fn new(
        plan: EnforcementPlan,
        placeholders: Vec<Placeholder>,
        (resident, launcher): (ResidentSandbox, Child),
    ) -> Arc<Self> {
        Arc::new(Self {
            plan,
            resident,
            used: Mutex::new(Instant::now()),
            commands: Mutex::default(),
            filters: Mutex::default(),
            _launcher: launcher,
            _placeholders: placeholders,
        })
    }

    /// The socket on which the proxy of the command listens, in the network of the sandbox. None if the sandbox has none, or if the server has
    /// no descriptor left.
    pub(crate) fn listener(&self) -> Option<OwnedFd> {
        self.resident.listener()?.try_clone_to_owned().ok()
    }

    /// The root directory of the sandbox, for file operations. It keeps the sandbox. None if the sandbox is not made of namespaces, or if the
    /// server has no descriptor left.
    pub(crate) fn file_root(self: &Arc<Self>) -> Option<FileRoot> {
        let root = self.resident.root()?.try_clone_to_owned().ok()?;
        Some(FileRoot::sandbox(root, Arc::clone(self) as Arc<_>))
    }

    /// Whether commands have a `/proc`. If not, theirs is empty.
    pub(crate) fn has_proc(&self) -> bool {
        self.resident.has_proc()
    }

    /// The descriptor through which the kernel reports the refused system calls of a command that has just been started.
    pub(crate) fn take_filter(&self, pid: u32) -> Option<OwnedFd> {
        self.filters.lock().remove(&pid)
    }

    /// Whether no command runs, also none that was left behind by one that has ended.
    fn has_no_command(&self) -> bool {
        let mut commands = self.commands.lock();
        commands.retain(|command| !sandbox::is_hung_up(command));
        commands.is_empty()
    }
}

/// The sandbox that file operations with a policy have used last.
struct RecentPolicy {
    context: SandboxContext,
    sandbox: Weak<SessionSandbox>,
    /// When the files that the policy names were looked at last.
    checked: Instant,
}

/// All sandboxes of a session.
pub(crate) struct SessionSandboxes {
    /// None: the server was configured without a launcher.
    launcher: Option<Arc<SandboxLauncher>>,
    /// At most [`MAX_SANDBOXES`]. The newest is the last.
    recent: Mutex<VecDeque<RecentPolicy>>,
    known: Mutex<Vec<Arc<SessionSandbox>>>,
    /// Held while a sandbox is made, so that two requests do not make the same one.
    making: Mutex<()>,
}

impl SessionSandboxes {
    pub(crate) fn new(launcher: Option<Arc<SandboxLauncher>>) -> Self {
        Self { launcher, recent: Mutex::default(), known: Mutex::default(), making: Mutex::default() }
    }

    /// The root of the sandbox for file operations with this policy, if the policy was used within [`POLICY_RECHECK_TIME`].
    /// Otherwise the files that the policy names may have changed. Does not block.
    pub(crate) fn recent_file_root(&self, context: &SandboxContext) -> Option<FileRoot> {
        let recent = self.recent.lock();
        let known = recent.iter().find(|known| known.context == *context)?;
        if known.checked.elapsed() >= POLICY_RECHECK_TIME {
            return None;
        }
        let sandbox = known.sandbox.upgrade()?;
        *sandbox.used.lock() = Instant::now();
        sandbox.file_root()
    }

    /// The root of the sandbox for file operations with this policy, which is made if there is none. Blocks.
    pub(crate) fn file_root(&self, context: &SandboxContext, tags: &SessionTags) -> Result<FileRoot, WireError> {
        let tmpdir = self.launcher.as_ref().and_then(|launcher| launcher.tmpdir.as_deref());
        let policy = file_sandbox_policy(context, tmpdir)?;
        // File operations use no network, so a sandbox without one is as good as any.
        let sandbox = self.obtain(tags, &policy, SandboxNetwork::None).map_err(|error| match error {
            SandboxRefusal::NotConfigured => {
                WireError::invalid_request("filesystem sandbox cannot be enforced on this executor")
            }
            _ if error.missing_namespaces().is_some() => WireError::invalid_request(format!(
                "failed to prepare fs sandbox: {error}; file operations with a policy need user namespaces"
            )),
            _ => WireError::invalid_request(format!("failed to prepare fs sandbox: {error}")),
        })?;
        let mut recent = self.recent.lock();
        recent.retain(|known| known.context != *context);
        if recent.len() >= MAX_SANDBOXES {
            recent.pop_front();
        }
        let (context, checked) = (context.clone(), Instant::now());
        recent.push_back(RecentPolicy { context, sandbox: Arc::downgrade(&sandbox), checked });
        sandbox.file_root().ok_or_else(|| WireError::internal("the server has no descriptor left for the sandbox"))
    }

    /// The sandbox of namespaces for a policy, which is made if there is none. Blocks.
    pub(crate) fn obtain(
        &self,
        tags: &SessionTags,
        policy: &FilePolicy,
        network: SandboxNetwork,
    ) -> Result<Arc<SessionSandbox>, SandboxRefusal> {
        let launcher = self.launcher.as_ref().ok_or(SandboxRefusal::NotConfigured)?;
        for _ in 0..MAX_PLANS {
            let notes = Arc::clone(&launcher.placeholders);
            let planned = plan_with_notes(policy, network, Some(notes))?;
            match self.find_or_make(launcher, tags, planned.plan.into(), planned.placeholders) {
                Err(SandboxRefusal::Build(error)) if error.is_about_changed_files() => {}
                other => return other,
            }
        }
        Err(SandboxRefusal::Unsteady)
    }

    /// A sandbox that no other request uses, with a network in which only the proxy of its command is reached. It ends when the result is
    /// dropped. Blocks.
    pub(crate) fn make_own(
        &self,
        tags: &SessionTags,
        policy: &FilePolicy,
    ) -> Result<Arc<SessionSandbox>, SandboxRefusal> {
        let launcher = self.launcher.as_ref().ok_or(SandboxRefusal::NotConfigured)?;
        for _ in 0..MAX_PLANS {
            let planned = plan_with_notes(
                policy,
                SandboxNetwork::LoopbackOnly,
                Some(Arc::clone(&launcher.placeholders) as Arc<_>),
            )?;
            let plan = planned.plan.into();
            match launcher.build(&plan, tags) {
                Err(SandboxRefusal::Build(error)) if error.is_about_changed_files() => {}
                Err(SandboxRefusal::Build(namespaces)) if namespaces.is_about_missing_namespaces() => {
                    return Err(SandboxRefusal::NoSubstitute { namespaces, landlock: LandlockUnfit::ManagedNetwork });
                }
                other => return other.map(|built| SessionSandbox::new(plan, planned.placeholders, built)),
            }
        }
        Err(SandboxRefusal::Unsteady)
    }

    fn find(&self, plan: &EnforcementPlan) -> Option<Arc<SessionSandbox>> {
        let mut known = self.known.lock();
        let index = known.iter().position(|sandbox| sandbox.plan == *plan)?;
        if known[index].resident.has_ended() {
            known.remove(index);
            return None;
        }
        *known[index].used.lock() = Instant::now();
        Some(Arc::clone(&known[index]))
    }

    fn find_or_make(
        &self,
        launcher: &SandboxLauncher,
        tags: &SessionTags,
        plan: EnforcementPlan,
        placeholders: Vec<Placeholder>,
    ) -> Result<Arc<SessionSandbox>, SandboxRefusal> {
        if let Some(known) = self.find(&plan) {
            return Ok(known);
        }
        let _one_at_a_time = self.making.lock();
        if let Some(known) = self.find(&plan) {
            return Ok(known);
        }
        let evicted = self.make_room()?;
        let built = launcher.build(&plan, tags)?;
        let made = SessionSandbox::new(plan, placeholders, built);
        self.known.lock().push(Arc::clone(&made));
        drop(evicted);
        Ok(made)
    }

    /// If the session has as many sandboxes as it may, takes out the one that has been unused for the longest time.
    fn make_room(&self) -> Result<Option<Arc<SessionSandbox>>, SandboxRefusal> {
        let mut known = self.known.lock();
        if known.len() < MAX_SANDBOXES {
            return Ok(None);
        }
        let unused = known.iter().enumerate().filter(|(_, sandbox)| is_unused(sandbox));
        let oldest = unused.min_by_key(|(_, sandbox)| *sandbox.used.lock()).map(|(index, _)| index);
        oldest.map(|index| Some(known.remove(index))).ok_or(SandboxRefusal::TooMany)
    }

    /// Takes out the sandboxes that have been unused for [`SANDBOX_IDLE_TIME`]. Dropping them can block.
    pub(crate) fn take_idle(&self, now: Instant) -> Vec<Arc<SessionSandbox>> {
        let is_idle = |sandbox: &mut Arc<SessionSandbox>| {
            now.saturating_duration_since(*sandbox.used.lock()) >= SANDBOX_IDLE_TIME && is_unused(sandbox)
        };
        self.known.lock().extract_if(.., is_idle).collect()
    }

    /// Takes out all sandboxes, at the end of the session. Dropping them can block.
    pub(crate) fn take_all(&self) -> Vec<Arc<SessionSandbox>> {
        std::mem::take(&mut *self.known.lock())
    }
}

/// Whether only the list of the session has the sandbox, and no command runs in it.
fn is_unused(sandbox: &Arc<SessionSandbox>) -> bool {
    Arc::strong_count(sandbox) == 1 && sandbox.has_no_command()
}

impl ChildMaker for SessionSandbox {
    fn make(&self, child: &ChildRequest<'_>, connection: StartConnection<'_>) -> Result<i32, MakeError> {
        const ACTION: &str = "start the process in its sandbox";
        let cwd = CString::new(child.cwd.as_os_str().as_bytes())
            .map_err(|nul| MakeError::Cwd(io::Error::new(io::ErrorKind::InvalidInput, nul)))?;
        let request = StartRequest {
            candidates: child.candidates.to_vec(),
            searched: child.searched,
            argv: child.argv.to_vec(),
            env: child.env.to_vec(),
            cwd,
            umask: child.umask,
            limits: child.limits.to_vec(),
            terminal: child.terminal,
            extra_descriptor: child.extra.and_then(|(_, number)| u32::try_from(number).ok()),
            enters_cgroup: child.cgroup_procs.is_some(),
        };
        let others = [child.extra.map(|(descriptor, _)| descriptor), child.cgroup_procs];
        let descriptors: Vec<BorrowedFd<'_>> =
            child.standard.into_iter().chain(others.into_iter().flatten()).collect();
        let (reply, filter) = self
            .resident
            .start(&request, connection.server_end, connection.maker_end, &descriptors)
            .map_err(|error| MakeError::Resource(ACTION, error))?;
        *self.used.lock() = Instant::now();
        match reply {
            StartReply::Started { pid } => {
                // Without a descriptor the sandbox may end before this command. The descriptor limit is reached then anyway.
                self.filters.lock().extend(u32::try_from(pid).ok().zip(filter));
                self.commands.lock().extend(connection.server_end.try_clone_to_owned().ok());
                Ok(pid)
            }
            StartReply::Failed { stage, errno, .. } => {
                let error = io::Error::from_raw_os_error(errno);
                Err(match stage {
                    StartStage::WorkingDirectory => MakeError::Cwd(error),
                    StartStage::Execute => MakeError::Program(error),
                    StartStage::Cancelled => MakeError::Cancelled,
                    StartStage::Isolate | StartStage::Prepare | StartStage::Confine => {
                        MakeError::Resource(ACTION, error)
                    }
                })
            }
        }
    }
}
