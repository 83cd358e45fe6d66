//! Attempts to regain privileges, and to reach other processes.

use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use sandbox::{Access, SandboxNetwork};

use crate::support::{Running, TestSandbox, entry, is_root, policy, root, sandbox_for, start_request};
use crate::yard::{Goal, Yard, attack, attack_needing_root, attack_only_in_sandbox};

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

#[test]
fn namespaces_cannot_be_made_or_entered() {
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
    attack_needing_root("setns", Goal::Exit, "call(libc.setns, os.open('/proc/self/ns/ipc', 0), 0)");
    attack_needing_root("chroot", Goal::Exit, "os.chroot(ws)");
}

#[test]
fn programs_with_the_set_user_id_bit_get_nothing() {
    // As root the file belongs to another user, whose rights the program would get. An ordinary user cannot give files
    // away, so the bit of its own file has nothing to give; then the mount flag is what the test can see.
    let yard = Yard::new();
    let program = yard.path("ws/id");
    std::fs::copy("/usr/bin/id", &program).unwrap();
    if is_root() {
        std::os::unix::fs::chown(&program, Some(12345), Some(12345)).unwrap();
    }
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o6755)).unwrap();
    let run = |argument: &str| std::process::Command::new(&program).arg(argument).output().unwrap().stdout;
    if is_root() {
        assert_eq!(run("-u"), b"12345\n", "without a sandbox the program gets the rights of its owner");
    }
    let inside = yard.sandbox().run(&format!("{0} -u; {0} -g", program.display())).success();
    let own = format!("{}\n{}\n", rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    assert_eq!(inside, own);
    let mounts = yard.sandbox().run("cat /proc/self/mountinfo").success();
    assert!(
        mounts.lines().all(|line| line.split(' ').nth(5).unwrap().split(',').any(|flag| flag == "nosuid")),
        "{mounts}"
    );
}

#[test]
fn a_command_cannot_trace_or_change_another_process() {
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

#[test]
fn io_uring_keyrings_x32_calls_and_file_handles_are_refused() {
    attack("io_uring", Goal::Exit, "call(libc.syscall, 425, 4, ctypes.create_string_buffer(120))");
    attack("keyrings", Goal::Exit, "call(libc.syscall, 250 if platform.machine() == 'x86_64' else 219, 0, -3, 1)");
    // If x32 calls were allowed, no rule of the filter would apply to them.
    if cfg!(target_arch = "x86_64") {
        let x32 = "call(libc.syscall, 0x40000000 | 39)";
        attack_only_in_sandbox("calls of x32", x32);
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

#[test]
fn input_cannot_be_faked_into_the_terminal() {
    let yard = Yard::new();
    let sandbox = yard.sandbox();
    let flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY | rustix::pty::OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags).unwrap();
    rustix::pty::unlockpt(&master).unwrap();
    let slave = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(rustix::pty::ptsname(&master, Vec::new()).unwrap().to_str().unwrap())
        .unwrap();
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
        print(done, errno.errorcode[ctypes.get_errno()])
"#;
    let (mut reader, writer) = std::io::pipe().unwrap();
    let writer = OwnedFd::from(writer);
    let mut request = start_request(&[crate::support::PYTHON, "-c", program], Path::new("/"));
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
