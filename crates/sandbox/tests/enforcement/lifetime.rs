//! How commands begin and end, and that none is left.

use std::io::{BufRead as _, BufReader, PipeReader, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use sandbox::{StartReply, StartRequest, StartStage};

use crate::support::{PYTHON, Running, TestSandbox, socket_pair, start_request};
use crate::yard::Yard;

/// What a test waits for at most.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts a command, and returns its output as lines.
fn start(sandbox: &TestSandbox, argv: &[&str]) -> (Running, BufReader<PipeReader>) {
    let (reader, writer) = std::io::pipe().unwrap();
    let running = sandbox.start(argv, Path::new("/"), &OwnedFd::from(writer)).unwrap();
    (running, BufReader::new(reader))
}

fn line(output: &mut BufReader<PipeReader>) -> String {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// A launcher has so many processes that wait for the next commands, once it has started one.
const PREPARED: usize = 2;

/// The processes of the host whose parent is `parent`, each with the letter of its state.
fn children_of(parent: u32) -> Vec<(i32, char)> {
    let stat = |pid: i32| -> Option<(u32, char)> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut fields = text.rsplit(')').next()?.split_whitespace();
        let state = fields.next()?.chars().next()?;
        Some((fields.next()?.parse().ok()?, state))
    };
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .filter_map(|pid| stat(pid).filter(|(found, _)| *found == parent).map(|(_, state)| (pid, state)))
        .collect()
}

/// Waits until something is true that no event tells about, because it is about processes that are not ours.
#[track_caller]
fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

/// A command that leaves descendants of every kind behind. Each of them holds the output open.
const DAEMONS: &str = r#"
import ctypes, os, signal, sys, time
def child(prepare):
    if os.fork() == 0:
        prepare()
        for number in range(1, 65):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        os.write(1, b"up\n")
        while True:
            time.sleep(1000)
def double_fork():
    os.setsid()
    if os.fork():
        os._exit(0)
child(lambda: None)
child(os.setsid)
child(double_fork)
child(lambda: ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)) # a subreaper
child(lambda: ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)) # no signal when the parent ends
"#;

fn wait_for_daemons(output: &mut BufReader<PipeReader>) {
    for _ in 0..5 {
        assert_eq!(line(output), "up");
    }
}

fn assert_closed(mut output: BufReader<PipeReader>) {
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
}

#[test]
fn killing_the_launcher_ends_all_commands_and_their_descendants() {
    let yard = Yard::new();
    let mut sandbox = yard.sandbox();
    let (command, mut output) = start(&sandbox, &[PYTHON, "-c", &format!("{DAEMONS}time.sleep(1000)")]);
    let (left, mut left_output) = start(&sandbox, &[PYTHON, "-c", DAEMONS]);
    wait_for_daemons(&mut output);
    wait_for_daemons(&mut left_output);
    assert_eq!(left.wait(), 0, "its descendants go on");
    sandbox.launcher.kill().unwrap();
    assert_eq!(command.wait(), 137);
    // The pipes are closed only when the last descendant has ended.
    assert_closed(output);
    assert_closed(left_output);
}

#[test]
fn closing_the_socket_ends_the_launcher_and_all_commands() {
    let yard = Yard::new();
    let mut sandbox = yard.sandbox();
    let (command, mut output) = start(&sandbox, &[PYTHON, "-c", &format!("{DAEMONS}time.sleep(1000)")]);
    wait_for_daemons(&mut output);
    assert!(!sandbox.resident().has_ended());
    drop(sandbox.resident.take());
    assert!(sandbox.launcher.wait().unwrap().success());
    assert_eq!(command.wait(), 137);
    assert_closed(output);
}

#[test]
fn killing_the_first_process_of_the_namespace_ends_its_command_and_no_other() {
    let yard = Yard::new();
    let sandbox = yard.sandbox();
    let (command, mut output) = start(&sandbox, &[PYTHON, "-c", &format!("{DAEMONS}time.sleep(1000)")]);
    wait_for_daemons(&mut output);
    // The oldest one was made for the first command.
    let (first, _) = children_of(sandbox.launcher.id()).into_iter().min().unwrap();
    let (other, _other_output) = start(&sandbox, &["/bin/sleep", "1000"]);
    rustix::process::kill_process(Pid::from_raw(first).unwrap(), Signal::KILL).unwrap();
    assert_eq!(command.wait(), 137);
    assert_closed(output);
    assert_eq!(sandbox.run("echo works").output, "works\n");
    rustix::process::kill_process(Pid::from_raw(other.pid).unwrap(), Signal::TERM).unwrap();
    assert_eq!(other.wait(), 143);
}

#[test]
fn killing_the_processes_that_wait_for_commands_does_no_harm() {
    let yard = Yard::new();
    let sandbox = yard.sandbox();
    for _ in 0..20 {
        assert_eq!(sandbox.run("echo works").output, "works\n");
        for (pid, _) in children_of(sandbox.launcher.id()) {
            let _has_ended = rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
            wait_until("it lives on", || children_of(sandbox.launcher.id()).iter().all(|(child, _)| *child != pid));
        }
    }
}

#[test]
fn nothing_is_left_of_a_command_without_descendants() {
    let yard = Yard::new();
    let sandbox = yard.sandbox();
    for _ in 0..5 {
        let (command, output) = start(&sandbox, &["/bin/true"]);
        assert_closed(output);
        assert_eq!(command.wait(), 0);
    }
    // Not even zombies.
    wait_until("a process is left", || children_of(sandbox.launcher.id()).len() == PREPARED);
}

#[test]
fn a_descendant_goes_on_after_its_command_and_the_first_process_ends_with_it() {
    let yard = Yard::new();
    let sandbox = yard.sandbox();
    // The descendant waits for its stdin to be closed.
    let (stdin, keep) = std::io::pipe().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let (stdin, writer) = (OwnedFd::from(stdin), OwnedFd::from(writer));
    // A shell gives a background process no stdin, so it is passed as another descriptor.
    let request = start_request(&["/bin/sh", "-c", "exec 3<&0; (cat <&3; echo late) & echo early"], Path::new("/"));
    let command = sandbox.start_request(&request, &[stdin.as_fd(), writer.as_fd(), writer.as_fd()]).unwrap();
    drop((stdin, writer));
    let mut output = BufReader::new(reader);
    assert_eq!(line(&mut output), "early");
    assert_eq!(command.wait(), 0);
    drop(command);
    wait_until("the first process waits for the descendant", || {
        children_of(sandbox.launcher.id()).len() == PREPARED + 1
    });
    { &keep }.write_all(b"still here\n").unwrap();
    assert_eq!(line(&mut output), "still here");
    drop(keep);
    assert_eq!(line(&mut output), "late");
    wait_until("the first process is left", || children_of(sandbox.launcher.id()).len() == PREPARED);
}

#[test]
fn orphans_are_reaped() {
    let yard = Yard::new();
    let program = r#"
import os, time
read, write = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.write(write, str(os.getpid()).encode())
        os._exit(0)
    os._exit(0)
os.wait()
orphan = os.read(read, 20).decode()
deadline = time.monotonic() + 30
while os.path.exists("/proc/" + orphan) and time.monotonic() < deadline:
    time.sleep(0.001)
print(os.path.exists("/proc/" + orphan))
"#;
    assert_eq!(yard.sandbox().python(program, &[]).success(), "False\n");
}

#[test]
fn exit_codes_and_signals_are_those_of_the_command() {
    let yard = Yard::new();
    let sandbox = yard.sandbox();
    for code in [0, 1, 42, 255] {
        assert_eq!(sandbox.run(&format!("exit {code}")).code, code);
    }
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("INT", 130), ("SEGV", 139)] {
        assert_eq!(sandbox.run(&format!("kill -{signal} $$")).code, code, "{signal}");
    }
}

#[test]
fn many_commands_run_at_once() {
    let yard = Yard::new();
    let sandbox = yard.sandbox();
    const COMMANDS: i32 = 64;
    let all_are_running = std::sync::Barrier::new(COMMANDS as usize);
    std::thread::scope(|scope| {
        for number in 0..COMMANDS {
            let (sandbox, all_are_running) = (&sandbox, &all_are_running);
            scope.spawn(move || {
                let (stdin, closed_to_end) = std::io::pipe().unwrap();
                let (mut output, writer) = std::io::pipe().unwrap();
                let script = format!("echo ready; cat; exit {number}");
                let request = start_request(&["/bin/sh", "-c", &script], Path::new("/"));
                let running =
                    sandbox.start_request(&request, &[stdin.as_fd(), writer.as_fd(), writer.as_fd()]).unwrap();
                drop((stdin, writer));
                output.read_exact(&mut [0; 6]).unwrap();
                all_are_running.wait();
                drop(closed_to_end);
                assert_eq!(running.wait(), number);
            });
        }
    });
    wait_until("a process is left", || children_of(sandbox.launcher.id()).len() == PREPARED);
}

#[test]
fn a_start_that_fails_tells_why_and_leaves_nothing() {
    let yard = Yard::new();
    let sandbox = yard.sandbox();
    let fifo = yard.path("ws/fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
    let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let denied = yard.path("ws/denied");
    for (program, cwd, stage, errno) in [
        ("/nowhere", Path::new("/"), StartStage::Execute, libc::ENOENT),
        ("/etc/passwd", Path::new("/"), StartStage::Execute, libc::EACCES),
        ("/usr", Path::new("/"), StartStage::Execute, libc::EACCES),
        // The kernel must not wait until somebody writes to it.
        (fifo.to_str().unwrap(), Path::new("/"), StartStage::Execute, libc::EACCES),
        ("/bin/true", Path::new("/nowhere"), StartStage::WorkingDirectory, libc::ENOENT),
        ("/bin/true", denied.as_path(), StartStage::WorkingDirectory, libc::EACCES),
    ] {
        match sandbox.start(&[program], cwd, &null) {
            Err(StartReply::Failed { stage: found, errno: error, pid: Some(pid) }) => {
                assert_eq!((found, error), (stage, errno), "{program} in {}", cwd.display());
                let pid = Pid::from_raw(pid).unwrap();
                let gone = rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
                assert!(gone.is_err(), "it has been reaped");
            }
            other => panic!("{program}: {:?}", other.map(|running| running.pid)),
        }
    }
    wait_until("a process is left", || children_of(sandbox.launcher.id()).len() == PREPARED);
}

#[test]
fn a_start_is_cancelled_by_closing_its_socket() {
    let yard = Yard::new();
    let sandbox = yard.sandbox();
    let null = std::fs::File::open("/dev/null").unwrap();
    let request = start_request(&["/bin/sleep", "1000"], Path::new("/"));
    for _ in 0..20 {
        let (ours, theirs) = socket_pair();
        rustix::net::shutdown(&ours, rustix::net::Shutdown::Write).unwrap();
        let reply = sandbox.resident().start(&request, ours.as_fd(), theirs, &[null.as_fd(); 3]).unwrap();
        match reply.reply {
            // Either the process has noticed, or its namespace was ended before or while it was made.
            StartReply::Failed { stage: StartStage::Cancelled | StartStage::Isolate, .. } => {}
            StartReply::Started { pid } => assert_eq!(Running { pid, _lifeline: reply.lifeline }.wait(), 137),
            StartReply::Failed { .. } => panic!("{reply:?}"),
        }
    }
    wait_until("a process is left", || children_of(sandbox.launcher.id()).len() == PREPARED);
    assert_eq!(sandbox.run("echo works").output, "works\n");
}

/// A memory cgroup with a limit. None if this machine does not let the test make one.
struct MemoryCgroup {
    folder: PathBuf,
}

impl MemoryCgroup {
    fn new(bytes: u64) -> Option<Self> {
        let name = format!("exec-server-test-{}", std::process::id());
        // The first is where both versions of cgroups are mounted, and the second where there is only version 2.
        [("memory", "memory.limit_in_bytes"), ("", "memory.max")].into_iter().find_map(|(above, file)| {
            let folder = Path::new("/sys/fs/cgroup").join(above).join(&name);
            std::fs::create_dir(&folder).ok()?;
            let made = Self { folder };
            std::fs::write(made.folder.join(file), bytes.to_string()).ok()?;
            Some(made)
        })
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        wait_until("the cgroup is empty", || std::fs::remove_dir(&self.folder).is_ok());
    }
}

#[test]
fn a_command_that_does_not_fit_into_its_memory_limit_harms_no_other() {
    let Some(cgroup) = MemoryCgroup::new(4096) else { return };
    let yard = Yard::new();
    let sandbox = yard.sandbox();
    let (other, mut output) = start(&sandbox, &["/bin/sh", "-c", "echo runs; exec sleep 1000"]);
    assert_eq!(line(&mut output), "runs");
    let null = std::fs::File::open("/dev/null").unwrap();
    let procs = std::fs::OpenOptions::new().write(true).open(cgroup.folder.join("cgroup.procs")).unwrap();
    let request = StartRequest { enters_cgroup: true, ..start_request(&["/bin/true"], Path::new("/")) };
    let started = sandbox.start_request(&request, &[null.as_fd(), null.as_fd(), null.as_fd(), procs.as_fd()]);
    // The kernel may also say that the program does not fit.
    if let Ok(running) = started {
        assert_eq!(running.wait(), 128 + libc::SIGKILL);
    }
    assert!(!sandbox.resident().has_ended());
    assert_eq!(sandbox.run("echo another").success(), "another\n");
    let other_pid = Pid::from_raw(other.pid).unwrap();
    let ended = rustix::process::waitid(WaitId::Pid(other_pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    assert!(ended.unwrap().is_none(), "the other command goes on");
    rustix::process::kill_process(other_pid, Signal::KILL).unwrap();
    assert_eq!(other.wait(), 128 + libc::SIGKILL);
}
