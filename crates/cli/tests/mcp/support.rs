//! A bridge under test.

use std::process::Stdio;
use std::time::Duration;

use testkit::{Value, binary};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Longer than anything here takes on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// `exec-server mcp-stdio` with its pipes.
pub(crate) struct Bridge {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

/// How it ended, and what it had still to say.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Bridge {
    /// To a server at `url`, running `command` there.
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

    pub(crate) async fn line(&mut self) -> String {
        let mut line = String::new();
        tokio::time::timeout(PATIENCE, self.stdout.read_line(&mut line)).await.expect("no line comes").unwrap();
        line
    }

    pub(crate) async fn send_json(&mut self, message: &Value) {
        self.send(&format!("{message}\n")).await;
    }

    pub(crate) async fn json(&mut self) -> Value {
        let line = self.line().await;
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: `{line}`"))
    }

    /// Ends its stdin.
    pub(crate) fn close(&mut self) {
        self.stdin = None;
    }

    /// Waits for its end.
    pub(crate) async fn ending(mut self) -> Ending {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        let waiting = async {
            self.stdout.read_to_string(&mut stdout).await.unwrap();
            self.child.stderr.take().unwrap().read_to_string(&mut stderr).await.unwrap();
            self.child.wait().await.unwrap().code()
        };
        let code = tokio::time::timeout(PATIENCE, waiting).await.expect("it does not end");
        Ending { code, stdout, stderr }
    }
}
