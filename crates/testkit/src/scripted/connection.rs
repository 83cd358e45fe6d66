//! One connection of a scripted server: a task that reads, a task that writes, and a handle for both. The answers are
//! decided in `state.rs`.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use transport::{Framing, MessageStream, ReadEvent, Reader, Writer};

use super::ScriptedReply;
use super::state::{ClientMessage, ScriptedState};

/// The server's end of a connection. Clones share one connection.
#[derive(Clone)]
pub struct ScriptedConnection {
    /// Frames for the task that writes.
    out: mpsc::UnboundedSender<Vec<u8>>,
    framing: Framing,
    /// Set to true when the connection ends.
    end: Arc<watch::Sender<bool>>,
}

impl ScriptedConnection {
    /// Starts the two tasks of a connection. They end with the connection.
    pub(super) fn serve(stream: MessageStream, state: &Arc<ScriptedState>) {
        let MessageStream { reader, writer, framing, .. } = stream;
        let (out, to_write) = mpsc::unbounded_channel();
        let connection = Self { out, framing, end: Arc::new(watch::Sender::new(false)) };
        tokio::spawn(write(writer, to_write, connection.end.subscribe()));
        tokio::spawn(read(reader, connection, Arc::clone(state)));
    }

    /// Pushes a notification to the client.
    pub fn push(&self, method: &str, params: Value) {
        self.send_text(&json!({"method": method, "params": params}).to_string());
    }

    /// Pushes `process/output` with bytes that a process wrote to its stdout.
    pub fn push_output(&self, process: &str, seq: u64, bytes: impl AsRef<[u8]>) {
        self.push("process/output", super::output_params(process, seq, bytes));
    }

    /// Sends a request to the client. [`wait_for_answer`](super::ScriptedServer::wait_for_answer) returns the answer.
    pub fn request(&self, id: i64, method: &str, params: Value) {
        self.send_text(&json!({"id": id, "method": method, "params": params}).to_string());
    }

    /// Replies to the request with this id.
    pub fn answer(&self, id: i64, reply: ScriptedReply) {
        match reply {
            ScriptedReply::Result(result) => self.send_text(&json!({"id": id, "result": result}).to_string()),
            ScriptedReply::Error(code, message) => {
                self.send_text(&json!({"error": {"code": code, "message": message}, "id": id}).to_string());
            }
            ScriptedReply::ErrorWithData(code, data, message) => {
                self.send_text(
                    &json!({"error": {"code": code, "data": data, "message": message}, "id": id}).to_string(),
                );
            }
            ScriptedReply::Silence => {}
            ScriptedReply::Cut => self.cut(),
        }
    }

    /// Sends any text as one message.
    pub fn send_text(&self, text: &str) {
        let mut frame = Vec::new();
        self.framing.frame(&mut frame, text.len(), |out| out.extend_from_slice(text.as_bytes()));
        self.send(frame);
    }

    /// Ends the connection without a WebSocket close frame. Messages that are not written yet are dropped.
    pub fn cut(&self) {
        self.end.send_replace(true);
    }

    /// Whether the client or the test has ended the connection.
    pub fn has_ended(&self) -> bool {
        *self.end.borrow()
    }

    /// Waits until the connection has ended. Panics after 30 s.
    pub async fn wait_for_end(&self) {
        let mut end = self.end.subscribe();
        let ended = tokio::time::timeout(crate::wait::WAIT_TIMEOUT, end.wait_for(|ended| *ended));
        ended.await.expect("the client does not end the connection").unwrap();
    }

    fn send(&self, frame: Vec<u8>) {
        // Messages for a connection that has ended are dropped.
        let _ = self.out.send(frame);
    }
}

impl fmt::Debug for ScriptedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedConnection").field("has_ended", &self.has_ended()).finish()
    }
}

async fn write(mut writer: Writer, mut out: mpsc::UnboundedReceiver<Vec<u8>>, mut end: watch::Receiver<bool>) {
    loop {
        let frame = tokio::select! {
            biased;
            _ = end.wait_for(|ended| *ended) => return,
            frame = out.recv() => frame,
        };
        let Some(frame) = frame else { return };
        tokio::select! {
            written = writer.write_all(&frame) => if written.is_err() { return },
            _ = end.wait_for(|ended| *ended) => return,
        }
    }
}

async fn read(mut reader: Reader, connection: ScriptedConnection, state: Arc<ScriptedState>) {
    let mut end = connection.end.subscribe();
    loop {
        let incoming = tokio::select! {
            biased;
            _ = end.wait_for(|ended| *ended) => return,
            incoming = reader.next() => incoming,
        };
        match incoming {
            Ok(ReadEvent::Message(message)) => {
                handle(&serde_json::from_slice(&message).unwrap(), &connection, &state);
            }
            Ok(ReadEvent::Ping(payload)) => {
                let mut pong = Vec::new();
                connection.framing.pong(&mut pong, &payload);
                connection.send(pong);
            }
            Ok(ReadEvent::Pong(_)) => {}
            Ok(ReadEvent::TooLarge { .. }) => panic!("the client sent a message over the limit"),
            Ok(ReadEvent::Closed(_)) | Err(_) => return connection.cut(),
        }
    }
}

fn handle(message: &Value, connection: &ScriptedConnection, state: &ScriptedState) {
    // A message without a method is the client's answer to a request of the test.
    let Some(method) = message["method"].as_str() else { return state.add_answer(message.clone()) };
    state.handle(ClientMessage {
        id: message["id"].as_i64(),
        method: method.to_owned(),
        params: message["params"].clone(),
        connection: connection.clone(),
    });
}
