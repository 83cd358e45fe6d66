//! Talking with a process: what goes to its stdin, and waiting for what it says.

use protocol::{Base64Bytes, decode_base64};
use serde_json::{Value, json};

use crate::Client;

/// Bytes as the wire has them.
pub fn base64(bytes: impl AsRef<[u8]>) -> Value {
    serde_json::to_value(Base64Bytes(bytes.as_ref().to_vec())).unwrap()
}

/// The bytes of a `chunk`.
pub fn unbase64(chunk: &Value) -> Vec<u8> {
    decode_base64(chunk.as_str().unwrap()).unwrap()
}

impl Client {
    /// Writes to stdin, waits for the answer and returns its `status`.
    pub async fn write(&mut self, process: &str, write_id: &str, bytes: impl AsRef<[u8]>) -> String {
        let id = self.send_write(process, write_id, bytes).await;
        let answer = self.answer(id).await;
        answer["result"]["status"].as_str().unwrap_or_else(|| panic!("a write failed: {answer}")).to_owned()
    }

    /// Writes to stdin without waiting for the answer; returns the id of the request.
    pub async fn send_write(&mut self, process: &str, write_id: &str, bytes: impl AsRef<[u8]>) -> i64 {
        self.send("process/write", json!({"processId": process, "writeId": write_id, "chunk": base64(bytes)})).await
    }

    /// Every process of the session, as `process/list` tells them.
    pub async fn processes(&mut self) -> Value {
        self.call("process/list", json!({})).await["processes"].take()
    }

    /// Ends stdin.
    pub async fn close_stdin(&mut self, process: &str) {
        assert_eq!(self.call("process/closeStdin", json!({"processId": process})).await, json!({}));
    }

    /// Reads output notifications of a process until all of them together contain `text`, and returns it all.
    pub async fn output_until(&mut self, process: &str, text: &str) -> String {
        let mut seen = Vec::new();
        loop {
            let event = self.event(process).await;
            assert_eq!(event["method"], "process/output", "before it said {text:?}");
            seen.extend(unbase64(&event["params"]["chunk"]));
            let seen = String::from_utf8_lossy(&seen);
            if seen.contains(text) {
                return seen.into_owned();
            }
        }
    }
}
