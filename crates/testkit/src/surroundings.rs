//! Surroundings of a command in which nothing is configured, so that a test does not depend on the machine of its developer.

use tokio::process::Command;

/// Variables by which a developer may have chosen an environment.
const CHOOSING: [&str; 7] = [
    "CODEX_EXEC_SERVER_URL",
    "CODEX_HOME",
    "EXEC_SERVER_CA_FILE",
    "EXEC_SERVER_CLIENT_TOKEN_FILE",
    "EXEC_SERVER_HOME",
    "EXEC_SERVER_URL",
    "XDG_CONFIG_HOME",
];

/// Gives a command a home directory that does not exist, and none of the variables that choose an environment.
pub fn without_configuration(command: &mut Command) -> &mut Command {
    let nowhere = std::env::temp_dir().join("exec-server-test-nothing-configured");
    command.env("HOME", &nowhere).env("XDG_STATE_HOME", &nowhere);
    CHOOSING.iter().fold(command, |command, name| command.env_remove(name))
}
