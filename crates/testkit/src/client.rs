//! A raw client: sends what it is told, keeps what it is sent, knows no recovery.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use protocol::decode_base64;
use serde_json::{Value, json};
use transport::{CloseReason, ConnectOptions, Framing, Incoming, MessageStream, Reader, Writer, connect};

/// No single message takes this long, however loaded the machine is.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to a server.
pub struct Client {
    reader: Reader,
    writer: Writer,
    framing: Framing,
    next_id: i64,
    /// Messages that came while something else was waited for.
    inbox: VecDeque<Value>,
    /// The session, after the handshake.
    pub session: String,
    /// What the server said when it closed the connection, if it said anything.
    pub close_reason: Option<CloseReason>,
}

/// Everything a process said, after it closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinishedProcess {
    /// Output of the pipe at descriptor 1.
    pub stdout: Vec<u8>,
    /// Output of the pipe at descriptor 2.
    pub stderr: Vec<u8>,
    /// Output of the terminal.
    pub pty: Vec<u8>,
    /// How it ended.
    pub exit_code: i64,
    /// Whether its time was over.
    pub timed_out: bool,
    /// Sequence numbers in the order they came.
    pub seqs: Vec<u64>,
    /// The stream of each piece of output, in the order they came.
    pub streams: Vec<String>,
}

impl Client {
    /// Connects without handshake.
    pub async fn connect(url: &str) -> Self {
        Self::connect_with(url, ConnectOptions::default()).await.unwrap()
    }

    /// Connects without handshake, with options.
    pub async fn connect_with(url: &str, options: ConnectOptions) -> anyhow::Result<Self> {
        Ok(Self::over(tokio::time::timeout(PATIENCE, connect(url, options)).await??))
    }

    /// A client over an existing stream.
    pub fn over(stream: MessageStream) -> Self {
        let MessageStream { reader, writer, framing, .. } = stream;
        let (inbox, session) = (VecDeque::new(), String::new());
        Self { reader, writer, framing, next_id: 1, inbox, session, close_reason: None }
    }

    /// `initialize` and `initialized`.
    pub async fn handshake(&mut self, resume: Option<&str>) {
        let params = json!({"clientName": "testkit", "resumeSessionId": resume});
        let result = self.call("initialize", params).await;
        self.session = result["sessionId"].as_str().unwrap().to_owned();
        self.notify("initialized", json!({})).await;
    }

    /// Calls a method and returns its result; panics on an error.
    pub async fn call(&mut self, method: &str, params: Value) -> Value {
        let answer = self.request(method, params).await;
        match answer.get("result") {
            Some(result) => result.clone(),
            None => panic!("{method} failed: {answer}"),
        }
    }

    /// Calls a method and returns the `error` of its answer; panics on success.
    pub async fn call_error(&mut self, method: &str, params: Value) -> Value {
        let answer = self.request(method, params).await;
        match answer.get("error") {
            Some(error) => error.clone(),
            None => panic!("{method} should have failed: {answer}"),
        }
    }

    /// Calls a method and returns the whole answer.
    pub async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        self.answer(id).await
    }

    /// Sends a request without waiting for its answer; returns its id.
    pub async fn send(&mut self, method: &str, params: Value) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send_text(&json!({"id": id, "method": method, "params": params}).to_string()).await;
        id
    }

    /// Sends a notification.
    pub async fn notify(&mut self, method: &str, params: Value) {
        self.send_text(&json!({"method": method, "params": params}).to_string()).await;
    }

    /// Sends any text as one message.
    pub async fn send_text(&mut self, text: &str) {
        self.try_send_text(text).await.unwrap();
    }

    /// Sends any text as one message over a connection that may have ended.
    pub async fn try_send_text(&mut self, text: &str) -> std::io::Result<()> {
        let mut out = Vec::new();
        self.framing.frame(&mut out, text.len(), |out| out.extend_from_slice(text.as_bytes()));
        self.writer.write_all(&out).await
    }

    /// Sends bytes as they are, below the framing.
    pub async fn send_bytes(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.writer.write_all(bytes).await
    }

    /// Waits for the answer to a request; keeps everything else for later.
    pub async fn answer(&mut self, id: i64) -> Value {
        self.take(|message| message["id"] == id && message.get("method").is_none()).await
    }

    /// The next message of any kind.
    pub async fn next(&mut self) -> Value {
        match self.inbox.pop_front() {
            Some(message) => message,
            None => self.receive().await.expect("the connection ended"),
        }
    }

    /// The next message that `wanted` accepts; keeps everything else for later.
    pub async fn take(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(index) = self.inbox.iter().position(&wanted) {
            return self.inbox.remove(index).unwrap();
        }
        loop {
            let message = self.receive().await.expect("the connection ended");
            if wanted(&message) {
                return message;
            }
            self.inbox.push_back(message);
        }
    }

    /// The next notification about a process.
    pub async fn event(&mut self, process: &str) -> Value {
        self.take(|message| message.get("method").is_some() && message["params"]["processId"] == process).await
    }

    /// Starts a command on pipes in `/`, with a PATH, and waits for the answer.
    pub async fn start(&mut self, process: &str, argv: &[&str]) -> Value {
        self.call("process/start", Self::start_params(process, argv)).await
    }

    /// Params of a start on pipes in `/`, with a PATH.
    pub fn start_params(process: &str, argv: &[&str]) -> Value {
        json!({
            "processId": process, "argv": argv, "cwd": "file:///", "tty": false,
            "env": {"PATH": std::env::var("PATH").unwrap_or_default()},
        })
    }

    /// Reads notifications until a process has closed.
    pub async fn outcome(&mut self, process: &str) -> FinishedProcess {
        let mut outcome = FinishedProcess::default();
        loop {
            let event = self.event(process).await;
            let params = &event["params"];
            outcome.seqs.push(params["seq"].as_u64().unwrap());
            match event["method"].as_str().unwrap() {
                "process/output" => {
                    let bytes = decode_base64(params["chunk"].as_str().unwrap()).unwrap();
                    outcome.streams.push(params["stream"].as_str().unwrap().to_owned());
                    match params["stream"].as_str().unwrap() {
                        "stdout" => outcome.stdout.extend(bytes),
                        "stderr" => outcome.stderr.extend(bytes),
                        _ => outcome.pty.extend(bytes),
                    }
                }
                "process/exited" => {
                    outcome.exit_code = params["exitCode"].as_i64().unwrap();
                    outcome.timed_out = params["timedOut"] == true;
                }
                "process/closed" => return outcome,
                other => panic!("unexpected notification {other}"),
            }
        }
    }

    /// Starts a command and returns everything it said.
    pub async fn run(&mut self, process: &str, argv: &[&str]) -> FinishedProcess {
        self.start(process, argv).await;
        self.outcome(process).await
    }

    /// The next message from the connection as bytes, answering pings; none at its end.
    pub async fn receive_bytes(&mut self) -> Option<Bytes> {
        loop {
            let incoming =
                tokio::time::timeout(PATIENCE, self.reader.next()).await.expect("nothing came for too long");
            match incoming {
                Ok(Incoming::Message(message)) => return Some(message),
                Ok(Incoming::Ping(payload)) => {
                    let mut out = Vec::new();
                    self.framing.pong(&mut out, &payload);
                    // A connection that just broke says so at the next read.
                    let _ = self.writer.write_all(&out).await;
                }
                Ok(Incoming::Pong(_)) => {}
                Ok(Incoming::TooLarge { .. }) => panic!("the server sent a message over the limit"),
                Ok(Incoming::Closed(reason)) => {
                    self.close_reason = reason;
                    return None;
                }
                Err(_) => return None,
            }
        }
    }

    /// The next message from the connection; none at its end.
    pub async fn receive(&mut self) -> Option<Value> {
        let message = self.receive_bytes().await?;
        Some(serde_json::from_slice(&message).expect("the server sends JSON"))
    }

    /// Waits until the server has ended the connection and returns what came before.
    pub async fn drain(&mut self) -> Vec<Value> {
        let mut messages: Vec<_> = self.inbox.drain(..).collect();
        while let Some(message) = self.receive().await {
            messages.push(message);
        }
        messages
    }
}
