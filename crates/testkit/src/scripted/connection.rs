//! One connection of a scripted server.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use transport::{Framing, Incoming, MessageStream, Reader, Writer};

use super::Reply;
use super::record::{ClientMessage, Record};

/// The server's end of a connection. Clones are the same connection.
#[derive(Clone)]
pub struct ScriptedConnection {
    out: mpsc::UnboundedSender<Vec<u8>>,
    framing: Framing,
    end: Arc<watch::Sender<bool>>,
}

impl ScriptedConnection {
    pub(super) fn serve(stream: MessageStream, record: &Arc<Record>) {
        let MessageStream { reader, writer, framing, .. } = stream;
        let (out, to_write) = mpsc::unbounded_channel();
        let connection = Self { out, framing, end: Arc::new(watch::Sender::new(false)) };
        tokio::spawn(write(writer, to_write, connection.end.subscribe()));
        tokio::spawn(read(reader, connection, Arc::clone(record)));
    }

    /// Pushes a notification.
    pub fn push(&self, method: &str, params: Value) {
        self.send_text(&json!({"method": method, "params": params}).to_string());
    }

    /// Pushes output of a process.
    pub fn output(&self, process: &str, seq: u64, bytes: impl AsRef<[u8]>) {
        self.push("process/output", super::output(process, seq, bytes));
    }

    /// Asks the client for something; its answer is for [`wait_for_answer`](super::ScriptedServer::wait_for_answer).
    pub fn request(&self, id: i64, method: &str, params: Value) {
        self.send_text(&json!({"id": id, "method": method, "params": params}).to_string());
    }

    /// Answers a request by its id.
    pub fn answer(&self, id: i64, reply: Reply) {
        match reply {
            Reply::Result(result) => self.send_text(&json!({"id": id, "result": result}).to_string()),
            Reply::Error(code, message) => {
                self.send_text(&json!({"error": {"code": code, "message": message}, "id": id}).to_string());
            }
            Reply::ErrorWithData(code, data, message) => {
                self.send_text(
                    &json!({"error": {"code": code, "data": data, "message": message}, "id": id}).to_string(),
                );
            }
            Reply::Silence => {}
            Reply::Cut => self.cut(),
        }
    }

    /// Sends any text as one message.
    pub fn send_text(&self, text: &str) {
        let mut frame = Vec::new();
        self.framing.frame(&mut frame, text.len(), |out| out.extend_from_slice(text.as_bytes()));
        self.send(frame);
    }

    /// Ends it without a word; what was not written yet is not.
    pub fn cut(&self) {
        self.end.send_replace(true);
    }

    /// Whether either side has ended it.
    pub fn has_ended(&self) -> bool {
        *self.end.borrow()
    }

    /// Waits for its end.
    pub async fn ended(&self) {
        let mut end = self.end.subscribe();
        let ended = tokio::time::timeout(crate::wait::PATIENCE, end.wait_for(|ended| *ended));
        ended.await.expect("the client does not end the connection").unwrap();
    }

    fn send(&self, frame: Vec<u8>) {
        // Over a connection that has ended nothing can be said.
        let _ended = self.out.send(frame);
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

async fn read(mut reader: Reader, connection: ScriptedConnection, record: Arc<Record>) {
    let mut end = connection.end.subscribe();
    loop {
        let incoming = tokio::select! {
            biased;
            _ = end.wait_for(|ended| *ended) => return,
            incoming = reader.next() => incoming,
        };
        match incoming {
            Ok(Incoming::Message(message)) => {
                handle(&serde_json::from_slice(&message).unwrap(), &connection, &record);
            }
            Ok(Incoming::Ping(payload)) => {
                let mut pong = Vec::new();
                connection.framing.pong(&mut pong, &payload);
                connection.send(pong);
            }
            Ok(Incoming::Pong(_)) => {}
            Ok(Incoming::TooLarge { .. }) => panic!("the client sent a message over the limit"),
            Ok(Incoming::Closed(_)) | Err(_) => return connection.cut(),
        }
    }
}

fn handle(message: &Value, connection: &ScriptedConnection, record: &Record) {
    let Some(method) = message["method"].as_str() else { return record.note_answer(message.clone()) };
    record.note(ClientMessage {
        id: message["id"].as_i64(),
        method: method.to_owned(),
        params: message["params"].clone(),
        connection: connection.clone(),
    });
}
