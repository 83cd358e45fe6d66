//! Finds out what this machine can enforce, by doing it: starts a guard, makes a sandbox, runs a command in it and looks at
//! a file. Each answer that is not "yes" is a sentence that says what is missing, and usually what to do. Start with
//! [`check_machine`].

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use files::Follow;
use sandbox::{
    Access, FilePolicy, MachineFacts, MissingLandlock, PolicyRequest, RequestedEntry, RequestedFiles,
    RequestedTarget, SandboxNetwork,
};
use spawn::{CancelFlag, GuardProgram, HostProcess, SpawnCommand, SpawnError, Spawner, StdinMode, Stdio};

use crate::config::Config;
use crate::sandboxes::{LauncherFactory, MechanismChoice, SandboxStart, SessionSandbox, SessionSandboxes};

/// A command that does nothing needs a few milliseconds.
const COMMAND_PATIENCE: Duration = Duration::from_secs(10);

/// What this machine can do. An error is a sentence that says what is missing, and usually what to do.
#[derive(Clone, Debug)]
pub struct MachineReport {
    /// A sandbox can be made of namespaces, and a command runs in it.
    pub namespaces: Result<(), String>,
    /// Commands in such a sandbox have a `/proc` of their own, and not an empty one.
    pub own_proc: Result<(), String>,
    /// File operations can be confined by such a sandbox.
    pub sandboxed_files: Result<(), String>,
    /// The kernel filters system calls.
    pub seccomp: Result<(), String>,
    /// A sandbox can be made without namespaces, and a command runs in it.
    pub landlock: Result<(), String>,
    /// The version of Landlock that the kernel has, also if it is too old. None without Landlock.
    pub landlock_version: Option<u32>,
    /// Processes get a tag, by which they are found wherever they go.
    pub process_tags: Result<(), String>,
    /// Memory and number of processes can be limited for a process and its descendants together.
    pub tree_limits: Result<(), String>,
    /// A second process ends everything if the server is killed.
    pub guard: Result<(), String>,
}

/// The policies that are enforced on a machine. Requests with other policies are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnforceablePolicies {
    /// Every policy, for commands and for file operations.
    All,
    /// Every policy, for commands only.
    AllForCommands,
    /// Every policy, for file operations only: sandboxes can be made, but commands do not start in them.
    AllForFiles,
    /// Policies that Landlock can enforce, for commands only. `docs/sandbox.md` lists them.
    OnlyLandlock,
    /// No policy, so every request with a policy is refused.
    None,
}

impl MachineReport {
    /// The policies that a server on this machine enforces.
    pub fn policies(&self) -> EnforceablePolicies {
        match (&self.namespaces, &self.sandboxed_files) {
            (Ok(()), Ok(())) => EnforceablePolicies::All,
            (Ok(()), Err(_)) => EnforceablePolicies::AllForCommands,
            // The sandbox exists, so the server does not use Landlock instead.
            (Err(_), Ok(())) => EnforceablePolicies::AllForFiles,
            (Err(_), Err(_)) if self.landlock.is_ok() => EnforceablePolicies::OnlyLandlock,
            (Err(_), Err(_)) => EnforceablePolicies::None,
        }
    }
}

/// Finds out what a server with this configuration can enforce. Starts processes and waits for their ends, which takes a
/// fraction of a second. It mixes blocking calls and waits, so call it on a thread
/// with nothing else to do.
pub async fn check_machine(config: &Config, host: HostProcess) -> io::Result<MachineReport> {
    // Before the spawner makes a cgroup of its own, which could change the answer.
    let tree_limits = spawn::check_cgroups();
    let (spawner, guard) = start_guard(config, host)?;
    let spawner = Arc::new(spawner);
    let process_tags = spawner.check_tags();
    let checks = check_sandbox(config, &spawner).await;
    Ok(MachineReport {
        namespaces: checks.namespaces,
        own_proc: checks.own_proc,
        sandboxed_files: checks.files,
        seccomp: sandbox::check_system_call_filter(),
        landlock: checks.landlock,
        landlock_version: match sandbox::landlock_version() {
            Ok(version) | Err(MissingLandlock::Old(version)) => Some(version),
            Err(_) => None,
        },
        process_tags,
        tree_limits,
        guard,
    })
}

fn start_guard(config: &Config, host: HostProcess) -> io::Result<(Spawner, Result<(), String>)> {
    let Some((program, args)) = &config.guard else {
        return Ok((
            Spawner::new(host, None)?,
            Err("the server is configured without a guard; set the program of the guard in its configuration"
                .to_owned()),
        ));
    };
    let program = GuardProgram { program: program.clone(), args: args.iter().map(Into::into).collect() };
    match Spawner::new(host, Some(program)) {
        Ok(spawner) if spawner.needs_guard() => {
            Ok((spawner, Err("the guard has ended at once; check that this program can be executed".to_owned())))
        }
        Ok(spawner) => Ok((spawner, Ok(()))),
        Err(error) => Ok((
            Spawner::new(host, None)?,
            Err(format!("the guard cannot be started ({error}); check that this program can be executed")),
        )),
    }
}

/// The answers about a sandbox that is made of namespaces, and about one that is not.
struct SandboxChecks {
    landlock: Result<(), String>,
    namespaces: Result<(), String>,
    own_proc: Result<(), String>,
    files: Result<(), String>,
}

async fn check_sandbox(config: &Config, spawner: &Arc<Spawner>) -> SandboxChecks {
    let launcher = config.sandbox_launcher.clone();
    let launcher = launcher.map(|program| Arc::new(LauncherFactory::new(program, Arc::clone(spawner), None)));
    let sandboxes = SessionSandboxes::new(launcher);
    let tags = spawner.session_tags();
    let policy = read_only_policy();
    let obtained = |choice: Option<MechanismChoice>| -> Result<Arc<SessionSandbox>, String> {
        let (policy, network) = (policy.as_ref().map_err(String::clone)?, SandboxNetwork::None);
        let sandbox = match choice {
            Some(choice) => sandboxes.obtain_for_command(&tags, policy, network, choice),
            None => sandboxes.obtain(&tags, policy, network),
        };
        sandbox.map_err(|refusal| refusal.to_string())
    };
    let landlock = match sandbox::landlock_version() {
        Ok(_) => match obtained(Some(MechanismChoice::Landlock)) {
            Ok(sandbox) => run_command(spawner, &sandbox, tags.next()).await,
            Err(problem) => Err(problem),
        },
        Err(missing) => Err(missing.to_string()),
    };
    let sandbox = match obtained(None) {
        Ok(sandbox) => sandbox,
        Err(problem) => {
            let dependent =
                || Err("this needs sandboxes with namespaces, which do not work here (see `namespaces`)".to_owned());
            return SandboxChecks { landlock, namespaces: Err(problem), own_proc: dependent(), files: dependent() };
        }
    };
    let namespaces = run_command(spawner, &sandbox, tags.next()).await;
    let own_proc = if sandbox.has_proc() {
        Ok(())
    } else {
        Err("/proc cannot be mounted in a sandbox, most likely because this is a container that hides parts of it, so commands in a sandbox see an empty /proc; start the container with `--security-opt systempaths=unconfined`, or run the server outside of it".to_owned())
    };
    let files = match sandbox.file_root() {
        Some(root) => files::metadata(&root, Path::new("/"), Follow::No).map(drop).map_err(|error| error.to_string()),
        None => Err("the server has no descriptor left; raise the limit of open files (`ulimit -n`)".to_owned()),
    };
    SandboxChecks { landlock, namespaces, own_proc, files }
}

/// The policy with which every file may be read, and none written.
fn read_only_policy() -> Result<FilePolicy, String> {
    let everything = RequestedEntry { target: RequestedTarget::Root, access: Access::Read };
    let files = RequestedFiles::Restricted { entries: vec![everything], glob_scan_max_depth: None };
    let request = PolicyRequest { files, cwd: Some("/".into()), workspace_roots: Vec::new() };
    let mut facts = MachineFacts {
        tmpdir: None,
        slash_tmp_is_directory: false,
        minimal_roots: Vec::new(),
        git_directories_of: &mut |_| Ok(Vec::new()),
    };
    sandbox::resolve_policy(&request, &mut facts).map_err(|error| error.to_string())
}

/// Runs a command that does nothing, to its end.
async fn run_command(spawner: &Spawner, sandbox: &Arc<SessionSandbox>, tag: spawn::Tag) -> Result<(), String> {
    let command = SpawnCommand {
        argv: vec!["/bin/true".into()],
        arg0: None,
        env: Vec::new(),
        cwd: "/".into(),
        stdio: Stdio::Pipes { stdin: StdinMode::Null },
        umask: None,
        limits: None,
    };
    let maker = SandboxStart::new(Arc::clone(sandbox));
    let started = spawner.spawn_in_sandbox(&maker, &command, tag, &Arc::<CancelFlag>::default());
    let child = match started {
        Ok(started) => started.child,
        // The sandbox has done its part: only the program is missing.
        Err(SpawnError::SandboxedProgram { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("a command in a sandbox cannot be started: {error}")),
    };
    // Without this descriptor the kernel fails refused calls with ENOSYS, and asks nobody.
    drop(maker);
    match tokio::time::timeout(COMMAND_PATIENCE, child.wait()).await {
        Ok(status) if status.code() == 0 => Ok(()),
        Ok(status) => Err(format!("a command in a sandbox has failed with exit code {}", status.code())),
        Err(_elapsed) => {
            let _killed_or_left_for_the_guard = spawner.kill_tree(tag, COMMAND_PATIENCE).await;
            Err("a command in a sandbox does not end; the log of the kernel may say why".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policies_depend_on_namespaces_files_and_landlock() {
        let outcome = |is_ok: bool| if is_ok { Ok(()) } else { Err("missing".to_owned()) };
        for (namespaces, files, landlock, expected) in [
            (true, true, true, EnforceablePolicies::All),
            (true, true, false, EnforceablePolicies::All),
            (true, false, true, EnforceablePolicies::AllForCommands),
            (true, false, false, EnforceablePolicies::AllForCommands),
            (false, true, true, EnforceablePolicies::AllForFiles),
            (false, true, false, EnforceablePolicies::AllForFiles),
            (false, false, true, EnforceablePolicies::OnlyLandlock),
            (false, false, false, EnforceablePolicies::None),
        ] {
            let report = MachineReport {
                namespaces: outcome(namespaces),
                own_proc: Ok(()),
                sandboxed_files: outcome(files),
                seccomp: Ok(()),
                landlock: outcome(landlock),
                landlock_version: None,
                process_tags: Ok(()),
                tree_limits: Ok(()),
                guard: Ok(()),
            };
            assert_eq!(report.policies(), expected, "{namespaces} {files} {landlock}");
        }
    }
}
