//! A server without privileges whose child has become root: the server finds the child and reports that it may not kill it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use spawn::{Spawner, SurvivalReason};
use tempfile::TempDir;

use crate::roles::{is_role_process, role_command};
use crate::support::{TIMEOUT, block_on, command, dedicate_process, is_alive, read_pids, spawn_tagged};

const SERVER: &str = "privileges::role_server";
const NOBODY: u32 = 65534;
/// The environment variable with the path of a copy of perl that can become root, because it has the setuid bit.
const SETUID_PERL: &str = "SPAWN_TEST_SETUID_PERL";

#[tokio::test]
#[ignore = "run by the test below in a process of its own"]
async fn role_server() {
    if !is_role_process() {
        return;
    }
    let perl = std::env::var(SETUID_PERL).unwrap();
    let spawner = Spawner::new(dedicate_process(), None).unwrap();
    let tag = spawner.session_tags().next();
    let script = "use POSIX; setgid(0); setuid(0); $| = 1; print \"$$\\n\"; sleep 1000";
    let spawned = spawn_tagged(&spawner, &command([&perl, "-e", script]), tag).unwrap();
    let spawn::ChildIo::Pipes { stdout, .. } = &spawned.io else { unreachable!() };
    let pids = read_pids(stdout, 1).await;
    let survivors = block_on(spawner.kill_tree(tag, TIMEOUT)).unwrap_err();
    assert_eq!(survivors.pids, pids);
    assert!(matches!(survivors.reason, SurvivalReason::NotPermitted), "{survivors}");
    println!("survivor {}", pids[0]);
}

#[test]
fn a_process_that_may_not_be_killed_is_reported() {
    // Only root can make a program that becomes root.
    if !geteuid().is_root() {
        return;
    }
    let directory = TempDir::new().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let perl = directory.path().join("perl");
    fs::copy(Path::new("/usr/bin/perl"), &perl).unwrap();
    fs::set_permissions(&perl, fs::Permissions::from_mode(0o4755)).unwrap();
    // The test binary is copied, because the user `nobody` may not be able to read the build directory.
    let executable = directory.path().join("scenarios");
    fs::copy(std::env::current_exe().unwrap(), &executable).unwrap();

    let role = role_command(SERVER);
    let output = std::process::Command::new(&executable)
        .args(role.get_args())
        .envs(role.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env(SETUID_PERL, &perl)
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    let survivor: i32 = stdout.lines().find_map(|line| line.strip_prefix("survivor ")?.parse().ok()).unwrap();
    assert!(is_alive(survivor.unsigned_abs()));
    kill_process(Pid::from_raw(survivor).unwrap(), Signal::KILL).unwrap();
}
