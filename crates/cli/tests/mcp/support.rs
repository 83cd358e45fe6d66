//! Starts the bridge, which is the process `exec-server mcp-stdio`, and talks to it over its stdin and stdout. The
//! bridge runs an MCP server on an exec-server.

use std::process::Stdio;
use std::time::Duration;

use testkit::{Value, binary};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Time limit for a line of output, and for the end of the bridge. Even on a loaded machine both take less.
pub(crate) const OPERATION_LIMIT: Duration = Duration::from_secs(60);

/// The bridge with its pipes. Dropping it kills the bridge.
pub(crate) struct Bridge {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

/// The exit code and the remaining output of a bridge that has ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BridgeEnd {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Bridge {
    /// A bridge that runs `command`, the MCP server, on the exec-server at `url`.
    pub(crate) fn start(url: &str, command: &[&str]) -> Self {
        let mut bridge = Command::new(binary());
        bridge.args(["mcp-stdio", "--connect", url, "--"]).args(command);
        bridge.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = bridge.spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdin, stdout }
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.stdin.as_mut().unwrap().write_all(text.as_bytes()).await.unwrap();
    }

    /// The next line on stdout, with its line break. Empty if stdout has ended.
    pub(crate) async fn read_line(&mut self) -> String {
        let mut line = String::new();
        tokio::time::timeout(OPERATION_LIMIT, self.stdout.read_line(&mut line))
            .await
            .expect("no line comes")
            .unwrap();
        line
    }

    pub(crate) async fn send_json(&mut self, message: &Value) {
        self.send(&format!("{message}\n")).await;
    }

    /// The next line on stdout, decoded.
    pub(crate) async fn read_json(&mut self) -> Value {
        let line = self.read_line().await;
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: `{line}`"))
    }

    /// Closes the stdin of the bridge.
    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits until the bridge has ended, and returns its exit code and the output that was not read yet.
    pub(crate) async fn wait_for_end(mut self) -> BridgeEnd {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        let waiting = async {
            self.stdout.read_to_string(&mut stdout).await.unwrap();
            self.child.stderr.take().unwrap().read_to_string(&mut stderr).await.unwrap();
            self.child.wait().await.unwrap().code()
        };
        let code = tokio::time::timeout(OPERATION_LIMIT, waiting).await.expect("the bridge does not end");
        BridgeEnd { code, stdout, stderr }
    }
}
