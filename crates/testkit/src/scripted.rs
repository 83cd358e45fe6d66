//! A server whose every answer a test decides: it keeps the handshake by itself, remembers what it was asked, and pushes what it is told.
//! For what a real server does only in bad moments, or only an old one does.

mod connection;
mod record;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use transport::{Limits, MessageStream, PeerLabel, in_memory};

pub use connection::ScriptedConnection;
pub use record::ClientMessage;

use crate::base64;
use record::Record;

/// What becomes of a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// It is answered with this.
    Result(Value),
    /// It is refused, with this code and these words.
    Error(i64, String),
    /// It is refused, with this code, this `data` and these words.
    ErrorWithData(i64, Value, String),
    /// It is not answered, unless the test does so by its id later.
    Silence,
    /// The connection ends instead.
    Cut,
}

type Script = Box<dyn FnMut(&ClientMessage) -> Reply + Send>;

/// A scripted server. Clones are the same server.
///
/// Without a script, `initialize` opens the session `session-1` or resumes whatever it is asked to, starts succeed, reads find a process
/// that runs and has said nothing, writes are accepted, and everything else is answered with `{}`.
#[derive(Clone)]
pub struct ScriptedServer {
    record: Arc<Record>,
    dialled: Arc<AtomicUsize>,
}

impl Default for ScriptedServer {
    fn default() -> Self {
        Self::new()
    }
}

impl ScriptedServer {
    /// A server without a script.
    pub fn new() -> Self {
        Self { record: Arc::default(), dialled: Arc::default() }
    }

    /// From now on this decides about requests of a method. It may push over [`ClientMessage::connection`] before it returns, and that comes
    /// before the answer.
    pub fn on(&self, method: &str, script: impl FnMut(&ClientMessage) -> Reply + Send + 'static) -> &Self {
        self.record.set_script(method, Box::new(script));
        self
    }

    /// The client's end of a new connection.
    pub fn dial(&self) -> MessageStream {
        let (server, client) = in_memory(Limits::default());
        self.dialled.fetch_add(1, Ordering::SeqCst);
        ScriptedConnection::serve(server, &self.record);
        client
    }

    /// Listens on a Unix socket in `folder`, for clients that are programs of their own.
    pub fn listen(&self, folder: &Path) -> ScriptedListener {
        let path = folder.join("scripted.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = self.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (read, write) = client.into_split();
                server.dialled.fetch_add(1, Ordering::SeqCst);
                let stream = transport::lines(read, write, PeerLabel::Unix, Limits::default());
                ScriptedConnection::serve(stream, &server.record);
            }
        });
        ScriptedListener { url: format!("unix://{}", path.display()), accepting }
    }

    /// How often it was dialled.
    pub fn dialled(&self) -> usize {
        self.dialled.load(Ordering::SeqCst)
    }

    /// The latest connection that sent something.
    pub fn connection(&self) -> ScriptedConnection {
        self.record.connection().expect("a client has connected")
    }

    /// Everything it was asked so far, over all connections, notifications included.
    pub fn asked(&self) -> Vec<ClientMessage> {
        self.record.asked()
    }

    /// How often it was asked for a method.
    pub fn count(&self, method: &str) -> usize {
        self.asked().iter().filter(|asked| asked.method == method).count()
    }

    /// Waits until it was asked for a method `times` times, and returns the last of them.
    pub async fn wait_for(&self, method: &str, times: usize) -> ClientMessage {
        let nth = |all: &[ClientMessage]| all.iter().filter(|asked| asked.method == method).nth(times - 1).cloned();
        self.record.wait(&format!("{method}, {times} times"), nth).await
    }

    /// Waits for an answer of the client to a request that was pushed.
    pub async fn wait_for_answer(&self, id: i64) -> Value {
        let wanted = |all: &[Value]| all.iter().find(|answer| answer["id"] == id).cloned();
        self.record.wait_for_answer(id, wanted).await
    }

    /// Pushes over the latest connection.
    pub fn push(&self, method: &str, params: Value) {
        self.connection().push(method, params);
    }

    /// Pushes output of a process.
    pub fn output(&self, process: &str, seq: u64, bytes: impl AsRef<[u8]>) {
        self.connection().output(process, seq, bytes);
    }

    /// Pushes an exit that says nothing was denied.
    pub fn exited(&self, process: &str, seq: u64, exit_code: i32) {
        self.push("process/exited", exited(process, seq, exit_code, Some(false)));
    }

    /// Pushes the close of a process.
    pub fn closed(&self, process: &str, seq: u64) {
        self.push("process/closed", json!({"processId": process, "seq": seq}));
    }

    /// Ends the latest connection without a word.
    pub fn cut(&self) {
        self.connection().cut();
    }
}

/// The socket of a scripted server. Ends with its value.
pub struct ScriptedListener {
    url: String,
    accepting: JoinHandle<()>,
}

impl ScriptedListener {
    /// Where clients connect.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for ScriptedListener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Params of `process/output` on stdout.
pub fn output(process: &str, seq: u64, bytes: impl AsRef<[u8]>) -> Value {
    json!({"processId": process, "seq": seq, "stream": "stdout", "chunk": base64(bytes)})
}

/// Params of `process/exited`; an old server does not say whether something was denied.
pub fn exited(process: &str, seq: u64, exit_code: i32, sandbox_denied: Option<bool>) -> Value {
    let mut params = json!({"processId": process, "seq": seq, "exitCode": exit_code});
    if let Some(denied) = sandbox_denied {
        params["sandboxDenied"] = denied.into();
    }
    params
}

/// An answer to `process/read` with these chunks of stdout, of a process that runs.
pub fn page(chunks: impl IntoIterator<Item = (u64, Vec<u8>)>, next_seq: u64) -> Value {
    let chunk = |(seq, bytes): (u64, Vec<u8>)| json!({"seq": seq, "stream": "stdout", "chunk": base64(bytes)});
    let chunks: Vec<Value> = chunks.into_iter().map(chunk).collect();
    json!({
        "chunks": chunks, "nextSeq": next_seq, "exited": false, "exitCode": null, "closed": false, "failure": null,
        "sandboxDenied": false,
    })
}

fn unscripted(asked: &ClientMessage) -> Reply {
    Reply::Result(match asked.method.as_str() {
        "initialize" => {
            let session = asked.params["resumeSessionId"].as_str().unwrap_or("session-1");
            json!({"sessionId": session})
        }
        "process/start" => json!({"processId": asked.params["processId"], "sandboxType": "none"}),
        "process/read" => page([], asked.params["afterSeq"].as_u64().unwrap_or(0) + 1),
        "process/write" => json!({"status": "accepted"}),
        "process/terminate" => json!({"running": true}),
        "environment/info" => json!({"shell": {"name": "sh", "path": "/bin/sh"}}),
        "environment/status" => json!({"status": "ready"}),
        _ => json!({}),
    })
}
