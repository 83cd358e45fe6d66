//! What the server can do. The commands need more than the published protocol has, and a server ignores members that it does not know
//! without a word. So a command asks first, and then does the next best thing or refuses before anything has run.

use client::{Capabilities, EnvironmentInfo, ExecServerClient, ExecServerError, Signal};
use protocol::ShellInfo;

/// A shell that every Unix machine has, for servers that do not name one.
const ANY_SHELL: &str = "/bin/sh";

/// What the environment says of itself. An old server cannot be asked; it has a shell and no abilities.
pub(crate) async fn environment_info(client: &ExecServerClient) -> Result<EnvironmentInfo, ExecServerError> {
    match client.environment_info().await {
        Err(error) if error.is_unknown_method() => Ok(EnvironmentInfo {
            shell: ShellInfo { name: "sh".to_owned(), path: ANY_SHELL.to_owned() },
            cwd: None,
            temporary_directories: None,
            temp_dir: None,
            capabilities: Capabilities::default(),
        }),
        result => result,
    }
}

/// Whether the server can send this signal to a process; `interrupt` is in the published protocol.
pub(crate) fn can_send(server: &Capabilities, signal: Signal) -> bool {
    server.process_signals || signal == Signal::Interrupt
}
