//! Standard streams that the server has opened on the host.

use sandbox::{Access, SandboxNetwork};

use crate::support::{PYTHON, entry, is_root, policy, root, sandbox_for};
use crate::yard::Yard;

/// Sets the permissions that the device has already, so nothing is changed if it succeeds.
const CHANGE_NULL_DEVICE: &str = r#"
import errno, os
assert os.read(0, 1) == b""
for change in (lambda: os.fchmod(0, os.fstat(0).st_mode & 0o7777), lambda: os.utime(0, (1, 1)) if os.getuid() else None):
    try:
        change()
        print("changed")
    except OSError as error:
        print(errno.errorcode[error.errno])
"#;

#[test]
fn a_command_without_input_cannot_change_the_null_device_of_the_host() {
    if is_root() {
        let outside = std::process::Command::new(PYTHON)
            .args(["-c", CHANGE_NULL_DEVICE])
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        assert!(String::from_utf8_lossy(&outside.stdout).starts_with("changed\n"), "{outside:?}");
    }
    let inside = Yard::new().sandbox().python(CHANGE_NULL_DEVICE, &[]);
    assert!(inside.output.starts_with("EROFS\n"), "{}", inside.output);
}

#[test]
fn a_command_whose_policy_denies_the_null_device_has_empty_input() {
    let denied = policy(vec![root(Access::Read), entry("/dev/null", Access::Deny)]);
    let sandbox = sandbox_for(&denied, SandboxNetwork::None);
    let outcome = sandbox.python("import os; print(os.read(0, 1), os.path.sameopenfile(0, 1))", &[]);
    assert_eq!(outcome.output, "b'' False\n");
}
