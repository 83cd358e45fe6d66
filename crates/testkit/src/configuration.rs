//! Hides the developer's own configuration from a command, so that a test does not depend on the machine on which it runs.

use tokio::process::Command;

/// Variables by which a developer may have configured `exec-server`.
const CONFIGURATION_VARIABLES: [&str; 7] = [
    "CODEX_EXEC_SERVER_URL",
    "CODEX_HOME",
    "EXEC_SERVER_CA_FILE",
    "EXEC_SERVER_CLIENT_TOKEN_FILE",
    "EXEC_SERVER_HOME",
    "EXEC_SERVER_URL",
    "XDG_CONFIG_HOME",
];

/// Gives a command a home directory that does not exist, and removes the variables that configure `exec-server`.
pub fn hide_configuration(command: &mut Command) -> &mut Command {
    let nowhere = std::env::temp_dir().join("exec-server-test-nothing-configured");
    command.env("HOME", &nowhere).env("XDG_STATE_HOME", &nowhere);
    CONFIGURATION_VARIABLES.iter().fold(command, |command, name| command.env_remove(name))
}
