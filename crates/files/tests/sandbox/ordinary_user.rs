//! All other tests once more, as an ordinary user. Tests in CI usually run as root, whom the kernel allows more.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::support::is_root;

/// The ids of the user `nobody` and of its group.
const NOBODY: u32 = 65534;

#[test]
fn every_test_of_a_sandbox_also_passes_as_an_ordinary_user() {
    if !is_root() {
        return; // The other tests already run as an ordinary user.
    }
    // The user may have no access to the build directory, so a copy of this program runs.
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let copy = directory.path().join("tests");
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    let run = Command::new(copy)
        .args(["--skip", "ordinary_user::"])
        .env("HOME", directory.path())
        .current_dir(directory.path())
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{printed}\n{}", String::from_utf8_lossy(&run.stderr));
    // A test program that runs no test succeeds too.
    assert!(printed.contains(" passed") && !printed.contains(" 0 passed"), "{printed}");
}
