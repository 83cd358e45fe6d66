//! Repeats the tests of a test program as an ordinary user. Tests in CI usually run as root, and the kernel treats the
//! namespaces and files of an ordinary user in another way.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use crate::server::program_for_all_users;

/// The uid and gid of `nobody`. Only root can switch to it.
const NOBODY: u32 = 65534;

/// Runs all tests of this test program as the user `nobody`, except those whose path contains `skipped`, and panics if
/// one of them fails. Does nothing if this user is not root, because the tests already run as an ordinary user then.
///
/// Other users may have no access to the build directory, so the test program runs from a copy, and so does `started`, the
/// program that the tests start: an environment variable, named first, tells the tests the path of its copy.
pub fn repeat_tests_as_ordinary_user(skipped: &str, started: Option<(&str, &Path)>) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let copy = |from: &Path| program_for_all_users(from, directory.path());
    let output = Command::new(copy(&std::env::current_exe().unwrap()))
        .args(["--skip", skipped])
        .envs(started.map(|(variable, program)| (variable, copy(program))))
        .env("HOME", directory.path())
        .current_dir(directory.path())
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    // A test program that runs no test succeeds too.
    assert!(printed.contains(" passed") && !printed.contains(" 0 passed"), "{printed}");
}
