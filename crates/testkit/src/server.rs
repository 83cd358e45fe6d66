//! A server under test: the real binary in a process of its own. Start reading at [`TestServer`].

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::Client;
use crate::signals::stop_ignoring_signals;
use crate::wait::WAIT_TIMEOUT;

/// Path of the `exec-server` binary: the value of the environment variable `EXEC_SERVER_BIN`, or else the binary in
/// the build directory of the running test. Also makes this process stop ignoring signals, because the caller is
/// about to start the binary, which would ignore them too.
pub fn binary() -> PathBuf {
    stop_ignoring_signals();
    if let Some(path) = std::env::var_os("EXEC_SERVER_BIN") {
        return path.into();
    }
    let test = std::env::current_exe().unwrap();
    let directory = test.ancestors().find(|dir| dir.join("exec-server").is_file());
    directory.expect("build the binary first: cargo build").join("exec-server")
}

/// Copies the binary to `directory`, and lets every user execute it and write to the directory.
pub fn binary_for_all_users(directory: &Path) -> PathBuf {
    program_for_all_users(&binary(), directory)
}

/// Copies a program to `directory`, and lets every user execute it and write to the directory.
pub(crate) fn program_for_all_users(program: &Path, directory: &Path) -> PathBuf {
    let open_to_all = |path: &Path, mode| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    open_to_all(directory, 0o777);
    let copy = directory.join(program.file_name().unwrap());
    std::fs::copy(program, &copy).unwrap();
    open_to_all(&copy, 0o755);
    copy
}

/// Runs the binary with arguments with which it ends by itself, and returns its output and exit status. Panics after
/// 30 s.
pub async fn run_to_end(args: &[&str]) -> std::process::Output {
    let mut command = Command::new(binary());
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    tokio::time::timeout(WAIT_TIMEOUT, command.output()).await.expect("the binary does not end by itself").unwrap()
}

/// A running server. Dropping it kills the server. Then the guard, a process that watches the server, kills the
/// processes that the server has started.
pub struct TestServer {
    child: Child,
    urls: Vec<String>,
}

impl TestServer {
    /// Starts a server on a free loopback port.
    pub async fn start() -> Self {
        Self::with_args(&[]).await
    }

    /// Starts a server with further arguments. `--listen` among them replaces the default address.
    pub async fn with_args(args: &[&str]) -> Self {
        Self::start_with(args, |command| command).await
    }

    /// Starts a server with further arguments. `prepare` can change the command, for example its environment.
    pub async fn start_with(args: &[&str], prepare: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let mut command = Command::new(binary());
        prepare(command.args(args));
        Self::launch(command, args).await
    }

    /// Starts a server as another user, which only root can do. `user` is the user id and the group id. The server
    /// runs from a copy of the binary in `directory`, because other users may have no access to the build directory.
    /// All users get access to `directory`.
    pub async fn start_as_user(user: u32, directory: &Path, args: &[&str]) -> Self {
        let mut command = Command::new(binary_for_all_users(directory));
        command.args(args).current_dir("/").uid(user).gid(user);
        Self::launch(command, args).await
    }

    /// Starts a server with any command, such as another program that executes the server. `command` must already
    /// contain `args`, the arguments of the server. They are used only to count the addresses to wait for.
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

    /// The URL of the first address that the server listens on.
    pub fn url(&self) -> &str {
        &self.urls[0]
    }

    /// The URLs of all addresses that the server listens on, in the order of its arguments.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// The first URL without its scheme: `IP:PORT`, or the path of a Unix socket.
    pub fn address(&self) -> &str {
        self.url().split_once("://").unwrap().1
    }

    /// Process id of the server. Panics if the server has ended and was waited for.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("the server is running")
    }

    /// Opens a connection over which the test must send `initialize` itself.
    pub async fn connect_without_handshake(&self) -> Client {
        Client::connect(self.url()).await
    }

    /// Opens a connection with a new session.
    pub async fn client(&self) -> Client {
        let mut client = self.connect_without_handshake().await;
        client.handshake(None).await;
        client
    }

    /// Opens a connection that resumes a session.
    pub async fn resume(&self, session: &str) -> Client {
        let mut client = self.connect_without_handshake().await;
        client.handshake(Some(session)).await;
        client
    }

    /// Kills the server with SIGKILL and waits until it has ended. The guard, which then kills all processes that the
    /// server has started, may still be working.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Sends a signal to the server.
    pub fn signal(&self, signal: rustix::process::Signal) {
        send_signal(self.pid(), signal);
    }

    /// Waits until the server has ended, and returns its exit code. None if a signal ended it.
    pub async fn wait(&mut self) -> Option<i32> {
        self.child.wait().await.unwrap().code()
    }
}

/// Sends a signal to a process. Panics if the process is gone.
pub fn send_signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}
