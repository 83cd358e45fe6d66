//! This test binary again, as somebody else or somewhere else.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

const ROLE: &str = "FILES_TEST_ROLE";
const NOBODY: u32 = 65534;

/// Whether a role was asked for; as a test of its own it has nothing to do.
pub(crate) fn is_played() -> bool {
    env::var_os(ROLE).is_some()
}

/// Says that a role was played to its end.
#[expect(clippy::print_stdout, reason = "whoever has the role played reads it")]
pub(crate) fn played() {
    println!("the role was played");
}

/// Plays a role without the rights of root, for which permissions do not count.
pub(crate) fn play_without_privileges(role: &str) {
    // The binary may lie where only root can go.
    let stage = tempfile::tempdir().unwrap();
    fs::set_permissions(stage.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = stage.path().join("role");
    fs::copy(env::current_exe().unwrap(), &program).unwrap();
    let mut command = Command::new(program);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    play(command, role);
}

/// Plays a role where it may mount things that nobody else sees.
pub(crate) fn play_where_mounts_are_ours(role: &str) {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount"]).arg(env::current_exe().unwrap());
    play(command, role);
}

/// Plays a role that may have few files open, as services often may.
pub(crate) fn play_with_few_descriptors(role: &str) {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 256; exec \"$@\"", "sh"]).arg(env::current_exe().unwrap());
    play(command, role);
}

fn play(mut command: Command, role: &str) {
    command.args([role, "--exact", "--ignored", "--nocapture", "--test-threads=1"]).env(ROLE, "yes").current_dir("/");
    let run = command.output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(said.contains("the role was played"), "{said}{}", String::from_utf8_lossy(&run.stderr));
}
