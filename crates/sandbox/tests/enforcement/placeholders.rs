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
fn a_placeholder_that_somebody_filled_or_replaced_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let workspace = directory.path();
    let sandbox = workspace_sandbox(workspace);
    // A user who makes a repository meanwhile, outside of the sandbox.
    fs::set_permissions(workspace.join(".git"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(workspace.join(".git/HEAD"), "ref: refs/heads/main").unwrap();
    fs::remove_dir(workspace.join(".codex")).unwrap();
    fs::create_dir(workspace.join(".codex")).unwrap();
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
    // The umask belongs to the process, so the plan is made in a program of its own: this test's, with an argument.
    if let Some(path) = std::env::var_os("PLACEHOLDER_WORKSPACE") {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o377));
        let policy = policy(vec![root(Access::Read), entry(&path, Access::Write)]);
        let first = plan_sandbox(&policy, SandboxNetwork::None).unwrap();
        let mode = fs::metadata(Path::new(&path).join(".git")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o1555);
        let second = plan_sandbox(&policy, SandboxNetwork::None).unwrap();
        assert_eq!(first.plan, second.plan);
        return;
    }
    let run = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "placeholders::placeholders_are_the_same_for_every_umask"])
        .env("PLACEHOLDER_WORKSPACE", &workspace)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
    assert_eq!(existing(&workspace), 0);
}
