//! The sandboxes of a session. A sandbox is made for the first request with a policy, and later requests that lead to the
//! same plan use it again. It ends with its session, when it has not been used for a while, and with the server. The crate
//! `sandbox` makes sandboxes; this module decides how long they live, and starts their launchers.

mod command_list;
mod in_the_way;
mod mechanism;
mod proxy_limit;

use std::collections::{HashSet, VecDeque};
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use files::{FileRoot, FileSandbox};
use parking_lot::Mutex;
use protocol::{SandboxContext, WireError};
use sandbox::{
    BuildError, EnforcementPlan, FilePolicy, LandlockUnfit, PlaceholderOwner, Placeholders, PlanError,
    PlannedSandbox, ResidentSandbox, SandboxNetwork, StartReply, StartRequest, StartStage, plan_for_owner,
};
use spawn::{
    CancelFlag, Child, ChildIo, ChildMaker, ChildRequest, MadeChild, MakeError, SessionTags, Signal, SpawnCommand,
    SpawnError, Spawner, StartConnection, Stdio,
};
use tokio::runtime::Handle;

use self::command_list::CommandList;
pub(crate) use self::in_the_way::AllSandboxes;
use self::in_the_way::SandboxList;
pub(crate) use self::mechanism::MechanismChoice;
use self::proxy_limit::{ProxySandboxCount, ProxySandboxShare};
use crate::limits::{MAX_PROXY_SANDBOXES, MAX_SANDBOXES, POLICY_RECHECK_TIME, SANDBOX_IDLE_TIME};
use crate::placeholder_list::PlaceholderList;
use crate::sandbox_policy::file_sandbox_policy;

/// The most plans for one request. A further plan is made if files that the last one names have changed before the sandbox was ready.
const MAX_PLANS: usize = 3;

/// How long Landlock is used where namespaces were refused, before namespaces are tried again.
const NAMESPACES_RETRY_TIME: Duration = Duration::from_secs(60);

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
    all: Arc<AllSandboxes>,
    /// The time of the last attempt to make a sandbox of namespaces, if this machine did not allow it. None after any other result.
    namespaces_refused: Mutex<Option<Instant>>,
}

impl SandboxLauncher {
    /// Must be called inside the tokio runtime that is to watch the launchers. `program` and `args` come from the configuration.
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
            all: AllSandboxes::new(Arc::clone(&placeholders)),
            placeholders,
            namespaces_refused: Mutex::default(),
        }
    }

    /// The sandboxes that were made with this launcher.
    pub(crate) fn all_sandboxes(&self) -> Arc<AllSandboxes> {
        Arc::clone(&self.all)
    }

    /// Whether this machine has just refused to make namespaces. The reason may pass, for example if other programs have used up all
    /// namespaces of the user.
    fn lacks_namespaces(&self) -> bool {
        self.namespaces_refused.lock().is_some_and(|refused| refused.elapsed() < NAMESPACES_RETRY_TIME)
    }

    /// Starts a launcher and lets it make the sandbox.
    fn build(
        &self,
        plan: &EnforcementPlan,
        tags: &SessionTags,
    ) -> Result<(ResidentSandbox, LauncherProcess), SandboxRefusal> {
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
        let launcher = LauncherProcess(spawned.child);
        let ChildIo::Socket(socket) = spawned.io else { return Err(SandboxRefusal::Launcher(SpawnError::Cancelled)) };
        let built = ResidentSandbox::build(socket, plan).map_err(SandboxRefusal::Build);
        if let EnforcementPlan::Namespaces(_) = plan {
            let is_missing = |error: &SandboxRefusal| error.missing_namespaces().is_some();
            *self.namespaces_refused.lock() = built.as_ref().is_err_and(is_missing).then(Instant::now);
        }
        Ok((built?, launcher))
    }
}

/// The process of a launcher. A launcher ends when its socket is closed, but not while somebody has stopped it. So it is also killed.
struct LauncherProcess(Child);

impl Drop for LauncherProcess {
    fn drop(&mut self) {
        let _has_ended = self.0.signal(Signal::KILL);
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
    #[error(
        "the session runs {MAX_PROXY_SANDBOXES} commands with a network proxy at once, which is the most, because each of them has a sandbox of its own; end one of them, or wait until one ends"
    )]
    TooManyProxies,
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
    commands: Arc<CommandList>,
    _launcher: LauncherProcess,
    /// Dropped after the launcher, because the mounts of the sandbox are on these directories.
    placeholders: Placeholders,
    /// Only for a sandbox of a command with a proxy. Dropped last, so that a sandbox that is ending still counts.
    _share: Option<ProxySandboxShare>,
}

impl SessionSandbox {
    fn new(
        plan: EnforcementPlan,
        placeholders: Placeholders,
        (resident, launcher): (ResidentSandbox, LauncherProcess),
        share: Option<ProxySandboxShare>,
    ) -> Arc<Self> {
        Arc::new(Self {
            plan,
            resident,
            used: Mutex::new(Instant::now()),
            commands: Arc::default(),
            _launcher: launcher,
            placeholders,
            _share: share,
        })
    }

    /// The socket on which the proxy of the command listens, in the network of the sandbox. None if the sandbox has no such socket, or if the
    /// server has no descriptor left.
    pub(crate) fn listener(&self) -> Option<OwnedFd> {
        self.resident.listener()?.try_clone_to_owned().ok()
    }

    /// The root directory of the sandbox, for file operations. The result keeps the sandbox alive. None if the sandbox is not made of
    /// namespaces, or if the server has no descriptor left.
    pub(crate) fn file_root(self: &Arc<Self>) -> Option<FileRoot> {
        let root = self.resident.root()?.try_clone_to_owned().ok()?;
        Some(FileRoot::sandbox(root, Arc::clone(self) as Arc<_>))
    }

    /// Whether commands have a `/proc`. If not, theirs is empty.
    pub(crate) fn has_proc(&self) -> bool {
        self.resident.has_proc()
    }
}

impl FileSandbox for SessionSandbox {
    fn is_placeholder(&self, path: &Path) -> bool {
        let placeholders = self.placeholders.paths();
        // The path may lead through links, and the paths of placeholders do not.
        !placeholders.is_empty() && path.canonicalize().is_ok_and(|real| placeholders.contains(&real))
    }
}

/// The start of one command in a sandbox.
pub(crate) struct SandboxStart {
    pub(crate) sandbox: Arc<SessionSandbox>,
    /// The descriptor through which the kernel reports the refused system calls of the command, once it runs.
    filter: Mutex<Option<OwnedFd>>,
}

impl SandboxStart {
    pub(crate) fn new(sandbox: Arc<SessionSandbox>) -> Self {
        Self { sandbox, filter: Mutex::default() }
    }

    /// The descriptor through which the kernel reports the refused system calls of the command. None before the command runs, and if the
    /// kernel reports nothing.
    pub(crate) fn take_filter(&self) -> Option<OwnedFd> {
        self.filter.lock().take()
    }
}

/// The sandbox that file operations with a policy have used last.
struct RecentPolicy {
    context: SandboxContext,
    sandbox: Weak<SessionSandbox>,
    /// When the server last looked whether the files that the policy names have changed.
    checked: Instant,
}

/// All sandboxes of a session.
pub(crate) struct SessionSandboxes {
    /// None: the server was configured without a launcher.
    launcher: Option<Arc<SandboxLauncher>>,
    /// Policies of recent file operations, at most [`MAX_SANDBOXES`]. The newest is the last.
    recent: Mutex<VecDeque<RecentPolicy>>,
    /// The sandboxes that requests may use again, at most [`MAX_SANDBOXES`].
    known: Arc<SandboxList>,
    /// Counts the sandboxes of commands with a proxy.
    proxied: Arc<ProxySandboxCount>,
    /// The session, as the owner of its placeholders.
    placeholders: PlaceholderOwner,
    /// Held while a sandbox is made, so that two requests do not make the same one.
    making: Mutex<()>,
}

impl SessionSandboxes {
    pub(crate) fn new(launcher: Option<Arc<SandboxLauncher>>) -> Self {
        let notes = launcher.as_ref().map(|launcher| Arc::clone(&launcher.placeholders));
        let placeholders = notes.map_or_else(PlaceholderOwner::default, |notes| PlaceholderOwner::new(notes));
        Self {
            launcher,
            recent: Mutex::default(),
            known: Arc::default(),
            proxied: Arc::default(),
            placeholders,
            making: Mutex::default(),
        }
    }

    /// The root of the sandbox for file operations with this policy, if its files were looked at within [`POLICY_RECHECK_TIME`].
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
            let planned = self.plan(launcher, policy, network)?;
            let plan = planned.plan.into();
            if let Some(known) = self.find(&plan) {
                return Ok(known);
            }
            match self.find_or_make(launcher, tags, plan, planned.placeholders) {
                Err(SandboxRefusal::Build(error)) if error.is_about_changed_files() => {}
                other => return other,
            }
        }
        Err(SandboxRefusal::Unsteady)
    }

    /// A sandbox that no other request uses, with a network in which only the proxy of its command is reached. The sandbox ends when the result
    /// is dropped. Blocks.
    pub(crate) fn make_own(
        &self,
        tags: &SessionTags,
        policy: &FilePolicy,
    ) -> Result<Arc<SessionSandbox>, SandboxRefusal> {
        let launcher = self.launcher.as_ref().ok_or(SandboxRefusal::NotConfigured)?;
        let share = self.proxied.take_share().ok_or(SandboxRefusal::TooManyProxies)?;
        for _ in 0..MAX_PLANS {
            let planned = self.plan(launcher, policy, SandboxNetwork::LoopbackOnly)?;
            let plan = planned.plan.into();
            match launcher.build(&plan, tags) {
                Err(SandboxRefusal::Build(error)) if error.is_about_changed_files() => {}
                Err(SandboxRefusal::Build(namespaces)) if namespaces.is_about_missing_namespaces() => {
                    return Err(SandboxRefusal::NoSubstitute { namespaces, landlock: LandlockUnfit::ManagedNetwork });
                }
                other => {
                    return other.map(|built| SessionSandbox::new(plan, planned.placeholders, built, Some(share)));
                }
            }
        }
        Err(SandboxRefusal::Unsteady)
    }

    /// Makes the plan for a policy, and ends unused sandboxes that are in the way of it. Blocks.
    fn plan(
        &self,
        launcher: &SandboxLauncher,
        policy: &FilePolicy,
        network: SandboxNetwork,
    ) -> Result<PlannedSandbox, PlanError> {
        let planned = self.plan_as_it_is(policy, network)?;
        if end_those_in_the_way_of(policy, &planned.placeholders, launcher) {
            return self.plan_as_it_is(policy, network);
        }
        Ok(planned)
    }

    /// Makes the plan for a policy. If the session has too many placeholders, ends all of its unused sandboxes that have some: ending them
    /// one by one would mean to make the plan again for each. Blocks.
    fn plan_as_it_is(&self, policy: &FilePolicy, network: SandboxNetwork) -> Result<PlannedSandbox, PlanError> {
        loop {
            match plan_for_owner(policy, network, &self.placeholders) {
                Err(PlanError::TooManyPlaceholders) if self.end_unused_with_placeholders() => {}
                other => return other,
            }
        }
    }

    /// The sandbox that was made from this plan, if its launcher still runs.
    fn find(&self, plan: &EnforcementPlan) -> Option<Arc<SessionSandbox>> {
        let mut known = self.known.lock();
        let index = known.iter().position(|sandbox| sandbox.plan == *plan)?;
        if known[index].resident.has_ended() {
            let ended = known.remove(index);
            // Dropping the sandbox can block, and the task that ends idle sandboxes waits for the lock.
            drop(known);
            drop(ended);
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
        placeholders: Placeholders,
    ) -> Result<Arc<SessionSandbox>, SandboxRefusal> {
        let _one_at_a_time = self.making.lock();
        if let Some(known) = self.find(&plan) {
            return Ok(known);
        }
        let evicted = self.make_room()?;
        let built = launcher.build(&plan, tags)?;
        let made = SessionSandbox::new(plan, placeholders, built, None);
        launcher.all.add(&self.known);
        self.known.lock().push(Arc::clone(&made));
        drop(evicted);
        Ok(made)
    }

    /// If the session has as many sandboxes as it may, takes out the one that has been unused for the longest time.
    fn make_room(&self) -> Result<Option<Arc<SessionSandbox>>, SandboxRefusal> {
        if self.known.lock().len() < MAX_SANDBOXES {
            return Ok(None);
        }
        self.take_oldest_unused().map(Some).ok_or(SandboxRefusal::TooMany)
    }

    /// Takes out the sandbox that has been unused for the longest time. Dropping it can block.
    fn take_oldest_unused(&self) -> Option<Arc<SessionSandbox>> {
        let mut known = self.known.lock();
        let unused = known.iter().enumerate().filter(|(_, sandbox)| is_unused(sandbox));
        let (oldest, _) = unused.min_by_key(|(_, sandbox)| *sandbox.used.lock())?;
        Some(known.remove(oldest))
    }

    /// Ends the unused sandboxes that have placeholders. Returns whether there was one. Blocks.
    fn end_unused_with_placeholders(&self) -> bool {
        let has_some = |sandbox: &SessionSandbox| !sandbox.placeholders.paths().is_empty();
        let unused: Vec<_> =
            self.known.lock().extract_if(.., |sandbox| has_some(sandbox) && is_unused(sandbox)).collect();
        !unused.is_empty()
    }

    /// Takes out the sandboxes that have been unused for [`SANDBOX_IDLE_TIME`]. Dropping them can block.
    pub(crate) fn take_idle(&self, now: Instant) -> Vec<Arc<SessionSandbox>> {
        let is_idle = |sandbox: &mut Arc<SessionSandbox>| {
            // `is_unused` comes first, because it also forgets commands that have ended, which frees their descriptors.
            is_unused(sandbox) && now.saturating_duration_since(*sandbox.used.lock()) >= SANDBOX_IDLE_TIME
        };
        self.known.lock().extract_if(.., is_idle).collect()
    }

    /// Takes out all sandboxes, at the end of the session. Dropping them can block.
    pub(crate) fn take_all(&self) -> Vec<Arc<SessionSandbox>> {
        std::mem::take(&mut *self.known.lock())
    }
}

/// Ends unused sandboxes of all sessions that have a placeholder where this policy allows to write: with the placeholder, a command
/// could not write there. A placeholder that the plan of the policy `needed` itself stays. Returns whether it has ended one. Blocks.
fn end_those_in_the_way_of(policy: &FilePolicy, needed: &Placeholders, launcher: &SandboxLauncher) -> bool {
    let needed: HashSet<&Path> = needed.paths().iter().map(PathBuf::as_path).collect();
    launcher.all.end_unused(|path| !needed.contains(path) && policy.access(path).access == sandbox::Access::Write)
}

/// Whether only the list of the session refers to the sandbox, and no command runs in it.
fn is_unused(sandbox: &Arc<SessionSandbox>) -> bool {
    sandbox.commands.is_empty() && Arc::strong_count(sandbox) == 1
}

impl ChildMaker for SandboxStart {
    fn make(&self, child: &ChildRequest<'_>, connection: StartConnection<'_>) -> Result<MadeChild, MakeError> {
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
            tag: child.tag,
            limits: child.limits.to_vec(),
            terminal: child.terminal,
            extra_descriptor: child.extra.and_then(|(_, number)| u32::try_from(number).ok()),
            enters_cgroup: child.cgroup_procs.is_some(),
        };
        let others = [child.extra.map(|(descriptor, _)| descriptor), child.cgroup_procs];
        let descriptors: Vec<BorrowedFd<'_>> =
            child.standard.into_iter().chain(others.into_iter().flatten()).collect();
        let answer = self
            .sandbox
            .resident
            .start(&request, connection.server_end, connection.maker_end, &descriptors)
            .map_err(|error| MakeError::Resource(ACTION, error))?;
        *self.sandbox.used.lock() = Instant::now();
        match answer.reply {
            StartReply::Started { pid } => {
                *self.filter.lock() = answer.filter;
                let lifeline = answer.lifeline.map(Arc::new);
                if let Some(lifeline) = &lifeline {
                    self.sandbox.commands.add(Arc::clone(lifeline));
                }
                Ok(MadeChild { pid, lifeline })
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
