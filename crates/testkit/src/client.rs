//! A client that sends any message that a test gives it, valid or not. It keeps the messages that the test has not
//! asked for yet, and does not reconnect. `conversation.rs` has more methods for processes, and `resuming.rs` a
//! client that reconnects.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use protocol::decode_base64;
use serde_json::{Value, json};
use transport::{CloseReason, ConnectOptions, Framing, MessageStream, ReadEvent, Reader, Writer, connect};

/// The timeout of connecting and of the wait for one message. Long enough for a loaded machine, so only a failing
/// test reaches it.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to a server, with or without a session.
pub struct Client {
    reader: Reader,
    writer: Writer,
    framing: Framing,
    next_id: i64,
    /// Messages that arrived while the test waited for another one.
    inbox: VecDeque<Value>,
    /// Id of the session. Empty before the handshake.
    pub session: String,
    /// The reason that the server gave when it closed the connection. None if the connection is open or ended without a reason.
    pub close_reason: Option<CloseReason>,
}

/// The collected events of a process that has closed: `process/closed` was its last event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinishedProcess {
    /// Output on `stdout`, all chunks joined.
    pub stdout: Vec<u8>,
    /// Output on `stderr`, all chunks joined.
    pub stderr: Vec<u8>,
    /// Output on `pty`, all chunks joined.
    pub pty: Vec<u8>,
    /// Exit code of the process.
    pub exit_code: i64,
    /// Whether `process/exited` had `timedOut`: the process was killed because the time of `timeoutMs` was over.
    pub timed_out: bool,
    /// Sequence numbers of all events, in the order in which they arrived.
    pub seqs: Vec<u64>,
    /// The stream of each chunk of output, in the order in which they arrived.
    pub streams: Vec<String>,
}

impl Client {
    /// Connects without a handshake. Panics if the connection fails.
    pub async fn connect(url: &str) -> Self {
        Self::connect_with(url, ConnectOptions::default()).await.unwrap()
    }

    /// Connects without a handshake, with options. Returns an error if the connection fails.
    pub async fn connect_with(url: &str, options: ConnectOptions) -> anyhow::Result<Self> {
        Ok(Self::from_stream(tokio::time::timeout(WAIT_TIMEOUT, connect(url, options)).await??))
    }

    /// A client on a message stream that already exists.
    pub fn from_stream(stream: MessageStream) -> Self {
        let MessageStream { reader, writer, framing, .. } = stream;
        let (inbox, session) = (VecDeque::new(), String::new());
        Self { reader, writer, framing, next_id: 1, inbox, session, close_reason: None }
    }

    /// Sends `initialize` and `initialized`. `resume` is the id of the session to resume. None: the server opens a
    /// new session.
    pub async fn handshake(&mut self, resume: Option<&str>) {
        let params = json!({"clientName": "testkit", "resumeSessionId": resume});
        let result = self.call("initialize", params).await;
        self.session = result["sessionId"].as_str().unwrap().to_owned();
        self.notify("initialized", json!({})).await;
    }

    /// Sends a request and returns the `result` of its answer. Panics if the answer is an error.
    pub async fn call(&mut self, method: &str, params: Value) -> Value {
        let answer = self.request(method, params).await;
        match answer.get("result") {
            Some(result) => result.clone(),
            None => panic!("{method} failed: {answer}"),
        }
    }

    /// Sends a request and returns the `error` of its answer. Panics if the answer is a result.
    pub async fn call_error(&mut self, method: &str, params: Value) -> Value {
        let answer = self.request(method, params).await;
        match answer.get("error") {
            Some(error) => error.clone(),
            None => panic!("{method} should have failed: {answer}"),
        }
    }

    /// Sends a request and returns its whole answer.
    pub async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        self.answer(id).await
    }

    /// Sends a request without waiting for its answer. Returns the id of the request.
    pub async fn send(&mut self, method: &str, params: Value) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send_text(&json!({"id": id, "method": method, "params": params}).to_string()).await;
        id
    }

    /// Sends a notification, which gets no answer.
    pub async fn notify(&mut self, method: &str, params: Value) {
        self.send_text(&json!({"method": method, "params": params}).to_string()).await;
    }

    /// Sends any text as one message. Panics if the connection has ended.
    pub async fn send_text(&mut self, text: &str) {
        self.try_send_text(text).await.unwrap();
    }

    /// Sends any text as one message. Returns an error if the connection has ended.
    pub async fn try_send_text(&mut self, text: &str) -> std::io::Result<()> {
        let mut out = Vec::new();
        self.framing.frame(&mut out, text.len(), |out| out.extend_from_slice(text.as_bytes()));
        self.writer.write_all(&out).await
    }

    /// Sends bytes without framing them as a message.
    pub async fn send_bytes(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.writer.write_all(bytes).await
    }

    /// Waits for the answer to a request. Other messages are kept for later.
    pub async fn answer(&mut self, id: i64) -> Value {
        self.take(|message| message["id"] == id && message.get("method").is_none()).await
    }

    /// The next message of any kind. Panics if the connection has ended.
    pub async fn next(&mut self) -> Value {
        match self.inbox.pop_front() {
            Some(message) => message,
            None => self.receive().await.expect("the connection ended"),
        }
    }

    /// The next message that `wanted` accepts. Other messages are kept for later.
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

    /// The next notification about a process. Other messages are kept for later.
    pub async fn event(&mut self, process: &str) -> Value {
        self.take(|message| message.get("method").is_some() && message["params"]["processId"] == process).await
    }

    /// Starts a command on pipes in `/`, with only `PATH` in its environment, and waits for the answer.
    pub async fn start(&mut self, process: &str, argv: &[&str]) -> Value {
        self.call("process/start", Self::start_params(process, argv)).await
    }

    /// Params to start a command on pipes in `/`, with only `PATH` in its environment.
    pub fn start_params(process: &str, argv: &[&str]) -> Value {
        json!({
            "processId": process, "argv": argv, "cwd": "file:///", "tty": false,
            "env": {"PATH": std::env::var("PATH").unwrap_or_default()},
        })
    }

    /// Waits until a process has closed, and returns its collected events.
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

    /// Starts a command, waits until it has closed, and returns its collected events.
    pub async fn run(&mut self, process: &str, argv: &[&str]) -> FinishedProcess {
        self.start(process, argv).await;
        self.outcome(process).await
    }

    /// The next message of the connection, not decoded. Answers pings meanwhile. None if the connection has ended.
    pub async fn receive_bytes(&mut self) -> Option<Bytes> {
        loop {
            let incoming =
                tokio::time::timeout(WAIT_TIMEOUT, self.reader.next()).await.expect("nothing came for too long");
            match incoming {
                Ok(ReadEvent::Message(message)) => return Some(message),
                Ok(ReadEvent::Ping(payload)) => {
                    let mut out = Vec::new();
                    self.framing.pong(&mut out, &payload);
                    // If the connection has just ended, the next read reports it.
                    let _ = self.writer.write_all(&out).await;
                }
                Ok(ReadEvent::Pong(_)) => {}
                Ok(ReadEvent::TooLarge { .. }) => panic!("the server sent a message over the limit"),
                Ok(ReadEvent::Closed(reason)) => {
                    self.close_reason = reason;
                    return None;
                }
                Err(_) => return None,
            }
        }
    }

    /// The next message of the connection, decoded. None if the connection has ended.
    pub async fn receive(&mut self) -> Option<Value> {
        let message = self.receive_bytes().await?;
        Some(serde_json::from_slice(&message).expect("the server sends JSON"))
    }

    /// Waits until the server has closed the connection, and returns all messages that the test has not taken.
    pub async fn drain(&mut self) -> Vec<Value> {
        let mut messages: Vec<_> = self.inbox.drain(..).collect();
        while let Some(message) = self.receive().await {
            messages.push(message);
        }
        messages
    }
}
