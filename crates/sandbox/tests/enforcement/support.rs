//! Starts the launcher and runs commands in its sandbox.

use std::ffi::CString;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, WaitOptions};
use sandbox::{
    Access, FilePolicy, MachineFacts, PolicyRequest, RequestedEntry, RequestedFiles, RequestedTarget,
    ResidentSandbox, SOCKET_FD, SandboxNetwork, SandboxPlan, StartReply, StartRequest, plan_sandbox, resolve_policy,
};

/// A sandbox and the process that made it.
pub(crate) struct TestSandbox {
    pub(crate) resident: ResidentSandbox,
    pub(crate) launcher: std::process::Child,
    _placeholders: Vec<sandbox::Placeholder>,
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

pub(crate) fn start_launcher() -> (std::process::Child, OwnedFd) {
    let (ours, theirs) = socket_pair();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox-launcher"));
    command.env_clear().stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
    let number = theirs.as_raw_fd();
    // SAFETY: only makes a system call.
    unsafe {
        command.pre_exec(move || match libc::dup2(number, SOCKET_FD) {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    (command.spawn().unwrap(), ours)
}

pub(crate) fn build(plan: &SandboxPlan) -> TestSandbox {
    let (launcher, socket) = start_launcher();
    let resident = ResidentSandbox::build(socket, plan).unwrap();
    TestSandbox { resident, launcher, _placeholders: Vec::new() }
}

/// A sandbox for a policy.
pub(crate) fn sandbox_for(policy: &FilePolicy, network: SandboxNetwork) -> TestSandbox {
    let planned = plan_sandbox(policy, network).unwrap();
    let mut built = build(&planned.plan);
    built._placeholders = planned.placeholders;
    built
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

pub(crate) fn policy(entries: Vec<RequestedEntry>) -> FilePolicy {
    let request = PolicyRequest {
        files: RequestedFiles::Restricted { entries, glob_scan_max_depth: None },
        cwd: Some("/".into()),
        workspace_roots: Vec::new(),
    };
    let mut facts = MachineFacts {
        tmpdir: None,
        slash_tmp_is_directory: true,
        minimal_roots: sandbox::MINIMAL_ROOTS.iter().map(PathBuf::from).filter(|path| path.exists()).collect(),
        git_directory_of: &mut |_| None,
    };
    resolve_policy(&request, &mut facts).unwrap()
}

/// How a command ended and what it wrote.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) output: String,
}

impl TestSandbox {
    /// Runs a shell script to its end. Stdout and stderr come together.
    pub(crate) fn run(&self, script: &str) -> Outcome {
        self.run_argv(&["/bin/sh", "-c", script], Path::new("/"))
    }

    pub(crate) fn run_argv(&self, argv: &[&str], cwd: &Path) -> Outcome {
        let (reader, writer) = io::pipe().unwrap();
        let started = self.start(argv, cwd, &OwnedFd::from(writer));
        let (pid, _lifeline) = match started {
            Ok(started) => started,
            Err(reply) => panic!("{argv:?} was not started: {reply:?}"),
        };
        let mut output = Vec::new();
        { reader }.read_to_end(&mut output).unwrap();
        let status = rustix::process::waitpid(Pid::from_raw(pid), WaitOptions::empty()).unwrap().unwrap().1;
        let code = status.exit_status().unwrap_or_else(|| 128 + status.terminating_signal().unwrap_or(0));
        Outcome { code, output: String::from_utf8_lossy(&output).into_owned() }
    }

    /// Starts a command. Returns its process id, and the end of the socket that has to be closed when the command was reaped.
    pub(crate) fn start(&self, argv: &[&str], cwd: &Path, output: &OwnedFd) -> Result<(i32, OwnedFd), StartReply> {
        let (ours, theirs) = socket_pair();
        let null = std::fs::File::open("/dev/null").unwrap();
        let strings = |values: &[&str]| values.iter().map(|value| CString::new(*value).unwrap()).collect::<Vec<_>>();
        let request = StartRequest {
            candidates: strings(&argv[..1]),
            searched: false,
            argv: strings(argv),
            env: strings(&["PATH=/usr/bin:/bin", "LC_ALL=C"]),
            cwd: CString::new(cwd.to_str().unwrap()).unwrap(),
            umask: None,
            limits: Vec::new(),
            terminal: false,
            extra_descriptor: None,
            enters_cgroup: false,
        };
        let descriptors = [null.as_fd(), output.as_fd(), output.as_fd()];
        let (reply, filter) = self.resident.start(&request, ours.as_fd(), theirs.as_fd(), &descriptors).unwrap();
        if let Some(filter) = filter {
            refuse_in_background(filter);
        }
        match reply {
            StartReply::Started { pid } => Ok((pid, ours)),
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
                || sandbox::refuse_next_call(&filter).is_err()
            {
                return;
            }
        }
    });
}
