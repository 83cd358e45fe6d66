//! Attempts to regain privileges, and to reach other processes.

use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::process::Pid;
use sandbox::{Access, SandboxNetwork};

use crate::support::{PYTHON, Running, TestSandbox, entry, is_root, policy, root, sandbox_for, start_request};
use crate::yard::{
    Goal, Yard, attack_in, attack_needing_root, attack_needing_root_in, attack_only_in_sandbox, left_out,
    python_outside,
};

#[test]
fn a_command_has_no_capability_and_gets_none() {
    let yard = Yard::new();
    let sandbox = yard.sandbox();
    let status = sandbox.run("cat /proc/self/status").success();
    for line in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert!(status.contains(&format!("{line}:\t0000000000000000")), "{status}");
    }
    assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"), "{status}");
    let ids = format!("{} {}", rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    assert_eq!(sandbox.run("echo $(id -u) $(id -g)").success().trim(), ids, "the user keeps its number");
}

/// The capabilities that root has in this container or machine, or all of them for other users.
fn capabilities_to_regain() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let permitted = status.lines().find_map(|line| line.strip_prefix("CapPrm:\t")).unwrap();
    match u64::from_str_radix(permitted, 16).unwrap() {
        0 => (1 << 40) - 1,
        own => own,
    }
}

/// Tries to get capabilities or another user in a sandbox.
pub(crate) fn attack_with_capabilities(sandbox: impl Fn(&Yard) -> TestSandbox) {
    let wanted = capabilities_to_regain();
    let (low, high) = (wanted & 0xFFFF_FFFF, wanted >> 32);
    let set = |effective: u64, low: u64, high: u64| {
        let (effective_low, effective_high) = (effective & low, effective & high);
        // The version of the structures, and this process. Then effective, permitted and inheritable capabilities.
        format!(
            "header = struct.pack('Ii', 0x20080522, 0)\n\
             call(libc.capset, header, struct.pack('6I', {effective_low}, {low}, {low}, {effective_high}, {high}, {high}))"
        )
    };
    attack_needing_root_in("all capabilities", Goal::Exit, &set(u64::MAX, low, high), &sandbox);
    attack_needing_root_in("permitted capabilities", Goal::Exit, &set(0, low, high), &sandbox);
    let lowest = wanted.trailing_zeros();
    attack_needing_root_in("one capability", Goal::Exit, &set(u64::MAX, low & (1 << lowest), 0), &sandbox);
    // PR_CAP_AMBIENT and PR_CAP_AMBIENT_RAISE. The capability has to be inheritable, so the program first tries that.
    let ambient = format!(
        "try:\n    {}\nexcept OSError:\n    pass\ncall(libc.prctl, 47, 2, {lowest}, 0, 0)",
        set(u64::MAX, low, high).replace('\n', "\n    ")
    );
    attack_needing_root_in("ambient capabilities", Goal::Exit, &ambient, &sandbox);
    for program in [
        "os.setuid(12345)",
        "os.setgid(12345)",
        "os.setresuid(12345, 12345, 12345)",
        "os.setgroups([12345])",
        // The ids that decide about files.
        "libc.setfsuid(12345); assert libc.setfsuid(-1) == 12345",
    ] {
        attack_needing_root_in(program, Goal::Exit, program, &sandbox);
    }
}

#[test]
fn capabilities_and_other_users_cannot_be_regained() {
    attack_with_capabilities(Yard::sandbox);
}

#[test]
fn namespaces_cannot_be_made_or_entered() {
    attack_with_namespaces(Yard::sandbox);
}

/// Tries to make and to enter namespaces in a sandbox.
pub(crate) fn attack_with_namespaces(sandbox: impl Fn(&Yard) -> TestSandbox) {
    let attack = |name: &str, goal: Goal, program: &str| attack_in(name, goal, program, &sandbox);
    let kinds = [
        ("user", 0x1000_0000_u32),
        ("user and mount", 0x1002_0000),
        ("user and network", 0x5000_0000),
        ("user and pid", 0x3000_0000),
        ("user and ipc", 0x1800_0000),
        ("user and host name", 0x1400_0000),
        ("user and cgroup", 0x1200_0000),
        ("user and time", 0x1000_0080),
    ];
    for (name, flags) in kinds {
        attack(&format!("unshare {name}"), Goal::Exit, &format!("call(libc.unshare, {flags})"));
        // The kernel ignores the upper half of the register for `clone`, so it must not hide the flags.
        if name != "user and time" {
            let clone = format!(
                "number = 56 if platform.machine() == 'x86_64' else 220\n\
                 pid = call(libc.syscall, number, ctypes.c_ulong({flags} | 17), 0, 0, 0, 0)\n\
                 os._exit(0) if pid == 0 else os.waitpid(pid, 0)"
            );
            attack(&format!("clone {name}"), Goal::Exit, &clone);
            attack(&format!("clone {name} with garbage"), Goal::Exit, &clone.replace("| 17", "| 17 | 0x5a5a << 32"));
        }
        let clone3 = format!(
            "args = struct.pack('8Q', {flags}, 0, 0, 0, 17, 0, 0, 0)\n\
             pid = call(libc.syscall, 435, args, 64)\n\
             os._exit(0) if pid == 0 else os.waitpid(pid, 0)"
        );
        attack(&format!("clone3 {name}"), Goal::Exit, &clone3);
    }
    attack_in(
        "a lease on a file",
        Goal::Exit,
        "import fcntl\npath = os.path.join(ws, 'leased')\nopen(path, 'w').close()\nfcntl.fcntl(os.open(path, os.O_RDONLY), 1024, 1)",
        &sandbox,
    );
    let enter = "call(libc.setns, os.open('/proc/self/ns/ipc', 0), 0)";
    attack_needing_root_in("setns", Goal::Exit, enter, &sandbox);
    attack_needing_root_in("chroot", Goal::Exit, "os.chroot(ws)", &sandbox);
}

/// Starts a program with the set-user-ID bit in a sandbox. For root, who would gain nothing from a program of root, the
/// program belongs to another user. An ordinary user cannot give files away, and starts `su` of the machine.
pub(crate) fn attack_with_set_user_id(sandbox: impl Fn(&Yard) -> TestSandbox) {
    let yard = Yard::new();
    if !is_root() {
        return attack_with_su(&sandbox(&yard));
    }
    let program = yard.path("ws/id");
    std::fs::copy("/usr/bin/id", &program).unwrap();
    std::os::unix::fs::chown(&program, Some(12345), Some(12345)).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o6755)).unwrap();
    for argument in ["-u", "-g"] {
        let outside = std::process::Command::new(&program).arg(argument).output().unwrap().stdout;
        assert_eq!(outside, b"12345\n", "without a sandbox the program gets the rights of its owner");
    }
    let inside = sandbox(&yard).run(&format!("{0} -u; {0} -g", program.display())).success();
    assert_eq!(inside, "0\n0\n");
}

/// The effective user of a process. A process that has ended has one until it is reaped.
fn effective_user(pid: i32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:\t")).unwrap();
    users.split('\t').nth(1).unwrap().parse().unwrap()
}

/// Starts `su`, which waits for a password, and looks which rights it has.
fn attack_with_su(sandbox: &TestSandbox) {
    const SU: &str = "/usr/bin/su";
    let metadata = std::fs::metadata(SU).unwrap();
    assert!(metadata.mode() & 0o4000 != 0 && metadata.uid() == 0, "{SU} has no set-user-ID bit");
    let own = rustix::process::geteuid().as_raw();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let gains = status.contains("NoNewPrivs:\t0");
    if !gains {
        assert!(status.contains("NoNewPrivs:\t1"), "{status}");
        left_out("no program of this user gets privileges, because the tests run with no_new_privs");
    }
    // The first output, or the end of the program, comes after the program was executed.
    let mut first = [0];
    let (mut output, writer) = std::io::pipe().unwrap();
    let mut outside = std::process::Command::new(SU)
        .stdin(std::process::Stdio::piped())
        .stdout(writer.try_clone().unwrap())
        .stderr(writer)
        .spawn()
        .unwrap();
    let _prompted = output.read(&mut first).unwrap();
    let user_outside = effective_user(i32::try_from(outside.id()).unwrap());
    outside.kill().unwrap();
    outside.wait().unwrap();
    assert_eq!(user_outside, if gains { 0 } else { own }, "without a sandbox the program gets the rights of root");

    let (mut output, writer) = std::io::pipe().unwrap();
    let (stdin, _stays_open) = std::io::pipe().unwrap();
    let writer = OwnedFd::from(writer);
    let request = start_request(&[SU], Path::new("/"));
    let running = sandbox.start_request(&request, &[stdin.as_fd(), writer.as_fd(), writer.as_fd()]).unwrap();
    drop(writer);
    let _prompted = output.read(&mut first).unwrap();
    let user_inside = effective_user(running.pid);
    let _may_have_ended =
        rustix::process::kill_process(Pid::from_raw(running.pid).unwrap(), rustix::process::Signal::KILL);
    running.wait();
    assert_eq!(user_inside, own);
}

#[test]
fn programs_with_the_set_user_id_bit_get_nothing() {
    attack_with_set_user_id(Yard::sandbox);
    let mounts = Yard::new().sandbox().run("cat /proc/self/mountinfo").success();
    assert!(
        mounts.lines().all(|line| line.split(' ').nth(5).unwrap().split(',').any(|flag| flag == "nosuid")),
        "{mounts}"
    );
}

#[test]
fn a_command_cannot_trace_or_change_another_process() {
    attack_child_processes(Yard::sandbox);
}

/// Tries to trace and to change a child in a sandbox.
pub(crate) fn attack_child_processes(sandbox: impl Fn(&Yard) -> TestSandbox) {
    let attack = |name: &str, goal: Goal, program: &str| attack_in(name, goal, program, &sandbox);
    // The victim is a child, which everybody may trace.
    let victim = "\
read, write = os.pipe()
pid = os.fork()
if pid == 0:
    signal.pause()
def finish():
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
import atexit
atexit.register(finish)
";
    attack("attach", Goal::Exit, &format!("{victim}call(libc.ptrace, 16, pid, None, None)"));
    attack("seize", Goal::Exit, &format!("{victim}call(libc.ptrace, 0x4206, pid, None, None)"));
    attack("traceme", Goal::Exit, "call(libc.ptrace, 0, 0, None, None)");
    let vectors = "buffer = ctypes.create_string_buffer(8)\n\
                   vector = struct.pack('2Q', ctypes.addressof(buffer), 8)\n";
    for name in ["process_vm_readv", "process_vm_writev"] {
        attack(name, Goal::Exit, &format!("{victim}{vectors}call(libc.{name}, pid, vector, 1, vector, 1, 0)"));
    }
    let pidfd_getfd = "call(libc.syscall, 438, call(libc.syscall, 434, pid, 0), 0, 0)";
    attack("pidfd_getfd", Goal::Exit, &format!("{victim}{pidfd_getfd}"));
}

/// Attacks the processes whose numbers it gets, and prints one line for each of them. Without numbers it attacks children
/// of its own, whose memory is a copy of its memory, so an address is valid in both. Attacks on memory leave `attacked`
/// there.
pub(crate) const ATTACK_PROCESSES: &str = r#"
import ctypes, errno, os, signal, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(b"original", 8)
address = ctypes.addressof(buffer)
local = ctypes.create_string_buffer(b"attacked", 8)
def call(function, *args):
    done = function(*args)
    if done == -1:
        raise OSError(ctypes.get_errno(), "")
    return done
def vector(address):
    return struct.pack("2Q", address, 8)
def read_memory(pid):
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
        file.seek(address)
        return file.read(8)
def write_memory(pid):
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as file:
        file.seek(address)
        file.write(b"attacked")
def write_vector(pid):
    assert call(libc.process_vm_writev, pid, vector(ctypes.addressof(local)), 1, vector(address), 1, 0) == 8
def read_vector(pid):
    read = ctypes.create_string_buffer(8)
    assert call(libc.process_vm_readv, pid, vector(ctypes.addressof(read)), 1, vector(address), 1, 0) == 8
def take_descriptor(pid):
    call(libc.syscall, 438, call(libc.syscall, 434, pid, 0), 0, 0)
attacks = {
    "attach": lambda pid: call(libc.ptrace, 16, pid, None, None),
    "seize": lambda pid: call(libc.ptrace, 0x4206, pid, None, None),
    "readv": read_vector,
    "writev": write_vector,
    "mem-read": read_memory,
    "mem-write": write_memory,
    "descriptor": take_descriptor,
}
def attack(name, pid):
    try:
        attacks[name](pid)
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]
def attack_child(name):
    pid = os.fork()
    if pid == 0:
        signal.pause()
    try:
        result = attack(name, pid)
        if name in ("writev", "mem-write"):
            assert read_memory(pid) == b"attacked", name
        return result
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
for pid in map(int, sys.argv[1:]):
    print(*(f"{name}={attack(name, pid)}" for name in attacks))
if len(sys.argv) == 1:
    print(*(f"{name}={attack_child(name)}" for name in attacks))
"#;

/// Checks that the attacks of [`ATTACK_PROCESSES`] succeed on a process of the same user that is no victim of the test.
#[track_caller]
pub(crate) fn assert_attacks_on_processes_work() {
    assert_eq!(
        python_outside(ATTACK_PROCESSES, &[]),
        "attach=done seize=done readv=done writev=done mem-read=done mem-write=done descriptor=done\n",
        "without a sandbox"
    );
}

#[test]
fn a_command_cannot_trace_or_change_the_first_process_of_its_namespace_nor_processes_outside() {
    assert_attacks_on_processes_work();
    let (yard, other_yard) = (Yard::new(), Yard::new());
    let (sandbox, other) = (yard.sandbox(), other_yard.sandbox());
    let (sibling, _sibling_output) = start_sleeper(&sandbox);
    let (foreign, _foreign_output) = start_sleeper(&other);
    let launcher = i32::try_from(sandbox.launcher.id()).unwrap();
    let outside = [launcher, sibling.pid, foreign.pid, i32::try_from(std::process::id()).unwrap()];
    // The first process shares the memory of the launcher, so who could write it would have the rights of the launcher.
    let arguments: Vec<String> = [1].iter().chain(&outside).map(ToString::to_string).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = sandbox.python(ATTACK_PROCESSES, &arguments).success();
    let refused = "attach=EPERM seize=EPERM readv=EPERM writev=EPERM";
    // For root, `/proc` is read-only.
    let write = if is_root() { "EROFS" } else { "EACCES" };
    let first = format!("{refused} mem-read=EACCES mem-write={write} descriptor=EPERM\n");
    let unseen = format!("{refused} mem-read=ENOENT mem-write=ENOENT descriptor=ESRCH\n");
    assert_eq!(output, first + &unseen.repeat(outside.len()));
    for pid in outside {
        assert!(is_alive(pid), "{pid}");
    }
    assert_eq!(sandbox.run("echo works").success(), "works\n", "the launcher is unharmed");
    drop((sandbox, other));
    assert_eq!((sibling.wait(), foreign.wait()), (137, 137));
}

/// Starts a command that sleeps, and waits until it runs its program.
fn start_sleeper(sandbox: &TestSandbox) -> (Running, std::io::PipeReader) {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let argv = ["/bin/sh", "-c", "echo ready; exec sleep 1000"];
    let running = sandbox.start(&argv, Path::new("/"), &OwnedFd::from(writer)).unwrap();
    reader.read_exact(&mut [0; 6]).unwrap();
    (running, reader)
}

/// Whether a process exists and is no zombie.
fn is_alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

#[test]
fn a_command_sees_and_signals_no_process_but_its_own() {
    let (yard, other_yard) = (Yard::new(), Yard::new());
    let (sandbox, other) = (yard.sandbox(), other_yard.sandbox());
    let (sibling, _sibling_output) = start_sleeper(&sandbox);
    let (foreign, _foreign_output) = start_sleeper(&other);
    let launcher = i32::try_from(sandbox.launcher.id()).unwrap();
    let seen =
        sandbox.python("import os; print(sorted(int(name) for name in os.listdir('/proc') if name.isdigit()))", &[]);
    assert_eq!(seen.success().trim(), "[1, 2]", "the first process of the namespace, and the command");
    let victims = [launcher, sibling.pid, foreign.pid, i32::try_from(std::process::id()).unwrap()];
    let program = r#"
import os, signal, sys
for pid in map(int, sys.argv[1:]):
    for target in (pid, -pid):
        try:
            os.kill(target, signal.SIGKILL)
            print("killed", target)
        except ProcessLookupError:
            pass
    assert not os.path.exists(f"/proc/{pid}/root"), pid
# Everything that it may signal: no process but the first one of the namespace, which ignores it.
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.kill(1, signal.SIGKILL)
os.kill(1, signal.SIGSTOP)
try:
    os.kill(-1, signal.SIGTERM)
except ProcessLookupError:
    pass
os.kill(1, 0)
for name in ("root", "cwd", "exe"):
    try:
        print(os.readlink("/proc/1/" + name))
    except PermissionError:
        pass
for name in ("mem", "environ", "maps"):
    try:
        print(open("/proc/1/" + name).read(10))
    except PermissionError:
        pass
# Root may see which numbers are open, but not what they are.
for number in (os.listdir("/proc/1/fd") if os.access("/proc/1/fd", os.R_OK) else []):
    for reveal in (os.readlink, open):
        try:
            print(reveal("/proc/1/fd/" + number))
        except PermissionError:
            pass
"#;
    let arguments: Vec<String> = victims.iter().map(ToString::to_string).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    assert_eq!(sandbox.python(program, &arguments).success(), "");
    for pid in victims {
        assert!(is_alive(pid), "{pid}");
    }
    drop((sandbox, other));
    assert_eq!((sibling.wait(), foreign.wait()), (137, 137));
}

/// Tries to use io_uring and kernel keyrings in a sandbox.
pub(crate) fn attack_with_rings(sandbox: impl Fn(&Yard) -> TestSandbox) {
    let io_uring = "call(libc.syscall, 425, 4, ctypes.create_string_buffer(120))";
    attack_in("io_uring", Goal::Exit, io_uring, &sandbox);
    let keyrings = "call(libc.syscall, 250 if platform.machine() == 'x86_64' else 219, 0, -3, 1)";
    attack_in("keyrings", Goal::Exit, keyrings, &sandbox);
}

#[test]
fn io_uring_keyrings_x32_calls_and_file_handles_are_refused() {
    attack_with_rings(Yard::sandbox);
    // If x32 calls were allowed, no rule of the filter would apply to them.
    if cfg!(target_arch = "x86_64") {
        let x32 = "call(libc.syscall, 0x40000000 | 39)";
        // The filter answers like a kernel without x32.
        attack_only_in_sandbox("calls of x32", x32, "[Errno 38] Function not implemented");
    }
    attack_needing_root(
        "files by handle",
        Goal::Show,
        "handle = struct.pack('Ii', 128, 0) + bytes(128)\n\
         buffer = ctypes.create_string_buffer(handle)\n\
         mount = ctypes.c_int()\n\
         call(libc.name_to_handle_at, -100, (outside + '/denied/secret').encode(), buffer, ctypes.byref(mount), 0)\n\
         fd = call(libc.open_by_handle_at, os.open(ws, os.O_RDONLY), buffer, 0)\n\
         print(os.read(fd, 100).decode())",
    );
}

/// A terminal: the end of the person who types, and the end of the command.
fn terminal() -> (OwnedFd, std::fs::File) {
    let flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY | rustix::pty::OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags).unwrap();
    rustix::pty::unlockpt(&master).unwrap();
    let slave = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open(rustix::pty::ptsname(&master, Vec::new()).unwrap().to_str().unwrap())
        .unwrap();
    (master, slave)
}

/// Whether the kernel lets this user fake input. Kernels since 6.2 have a switch that leaves it to root.
fn kernel_lets_users_fake_input() -> bool {
    match std::fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti") {
        Ok(switch) => switch.trim() != "0" || is_root(),
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "older kernels let everybody");
            true
        }
    }
}

#[test]
fn input_cannot_be_faked_into_the_terminal() {
    let program = r#"
import ctypes, errno, os, termios
open("/dev/tty").close()
assert os.tcgetpgrp(0) == os.getpgrp()
libc = ctypes.CDLL(None, use_errno=True)
TIOCLINUX = 0x541C
for request in (termios.TIOCSTI, TIOCLINUX):
    # The kernel ignores the upper half of the number.
    for upper_half in (0, 0x5a5a << 32):
        done = libc.ioctl(0, ctypes.c_ulong(request | upper_half), b"x")
        print(done, errno.errorcode[ctypes.get_errno()] if done == -1 else "")
"#;
    // Without a sandbox the program makes the terminal its own. Then it reads the input that it has faked.
    let own = "import fcntl, os, termios\nos.setsid()\nfcntl.ioctl(0, termios.TIOCSCTTY, 0)\n";
    let read = "import tty\ntty.setcbreak(0, termios.TCSANOW)\nprint(os.read(0, 2))\n";
    let (_master, slave) = terminal();
    let fakes = kernel_lets_users_fake_input();
    let unprotected = format!("{own}{program}{}", if fakes { read } else { "" });
    let run = std::process::Command::new(PYTHON).args(["-c", &unprotected]).stdin(slave).output().unwrap();
    let printed = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(run.status.success(), "{printed}{}", String::from_utf8_lossy(&run.stderr));
    if fakes {
        assert!(printed.starts_with("0 \n0 \n") && printed.ends_with("b'xx'\n"), "without a sandbox: {printed}");
    } else {
        assert!(printed.starts_with("-1 EIO\n-1 EIO\n"), "{printed}");
        left_out("the kernel lets only root fake input, because dev.tty.legacy_tiocsti is 0");
    }

    let yard = Yard::new();
    let sandbox = yard.sandbox();
    let (_master, slave) = terminal();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let writer = OwnedFd::from(writer);
    let mut request = start_request(&[PYTHON, "-c", program], Path::new("/"));
    request.terminal = true;
    let running = sandbox.start_request(&request, &[slave.as_fd(), writer.as_fd(), writer.as_fd()]).unwrap();
    drop(writer);
    let mut output = String::new();
    reader.read_to_string(&mut output).unwrap();
    assert_eq!(running.wait(), 0, "{output}");
    assert_eq!(output, "-1 EPERM\n".repeat(4));
}

#[test]
fn a_command_with_unrestricted_files_has_no_privileges_either() {
    let sandbox = sandbox_for(&crate::support::resolved(sandbox::RequestedFiles::Unrestricted), SandboxNetwork::None);
    let yard = Yard::new();
    let script = format!(
        "echo changed > {0}/outside/file && cat {0}/outside/denied/secret && ! unshare -U true && ! python3 -c 'import socket; socket.socket(socket.AF_INET)'",
        yard.base().display()
    );
    let outcome = sandbox.run(&script);
    assert_eq!(outcome.code, 0, "{}", outcome.output);
    assert_eq!(std::fs::read_to_string(yard.path("outside/file")).unwrap(), "changed\n");
    // A denied directory is hidden also where everything else may be written.
    let denied = policy(vec![root(Access::Write), entry(yard.path("outside/denied"), Access::Deny)]);
    let sandbox = sandbox_for(&denied, SandboxNetwork::None);
    let outcome = sandbox.run(&format!("cat {}/outside/denied/secret || ls /dev", yard.base().display()));
    assert!(!outcome.output.contains("the-denied-contents"), "{}", outcome.output);
}

#[test]
fn devices_work_and_their_attributes_cannot_be_changed() {
    let yard = Yard::new();
    let sandbox = yard.sandbox();
    let program = "
import os
assert os.write(os.open('/dev/null', os.O_WRONLY), b'x') == 1
assert os.read(os.open('/dev/zero', os.O_RDWR), 1) == b'\\0'
stat = os.stat('/dev/full')
for change in (
    lambda: os.chmod('/dev/full', stat.st_mode & 0o7777),
    lambda: os.chown('/dev/full', stat.st_uid, stat.st_gid),
    lambda: os.utime('/dev/full', ns=(stat.st_atime_ns, stat.st_mtime_ns)),
):
    try:
        change()
    except OSError:
        continue
    raise SystemExit('changed')
";
    sandbox.python(program, &[]).success();
}

#[test]
fn a_command_cannot_change_the_limits_of_the_first_process_of_its_namespace() {
    let yard = Yard::new();
    let program = "
import resource
for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU):
    try:
        resource.prlimit(1, limit, (0, 0))
    except PermissionError:
        continue
    raise SystemExit('changed')
assert resource.prlimit(0, resource.RLIMIT_CORE, (0, 0))
";
    yard.sandbox().python(program, &[]).success();
}
