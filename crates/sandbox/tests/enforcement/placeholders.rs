//! Directories that stand for protected paths that do not exist. None of them stays behind.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use sandbox::{Access, SandboxNetwork, plan_sandbox, remove_unused_placeholder};

use crate::support::{entry, policy, root, workspace_sandbox};

const NAMES: [&str; 3] = [".git", ".agents", ".codex"];

fn existing(workspace: &Path) -> usize {
    NAMES.iter().filter(|name| workspace.join(name).exists()).count()
}

#[test]
fn placeholders_go_with_the_sandbox_also_if_its_launcher_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let workspace = directory.path();
    let sandbox = workspace_sandbox(workspace);
    assert_eq!(existing(workspace), 3);
    for name in NAMES {
        let path = workspace.join(name);
        assert_ne!(sandbox.run(&format!("rmdir {0} || mv {0} {0}x || touch {0}/x", path.display())).code, 0);
    }
    drop(sandbox);
    assert_eq!(existing(workspace), 0);
    let mut killed = workspace_sandbox(workspace);
    killed.launcher.kill().unwrap();
    killed.launcher.wait().unwrap();
    assert_eq!(existing(workspace), 3, "the server still has the root directory of the sandbox");
    drop(killed);
    assert_eq!(existing(workspace), 0);
}

#[test]
fn sandboxes_share_placeholders_and_the_last_one_removes_them() {
    let directory = tempfile::tempdir().unwrap();
    let workspace = directory.path();
    let first = workspace_sandbox(workspace);
    let second = workspace_sandbox(workspace);
    drop(first);
    assert_eq!(existing(workspace), 3);
    assert_ne!(second.run(&format!("mkdir {}/.git/hooks", workspace.display())).code, 0);
    drop(second);
    assert_eq!(existing(workspace), 0);
}

#[test]
fn a_lock_of_a_command_on_a_placeholder_stops_only_its_own_policy() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sandbox = workspace_sandbox(first.path());
    let locked = fs::File::open(first.path().join(".git")).unwrap();
    rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockShared).unwrap();
    drop(sandbox);
    assert_eq!(existing(first.path()), 1, "only the locked one stays");
    rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let writable = |path: &Path| policy(vec![root(Access::Read), entry(path, Access::Write)]);
    let refused = plan_sandbox(&writable(first.path()), SandboxNetwork::None).unwrap_err().to_string();
    assert!(refused.contains("is locked by another process"), "{refused}");
    assert!(plan_sandbox(&writable(second.path()), SandboxNetwork::None).is_ok());
    drop(locked);
    drop(workspace_sandbox(first.path()));
    assert_eq!(existing(first.path()), 0);
}

#[test]
fn a_placeholder_in_a_directory_that_was_moved_is_removed_where_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let (before, after) = (directory.path().join("before"), directory.path().join("after"));
    fs::create_dir(&before).unwrap();
    let sandbox = workspace_sandbox(&before);
    fs::rename(&before, &after).unwrap();
    fs::create_dir_all(before.join(".git")).unwrap();
    drop(sandbox);
    assert_eq!((existing(&before), existing(&after)), (1, 0));
}

#[test]
fn a_placeholder_that_somebody_filled_or_replaced_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let workspace = directory.path();
    let sandbox = workspace_sandbox(workspace);
    // A user who makes a repository meanwhile, outside of the sandbox.
    fs::set_permissions(workspace.join(".git"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(workspace.join(".git/HEAD"), "ref: refs/heads/main").unwrap();
    fs::remove_dir(workspace.join(".codex")).unwrap();
    fs::create_dir(workspace.join(".codex")).unwrap();
    // One with other permissions that is still empty is removed.
    fs::set_permissions(workspace.join(".agents"), fs::Permissions::from_mode(0o755)).unwrap();
    drop(sandbox);
    assert_eq!(fs::read_to_string(workspace.join(".git/HEAD")).unwrap(), "ref: refs/heads/main");
    assert!(workspace.join(".codex").is_dir() && !workspace.join(".agents").exists());
    // The next sandbox protects what is there now.
    let next = workspace_sandbox(workspace);
    assert_ne!(next.run(&format!("echo > {}/.git/HEAD", workspace.display())).code, 0);
    assert_ne!(next.run(&format!("echo > {}/.codex/x", workspace.display())).code, 0);
}

#[test]
fn a_placeholder_that_was_left_behind_is_used_again_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    let workspace = directory.path();
    let left = workspace.join(".git");
    fs::create_dir(&left).unwrap();
    fs::set_permissions(&left, fs::Permissions::from_mode(0o1555)).unwrap();
    let sandbox = workspace_sandbox(workspace);
    assert_ne!(sandbox.run(&format!("mkdir {}/x", left.display())).code, 0);
    drop(sandbox);
    assert_eq!(existing(workspace), 0);
    fs::create_dir(&left).unwrap();
    remove_unused_placeholder(&left);
    assert!(left.exists(), "an ordinary directory");
}

#[test]
fn a_process_that_is_being_started_does_not_keep_a_placeholder() {
    let directory = tempfile::tempdir().unwrap();
    let workspace = directory.path();
    let sandbox = workspace_sandbox(workspace);
    // SAFETY: the child makes only system calls.
    let child = match unsafe { libc::fork() } {
        // SAFETY: as above.
        0 => unsafe {
            libc::pause();
            libc::_exit(0)
        },
        child => rustix::process::Pid::from_raw(child).unwrap(),
    };
    drop(sandbox);
    let left = existing(workspace);
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
    rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap();
    assert_eq!(left, 0);
}

#[test]
fn placeholders_are_the_same_for_every_umask() {
    let directory = tempfile::tempdir().unwrap();
    let workspace = directory.path().join("ws");
    fs::create_dir(&workspace).unwrap();
    // The umask belongs to the whole process, so this test starts itself again, with a variable in its environment.
    if let Some(path) = std::env::var_os("PLACEHOLDER_WORKSPACE") {
        let mask = std::env::var("PLACEHOLDER_UMASK").unwrap();
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(u32::from_str_radix(&mask, 8).unwrap()));
        let policy = policy(vec![root(Access::Read), entry(&path, Access::Write)]);
        let first = plan_sandbox(&policy, SandboxNetwork::None).unwrap();
        let mode = fs::metadata(Path::new(&path).join(".git")).unwrap().permissions().mode();
        // Other users cannot read it, and so cannot lock it either.
        assert_eq!(mode & 0o7777, 0o1500);
        let second = plan_sandbox(&policy, SandboxNetwork::None).unwrap();
        assert_eq!(first.plan, second.plan);
        return;
    }
    for mask in ["377", "777"] {
        let run = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "placeholders::placeholders_are_the_same_for_every_umask"])
            .env("PLACEHOLDER_WORKSPACE", &workspace)
            .env("PLACEHOLDER_UMASK", mask)
            .output()
            .unwrap();
        assert!(run.status.success(), "{mask}: {}", String::from_utf8_lossy(&run.stdout));
        assert_eq!(existing(&workspace), 0);
    }
    // One that was left behind by a server with such a umask.
    fs::create_dir(workspace.join(".git")).unwrap();
    fs::set_permissions(workspace.join(".git"), fs::Permissions::from_mode(0o1000)).unwrap();
    drop(workspace_sandbox(&workspace));
    assert_eq!(existing(&workspace), 0);
}

/// A server of root keeps the placeholders of other users' servers, which would otherwise take its mounts away when they remove them.
#[test]
fn root_locks_placeholders_of_other_users() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(".git");
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o1500)).unwrap();
    std::os::unix::fs::chown(&path, Some(12345), Some(12345)).unwrap();
    let sandbox = workspace_sandbox(directory.path());
    let opened = fs::File::open(&path).unwrap();
    let exclusive = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    assert_eq!(rustix::fs::flock(&opened, exclusive), Err(rustix::io::Errno::WOULDBLOCK));
    drop(sandbox);
    assert_eq!(existing(directory.path()), 0, "the last user removes it");
}
