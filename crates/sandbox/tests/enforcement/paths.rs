//! Attacks with paths: writing outside the workspace, reading what is denied, and changing what is protected.

use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use sandbox::{Access, EnforcementPlan, ResidentSandbox, SandboxNetwork, plan_landlock, plan_sandbox};

use crate::support::{PYTHON, TestSandbox, build_planned, entry, launcher_command, minimal, policy, start_with};
use crate::yard::{Goal, Yard, attack, attack_in, attack_needing_root};

/// Ways to reach a file by another path. Each one defines `reach(path)`, which returns the other path.
const DETOURS: [(&str, &str); 9] = [
    ("the path itself", "reach = lambda path: path"),
    ("a symbolic link", "def reach(path):\n    os.symlink(path, ws + '/link')\n    return ws + '/link'"),
    (
        "a symbolic link to the directory",
        "def reach(path):\n    os.symlink(os.path.dirname(path), ws + '/link')\n    return ws + '/link/' + os.path.basename(path)",
    ),
    ("a hard link", "def reach(path):\n    os.link(path, ws + '/hard')\n    return ws + '/hard'"),
    ("..", "reach = lambda path: ws + '/a/../../' + os.path.relpath(path, base)"),
    ("/proc/self/root", "reach = lambda path: '/proc/self/root' + path"),
    ("/proc/PID/root", "reach = lambda path: f'/proc/{os.getppid() or 1}/root' + path"),
    ("an O_PATH descriptor of the file", "reach = lambda path: '/proc/self/fd/%d' % os.open(path, os.O_PATH)"),
    (
        "an O_PATH descriptor of the directory",
        "reach = lambda path: '/proc/self/fd/%d/' % os.open(os.path.dirname(path), os.O_PATH) + os.path.basename(path)",
    ),
];

#[test]
fn no_detour_leads_to_a_file_outside_that_can_be_written() {
    for (name, detour) in DETOURS {
        attack(name, Goal::Change, &format!("{detour}\nput(reach(outside + '/file'))"));
    }
}

#[test]
fn no_detour_leads_to_a_denied_file_that_can_be_read() {
    for (name, detour) in DETOURS {
        for path in ["ws + '/denied.txt'", "ws + '/denied/secret'", "outside + '/denied/secret'"] {
            attack(&format!("{name} to {path}"), Goal::Show, &format!("{detour}\nshow(reach({path}))"));
        }
    }
}

#[test]
fn no_detour_leads_to_a_protected_file_that_can_be_written() {
    for (name, detour) in DETOURS {
        for path in ["ws + '/.git/config'", "ws + '/a/b/.git/config'"] {
            attack(&format!("{name} to {path}"), Goal::Change, &format!("{detour}\nput(reach({path}))"));
        }
    }
}

#[test]
fn nothing_outside_is_made_removed_moved_or_changed_in_its_attributes() {
    for program in [
        "open(outside + '/new', 'w')",
        "os.mkdir(outside + '/new')",
        "os.mkfifo(outside + '/new')",
        "os.symlink('x', outside + '/new')",
        "os.link(ws + '/file', outside + '/new')",
        "os.rename(ws + '/file', outside + '/file')",
        "os.rename(outside + '/file', ws + '/taken')",
        "os.unlink(outside + '/file')",
        "shutil.rmtree(outside)",
        "os.chmod(outside + '/file', 0o777)",
        "os.chmod(outside, 0o700)",
        "os.truncate(outside + '/file', 1)",
        "fd = os.open(outside + '/file', os.O_RDONLY); os.fchmod(fd, 0o777)",
    ] {
        attack(program, Goal::Change, program);
    }
}

#[test]
fn a_bind_mount_does_not_lead_outside() {
    let unshare = "call(libc.unshare, 0x10020000)\n"; // CLONE_NEWUSER | CLONE_NEWNS
    let bind = "os.mkdir(ws + '/m')\ncall(libc.mount, outside.encode(), (ws + '/m').encode(), None, 4096, None)\n";
    attack("in a user namespace", Goal::Change, &format!("{unshare}{bind}put(ws + '/m/file')"));
    // Root needs no user namespace. The mount namespace is only there to leave the mounts of the machine as they are.
    let private = "call(libc.mount, None, b'/', None, 0x44000, None)\n"; // MS_REC | MS_PRIVATE
    let bind_as_root = format!("call(libc.unshare, 0x20000)\n{private}{bind}");
    attack_needing_root("as root", Goal::Change, &format!("{bind_as_root}put(ws + '/m/file')"));
    let clone_tree = "tree = call(libc.syscall, 428, -100, outside.encode(), 1)\n";
    attack(
        "open_tree",
        Goal::Change,
        &format!("{unshare}{clone_tree}os.chdir('/proc/self/fd/%d' % tree)\nput('file')"),
    );
    // The same for reading a denied file.
    attack("in a user namespace", Goal::Show, &format!("{unshare}{bind}show(ws + '/m/denied/secret')"));
    attack_needing_root("as root", Goal::Show, &format!("{bind_as_root}show(ws + '/m/denied/secret')"));
    attack(
        "open_tree",
        Goal::Show,
        &format!("{unshare}{clone_tree}os.chdir('/proc/self/fd/%d' % tree)\nshow('denied/secret')"),
    );
}

#[test]
fn a_race_of_renames_does_not_lead_outside() {
    // One thread exchanges a directory and a link to the outside; the other writes to whichever is there.
    let program = r#"
os.mkdir(ws + "/x")
open(ws + "/x/file", "w")
os.symlink(outside, ws + "/y")
stop = False
def exchange():
    for _ in range(200000):
        if stop:
            break
        libc.renameat2(-100, (ws + "/x").encode(), -100, (ws + "/y").encode(), 2)
thread = threading.Thread(target=exchange)
thread.start()
while thread.is_alive():
    try:
        put(ws + "/x/file")
    except OSError:
        pass
    if open(outside + "/file").read() == "changed":
        stop = True
thread.join()
"#;
    attack("renames", Goal::Change, program);
}

#[test]
fn a_race_of_renames_does_not_lead_to_a_denied_file() {
    // One thread exchanges a directory and a link to the denied directory; the other reads from whichever is there.
    let program = r#"
os.mkdir(ws + "/x")
with open(ws + "/x/secret", "w") as file:
    file.write("harmless")
os.symlink(outside + "/denied", ws + "/y")
stop = False
def exchange():
    for _ in range(200000):
        if stop:
            break
        libc.renameat2(-100, (ws + "/x").encode(), -100, (ws + "/y").encode(), 2)
thread = threading.Thread(target=exchange)
thread.start()
while thread.is_alive():
    try:
        contents = open(ws + "/x/secret").read()
    except OSError:
        continue
    if contents != "harmless":
        print(contents, flush=True)
        stop = True
thread.join()
"#;
    attack("renames", Goal::Show, program);
}

#[test]
fn a_protected_or_denied_path_cannot_be_moved_away_nor_replaced() {
    for program in [
        "os.rename(ws + '/.git', ws + '/moved')",
        "shutil.rmtree(ws + '/.git')",
        "os.rename(ws + '/a/b/.git', ws + '/moved')",
        // The directories above it: a new one in their place could have any `.git`.
        "os.rename(ws + '/a/b', ws + '/moved')\nos.makedirs(ws + '/a/b/.git')",
        "os.rename(ws + '/a', ws + '/moved')\nos.makedirs(ws + '/a/b/.git')",
        "os.makedirs(ws + '/n/b/.git')\ncall(libc.renameat2, -100, (ws + '/a').encode(), -100, (ws + '/n').encode(), 2)",
        "os.rename(ws, base + '/moved')",
        "os.rename(ws + '/denied', ws + '/moved')",
        "os.rename(ws + '/denied.txt', ws + '/moved')",
        "os.rename(ws + '/file', ws + '/denied.txt')",
        "os.unlink(ws + '/denied.txt')",
        "os.rename(ws + '/deep', ws + '/moved')",
        "os.rename(ws + '/deep/er', ws + '/moved')",
        "shutil.rmtree(ws)",
        "os.chmod(ws + '/denied.txt', 0o777)",
        "os.chmod(ws + '/denied', 0o777)",
        "open(ws + '/denied/new', 'w')",
    ] {
        attack(program, Goal::Change, program);
    }
}

#[test]
fn a_protected_symbolic_link_cannot_be_replaced() {
    let with_link = "os.rename(ws + '/.git', ws + '/data'); os.symlink('data', ws + '/.git')";
    for attempt in [
        "os.unlink(ws + '/.git')\nos.mkdir(ws + '/.git')",
        "os.mkdir(ws + '/n')\nos.rename(ws + '/.git', ws + '/n/git')",
        "os.symlink('elsewhere', ws + '/n')\nos.rename(ws + '/n', ws + '/.git')",
        "put(ws + '/data/config')",
        "os.rename(ws + '/data', ws + '/n')\nos.mkdir(ws + '/data')",
    ] {
        // Without a sandbox the program makes the link itself. In the sandbox it is there.
        let program = format!("if not os.path.islink(ws + '/.git'):\n    {with_link}\n{attempt}\n");
        attack_in(attempt, Goal::Exit, &program, |yard: &Yard| {
            std::fs::rename(yard.path("ws/.git"), yard.path("ws/data")).unwrap();
            std::os::unix::fs::symlink("data", yard.path("ws/.git")).unwrap();
            build_planned(plan_sandbox(&yard.policy(), SandboxNetwork::None).unwrap())
        });
    }
}

#[test]
fn a_command_has_three_descriptors() {
    let yard = Yard::new();
    let listed =
        yard.sandbox().python("import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))", &[]).success();
    // The fourth is the directory that is being listed.
    assert_eq!(listed.trim(), "[0, 1, 2, 3]");
}

/// The number that the inherited descriptor of the directory `outside` gets.
const INHERITED: i32 = 200;

/// Lets the process that a command starts inherit a directory, as if somebody had forgotten to close it.
fn inherit(command: &mut Command, directory: &std::fs::File) {
    let number = directory.as_raw_fd();
    // SAFETY: only makes a system call. The new descriptor is not closed when a program is executed.
    unsafe {
        command.pre_exec(move || match libc::dup2(number, INHERITED) {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
}

#[test]
fn a_directory_that_the_launcher_has_inherited_leads_no_command_outside() {
    // Tries every number, in the processes that it is told. Without a sandbox it must only try its own descriptors, because
    // those of other processes lead to files that do not belong to the test.
    let program = r#"
import os, sys
for number in range(3, 300):
    for folder in (f"/proc/{process}/fd/{number}" for process in sys.argv[1:]):
        try:
            print(open(folder + "/denied/secret").read())
        except OSError:
            pass
        try:
            open(folder + "/file", "w").write("changed")
            print("changed through", folder)
        except OSError:
            pass
    try:
        os.write(os.open("dir/file", os.O_WRONLY | os.O_TRUNC, dir_fd=number), b"changed")
        print("changed through", number)
    except OSError:
        pass
"#;
    let contents = |yard: &Yard| {
        ["outside/file", "outside/dir/file"].map(|name| std::fs::read_to_string(yard.path(name)).unwrap())
    };
    let yard = Yard::new();
    let outside = std::fs::File::open(yard.path("outside")).unwrap();
    let mut unprotected = Command::new(PYTHON);
    unprotected.args(["-c", program, "self"]);
    inherit(&mut unprotected, &outside);
    let output = unprotected.output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("the-denied-contents"), "{output:?}");
    assert_eq!(contents(&yard), ["changed", "changed"], "without a sandbox");

    let yard = Yard::new();
    let outside = std::fs::File::open(yard.path("outside")).unwrap();
    let readable = policy(vec![minimal(), entry(yard.path("ws"), Access::Read)]);
    let planned = plan_sandbox(&yard.policy(), SandboxNetwork::None).unwrap();
    let with_namespaces = planned.plan.clone().into();
    let landlock = EnforcementPlan::Landlock(plan_landlock(&readable, SandboxNetwork::None).unwrap());
    // Process 1 is that of the namespace. A Landlock sandbox has no PID namespace.
    for (plan, processes) in [(with_namespaces, &["self", "1"][..]), (landlock, &["self"])] {
        // The shell checks that the directory is really open when it executes the launcher.
        let mut command = Command::new("/bin/sh");
        let script = format!("test -e /proc/self/fd/{INHERITED}/denied/secret && exec \"$0\"");
        command.args(["-c", &script]).arg(launcher_command());
        inherit(&mut command, &outside);
        let (launcher, socket) = start_with(command);
        let resident = ResidentSandbox::build(socket, &plan).unwrap();
        let sandbox = TestSandbox { resident: Some(resident), launcher, placeholders: Default::default() };
        assert_eq!(sandbox.python(program, processes).success(), "", "{plan:?}");
        assert_eq!(contents(&yard), ["original", "original"], "{plan:?}");
    }
}
