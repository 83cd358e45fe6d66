//! A forwarder, and commands that reach it through the scripted service.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use testkit::service::Leg;
use testkit::{Signal, TestService, binary, hide_configuration, send_signal};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

/// The environment of all tests.
pub(crate) const ENVIRONMENT: &str = "env-1";

/// Longer than anything takes on a loaded machine. Reached only by a failing test.
const WAIT: Duration = Duration::from_secs(60);

/// Waits for something that has to happen. Panics with `what` if it does not.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(WAIT, future).await.unwrap_or_else(|_| panic!("did not happen: {what}"))
}

/// The binary with the credential for the service, and with a home directory of its own.
pub(crate) fn program(home: &Path) -> Command {
    let mut command = Command::new(binary());
    hide_configuration(&mut command);
    command.env("HOME", home).env("XDG_STATE_HOME", home).env("EXEC_SERVER_API_KEY", TestService::TOKEN);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// A running forwarder.
pub(crate) struct Forwarder {
    child: Child,
    stderr: Lines<BufReader<ChildStderr>>,
    home: tempfile::TempDir,
}

impl Forwarder {
    /// Starts a forwarder to this URL, and waits until it is connected to the relay.
    pub(crate) async fn start(service: &TestService, destination: &str) -> Self {
        Self::start_with(service, destination, &[]).await
    }

    /// As [`Forwarder::start`], with further arguments.
    pub(crate) async fn start_with(service: &TestService, destination: &str, args: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), service, destination, args).await
    }

    async fn start_in(home: tempfile::TempDir, service: &TestService, destination: &str, args: &[&str]) -> Self {
        let sockets = service.upgrades(Leg::Executor);
        let mut command = program(home.path());
        command.args(["forward", "--connect", destination, "--remote", &service.url()]);
        command.args(["--environment-id", ENVIRONMENT]).args(args).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut forwarder = Self { child, stderr, home };
        let line = forwarder.line().await;
        let registered = format!("registered as {ENVIRONMENT} at http://{}, key SHA256:", service.address());
        assert!(line.starts_with(&registered), "{line}");
        service.wait_for_upgrades(Leg::Executor, sockets + 1).await;
        forwarder
    }

    /// The next line on stderr.
    pub(crate) async fn line(&mut self) -> String {
        within("a line of the forwarder", self.stderr.next_line()).await.unwrap().expect("the forwarder has ended")
    }

    /// Ends stdin of the forwarder.
    pub(crate) fn close_stdin(&mut self) {
        drop(self.child.stdin.take());
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    pub(crate) fn terminate(&self) {
        send_signal(self.pid(), Signal::TERM);
    }

    /// The exit code, once the forwarder has ended.
    pub(crate) async fn exit_code(&mut self) -> Option<i32> {
        within("the forwarder ends", self.child.wait()).await.unwrap().code()
    }

    /// A command of the command line in the environment behind the forwarder.
    pub(crate) fn command(&self, service: &TestService, args: &[&str]) -> Command {
        let mut command = program(self.home.path());
        command.env("EXEC_SERVER_REMOTE", service.url()).args(args);
        command
    }

    /// Runs a command of the command line to its end.
    pub(crate) async fn output(&self, service: &TestService, args: &[&str]) -> Output {
        within("the command ends", self.command(service, args).output()).await.unwrap()
    }

    /// Starts a command, and returns a future that waits for its end.
    pub(crate) fn output_started(
        &self,
        service: &TestService,
        args: &[&str],
    ) -> impl Future<Output = Output> + use<> {
        let child = self.command(service, args).spawn().unwrap();
        async move { within("the command ends", child.wait_with_output()).await.unwrap() }
    }

    /// Starts another forwarder with the same home directory in the place of one that has ended.
    pub(crate) async fn replace(&mut self, service: &TestService, destination: &str) {
        let home = std::mem::replace(&mut self.home, tempfile::tempdir().unwrap());
        *self = Self::start_in(home, service, destination, &[]).await;
    }

    /// As [`Forwarder::output`], with `input` on stdin.
    pub(crate) async fn output_with_input(&self, service: &TestService, args: &[&str], input: &[u8]) -> Output {
        let mut child = self.command(service, args).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let write = async {
            // The write fails if the command ends before it has read all input.
            let _ = stdin.write_all(input).await;
            drop(stdin);
        };
        within("the command ends", async { tokio::join!(child.wait_with_output(), write).0 }).await.unwrap()
    }
}

/// Stdout, stderr and exit code.
pub(crate) fn text_and_code(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}
