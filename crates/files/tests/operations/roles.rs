//! Runs a *role*: an ignored test of this binary that another test starts in a process of its own, as another user,
//! in another mount namespace or with other limits. The functions take the path of the ignored test, such as
//! `walking::role_walk_deep_and_wide_tree`.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The environment variable that is set in the process of a role.
const ROLE_VARIABLE: &str = "FILES_TEST_ROLE";
/// The id of the user `nobody`, and of its group.
const NOBODY: u32 = 65534;
/// The line that a role prints when it has finished.
const DONE: &str = "the role has finished";

/// Whether this process was started to run a role. In any other process a role returns at once, so that a run of all
/// ignored tests does not fail.
pub(crate) fn is_role_process() -> bool {
    env::var_os(ROLE_VARIABLE).is_some()
}

/// Reports that a role has run to its end. Every role calls this last.
#[expect(clippy::print_stdout, reason = "the test that started the role reads this line")]
pub(crate) fn report_done() {
    println!("{DONE}");
}

/// Runs a role without the rights of root, who may read and write every file: as `nobody`, or as the current user if
/// that is not root.
pub(crate) fn run_without_privileges(role: &str) {
    // The user `nobody` may not be able to read the build directory, so the role runs a copy of this program.
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = directory.path().join("role");
    fs::copy(env::current_exe().unwrap(), &program).unwrap();
    let mut command = Command::new(program);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    run_role(command, role);
}

/// Runs a role in a mount namespace of its own, in which it may mount file systems.
pub(crate) fn run_in_own_mount_namespace(role: &str) {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount"]).arg(env::current_exe().unwrap());
    run_role(command, role);
}

/// Runs a role with a low limit of open files.
pub(crate) fn run_with_few_descriptors(role: &str) {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 256; exec \"$@\"", "sh"]).arg(env::current_exe().unwrap());
    run_role(command, role);
}

fn run_role(mut command: Command, role: &str) {
    command
        .args([role, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(ROLE_VARIABLE, "yes")
        .current_dir("/");
    let run = command.output().unwrap();
    let output = String::from_utf8_lossy(&run.stdout);
    assert!(output.contains(DONE), "{output}{}", String::from_utf8_lossy(&run.stderr));
}
