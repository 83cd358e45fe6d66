//! Other processes of a scenario are this very test binary, started again in the role of one of its ignored tests.

use std::process::Command;

/// Set in the processes that play a role, so that running the ignored tests by hand does nothing.
pub(crate) const ROLE: &str = "SPAWN_TEST_ROLE";

pub(crate) fn is_played() -> bool {
    std::env::var_os(ROLE).is_some()
}

pub(crate) fn role_arguments(role: &str) -> [String; 4] {
    ["--ignored".into(), "--exact".into(), "--nocapture".into(), role.into()]
}

pub(crate) fn play(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("our path"));
    command.args(role_arguments(role)).env(ROLE, role);
    command
}
