//! Asks a server for its capabilities, which are the extensions of the published protocol that it offers. The
//! published protocol is that of `codex exec-server`. A server silently ignores params that it does not know, so a
//! command that uses an extension asks first. If the extension is missing, the command does the next best thing, or
//! fails before anything has run.

use client::{Capabilities, EnvironmentInfo, ExecServerClient, ExecServerError, Signal};
use protocol::ShellInfo;

/// Every Unix machine has this shell. It is used if the server does not name one.
const ANY_SHELL: &str = "/bin/sh";

/// The answer to `environment/info`: the shell, the directories and the capabilities of the server. If the server
/// does not know this request, the answer has [`ANY_SHELL`] and no capabilities.
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
