//! Runs an ignored test of this binary in a process of its own: as another user, in another mount namespace or with other limits. The
//! *role* is the name of the ignored test.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

const ROLE: &str = "FILES_TEST_ROLE";
const NOBODY: u32 = 65534;
const DONE: &str = "the role has finished";

/// Whether this process was started to run a role. Otherwise a role does nothing, so that all tests can be run by hand.
pub(crate) fn is_role_process() -> bool {
    env::var_os(ROLE).is_some()
}

/// Reports that a role has run to its end. Every role calls this last.
#[expect(clippy::print_stdout, reason = "the test that has started the role reads it")]
pub(crate) fn report_done() {
    println!("{DONE}");
}

/// Runs a role without the rights of root, who may read and write every file.
pub(crate) fn run_without_privileges(role: &str) {
    // The other user may not be able to read the build directory.
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
    command.args([role, "--exact", "--ignored", "--nocapture", "--test-threads=1"]).env(ROLE, "yes").current_dir("/");
    let run = command.output().unwrap();
    let output = String::from_utf8_lossy(&run.stdout);
    assert!(output.contains(DONE), "{output}{}", String::from_utf8_lossy(&run.stderr));
}
