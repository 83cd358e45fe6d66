//! A server that has only the published protocol, that of `codex exec-server`, for tests of clients that must work
//! with other servers. It is the real binary behind a filter. The filter refuses methods that are extensions, removes
//! JSON members that are extensions from params, results and errors, and imitates one fault of `codex exec-server`.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Map, Value, json};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use transport::{ConnectOptions, Framing, MessageLimits, MessageStream, PeerLabel, ReadEvent, Reader, Writer};

use crate::TestServer;

/// The methods of the published protocol.
const METHODS: [&str; 23] = [
    "initialize",
    "process/start",
    "process/read",
    "process/write",
    "process/signal",
    "process/terminate",
    "environment/info",
    "environment/status",
    "environmentConfig/read",
    "capabilityRoots/discoverV1",
    "http/request",
    "fs/readFile",
    "fs/open",
    "fs/readBlock",
    "fs/close",
    "fs/writeFile",
    "fs/createDirectory",
    "fs/getMetadata",
    "fs/canonicalize",
    "fs/readDirectory",
    "fs/walk",
    "fs/remove",
    "fs/copy",
];

/// The published members of params and results together, for methods and notifications that also have extensions.
const MEMBERS: [(&str, &[&str]); 6] = [
    ("initialize", &["clientName", "resumeSessionId", "sessionId"]),
    (
        "process/start",
        &["processId", "argv", "cwd", "env", "tty", "pipeStdin", "arg0", "envPolicy", "shellSnapshot", "sandboxType"],
    ),
    (
        "process/read",
        &[
            "processId",
            "afterSeq",
            "maxBytes",
            "waitMs",
            "chunks",
            "nextSeq",
            "exited",
            "exitCode",
            "closed",
            "failure",
            "sandboxDenied",
        ],
    ),
    ("process/write", &["processId", "chunk", "writeId", "status"]),
    ("process/exited", &["processId", "seq", "exitCode", "sandboxDenied"]),
    (
        "fs/getMetadata",
        &["path", "sandbox", "isDirectory", "isFile", "isSymlink", "size", "createdAtMs", "modifiedAtMs"],
    ),
];

/// The published members of `capabilities`, which is a member of some results.
const CAPABILITIES: [&str; 6] = [
    "capabilityDiscoverySandbox",
    "environmentConfigRead",
    "httpHeaderEnvVars",
    "networkProxyLaunch",
    "sandboxedFileStreaming",
    "shellSnapshotV2",
];

/// A server without extensions. Dropping it ends the server and all connections.
pub struct PublishedProtocolServer {
    url: String,
    accepting: JoinHandle<()>,
    _server: TestServer,
}

impl PublishedProtocolServer {
    /// Starts the filter in front of `server`, on a Unix socket in `folder`.
    pub fn start(server: TestServer, folder: &Path) -> Self {
        Self::without_methods(server, folder, &[])
    }

    /// Like [`start`](Self::start), for a server that is so old that it does not have the methods `missing` either.
    pub fn without_methods(server: TestServer, folder: &Path, missing: &[&'static str]) -> Self {
        let path = folder.join("published.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let known: HashSet<&'static str> = METHODS.into_iter().filter(|method| !missing.contains(method)).collect();
        let upstream = server.url().to_owned();
        let accepting = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(filter_connection(client, upstream.clone(), known.clone()));
            }
        });
        Self { url: format!("unix://{}", path.display()), accepting, _server: server }
    }

    /// The URL of the Unix socket for clients.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for PublishedProtocolServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The filter for one connection.
struct Filter {
    /// The methods that the server has.
    known: HashSet<&'static str>,
    /// Method of each request that was forwarded, by id, until its result arrives.
    methods_by_id: Mutex<HashMap<i64, String>>,
    to_client: tokio::sync::Mutex<(Writer, Framing)>,
    to_server: tokio::sync::Mutex<(Writer, Framing)>,
}

async fn filter_connection(client: UnixStream, upstream: String, known: HashSet<&'static str>) {
    let (read, write) = client.into_split();
    let client = transport::lines(read, write, PeerLabel::new("unix"), MessageLimits::default());
    let server = transport::connect(&upstream, ConnectOptions::default()).await.unwrap();
    let MessageStream { reader: from_client, writer: to_client, framing: client_framing, .. } = client;
    let MessageStream { reader: from_server, writer: to_server, framing: server_framing, .. } = server;
    let filter = Arc::new(Filter {
        known,
        methods_by_id: Mutex::default(),
        to_client: tokio::sync::Mutex::new((to_client, client_framing)),
        to_server: tokio::sync::Mutex::new((to_server, server_framing)),
    });
    // If either side ends the connection, both sides are closed.
    tokio::select! {
        () = filter.forward_to_server(from_client) => {}
        () = filter.forward_to_client(from_server) => {}
    }
}

impl Filter {
    /// Forwards requests and notifications of the client. Returns when the connection has to end.
    async fn forward_to_server(&self, mut reader: Reader) {
        while let Ok(ReadEvent::Message(message)) = reader.next().await {
            let mut message: Value = serde_json::from_slice(&message).unwrap();
            let method = message["method"].as_str().unwrap_or_default().to_owned();
            let Some(id) = message["id"].as_i64() else {
                // A server with only the published protocol ends the connection after an unknown notification.
                if method != "initialized" {
                    return;
                }
                send(&self.to_server, &message).await;
                continue;
            };
            if let Some(error) = self.refusal(&method, &message["params"]) {
                send(&self.to_client, &json!({"error": error, "id": id})).await;
                continue;
            }
            self.methods_by_id.lock().unwrap().insert(id, method.clone());
            leave_out_extensions(&method, &mut message["params"]);
            if method == "process/start" {
                imitate_arg0_fault(&mut message["params"]);
            }
            send(&self.to_server, &message).await;
        }
    }

    /// The error that answers a request which only a server with extensions accepts. None for any other request.
    fn refusal(&self, method: &str, params: &Value) -> Option<Value> {
        if !self.known.contains(method) {
            return Some(json!({
                "code": -32601, "message": format!("exec-server stub does not implement `{method}` yet"),
            }));
        }
        let signal = params["signal"].as_str().filter(|signal| *signal != "interrupt")?;
        let message = format!("unknown variant `{signal}`, expected `interrupt`");
        (method == "process/signal").then(|| json!({"code": -32602, "message": message}))
    }

    /// Forwards answers and notifications of the server. Returns when the connection has to end.
    async fn forward_to_client(&self, mut reader: Reader) {
        loop {
            let message = match reader.next().await {
                Ok(ReadEvent::Message(message)) => message,
                Ok(ReadEvent::Ping(payload)) => {
                    let (writer, framing) = &mut *self.to_server.lock().await;
                    let mut pong = Vec::new();
                    framing.pong(&mut pong, &payload);
                    // If the connection has just ended, the next read reports it.
                    let _ = writer.write_all(&pong).await;
                    continue;
                }
                Ok(ReadEvent::Pong(_)) => continue,
                _ => return,
            };
            let mut message: Value = serde_json::from_slice(&message).unwrap();
            if let Some(method) = message["method"].as_str().map(str::to_owned) {
                leave_out_extensions(&method, &mut message["params"]);
            } else if let Some(error) = message.get_mut("error").and_then(Value::as_object_mut) {
                error.remove("data");
            } else {
                let id = message["id"].as_i64().unwrap_or_default();
                let method = self.methods_by_id.lock().unwrap().remove(&id).unwrap_or_default();
                leave_out_extensions(&method, &mut message["result"]);
                if let Some(capabilities) = message["result"]["capabilities"].as_object_mut() {
                    keep_only(capabilities, &CAPABILITIES);
                }
            }
            send(&self.to_client, &message).await;
        }
    }
}

fn leave_out_extensions(method: &str, value: &mut Value) {
    let published = MEMBERS.iter().find(|(with_extensions, _)| *with_extensions == method);
    if let (Some((_, published)), Some(members)) = (published, value.as_object_mut()) {
        keep_only(members, published);
    }
}

fn keep_only(members: &mut Map<String, Value>, published: &[&str]) {
    members.retain(|member, _| published.contains(&member.as_str()));
}

/// Changes the params of `process/start` to imitate a fault of `codex exec-server`: with a terminal it executes
/// `arg0` instead of the program.
fn imitate_arg0_fault(params: &mut Value) {
    if params["tty"] == true
        && let Some(name) = params["arg0"].as_str().map(str::to_owned)
    {
        params["argv"][0] = name.into();
        params["arg0"] = Value::Null;
    }
}

async fn send(to: &tokio::sync::Mutex<(Writer, Framing)>, message: &Value) {
    let text = message.to_string();
    let (writer, framing) = &mut *to.lock().await;
    let mut frame = Vec::new();
    framing.frame(&mut frame, text.len(), |out| out.extend_from_slice(text.as_bytes()));
    // If the connection has just ended, the next read from it reports that.
    let _ = writer.write_all(&frame).await;
}
