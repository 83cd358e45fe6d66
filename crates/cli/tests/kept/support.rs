//! A server with a kept session, which outlives its connections, and commands that use the session. The client
//! library makes the session, without any process.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use client::{
    ExecServerClient, ExecServerClientConnectOptions, ProcessSummary, SessionId, StartParams, UrlConnector,
};
use tempfile::TempDir;
use testkit::{TestServer, binary};
use tokio::process::Command;

/// How long the session is kept. No test takes so long.
const SESSION_LIFETIME: Duration = Duration::from_secs(3600);

/// Longer than any command takes on a loaded machine.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// A server with a session that is recorded under the name `default`.
pub(crate) struct KeptSession {
    pub(crate) server: TestServer,
    /// Directory for the state of the commands. Below it, each session has a record: a file with its id.
    state: TempDir,
    session: SessionId,
}

impl KeptSession {
    pub(crate) async fn start() -> Self {
        Self::with_args(&[]).await
    }

    pub(crate) async fn with_args(args: &[&str]) -> Self {
        Self::new(TestServer::with_args(args).await, tempfile::tempdir().unwrap()).await
    }

    /// A server on a Unix socket, like the server that commands start in the background. Its messages are lines of
    /// JSON, without WebSocket.
    pub(crate) async fn start_on_unix_socket() -> Self {
        let state = tempfile::tempdir().unwrap();
        let url = format!("unix://{}", state.path().join("socket").display());
        Self::new(TestServer::with_args(&["--listen", &url]).await, state).await
    }

    async fn new(server: TestServer, state: TempDir) -> Self {
        let session = make_session(server.url(), state.path()).await;
        Self { server, state, session }
    }

    /// A client that takes the session over.
    pub(crate) async fn client(&self) -> ExecServerClient {
        let options = ExecServerClientConnectOptions {
            resume_session_id: Some(self.session.clone()),
            takeover: true,
            ..ExecServerClientConnectOptions::default()
        };
        connect(self.server.url(), options).await
    }

    /// Starts a process of the session and leaves it running, as `run -d` does. `paused` means that no events are
    /// sent to the client that starts the process.
    pub(crate) async fn start_process(&self, params: StartParams) {
        let client = self.client().await;
        client.start(StartParams { paused: true, ..params }).await.unwrap().detach();
        client.close().await;
    }

    /// A command that uses the session. The first argument is the name of the command.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = command(self.state.path());
        command.arg(args[0]).args(["--connect", self.server.url()]).args(&args[1..]);
        command
    }

    /// The file that records a session of this name.
    pub(crate) fn record(&self, name: &str) -> PathBuf {
        self.state.path().join("exec-server/sessions").join(records_folder_name(self.server.url())).join(name)
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, args: &[&str]) -> CommandOutput {
        run(&mut self.command(args)).await
    }

    /// The only process in the output of `ps --json`.
    pub(crate) async fn only_process(&self) -> ProcessSummary {
        let output = self.run(&["ps", "--json"]).await;
        let mut processes: Vec<ProcessSummary> = serde_json::from_str(&output.stdout).unwrap();
        assert_eq!(processes.len(), 1, "{}", output.stdout);
        processes.remove(0)
    }
}

/// The output and the exit code of a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The binary without a configured server. `state` is the directory for its state, such as the records of sessions.
pub(crate) fn command(state: &Path) -> Command {
    let mut command = Command::new(binary());
    command.env("XDG_STATE_HOME", state).env("XDG_CONFIG_HOME", state).env("CODEX_HOME", state).env("HOME", state);
    command.env_remove("CODEX_EXEC_SERVER_URL").stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs a command to its end.
pub(crate) async fn run(command: &mut Command) -> CommandOutput {
    let Output { status, stdout, stderr } =
        tokio::time::timeout(COMMAND_TIMEOUT, command.output()).await.expect("the command does not end").unwrap();
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    CommandOutput { code: status.code().expect("a signal ended the command"), stdout, stderr }
}

/// Makes a kept session and records it under the name `default`.
pub(crate) async fn make_session(url: &str, state: &Path) -> SessionId {
    let options = ExecServerClientConnectOptions {
        keep_for: Some(SESSION_LIFETIME),
        ..ExecServerClientConnectOptions::default()
    };
    let client = connect(url, options).await;
    let session = client.session_id().unwrap().clone();
    client.close().await;
    let folder = state.join("exec-server/sessions").join(records_folder_name(url));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("default"), format!("{session}\n")).unwrap();
    session
}

async fn connect(url: &str, options: ExecServerClientConnectOptions) -> ExecServerClient {
    ExecServerClient::connect(UrlConnector::new(url, Default::default()), options).await.unwrap()
}

/// Name of the directory with the records for a server.
pub(crate) fn records_folder_name(url: &str) -> String {
    url.replace("_", "_5f").replace(':', "_3a").replace('/', "_2f")
}

/// Params to start a shell script in `/`.
pub(crate) fn sh(id: &str, script: &str) -> StartParams {
    StartParams::new(id, ["sh", "-c", script], "file:///".parse().unwrap())
}
