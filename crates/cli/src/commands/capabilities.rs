//! The capabilities of a server. The commands use extensions of the published protocol, and a server silently ignores members of a request
//! that it does not know. So a command asks for the capabilities first. If one is missing, it does the next best thing, or fails before
//! anything has run.

use client::{Capabilities, EnvironmentInfo, ExecServerClient, ExecServerError, Signal};
use protocol::ShellInfo;

/// Every Unix machine has this shell. It is used if the server does not name one.
const ANY_SHELL: &str = "/bin/sh";

/// What the server says about its environment. For a server that does not know the request, it is a shell and no capabilities.
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

/// Whether the server can send this signal to a process. The published protocol has only `interrupt`.
pub(crate) fn can_send(server: &Capabilities, signal: Signal) -> bool {
    server.process_signals || signal == Signal::Interrupt
}
