//! Hides the developer's own configuration from a command, so that a test does not depend on the machine on which it runs.

use tokio::process::Command;

/// Variables that name a server, a file for connecting to a server, or a directory with configuration, and variables
/// that hold credentials.
const CONFIGURATION_VARIABLES: [&str; 14] = [
    "CODEX_ACCESS_TOKEN",
    "CODEX_API_KEY",
    "CODEX_EXEC_SERVER_URL",
    "CODEX_HOME",
    "EXEC_SERVER_API_KEY",
    "EXEC_SERVER_CA_FILE",
    "EXEC_SERVER_CLIENT_TOKEN_FILE",
    "EXEC_SERVER_HOME",
    "EXEC_SERVER_REFRESH_TOKEN_URL",
    "EXEC_SERVER_REMOTE",
    "EXEC_SERVER_URL",
    "OPENAI_FEDERATION_RULE_ID",
    "OPENAI_IDENTITY_TOKEN_FILE",
    "XDG_CONFIG_HOME",
];

/// Gives a command a home directory and a state directory that do not exist, and removes the variables above. Other
/// variables that `exec-server` reads, such as `EXEC_SERVER_NO_HINT`, stay.
pub fn hide_configuration(command: &mut Command) -> &mut Command {
    let nowhere = std::env::temp_dir().join("exec-server-test-nothing-configured");
    command.env("HOME", &nowhere).env("XDG_STATE_HOME", &nowhere);
    CONFIGURATION_VARIABLES.iter().fold(command, |command, name| command.env_remove(name))
}
