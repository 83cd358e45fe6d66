//! Runs an ignored test of this binary in a process of its own. Scenarios use this for the other processes they need, such as a server or a
//! guard: the *role* is the name of the ignored test.

use std::process::Command;

/// The environment variable that is set in a process that runs a role; its value does not matter. Without it an
/// ignored test does nothing, so that `cargo test -- --ignored` does no harm.
pub(crate) const ROLE: &str = "SPAWN_TEST_ROLE";

/// Whether this process was started to run a role.
pub(crate) fn is_role_process() -> bool {
    std::env::var_os(ROLE).is_some()
}

/// The arguments that make the test binary run only this ignored test.
pub(crate) fn role_arguments(role: &str) -> [String; 4] {
    ["--ignored".into(), "--exact".into(), "--nocapture".into(), role.into()]
}

/// A command that runs the role.
pub(crate) fn role_command(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    command.args(role_arguments(role)).env(ROLE, role);
    command
}
