//! Sandboxes without namespaces, which Landlock and two seccomp filters enforce.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use sandbox::{
    Access, EnforcementPlan, FilePolicy, LandlockUnfit, RequestedFiles, ResidentSandbox, SandboxNetwork,
    plan_landlock,
};

use crate::privileges::{
    ATTACK_PROCESSES, assert_attacks_on_processes_work, attack_child_processes, attack_with_capabilities,
    attack_with_namespaces, attack_with_rings, attack_with_set_user_id,
};
use crate::support::{TestSandbox, entry, is_root, minimal, policy, resolved, root, start_launcher, start_request};
use crate::yard::{Goal, Yard, attack_in};

fn landlock_sandbox(policy: &FilePolicy, network: SandboxNetwork) -> TestSandbox {
    let plan = EnforcementPlan::Landlock(plan_landlock(policy, network).unwrap());
    let (launcher, socket) = start_launcher();
    let resident = ResidentSandbox::build(socket, &plan).unwrap();
    TestSandbox { resident: Some(resident), launcher, placeholders: Default::default() }
}

/// Everything may be read, nothing written, and there is no network.
fn read_only() -> TestSandbox {
    landlock_sandbox(&policy(vec![root(Access::Read)]), SandboxNetwork::None)
}

/// Only programs and the workspace of the yard may be read.
fn read_some(yard: &Yard) -> TestSandbox {
    landlock_sandbox(&policy(vec![minimal(), entry(yard.path("ws"), Access::Read)]), SandboxNetwork::None)
}

#[track_caller]
fn attack_read_only(name: &str, goal: Goal, program: &str) {
    attack_in(name, goal, program, |_| read_only());
}

#[test]
fn a_command_runs_without_privileges_and_uses_what_it_may() {
    let yard = Yard::new();
    let sandbox = read_only();
    assert!(sandbox.resident.as_ref().unwrap().root().is_none(), "file operations have no root in this sandbox");
    let status = sandbox.run("cat /proc/self/status").success();
    for line in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(status.contains(&format!("{line}:\t0000000000000000")), "{status}");
    }
    assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"), "{status}");
    let file = yard.path("ws/file").display().to_string();
    assert_eq!(
        sandbox.run(&format!("cat {file} > /dev/stdout | cat; cat {file}")).success(),
        "of the workspaceof the workspace"
    );
    let devices =
        "head -c 4 /dev/urandom /dev/zero | wc -c; echo x > /dev/null; echo x >> /dev/null; ls /dev > /dev/null";
    sandbox.run(devices).success();
    sandbox.run("sleep 1000 & kill $!; wait $!; [ $? = 143 ]").success();
    assert_eq!(sandbox.python(SCHEDULE, &["0"]).success(), "done\n".repeat(4), "a thread schedules itself");
    sandbox.python("import threading, subprocess\nthreading.Thread(target=print).start()\nsubprocess.run(['true'], check=True)", &[]).success();
}

#[test]
fn no_file_is_changed_in_any_way() {
    for (name, program) in [
        ("write", "put(outside + '/file')"),
        ("append", "open(outside + '/file', 'a').write('x')"),
        ("truncate", "os.truncate(outside + '/file', 0)"),
        ("make a file", "put(outside + '/new')"),
        ("make a directory", "os.mkdir(outside + '/new')"),
        ("make a link", "os.symlink('/', outside + '/new')"),
        ("make a hard link", "os.link(outside + '/file', outside + '/new')"),
        ("make a pipe", "os.mkfifo(outside + '/new')"),
        ("make a socket", "socket.socket(socket.AF_UNIX).bind(outside + '/new')"),
        ("rename", "os.rename(outside + '/file', outside + '/new')"),
        ("move to another directory", "os.rename(outside + '/file', outside + '/dir/new')"),
        (
            "exchange",
            "call(libc.renameat2, -100, (outside + '/file').encode(), -100, (outside + '/dir').encode(), 2)",
        ),
        ("remove", "os.unlink(outside + '/file')"),
        ("remove a directory", "shutil.rmtree(outside + '/dir')"),
        ("through /proc", "put('/proc/self/root' + outside + '/file')"),
        ("through a descriptor", "put('/proc/self/fd/%d' % os.open(outside + '/file', os.O_RDONLY))"),
        (
            "without a name",
            "fd = os.open(outside, os.O_TMPFILE | os.O_RDWR, 0o600); call(libc.linkat, -100, b'/proc/self/fd/%d' % fd, -100, (outside + '/new').encode(), 0x400)",
        ),
        ("permissions", "os.chmod(outside + '/file', 0o777)"),
        ("permissions of an open file", "os.fchmod(os.open(outside + '/file', os.O_RDONLY), 0o777)"),
        (
            "permissions without following links",
            "call(libc.syscall, 452, -100, (outside + '/file').encode(), 0o777, 0x100)",
        ),
    ] {
        attack_read_only(name, Goal::Change, program);
    }
    for (name, program) in [
        ("owner", "os.chown(outside + '/file', os.getuid(), os.getgid())"),
        ("owner of an open file", "os.fchown(os.open(outside, os.O_RDONLY), os.getuid(), os.getgid())"),
        ("owner of a link", "os.lchown(outside + '/file', os.getuid(), os.getgid())"),
        ("times", "os.utime(outside + '/file')"),
        ("times of an open file", "os.utime(os.open(outside + '/file', os.O_RDONLY))"),
    ] {
        attack_read_only(name, Goal::Exit, program);
    }
}

/// Not every file system has attributes and flags, so without a sandbox some of these attempts fail too.
#[test]
fn attributes_and_flags_of_files_are_refused_before_the_file_system_sees_them() {
    let yard = Yard::new();
    let outcome = read_only().python(
        "import ctypes, errno, fcntl, os, sys\n\
         path = sys.argv[1] + '/outside/file'\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         fd = os.open(path, os.O_RDONLY)\n\
         def number(attempt):\n\
         \x20   try:\n\
         \x20       attempt()\n\
         \x20   except OSError as error:\n\
         \x20       return errno.errorcode[error.errno]\n\
         \x20   return 'done'\n\
         print(number(lambda: os.setxattr(path, 'user.x', b'1')), number(lambda: os.setxattr(fd, 'user.x', b'1')),\n\
         \x20     number(lambda: os.removexattr(path, 'user.x')))\n\
         for request in [0x40086602, 0x401c5820, 0x40087602, 0x5000940e, 0x40806685, 0x40049409]:\n\
         \x20   print(number(lambda: fcntl.ioctl(fd, request, bytes(1024))))\n\
         print(libc.syscall(463, -100, path.encode(), 0, b'user.x', 0, 0), errno.errorcode[ctypes.get_errno()])\n\
         print(libc.syscall(469, -100, path.encode(), 0, 0, 0), errno.errorcode[ctypes.get_errno()])",
        &[yard.base().to_str().unwrap()],
    );
    assert_eq!(outcome.success(), format!("EPERM EPERM EPERM\n{}-1 EPERM\n-1 EPERM\n", "ENOTTY\n".repeat(6)));
}

#[test]
fn other_processes_are_out_of_reach() {
    // The parent of the command is this test, because there is no PID namespace.
    for (name, program) in [
        ("signal", "os.kill(os.getppid(), 0)"),
        ("signal by descriptor", "signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 0)"),
        ("environment", "open('/proc/%d/environ' % os.getppid()).read()"),
        ("descriptors", "os.readlink('/proc/%d/fd/0' % os.getppid())"),
        ("root directory", "os.readlink('/proc/%d/root' % os.getppid())"),
        ("files through the root directory", "show('/proc/%d/root' % os.getppid() + outside + '/file')"),
        ("working directory", "os.readlink('/proc/%d/cwd' % os.getppid())"),
        ("memory map", "open('/proc/%d/maps' % os.getppid()).read()"),
        ("limits", "import resource; resource.prlimit(os.getppid(), resource.RLIMIT_CORE)"),
        ("priority", "os.setpriority(os.PRIO_PROCESS, os.getppid(), os.getpriority(os.PRIO_PROCESS, os.getppid()))"),
        // Of a user without processes: root could change the priority of everything that runs, and another user may not
        // change it while one of its processes has capabilities, as in the sandboxes of other tests.
        ("priority of the user", "try: call(libc.setpriority, 2, 2000000001, 0)\nexcept ProcessLookupError: pass"),
        ("shared memory", "call(libc.shmctl, call(libc.shmget, 0, 4096, 0o1600), 0, None)"),
        ("semaphores", "call(libc.semctl, call(libc.semget, 0, 1, 0o1600), 0, 0, None)"),
        ("messages", "call(libc.msgctl, call(libc.msgget, 0, 0o1600), 0, None)"),
    ] {
        attack_read_only(name, Goal::Exit, program);
    }
    let yard = Yard::new();
    for file in ["mem", "environ", "fd/0", "root/etc/passwd", "exe", "pagemap", "auxv", "stack", "syscall"] {
        let outcome = read_only().run(&format!("head -c 1 /proc/$PPID/{file} && echo reached"));
        assert!(!outcome.output.contains("reached"), "{file}: {}", outcome.output);
    }
    let sandbox = read_only();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let sleeper =
        sandbox.start(&["/bin/sh", "-c", "echo ready; exec sleep 1000"], yard.base(), &writer.into()).unwrap();
    reader.read_exact(&mut [0; 6]).unwrap();
    let outcome = sandbox.run(&format!("kill -0 {0} || kill {0} || cat /proc/{0}/environ", sleeper.pid));
    assert_ne!(outcome.code, 0, "a command reaches another one of the same sandbox: {}", outcome.output);
    // This process has no capabilities, so without the filter even root could schedule it.
    let outcome = sandbox.python(SCHEDULE, &[&sleeper.pid.to_string()]);
    assert_eq!(outcome.success(), "PermissionError\n".repeat(4));
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(sleeper.pid).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    assert_eq!(sleeper.wait(), 137);
}

#[test]
fn no_process_is_traced_or_changed() {
    attack_child_processes(|_| read_only());
    assert_attacks_on_processes_work();
    let sandbox = read_only();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let argv = ["/bin/sh", "-c", "echo ready; exec sleep 1000"];
    let sibling = sandbox.start(&argv, Path::new("/"), &writer.into()).unwrap();
    reader.read_exact(&mut [0; 6]).unwrap();
    let victims = [i64::from(sandbox.launcher.id()), i64::from(sibling.pid), i64::from(std::process::id())];
    let arguments = victims.map(|pid| pid.to_string());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = sandbox.python(ATTACK_PROCESSES, &arguments).success();
    let refused =
        "attach=EPERM seize=EPERM readv=EPERM writev=EPERM mem-read=EACCES mem-write=EACCES descriptor=EPERM\n";
    assert_eq!(output, refused.repeat(victims.len()));
    assert_eq!(sandbox.run("echo works").success(), "works\n", "the launcher is unharmed");
    let sibling_pid = rustix::process::Pid::from_raw(sibling.pid).unwrap();
    rustix::process::kill_process(sibling_pid, rustix::process::Signal::KILL).unwrap();
    assert_eq!(sibling.wait(), 137);
}

#[test]
fn privileges_cannot_be_regained() {
    attack_with_capabilities(|_| read_only());
    attack_with_set_user_id(|_| read_only());
    attack_with_rings(|_| read_only());
}

#[test]
fn namespaces_cannot_be_made_or_entered() {
    attack_with_namespaces(|_| read_only());
}

/// Changes nothing, but the kernel asks for the same rights as for a change. The first argument is the process id.
const SCHEDULE: &str = "
import ctypes, os, platform, struct, sys
pid = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def set_attributes():
    ordinary = struct.pack('IIQiIQQQ', 48, 0, 0, 0, 0, 0, 0, 0)
    if libc.syscall(314 if platform.machine() == 'x86_64' else 274, pid, ordinary, 0) != 0:
        raise OSError(ctypes.get_errno(), 'sched_setattr')
for attempt in [
    lambda: os.sched_setaffinity(pid, os.sched_getaffinity(pid)),
    lambda: os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0)),
    lambda: os.sched_setparam(pid, os.sched_param(0)),
    set_attributes,
]:
    try:
        attempt()
        print('done')
    except OSError as error:
        print(type(error).__name__)
";

#[test]
fn there_is_no_network_unless_the_policy_allows_it() {
    for (name, program) in [
        ("TCP", "socket.socket(socket.AF_INET, socket.SOCK_STREAM)"),
        ("UDP", "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)"),
        ("netlink", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)"),
        ("Unix datagrams", "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)"),
        (
            "a socket without a path",
            "server = socket.socket(socket.AF_UNIX); server.bind('\\0' + base); server.listen()\n\
             socket.socket(socket.AF_UNIX).connect('\\0' + base)",
        ),
    ] {
        attack_read_only(name, Goal::Exit, program);
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = format!(
        "import socket; socket.create_connection(('127.0.0.1', {})); print('connected')",
        listener.local_addr().unwrap().port()
    );
    let open = landlock_sandbox(&policy(vec![root(Access::Read)]), SandboxNetwork::Host);
    assert_eq!(open.python(&connect, &[]).success(), "connected\n");
    let yard = Yard::new();
    assert_ne!(open.run(&format!("echo x > {}", yard.path("ws/file").display())).code, 0);
}

#[test]
fn only_listed_paths_can_be_read() {
    for (name, goal, program) in [
        ("read", Goal::Show, "show(outside + '/denied/secret')"),
        ("read through /proc", Goal::Show, "show('/proc/self/root' + outside + '/denied/secret')"),
        ("read through ..", Goal::Show, "show(ws + '/../outside/denied/secret')"),
        ("list", Goal::Exit, "os.listdir(outside)"),
        ("watch", Goal::Exit, "call(libc.inotify_add_watch, call(libc.inotify_init), outside.encode(), 0x100)"),
        ("write", Goal::Change, "put(outside + '/file')"),
    ] {
        attack_in(name, goal, program, read_some);
    }
    let yard = Yard::new();
    let target = yard.path("outside/denied/secret");
    let link = yard.path("ws/link");
    std::os::unix::fs::symlink(&target, &link).unwrap();
    for directory in ["outside", "ws"] {
        std::fs::copy("/bin/true", yard.path(directory).join("program")).unwrap();
    }
    let sandbox = read_some(&yard);
    assert_ne!(sandbox.run(yard.path("outside/program").to_str().unwrap()).code, 0);
    sandbox.run(yard.path("ws/program").to_str().unwrap()).success();
    assert_ne!(sandbox.run(&format!("cat {}", link.display())).code, 0, "a link leads out");
    let file = yard.path("ws/file");
    assert_eq!(sandbox.run(&format!("cat {}", file.display())).success(), "of the workspace");
    sandbox.run("echo x > /dev/null").success();
    assert_ne!(sandbox.run(&format!("echo x > {}", file.display())).code, 0);
    let outcome = sandbox.run("cat /proc/self/environ");
    assert_ne!(outcome.code, 0, "the policy does not list /proc: {}", outcome.output);
}

/// For user 0, who could write settings of the whole machine, an unrestricted Landlock sandbox is refused.
#[test]
fn all_files_may_be_written_and_the_rest_is_still_out_of_reach() {
    let everything = resolved(RequestedFiles::Unrestricted);
    if is_root() {
        let refusal = plan_landlock(&everything, SandboxNetwork::None);
        assert!(matches!(refusal, Err(LandlockUnfit::UnrestrictedRoot)));
        return;
    }
    let yard = Yard::new();
    let file = yard.path("outside/file");
    let sandbox = landlock_sandbox(&everything, SandboxNetwork::None);
    let script = "echo x > $1; chmod 600 $1; touch $1; mv $1 $1.new; ! cat /proc/$PPID/environ; ! kill -0 $PPID";
    sandbox.run_argv(&["/bin/sh", "-ec", script, "sh", file.to_str().unwrap()], yard.base()).success();
    assert_eq!(std::fs::read_to_string(yard.path("outside/file.new")).unwrap(), "x\n");
    assert_ne!(sandbox.python("import socket; socket.socket()", &[]).code, 0);
}

#[test]
fn a_path_that_was_replaced_after_the_plan_is_not_opened() {
    let yard = Yard::new();
    let policy = policy(vec![minimal(), entry(yard.path("ws"), Access::Read)]);
    let plan = EnforcementPlan::Landlock(plan_landlock(&policy, SandboxNetwork::None).unwrap());
    std::fs::rename(yard.path("ws"), yard.path("old")).unwrap();
    std::os::unix::fs::symlink(yard.path("outside"), yard.path("ws")).unwrap();
    let (mut launcher, socket) = start_launcher();
    let error = ResidentSandbox::build(socket, &plan).unwrap_err();
    assert!(error.is_about_changed_files() && !error.is_about_missing_namespaces(), "{error}");
    launcher.wait().unwrap();
}

/// A terminal: the end of the server, the end of the command, and its path.
fn terminal() -> (std::fs::File, OwnedFd, PathBuf) {
    let (mut master, mut slave) = (0, 0);
    let none = std::ptr::null_mut();
    // SAFETY: the two numbers are valid for writes, and null pointers stand for defaults.
    let made = unsafe { libc::openpty(&raw mut master, &raw mut slave, none, none.cast(), none.cast()) };
    assert_eq!(made, 0);
    // SAFETY: both descriptors were just made.
    let (master, slave) = unsafe { (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
    // Otherwise launchers would hold the terminal open.
    for end in [&master, &slave] {
        rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC).unwrap();
    }
    let path = std::fs::read_link(format!("/proc/self/fd/{}", slave.as_raw_fd())).unwrap();
    (master.into(), slave, path)
}

#[test]
fn a_command_opens_its_own_terminal_and_no_other() {
    let sandbox = read_only();
    let (mut own, slave, own_path) = terminal();
    let (mut other, other_slave, other_path) = terminal();
    let script = format!(
        "echo one > /dev/tty; echo two > {}; stty -a > /dev/null && echo three; echo four > {} || echo refused; read line; echo $line end",
        own_path.display(),
        other_path.display()
    );
    let mut request = start_request(&["/bin/sh", "-c", &script], Path::new("/"));
    request.terminal = true;
    let running = sandbox.start_request(&request, &[slave.as_fd(), slave.as_fd(), slave.as_fd()]).unwrap();
    drop(slave);
    own.write_all(b"typed\n").unwrap();
    let mut output = String::new();
    let mut buffer = [0; 4096];
    while !output.contains("typed end") {
        let count = own.read(&mut buffer).unwrap();
        output += &String::from_utf8_lossy(&buffer[..count]);
    }
    assert_eq!(running.wait(), 0, "{output}");
    for word in ["one", "two", "three", "refused"] {
        assert!(output.contains(word), "{word}: {output}");
    }
    drop(other_slave);
    assert!(other.read(&mut buffer).is_err(), "nothing was written to the other terminal");
}

#[test]
fn a_command_cannot_change_the_limit_by_which_the_server_finds_it() {
    let program = r#"
import ctypes, resource
RLIMIT_RTTIME = 15
before = resource.getrlimit(RLIMIT_RTTIME)
resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
class Limit(ctypes.Structure):
    _fields_ = [("soft", ctypes.c_ulong), ("hard", ctypes.c_ulong)]
limit = Limit(0, 0)
libc = ctypes.CDLL(None, use_errno=True)
SYS_prlimit64, SYS_setrlimit = {"x86_64": (302, 160), "aarch64": (261, 164)}[__import__("os").uname().machine]
print(libc.syscall(SYS_prlimit64, 0, RLIMIT_RTTIME, ctypes.byref(limit), None), ctypes.get_errno())
print(libc.syscall(SYS_setrlimit, RLIMIT_RTTIME, ctypes.byref(limit)), ctypes.get_errno())
print(before == resource.getrlimit(RLIMIT_RTTIME), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"#;
    assert_eq!(read_only().python(program, &[]).success(), "-1 1\n-1 1\nTrue 50\n");
}
