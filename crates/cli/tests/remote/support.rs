//! An executor in a process of its own, commands that reach it through the service, and what they print.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use testkit::service::{Leg, Operation};
use testkit::{Signal, TestService, binary, eventually, hide_configuration, send_signal};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

/// The environment that the executor serves.
pub(crate) const ENVIRONMENT: &str = "build-7";

/// Longer than any command takes on a loaded machine. Reached only by a failing test.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(170);

/// A service, an executor that is connected to it, and a folder for the state of all processes.
pub(crate) struct RemoteFixture {
    pub(crate) executor: ExecutorProcess,
    pub(crate) service: TestService,
    folder: TempDir,
}

/// `exec-server --remote`. Dropping it kills it, and its guard then kills what it has started.
pub(crate) struct ExecutorProcess {
    pub(crate) child: Child,
    log: PathBuf,
}

impl RemoteFixture {
    pub(crate) async fn start() -> Self {
        Self::with_service(TestService::start().await, &[]).await
    }

    /// `args`: further arguments of the executor.
    pub(crate) async fn with_args(args: &[&str]) -> Self {
        Self::with_service(TestService::start().await, args).await
    }

    pub(crate) async fn with_service(service: TestService, args: &[&str]) -> Self {
        Self::prepared(service, args, |command| command).await
    }

    /// `prepare` may change the command of the executor.
    pub(crate) async fn prepared(
        service: TestService,
        args: &[&str],
        prepare: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Self {
        // No part of the path is a link, so that commands print paths as the tests know them.
        let folder = tempfile::tempdir_in(std::fs::canonicalize(std::env::temp_dir()).unwrap()).unwrap();
        let executor = ExecutorProcess::start(&service, folder.path(), args, prepare);
        service.wait_for_upgrades(Leg::Executor, 1).await;
        Self { executor, service, folder }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces the executor, which must have ended, by one with the same keys.
    pub(crate) async fn restart_executor(&mut self) {
        let sockets = self.service.upgrades(Leg::Executor);
        self.executor = ExecutorProcess::start(&self.service, self.folder.path(), &[], |command| command);
        self.service.wait_for_upgrades(Leg::Executor, sockets + 1).await;
    }

    /// A command with `-e` for the executor. The first argument is the name of the command.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.command_without_target(args[0]);
        command.args(["-e", ENVIRONMENT]).args(&args[1..]);
        command
    }

    /// A command that knows the service and its key, but does not name an environment.
    pub(crate) fn command_without_target(&self, verb: &str) -> Command {
        let mut command = Command::new(binary());
        command.arg(verb).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        prepare_client(&mut command, &self.service, self.folder.path());
        command
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, args: &[&str]) -> CommandEnd {
        finish(&mut self.command(args)).await
    }

    /// The number of handshakes that have been made: the registry is asked once for each.
    pub(crate) fn handshakes(&self) -> usize {
        self.service.count(Operation::Validate)
    }
}

/// Gives a command the service, the credential for it, and a state directory of its own.
pub(crate) fn prepare_client<'a>(command: &'a mut Command, service: &TestService, folder: &Path) -> &'a mut Command {
    hide_configuration(command);
    command.env("EXEC_SERVER_REMOTE", service.url()).env("EXEC_SERVER_API_KEY", TestService::TOKEN);
    command.env("XDG_STATE_HOME", folder.join("client-state")).env("EXEC_SERVER_NO_HINT", "1")
}

impl ExecutorProcess {
    pub(crate) fn start(
        service: &TestService,
        folder: &Path,
        args: &[&str],
        prepare: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Self {
        let log = folder.join("executor.log");
        let mut command = Command::new(binary());
        hide_configuration(&mut command);
        command.args(["--remote", &service.url(), "--environment-id", ENVIRONMENT]).args(args);
        command.env("EXEC_SERVER_API_KEY", TestService::TOKEN).env("XDG_STATE_HOME", folder.join("executor-state"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log).unwrap()).kill_on_drop(true);
        let child = prepare(&mut command).spawn().unwrap();
        Self { child, log }
    }

    /// What the executor has written to stderr.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send_signal(self.pid(), signal);
    }

    /// Waits for the end. The exit code; `None` after a signal.
    pub(crate) async fn wait(&mut self) -> Option<i32> {
        let ended = tokio::time::timeout(COMMAND_TIMEOUT, self.child.wait()).await;
        ended.unwrap_or_else(|_| panic!("the executor does not end: {}", self.log())).unwrap().code()
    }
}

/// How a command has ended.
#[derive(PartialEq, Eq)]
pub(crate) struct CommandEnd {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: Option<i32>,
}

/// Without most of a large output.
impl fmt::Debug for CommandEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: String = self.stdout.chars().take(200).collect();
        write!(f, "{:?}: {} bytes of output {shown:?}, errors {:?}", self.code, self.stdout.len(), self.stderr)
    }
}

impl CommandEnd {
    /// The end of a command that prints this to stdout and nothing to stderr.
    pub(crate) fn printed(stdout: impl Into<String>, code: i32) -> Self {
        Self { stdout: stdout.into(), stderr: String::new(), code: Some(code) }
    }
}

impl From<Output> for CommandEnd {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { stdout: text(output.stdout), stderr: text(output.stderr), code: output.status.code() }
    }
}

/// Runs a command to its end.
pub(crate) async fn finish(command: &mut Command) -> CommandEnd {
    wait_for_end(command.spawn().unwrap()).await.into()
}

/// Runs a command to its end with `input` on its stdin.
pub(crate) async fn finish_with_input(command: &mut Command, input: Vec<u8>) -> Output {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let write = async move {
        // Fails if the command ends before it has read all input. Its output then shows why.
        let _ = stdin.write_all(&input).await;
    };
    tokio::join!(wait_for_end(child), write).0
}

/// Waits until a command has ended, and takes the output that was not read yet.
pub(crate) async fn wait_for_end(child: Child) -> Output {
    tokio::time::timeout(COMMAND_TIMEOUT, child.wait_with_output()).await.expect("the command does not end").unwrap()
}

/// Waits until a process has written its pid and a line break to a file.
pub(crate) async fn read_pid(path: &Path) -> u32 {
    eventually("the pid is in the file", || {
        std::fs::read_to_string(path).ok().filter(|text| text.ends_with('\n'))?.trim().parse().ok()
    })
    .await
}
