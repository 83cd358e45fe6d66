//! Starts the launcher and runs commands in its sandbox.

use std::ffi::CString;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, WaitOptions};
use sandbox::{
    Access, FilePolicy, MachineFacts, PlannedSandbox, PolicyRequest, RequestedEntry, RequestedFiles, RequestedTarget,
    ResidentSandbox, SOCKET_FD, SandboxNetwork, SandboxPlan, StartAnswer, StartReply, StartRequest, plan_sandbox,
    resolve_policy,
};

/// The interpreter of most attacks. It is named by its path, because the `PATH` of a developer can name a wrapper.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

/// A sandbox and the process that made it.
pub(crate) struct TestSandbox {
    /// None after a test has dropped it.
    pub(crate) resident: Option<ResidentSandbox>,
    pub(crate) launcher: std::process::Child,
    pub(crate) placeholders: sandbox::Placeholders,
}

impl Drop for TestSandbox {
    fn drop(&mut self) {
        let _may_have_ended = self.launcher.kill();
        let _reaped = self.launcher.wait();
    }
}

pub(crate) fn socket_pair() -> (OwnedFd, OwnedFd) {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
}

/// Names another copy of the launcher's program.
pub(crate) const LAUNCHER_VARIABLE: &str = "SANDBOX_LAUNCHER";

/// The path of the launcher's program.
pub(crate) fn launcher_command() -> PathBuf {
    std::env::var_os(LAUNCHER_VARIABLE).map_or(env!("CARGO_BIN_EXE_sandbox-launcher").into(), PathBuf::from)
}

pub(crate) fn start_launcher() -> (std::process::Child, OwnedFd) {
    start_with(Command::new(launcher_command()))
}

/// Starts a command that executes the launcher.
pub(crate) fn start_with(mut command: Command) -> (std::process::Child, OwnedFd) {
    let (ours, theirs) = socket_pair();
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null());
    let number = theirs.as_raw_fd();
    // SAFETY: only makes a system call.
    unsafe {
        command.pre_exec(move || {
            // A socket that has the number already would be closed when the launcher is executed.
            let done = if number == SOCKET_FD {
                libc::fcntl(number, libc::F_SETFD, 0)
            } else {
                libc::dup2(number, SOCKET_FD)
            };
            if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
        });
    }
    (command.spawn().unwrap(), ours)
}

pub(crate) fn build(plan: &SandboxPlan) -> TestSandbox {
    let (launcher, socket) = start_launcher();
    let resident = ResidentSandbox::build(socket, &plan.clone().into()).unwrap();
    TestSandbox { resident: Some(resident), launcher, placeholders: Default::default() }
}

/// A sandbox for a plan, which keeps the placeholders of the plan.
pub(crate) fn build_planned(planned: PlannedSandbox) -> TestSandbox {
    let mut built = build(&planned.plan);
    built.placeholders = planned.placeholders;
    built
}

/// A sandbox for a policy.
pub(crate) fn sandbox_for(policy: &FilePolicy, network: SandboxNetwork) -> TestSandbox {
    build_planned(plan_sandbox(policy, network).unwrap())
}

/// A sandbox without network, in which everything may be read and this directory may be written.
pub(crate) fn workspace_sandbox(workspace: &Path) -> TestSandbox {
    sandbox_for(&policy(vec![root(Access::Read), entry(workspace, Access::Write)]), SandboxNetwork::None)
}

pub(crate) fn entry(path: impl Into<PathBuf>, access: Access) -> RequestedEntry {
    RequestedEntry { target: RequestedTarget::Path(path.into()), access }
}

pub(crate) fn glob(pattern: impl Into<String>) -> RequestedEntry {
    RequestedEntry { target: RequestedTarget::Glob(pattern.into()), access: Access::Deny }
}

pub(crate) fn root(access: Access) -> RequestedEntry {
    RequestedEntry { target: RequestedTarget::Root, access }
}

pub(crate) fn minimal() -> RequestedEntry {
    RequestedEntry { target: RequestedTarget::Minimal, access: Access::Read }
}

pub(crate) fn policy(entries: Vec<RequestedEntry>) -> FilePolicy {
    resolved(RequestedFiles::Restricted { entries, glob_scan_max_depth: None })
}

pub(crate) fn resolved(files: RequestedFiles) -> FilePolicy {
    let request = PolicyRequest { files, cwd: Some("/".into()), workspace_roots: Vec::new() };
    let mut facts = MachineFacts {
        tmpdir: None,
        slash_tmp_is_directory: true,
        minimal_roots: sandbox::MINIMAL_ROOTS.iter().map(PathBuf::from).filter(|path| path.exists()).collect(),
        git_directories_of: &mut |_| Ok(Vec::new()),
    };
    resolve_policy(&request, &mut facts).unwrap()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// How a command ended and what it wrote.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) output: String,
}

impl Outcome {
    /// The output of a command that has succeeded.
    #[track_caller]
    pub(crate) fn success(self) -> String {
        assert_eq!(self.code, 0, "{}", self.output);
        self.output
    }
}

pub(crate) fn c_strings(values: &[&str]) -> Vec<CString> {
    values.iter().map(|value| CString::new(*value).unwrap()).collect()
}

/// A request with the values that most tests want.
pub(crate) fn start_request(argv: &[&str], cwd: &Path) -> StartRequest {
    StartRequest {
        candidates: c_strings(&argv[..1]),
        searched: false,
        argv: c_strings(argv),
        env: c_strings(&["PATH=/usr/bin:/bin", "LC_ALL=C"]),
        cwd: CString::new(cwd.to_str().unwrap()).unwrap(),
        umask: None,
        tag: None,
        limits: Vec::new(),
        terminal: false,
        extra_descriptor: None,
        enters_cgroup: false,
    }
}

/// A command that runs. Dropping it closes the lifeline, which tells the first process of the namespace that the command
/// was reaped.
pub(crate) struct Running {
    pub(crate) pid: i32,
    pub(crate) _lifeline: Option<OwnedFd>,
}

impl Running {
    /// Waits for the end. A signal N gives the code 128 + N.
    pub(crate) fn wait(&self) -> i32 {
        let status = rustix::process::waitpid(Pid::from_raw(self.pid), WaitOptions::empty()).unwrap().unwrap().1;
        status.exit_status().unwrap_or_else(|| 128 + status.terminating_signal().unwrap_or(0))
    }
}

impl TestSandbox {
    pub(crate) fn resident(&self) -> &ResidentSandbox {
        self.resident.as_ref().unwrap()
    }

    /// Runs a shell script to its end. Stdout and stderr come together.
    pub(crate) fn run(&self, script: &str) -> Outcome {
        self.run_argv(&["/bin/sh", "-c", script], Path::new("/"))
    }

    /// Runs a Python program to its end.
    pub(crate) fn python(&self, program: &str, args: &[&str]) -> Outcome {
        self.run_argv(&[&[PYTHON, "-c", program], args].concat(), Path::new("/"))
    }

    pub(crate) fn run_argv(&self, argv: &[&str], cwd: &Path) -> Outcome {
        let (reader, writer) = io::pipe().unwrap();
        let running = match self.start(argv, cwd, &OwnedFd::from(writer)) {
            Ok(running) => running,
            Err(reply) => panic!("{argv:?} was not started: {reply:?}"),
        };
        let mut output = Vec::new();
        { reader }.read_to_end(&mut output).unwrap();
        Outcome { code: running.wait(), output: String::from_utf8_lossy(&output).into_owned() }
    }

    /// Starts a command whose stdout and stderr are `output`.
    pub(crate) fn start(&self, argv: &[&str], cwd: &Path, output: &OwnedFd) -> Result<Running, StartReply> {
        let null = std::fs::File::open("/dev/null").unwrap();
        self.start_request(&start_request(argv, cwd), &[null.as_fd(), output.as_fd(), output.as_fd()])
    }

    pub(crate) fn start_request(
        &self,
        request: &StartRequest,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Running, StartReply> {
        let (ours, theirs) = socket_pair();
        let StartAnswer { reply, lifeline, filter } =
            self.resident().start(request, ours.as_fd(), theirs, descriptors).unwrap();
        if let Some(filter) = filter {
            refuse_in_background(filter);
        }
        match reply {
            StartReply::Started { pid } => Ok(Running { pid, _lifeline: lifeline }),
            failed => Err(failed),
        }
    }
}

/// Refuses the calls that the filter of a command reports, until the command has ended.
fn refuse_in_background(filter: OwnedFd) {
    std::thread::spawn(move || {
        loop {
            let mut polled = [rustix::event::PollFd::new(&filter, rustix::event::PollFlags::IN)];
            if rustix::event::poll(&mut polled, None).is_err() {
                continue;
            }
            if !polled[0].revents().contains(rustix::event::PollFlags::IN)
                || sandbox::refuse_next_call(&filter, drop).is_err()
            {
                return;
            }
        }
    });
}
