//! A server without privileges and a child that has got some: it is found nevertheless, and it is told that it may not be ended.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use spawn::{Spawner, SurvivalReason};
use tempfile::TempDir;

use crate::roles::{is_played, play};
use crate::support::{PATIENCE, command, end, is_alive, read_pids, start};

const SERVER: &str = "privileges::role_server";
const NOBODY: u32 = 65534;
/// A copy of perl that runs as root.
const BECOMES_ROOT: &str = "SPAWN_TEST_BECOMES_ROOT";

#[tokio::test]
#[ignore = "a role for the scenario below"]
async fn role_server() {
    if !is_played() {
        return;
    }
    let perl = std::env::var(BECOMES_ROOT).unwrap();
    let spawner = Spawner::new(None).unwrap();
    let tag = spawner.session_tags().next();
    let script = "use POSIX; setgid(0); setuid(0); $| = 1; print \"$$\\n\"; sleep 1000";
    let spawned = start(&spawner, &command([&perl, "-e", script]), tag).unwrap();
    let spawn::ChildIo::Pipes { stdout, .. } = &spawned.io else { unreachable!() };
    let pids = read_pids(stdout, 1).await;
    let survivors = end(spawner.kill_tree(tag, PATIENCE)).unwrap_err();
    assert_eq!(survivors.pids, pids);
    assert!(matches!(survivors.reason, SurvivalReason::NotPermitted), "{survivors}");
    println!("survivor {}", pids[0]);
}

#[test]
fn what_may_not_be_ended_is_told() {
    if !geteuid().is_root() {
        return;
    }
    let directory = TempDir::new().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let perl = directory.path().join("perl");
    fs::copy(Path::new("/usr/bin/perl"), &perl).unwrap();
    fs::set_permissions(&perl, fs::Permissions::from_mode(0o4755)).unwrap();
    // Its own copy, because the directory of the build need not be open to everybody.
    let executable = directory.path().join("scenarios");
    fs::copy(std::env::current_exe().unwrap(), &executable).unwrap();

    let role = play(SERVER);
    let output = std::process::Command::new(&executable)
        .args(role.get_args())
        .envs(role.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env(BECOMES_ROOT, &perl)
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let survivor: i32 = said.lines().find_map(|line| line.strip_prefix("survivor ")?.parse().ok()).unwrap();
    assert!(is_alive(survivor.unsigned_abs()));
    kill_process(Pid::from_raw(survivor).unwrap(), Signal::KILL).unwrap();
}
