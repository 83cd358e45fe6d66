//! A server in the process of the test, whose answers the test decides. It does the handshake by itself, records all
//! messages of clients, and pushes (sends as notifications) what the test tells it to. Tests of a client use it for
//! behaviour that a real server shows only rarely, or only in an old version. Start with [`ScriptedServer::on`].

mod connection;
mod state;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use transport::{MessageLimits, MessageStream, PeerLabel, in_memory};

pub use connection::ScriptedConnection;
pub use state::ClientMessage;

use crate::base64;
use state::ScriptedState;

/// What the server does with a request.
#[derive(Clone, Debug)]
pub enum ScriptedReply {
    /// Answer with this result.
    Result(Value),
    /// Answer with an error of this code and this message.
    Error(i64, String),
    /// Answer with an error of this code, this `data` and this message.
    ErrorWithData(i64, Value, String),
    /// Do not answer. The test can answer later with [`ClientMessage::answer`].
    Silence,
    /// End the connection without an answer.
    Cut,
}

/// Decides the reply to each request of one method.
type Script = Box<dyn FnMut(&ClientMessage) -> ScriptedReply + Send>;

/// A scripted server. Clones share one server.
///
/// A method without a script has a default answer. `initialize` opens the session `session-1`, or resumes the session
/// that the client names. `process/start` succeeds, `process/read` returns no output of a process that still runs,
/// and `process/write` is accepted. All other methods are answered with `{}`, or with the least that their result
/// needs.
#[derive(Clone)]
pub struct ScriptedServer {
    state: Arc<ScriptedState>,
    opened: Arc<AtomicUsize>,
}

impl Default for ScriptedServer {
    fn default() -> Self {
        Self::new()
    }
}

impl ScriptedServer {
    /// A server with default answers only.
    pub fn new() -> Self {
        Self { state: Arc::default(), opened: Arc::default() }
    }

    /// Lets `script` decide the replies to all later requests of a method. Before the script returns, it can push
    /// messages over [`ClientMessage::connection`]; they arrive before the answer.
    pub fn on(&self, method: &str, script: impl FnMut(&ClientMessage) -> ScriptedReply + Send + 'static) -> &Self {
        self.state.set_script(method, Box::new(script));
        self
    }

    /// Opens a new connection in memory, and returns the client's end of it.
    pub fn dial(&self) -> MessageStream {
        let (server, client) = in_memory(MessageLimits::default());
        self.opened.fetch_add(1, Ordering::SeqCst);
        ScriptedConnection::serve(server, &self.state);
        client
    }

    /// Listens on a Unix socket in `folder`, for clients in other processes.
    pub fn listen(&self, folder: &Path) -> ScriptedListener {
        let path = folder.join("scripted.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = self.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (read, write) = client.into_split();
                server.opened.fetch_add(1, Ordering::SeqCst);
                let stream = transport::lines(read, write, PeerLabel::new("unix"), MessageLimits::default());
                ScriptedConnection::serve(stream, &server.state);
            }
        });
        ScriptedListener { url: format!("unix://{}", path.display()), accepting }
    }

    /// How many connections clients have opened.
    pub fn connections_opened(&self) -> usize {
        self.opened.load(Ordering::SeqCst)
    }

    /// The connection over which the last message came. Panics if no message has come.
    pub fn connection(&self) -> ScriptedConnection {
        self.state.last_connection().expect("a client has sent a message")
    }

    /// All requests and notifications so far, over all connections, in the order in which they came.
    pub fn received(&self) -> Vec<ClientMessage> {
        self.state.messages()
    }

    /// How many requests or notifications of a method have come.
    pub fn count(&self, method: &str) -> usize {
        self.received().iter().filter(|message| message.method == method).count()
    }

    /// Waits until `times` requests or notifications of a method have come, and returns number `times` of them.
    /// Panics after 30 s.
    pub async fn wait_for(&self, method: &str, times: usize) -> ClientMessage {
        let is_of_method = |message: &&ClientMessage| message.method == method;
        let nth = |all: &[ClientMessage]| all.iter().filter(is_of_method).nth(times - 1).cloned();
        self.state.wait_for_message(&format!("{method}, {times} times"), nth).await
    }

    /// Waits for the client's answer to a request that [`ScriptedConnection::request`] sent. Panics after 30 s.
    pub async fn wait_for_answer(&self, id: i64) -> Value {
        let wanted = |all: &[Value]| all.iter().find(|answer| answer["id"] == id).cloned();
        self.state.wait_for_answer(id, wanted).await
    }

    /// Pushes a notification over the connection of the last message.
    pub fn push(&self, method: &str, params: Value) {
        self.connection().push(method, params);
    }

    /// Pushes `process/output` with bytes that a process wrote to its stdout.
    pub fn push_output(&self, process: &str, seq: u64, bytes: impl AsRef<[u8]>) {
        self.connection().push_output(process, seq, bytes);
    }

    /// Pushes `process/exited` with `sandboxDenied` false.
    pub fn push_exited(&self, process: &str, seq: u64, exit_code: i32) {
        self.push("process/exited", exited_params(process, seq, exit_code, Some(false)));
    }

    /// Pushes `process/closed`: the exited process has no more output.
    pub fn push_closed(&self, process: &str, seq: u64) {
        self.push("process/closed", json!({"processId": process, "seq": seq}));
    }

    /// Ends the connection over which the last message came, without a WebSocket close frame.
    pub fn cut(&self) {
        self.connection().cut();
    }
}

/// The Unix socket of a scripted server. After it is dropped, no connection is accepted; open connections go on.
pub struct ScriptedListener {
    url: String,
    accepting: JoinHandle<()>,
}

impl ScriptedListener {
    /// The URL of the Unix socket for clients.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for ScriptedListener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Params of `process/output` with output on stdout.
pub fn output_params(process: &str, seq: u64, bytes: impl AsRef<[u8]>) -> Value {
    json!({"processId": process, "seq": seq, "stream": "stdout", "chunk": base64(bytes)})
}

/// Params of `process/exited`. `sandbox_denied` is none for a server that is too old to send it.
pub fn exited_params(process: &str, seq: u64, exit_code: i32, sandbox_denied: Option<bool>) -> Value {
    let mut params = json!({"processId": process, "seq": seq, "exitCode": exit_code});
    if let Some(denied) = sandbox_denied {
        params["sandboxDenied"] = denied.into();
    }
    params
}

/// A result of `process/read` with these chunks of stdout, for a process that still runs.
pub fn read_result(chunks: impl IntoIterator<Item = (u64, Vec<u8>)>, next_seq: u64) -> Value {
    let chunk = |(seq, bytes): (u64, Vec<u8>)| json!({"seq": seq, "stream": "stdout", "chunk": base64(bytes)});
    let chunks: Vec<Value> = chunks.into_iter().map(chunk).collect();
    json!({
        "chunks": chunks, "nextSeq": next_seq, "exited": false, "exitCode": null, "closed": false, "failure": null,
        "sandboxDenied": false,
    })
}

fn default_reply(request: &ClientMessage) -> ScriptedReply {
    ScriptedReply::Result(match request.method.as_str() {
        "initialize" => {
            let session = request.params["resumeSessionId"].as_str().unwrap_or("session-1");
            json!({"sessionId": session})
        }
        "process/start" => json!({"processId": request.params["processId"], "sandboxType": "none"}),
        "process/read" => read_result([], request.params["afterSeq"].as_u64().unwrap_or(0) + 1),
        "process/write" => json!({"status": "accepted"}),
        "process/terminate" => json!({"running": true}),
        "environment/info" => json!({"shell": {"name": "sh", "path": "/bin/sh"}}),
        "environment/status" => json!({"status": "ready"}),
        _ => json!({}),
    })
}
