//! A user with a home directory, and the programs that the user runs.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use tempfile::TempDir;
use testkit::service::Leg;
use testkit::{TestService, Value, binary, hide_configuration};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

/// The environment of all tests.
pub(crate) const ENVIRONMENT: &str = "build-7";

/// Longer than any command of these tests takes on a loaded machine.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// The directories of one user: `home`, `state` and `codex`, which is the home of codex.
pub(crate) struct User {
    folder: TempDir,
}

/// How a command has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: Option<i32>,
}

impl Ended {
    /// Stdout of a command that has succeeded and has said nothing on stderr.
    pub(crate) fn succeeded(self) -> String {
        assert_eq!((self.code, &*self.stderr), (Some(0), ""), "{}", self.stdout);
        self.stdout
    }

    /// Stderr of a command that has failed with this exit code and has printed nothing.
    pub(crate) fn failed(self, code: i32) -> String {
        assert_eq!((self.code, &*self.stdout), (Some(code), ""), "{}", self.stderr);
        self.stderr
    }

    /// The JSON on stdout.
    pub(crate) fn json(&self) -> Value {
        self.stdout.parse().unwrap_or_else(|_| panic!("{self:?}"))
    }
}

impl User {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for directory in ["home", "state", "codex"] {
            std::fs::create_dir(folder.path().join(directory)).unwrap();
        }
        Self { folder }
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// The file with the stored keys.
    pub(crate) fn store(&self) -> PathBuf {
        self.path("home/.config/exec-server/credentials.json")
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(args);
        self.prepare(&mut command);
        command
    }

    /// Gives a command the directories of the user.
    pub(crate) fn prepare<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        hide_configuration(command);
        command.env("HOME", self.path("home")).env("XDG_STATE_HOME", self.path("state"));
        command.env("CODEX_HOME", self.path("codex"))
    }

    pub(crate) async fn run(&self, args: &[&str]) -> Ended {
        self.run_with(args, &[]).await
    }

    pub(crate) async fn run_with(&self, args: &[&str], variables: &[(&str, &str)]) -> Ended {
        finish(self.command(args).envs(variables.iter().copied())).await
    }

    /// Runs a command with this stdin.
    pub(crate) async fn run_with_stdin(&self, args: &[&str], stdin: &[u8]) -> Ended {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        let stdin = stdin.to_owned();
        // A command that refuses its arguments reads nothing.
        let writing = tokio::spawn(async move { drop(pipe.write_all(&stdin).await) });
        let ended = ended(child).await;
        writing.await.unwrap();
        ended
    }

    /// Starts an executor, and waits until it is connected.
    pub(crate) async fn executor(&self, service: &TestService, variables: &[(&str, &str)]) -> RunningExecutor {
        let sockets = service.upgrades(Leg::Executor);
        let executor = self.unconnected_executor(&service.url(), &[], variables);
        service.wait_for_upgrades(Leg::Executor, sockets + 1).await;
        executor
    }

    /// Starts an executor with further flags.
    pub(crate) fn unconnected_executor(
        &self,
        url: &str,
        flags: &[&str],
        variables: &[(&str, &str)],
    ) -> RunningExecutor {
        let mut command = self.command(&["--remote", url, "--environment-id", ENVIRONMENT]);
        let mut child = command.args(flags).env("RUST_LOG", "trace").envs(variables.iter().copied()).spawn().unwrap();
        let log = Arc::<Mutex<Vec<u8>>>::default();
        let (mut stderr, collected) = (child.stderr.take().unwrap(), Arc::clone(&log));
        tokio::spawn(async move {
            let mut buffer = vec![0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
                collected.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        RunningExecutor { child, log }
    }
}

/// A server behind a relay. Dropping it kills it.
pub(crate) struct RunningExecutor {
    child: Child,
    log: Arc<Mutex<Vec<u8>>>,
}

impl RunningExecutor {
    /// Everything that it has logged so far, at every level.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&self.log.lock().unwrap()).into_owned()
    }

    /// The fingerprint that it has printed at its start.
    pub(crate) async fn fingerprint(&self) -> String {
        let printed = || {
            let log = self.log();
            let found = log.split("key SHA256:").nth(1)?;
            let hash: String = found.chars().take_while(|c| c.is_ascii_alphanumeric() || "+/".contains(*c)).collect();
            (hash.len() == 43).then(|| format!("SHA256:{hash}"))
        };
        testkit::eventually("the fingerprint is printed", printed).await
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn exit_code(&mut self) -> Option<i32> {
        tokio::time::timeout(COMMAND_TIMEOUT, self.child.wait()).await.expect("it does not end").unwrap().code()
    }
}

pub(crate) async fn finish(command: &mut Command) -> Ended {
    ended(command.spawn().unwrap()).await
}

async fn ended(child: Child) -> Ended {
    let ending = tokio::time::timeout(COMMAND_TIMEOUT, child.wait_with_output());
    let output = ending.await.expect("the command does not end").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { stdout: text(output.stdout), stderr: text(output.stderr), code: output.status.code() }
}

/// The value of a header in the head of a request.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}
