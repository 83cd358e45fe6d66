//! What a command sees of the machine: devices, files of the kernel, and memory that it could fill.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use sandbox::{Access, BuildError, RequestedFiles, ResidentSandbox, SandboxNetwork, plan_sandbox};

use crate::support::{
    TestSandbox, entry, is_root, launcher_command, minimal, policy, resolved, root, sandbox_for, start_with,
};
use crate::yard::{Yard, left_out, python_outside};

/// Sandboxes with every kind of base tree.
fn each_base(yard: &Yard) -> [TestSandbox; 3] {
    let restricted = policy(vec![minimal(), entry(yard.path("ws"), Access::Write)]);
    [
        yard.sandbox(),
        sandbox_for(&resolved(RequestedFiles::Unrestricted), SandboxNetwork::None),
        sandbox_for(&restricted, SandboxNetwork::None),
    ]
}

#[test]
fn only_harmless_devices_exist_and_terminals_are_those_of_the_sandbox() {
    let yard = Yard::new();
    // A terminal of the host, which must not be visible.
    let flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY | rustix::pty::OpenptFlags::CLOEXEC;
    let _host_terminal = rustix::pty::openpt(flags).unwrap();
    let program = r#"
import os, pty, stat, sys
print(" ".join(sorted(os.listdir("/dev"))))
print(" ".join(sorted(os.listdir("/dev/pts"))))
for folder, _, files in os.walk("/dev"):
    for name in files:
        assert not stat.S_ISBLK(os.lstat(os.path.join(folder, name)).st_mode), name
master, slave = pty.openpty()
os.write(master, b"hello\n")
print(os.ttyname(slave), os.read(slave, 10))
for device in ("null", "zero", "full", "random", "urandom"):
    os.close(os.open("/dev/" + device, os.O_RDWR if device != "random" else os.O_RDONLY))
disk = os.makedev(8, 0)
for action in (lambda: open("/dev/new", "w"), lambda: os.unlink("/dev/null"), lambda: os.mkdir("/dev/pts/x"),
               lambda: os.mknod("/dev/shm/disk", stat.S_IFBLK | 0o600, disk),
               lambda: os.mknod(sys.argv[1] + "/disk", stat.S_IFBLK | 0o600, disk),
               lambda: os.mknod(sys.argv[1] + "/disk", stat.S_IFCHR | 0o600, disk)):
    try:
        action()
        print("succeeded")
    except OSError:
        pass
# Otherwise it would not be the device that cannot be made there.
os.mknod(sys.argv[1] + "/ordinary", stat.S_IFREG | 0o600)
os.unlink(sys.argv[1] + "/ordinary")
"#;
    let workspace = yard.path("ws");
    if is_root() {
        // Without a sandbox root can make the device. It is removed unused.
        let make = "import os, stat, sys\n\
                    for kind in (stat.S_IFBLK, stat.S_IFCHR):\n\
                    \x20   os.mknod(sys.argv[1] + '/disk', kind | 0o600, os.makedev(8, 0))\n\
                    \x20   os.unlink(sys.argv[1] + '/disk')";
        python_outside(make, &[workspace.to_str().unwrap()]);
    }
    let expected =
        "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero\nptmx\n/dev/pts/0 b'hello\\n'\n";
    for sandbox in each_base(&yard) {
        assert_eq!(sandbox.python(program, &[workspace.to_str().unwrap()]).success(), expected);
    }
}

#[test]
fn a_device_file_in_a_writable_directory_does_not_work() {
    // Only root can make one. For others the mount flag is what the test can see.
    let yard = Yard::new();
    let path = yard.path("ws/zero");
    if is_root() {
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        let kind = rustix::fs::FileType::CharacterDevice;
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, rustix::fs::makedev(1, 5)).unwrap();
        assert!(Command::new("head").args(["-c1"]).arg(&path).output().unwrap().status.success());
        assert_ne!(yard.sandbox().run(&format!("head -c1 {}", path.display())).code, 0);
    }
    let table = yard.sandbox().run("cat /proc/self/mountinfo").success();
    let workspace = yard.path("ws");
    let line = table.lines().find(|line| line.split(' ').nth(4) == workspace.to_str()).unwrap();
    assert!(line.contains("nodev") && line.contains("nosuid"), "{line}");
}

/// Opening for writing does no harm if it succeeds.
const OPEN_FOR_WRITING: &str = r#"
import os, sys
for path in sys.argv[1:]:
    try:
        os.close(os.open(path, os.O_WRONLY))
        print("opened", path)
    except OSError:
        pass
"#;

/// The files of the mounted cgroups with which processes are moved, and with which the kernel is told to start a program,
/// and whether one of the mounts is writable.
fn files_of_cgroups() -> (Vec<String>, bool) {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut files = Vec::new();
    let mut is_writable = false;
    for line in table.lines() {
        let (mount, file_system) = line.split_once(" - ").unwrap();
        let fields: Vec<&str> = mount.split(' ').collect();
        let mut of_file_system = file_system.split(' ');
        let kind = of_file_system.next().unwrap();
        if kind != "cgroup" && kind != "cgroup2" {
            continue;
        }
        let options = [fields[5], of_file_system.next_back().unwrap()];
        is_writable |= options.iter().all(|options| options.split(',').any(|option| option == "rw"));
        files.extend(["cgroup.procs", "release_agent"].map(|name| format!("{}/{name}", fields[4])));
    }
    (files, is_writable)
}

#[test]
fn no_process_is_moved_to_another_cgroup_and_no_release_agent_is_set() {
    let (files, is_writable) = files_of_cgroups();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let outside = python_outside(OPEN_FOR_WRITING, &files);
    if !is_writable {
        assert_eq!(outside, "", "the list of mounts has no writable cgroup");
        left_out("cgroups cannot be written without a sandbox either, because none is mounted for writing");
    } else if is_root() {
        assert!(outside.contains("opened"), "without a sandbox root can open one of {files:?}");
    }
    let yard = Yard::new();
    let allowed = vec![root(Access::Read), entry("/sys", Access::Write), entry("/sys/fs/cgroup", Access::Write)];
    let mut sandboxes: Vec<TestSandbox> = each_base(&yard).into();
    sandboxes.push(sandbox_for(&policy(allowed), SandboxNetwork::None));
    for sandbox in sandboxes {
        assert_eq!(sandbox.python(OPEN_FOR_WRITING, &files).success(), "");
    }
}

#[test]
fn files_of_the_kernel_cannot_be_written() {
    let yard = Yard::new();
    let paths = [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/kernel/hostname",
        "/proc/sys/vm/drop_caches",
        "/proc/sysrq-trigger",
        "/proc/1/oom_score_adj",
        "/sys/power/state",
        "/sys/kernel/mm/ksm/run",
        "/sys/fs/cgroup/cgroup.procs",
    ];
    let outside = Command::new(crate::support::PYTHON).args(["-c", OPEN_FOR_WRITING]).args(paths).output().unwrap();
    if is_root() {
        let opened = String::from_utf8_lossy(&outside.stdout).into_owned();
        assert!(opened.contains("core_pattern") && opened.contains("/sys/power/state"), "{opened}");
    }
    let mut sandboxes = each_base(&yard).into_iter().collect::<Vec<_>>();
    // Also if the policy allows it.
    let allowed = vec![root(Access::Read), entry("/sys", Access::Write), entry("/sys/fs/cgroup", Access::Write)];
    sandboxes.push(sandbox_for(&policy(allowed), SandboxNetwork::None));
    for sandbox in sandboxes {
        assert_eq!(sandbox.python(OPEN_FOR_WRITING, &paths).success(), "");
        let made = sandbox.run("mkdir /sys/fs/cgroup/escape && rmdir /sys/fs/cgroup/escape");
        assert_ne!(made.code, 0, "{}", made.output);
    }
}

#[test]
fn mounts_below_a_root_are_included_and_those_of_the_kernel_are_read_only() {
    let yard = Yard::new();
    for name in ["mnt", "proc", "sys", "denied mount"] {
        std::fs::create_dir(yard.path("ws").join(name)).unwrap();
    }
    std::fs::create_dir_all(yard.path("ws/mnt/.git")).unwrap();
    let ws = yard.path("ws");
    let plan = plan_sandbox(
        &policy(vec![root(Access::Read), entry(&ws, Access::Write), entry(ws.join("denied mount"), Access::Deny)]),
        SandboxNetwork::None,
    )
    .unwrap();
    // The launcher runs in a mount namespace in which the workspace has mounts, as on a machine that has them.
    let script = "cd \"$1\" && mount -t tmpfs none mnt && mkdir mnt/inside && mount --rbind /proc proc && mount --rbind /sys sys && exec \"$2\"";
    let mut command = Command::new("unshare");
    command.args(["-rm", "--propagation", "private", "/bin/sh", "-c", script, "sh"]).arg(&ws).arg(launcher_command());
    let (launcher, socket) = start_with(command);
    let resident = ResidentSandbox::build(socket, &plan.plan.clone().into()).unwrap();
    let sandbox = TestSandbox { resident: Some(resident), launcher, placeholders: plan.placeholders };
    let script = format!("cd {} && echo x > mnt/inside/file && cat mnt/inside/file", ws.display());
    assert_eq!(sandbox.run(&script).success(), "x\n");
    assert_eq!(std::fs::read_dir(ws.join("mnt")).unwrap().count(), 1, "the file is in the mount, not below it");
    let table = sandbox.run("cat /proc/self/mountinfo").success();
    let kernel: Vec<&str> = table
        .lines()
        .filter(|line| line.contains(" - proc ") || line.contains(" - sysfs ") || line.contains(" - cgroup"))
        .filter(|line| line.split(' ').nth(4).unwrap() != "/proc")
        .collect();
    assert!(
        kernel.iter().any(|line| line.contains("/ws/proc")) && kernel.iter().any(|line| line.contains("/ws/sys"))
    );
    assert!(
        kernel.iter().all(|line| line.split(' ').nth(5).unwrap().split(',').any(|flag| flag == "ro")),
        "{kernel:#?}"
    );
    let below = |name: &str| ws.join(name).to_str().unwrap().to_owned();
    let files = [below("proc/sys/kernel/core_pattern"), below("proc/sysrq-trigger"), below("sys/power/state")];
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    assert_eq!(sandbox.python(OPEN_FOR_WRITING, &files).success(), "");
}

/// The launcher could make a mount of the kernel read-only only if it reached it.
#[test]
fn a_mount_of_the_kernel_behind_a_directory_that_a_command_can_unlock_is_refused() {
    if !is_root() {
        return; // Only user 0 may write the files of such a mount, and only root can give the directory another group.
    }
    let yard = Yard::new();
    let ws = yard.path("ws");
    std::fs::create_dir_all(ws.join("chroot/proc")).unwrap();
    let script = "cd \"$1\" && mount --rbind /proc chroot/proc && chmod \"$3\" chroot && exec \"$2\"";
    let build = |mode: &str, group: u32| {
        std::os::unix::fs::chown(ws.join("chroot"), Some(0), Some(group)).unwrap();
        let plan =
            plan_sandbox(&policy(vec![root(Access::Read), entry(&ws, Access::Write)]), SandboxNetwork::None).unwrap();
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "private", "/bin/sh", "-c", script, "sh"]);
        command.arg(&ws).arg(launcher_command()).arg(mode);
        let (launcher, socket) = start_with(command);
        let resident = ResidentSandbox::build(socket, &plan.plan.into());
        (resident, launcher, plan.placeholders)
    };
    let file = ws.join("chroot/proc/sys/kernel/core_pattern");
    for (mode, group) in [("755", 1), ("0", 0)] {
        let (resident, launcher, placeholders) = build(mode, group);
        let sandbox = TestSandbox { resident: Some(resident.unwrap()), launcher, placeholders };
        sandbox.run(&format!("chmod 755 {}", ws.join("chroot").display())).success();
        assert_eq!(sandbox.python(OPEN_FOR_WRITING, &[file.to_str().unwrap()]).success(), "");
    }
    let (refused, mut launcher, _placeholders) = build("0", 1);
    let refused = refused.unwrap_err();
    launcher.wait().unwrap();
    let BuildError::Step(failure) = &refused else { panic!("{refused}") };
    assert_eq!((failure.errno, failure.detail.as_str()), (libc::EACCES, ws.join("chroot/proc").to_str().unwrap()));
}

#[test]
fn memory_cannot_be_filled_through_files() {
    let yard = Yard::new();
    let program = r#"
import os
# All file systems in memory that can be written.
for line in open("/proc/self/mountinfo"):
    fields = line.split(" ")
    kind = fields[fields.index("-") + 1]
    if kind in ("tmpfs", "ramfs", "devtmpfs", "mqueue", "hugetlbfs") and "rw" in fields[5].split(","):
        try:
            os.chmod(fields[4], 0o1777)
            open(fields[4] + "/x", "w").close()
            os.unlink(fields[4] + "/x")
            print(fields[4])
        except OSError:
            pass
def fill(write):
    count = 0
    try:
        while count < 100000:
            write(count)
            count += 1
    except OSError as error:
        return count, error.errno
    return count, None
block = b"x" * (1 << 20)
with open("/dev/shm/large", "wb", buffering=0) as large:
    def write(_):
        if large.write(block) < len(block):
            raise OSError(28, "short")
    print(*fill(write))
os.unlink("/dev/shm/large")
print(*fill(lambda number: os.close(os.open(f"/dev/shm/{number}", os.O_CREAT | os.O_WRONLY))))
"#;
    // Without a sandbox, more fits into memory than the 64 MiB that a command has.
    let free = rustix::fs::statvfs("/dev/shm").unwrap();
    if free.f_bavail * free.f_frsize > 80 << 20 {
        // The file has no name, so it is gone when it is closed.
        let mut large = tempfile::tempfile_in("/dev/shm").unwrap();
        for _ in 0..65 {
            large.write_all(&[b'x'; 1 << 20]).unwrap();
        }
    } else {
        left_out("/dev/shm of this machine has no room for more than a command may write");
    }
    let host_mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let is_mounted_on_host = |path: &str| host_mounts.lines().any(|line| line.split(' ').nth(4) == Some(path));
    // Only the second sandbox may write everywhere on the host, also to file systems in memory.
    for (sandbox, may_write_host) in each_base(&yard).iter().zip([false, true, false]) {
        let output = sandbox.python(program, &[]).success();
        let lines: Vec<&str> = output.lines().collect();
        let [memory @ .., bytes, files] = &lines[..] else { panic!("{output}") };
        let is_allowed = |path: &str| {
            path == "/dev/shm"
                // The directory of the test may be in memory.
                || Path::new(path).starts_with(yard.path("ws"))
                || (may_write_host && is_mounted_on_host(path))
        };
        assert!(memory.contains(&"/dev/shm") && memory.iter().all(|path| is_allowed(path)), "{output}");
        assert!(["63 28", "64 28"].contains(bytes), "{output}");
        let (count, errno) = files.split_once(' ').unwrap();
        assert!(count.parse::<u32>().unwrap() < 20_000 && errno == "28", "{output}");
    }
}

/// The kernel allows a new `/proc` only where the old one is fully visible. Containers often hide parts of it.
#[test]
fn where_proc_is_partly_hidden_commands_run_with_an_empty_one() {
    let yard = Yard::new();
    let planned = plan_sandbox(&yard.policy(), SandboxNetwork::None).unwrap();
    let script = "mount -t tmpfs none /proc/sys && exec \"$0\"";
    let mut command = Command::new("unshare");
    command.args(["-rm", "--propagation", "private", "/bin/sh", "-c", script]).arg(launcher_command());
    let (launcher, socket) = start_with(command);
    let resident = ResidentSandbox::build(socket, &planned.plan.clone().into()).unwrap();
    let sandbox = TestSandbox { resident: Some(resident), launcher, placeholders: planned.placeholders };
    assert!(!sandbox.resident().has_proc());
    assert!(yard.sandbox().resident().has_proc(), "elsewhere there is one");
    let ws = yard.path("ws");
    let script = format!("ls -A /proc | wc -l; echo written > {0}/new && cat {0}/new", ws.display());
    assert_eq!(sandbox.run(&script).success(), "0\nwritten\n");
    // The sandbox still denies what it has to deny.
    for script in ["cat denied/secret", "echo changed > ../outside/file", "echo changed > .git/config"] {
        let outcome = sandbox.run_argv(&["/bin/sh", "-c", script], &ws);
        assert_ne!(outcome.code, 0, "{script}: {}", outcome.output);
    }
}
