//! Runs the commands under test, with a server that uses the same folder as the commands. Compares directory trees.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use testkit::{TestServer, binary};
use tokio::process::{Child, Command};

/// A test fails if one command takes longer. Even on a loaded machine a command takes less.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(170);

/// A server, and a folder with files that both the server and the commands use.
pub(crate) struct CopyFixture {
    pub(crate) server: TestServer,
    folder: tempfile::TempDir,
}

impl CopyFixture {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = TestServer::start_with(&[], |command| command.current_dir(folder.path())).await;
        Self { server, folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file of the folder as a path on the server, as a user types it.
    pub(crate) fn remote(&self, name: &str) -> String {
        format!(":{}", self.path(name).display())
    }

    /// A file of the folder as a path without colon, as a user types it. For `cp` the path is local. For other
    /// commands with `--connect` it is on the server.
    pub(crate) fn local(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// A command with `--connect` for the server.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        command_at(self.server.url(), args)
    }

    /// Runs a command to its end. Returns stdout, stderr and exit code.
    pub(crate) async fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> (String, String, Option<i32>) {
        text_and_code(&wait_for_output(self.command(args).spawn().unwrap()).await)
    }

    /// Runs a command to its end. It must succeed and print nothing.
    pub(crate) async fn run_quietly<S: AsRef<OsStr>>(&self, args: &[S]) {
        assert_eq!(self.run(args).await, (String::new(), String::new(), Some(0)));
    }
}

/// A command with `--connect` for the server at `url`.
pub(crate) fn command_at<S: AsRef<OsStr>>(url: &str, args: &[S]) -> Command {
    let mut command = bare_command();
    command.args(args).args(["--connect", url]);
    command
}

/// The binary with pipes as stdout and stderr. A configuration of the developer has no effect.
pub(crate) fn bare_command() -> Command {
    let mut command = Command::new(binary());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let no_home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nothing-configured");
    command.env("HOME", &no_home).env("XDG_STATE_HOME", &no_home);
    for name in ["CODEX_EXEC_SERVER_URL", "CODEX_HOME", "EXEC_SERVER_HOME", "EXEC_SERVER_URL", "XDG_CONFIG_HOME"] {
        command.env_remove(name);
    }
    command
}

pub(crate) async fn wait_for_output(child: Child) -> Output {
    tokio::time::timeout(COMMAND_TIMEOUT, child.wait_with_output()).await.expect("the command does not end").unwrap()
}

/// Stdout, stderr and exit code.
pub(crate) fn text_and_code(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// Pseudo-random bytes, the same ones for the same `seed`.
pub(crate) fn noise(count: usize, seed: u64) -> Vec<u8> {
    let word = |n: u64| (n ^ seed.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    (0..count.div_ceil(8) as u64)
        .flat_map(|n| word(n).wrapping_mul(0xbf58_476d_1ce4_e5b9).to_le_bytes())
        .take(count)
        .collect()
}

/// Path, mode, time, and contents or link target.
type TreeEntry = (PathBuf, u32, (i64, i64), Vec<u8>);

/// A directory and all entries below it, sorted. Two trees with equal snapshots differ at most in special files, and
/// in modes and times of links.
pub(crate) fn snapshot(root: &Path) -> Vec<TreeEntry> {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::MetadataExt as _;
    let mut found = Vec::new();
    let mut unread_paths = vec![root.to_owned()];
    while let Some(path) = unread_paths.pop() {
        let metadata = path.symlink_metadata().unwrap();
        let name = path.strip_prefix(root).unwrap().to_owned();
        let (mut time, mut mode) = ((metadata.mtime(), metadata.mtime_nsec()), metadata.mode());
        let contents = if metadata.is_dir() {
            unread_paths.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            Vec::new()
        } else if metadata.is_symlink() {
            // The mode of a link means nothing, and `cp` does not copy the time of a link.
            (time, mode) = ((0, 0), 0);
            std::fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
        } else if metadata.is_file() {
            std::fs::read(&path).unwrap()
        } else {
            continue;
        };
        found.push((name, mode, time, contents));
    }
    found.sort();
    found
}
