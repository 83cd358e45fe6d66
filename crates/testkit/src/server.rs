//! A server under test: the real binary in a process of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::Client;
use crate::signals::stop_ignoring_signals;
use crate::wait::PATIENCE;

/// The `exec-server` binary: `EXEC_SERVER_BIN`, or the one built beside the running test.
pub fn binary() -> PathBuf {
    stop_ignoring_signals();
    if let Some(path) = std::env::var_os("EXEC_SERVER_BIN") {
        return path.into();
    }
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().find(|dir| dir.join("exec-server").is_file());
    profile.expect("build the binary first: cargo build").join("exec-server")
}

/// Runs the binary with arguments that let it end by itself, and returns what it said.
pub async fn run_to_end(args: &[&str]) -> std::process::Output {
    let mut command = Command::new(binary());
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    tokio::time::timeout(PATIENCE, command.output()).await.expect("it does not end by itself").unwrap()
}

/// A running server. Killed when dropped; its guard then kills what it had started.
pub struct TestServer {
    child: Child,
    urls: Vec<String>,
}

impl TestServer {
    /// Starts one on a free loopback port.
    pub async fn start() -> Self {
        Self::with_args(&[]).await
    }

    /// Starts one with further arguments. `--listen` in them replaces the default.
    pub async fn with_args(args: &[&str]) -> Self {
        Self::with(args, |command| command).await
    }

    /// Starts one with a command that the test has prepared further.
    pub async fn with(args: &[&str], prepare: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let mut command = Command::new(binary());
        prepare(command.args(args));
        Self::launch(command, args).await
    }

    /// Starts one as another user, from a copy of the binary in `directory`, which everybody may then use: the directory of the build need
    /// not be open to that user. Only root can.
    pub async fn of_user(user: u32, directory: &Path, args: &[&str]) -> Self {
        let open_to_all = |path: &Path, mode| {
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        };
        open_to_all(directory, 0o777);
        let copy = directory.join("exec-server");
        std::fs::copy(binary(), &copy).unwrap();
        open_to_all(&copy, 0o755);
        let mut command = Command::new(&copy);
        command.args(args).current_dir("/").uid(user).gid(user);
        Self::launch(command, args).await
    }

    /// Starts one with a command of the test's own, such as another program that becomes the server. `args` are those of the
    /// server in it.
    pub async fn launch(mut command: Command, args: &[&str]) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let expected = args.iter().filter(|arg| **arg == "--listen").count().max(1);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut urls = Vec::new();
        while urls.len() < expected {
            urls.push(lines.next_line().await.unwrap().expect("the server ended before it was listening"));
        }
        Self { child, urls }
    }

    /// The first address.
    pub fn url(&self) -> &str {
        &self.urls[0]
    }

    /// Every address.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// `IP:PORT` of the first address.
    pub fn address(&self) -> &str {
        self.url().split_once("://").unwrap().1
    }

    /// The server's process id.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("the server is running")
    }

    /// A connection without handshake.
    pub async fn raw(&self) -> Client {
        Client::connect(self.url()).await
    }

    /// A connection with a new session, ready for requests.
    pub async fn client(&self) -> Client {
        let mut client = self.raw().await;
        client.handshake(None).await;
        client
    }

    /// A connection that resumes a session.
    pub async fn resume(&self, session: &str) -> Client {
        let mut client = self.raw().await;
        client.handshake(Some(session)).await;
        client
    }

    /// Sends SIGKILL and waits for the end of the server itself.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Sends a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        send_signal(self.pid(), signal);
    }

    /// Waits for the server to end and returns its exit code.
    pub async fn wait(&mut self) -> Option<i32> {
        self.child.wait().await.unwrap().code()
    }
}

/// Sends a signal to a process that is there.
pub fn send_signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}
