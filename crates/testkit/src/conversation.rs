//! Methods of [`Client`] for processes: writing to stdin, closing stdin, waiting for output, and listing processes.
//! They panic on any answer that the test does not expect.

use protocol::{Base64Bytes, decode_base64};
use serde_json::{Value, json};

use crate::Client;

/// Bytes as a base64 string in JSON.
pub fn base64(bytes: impl AsRef<[u8]>) -> Value {
    serde_json::to_value(Base64Bytes(bytes.as_ref().to_vec())).unwrap()
}

/// Decodes a base64 string in JSON, such as the `chunk` of an output notification.
pub fn unbase64(chunk: &Value) -> Vec<u8> {
    decode_base64(chunk.as_str().unwrap()).unwrap()
}

impl Client {
    /// Writes to the stdin of a process, waits for the answer and returns its `status`.
    pub async fn write(&mut self, process: &str, write_id: &str, bytes: impl AsRef<[u8]>) -> String {
        let id = self.send_write(process, write_id, bytes).await;
        let answer = self.answer(id).await;
        answer["result"]["status"].as_str().unwrap_or_else(|| panic!("a write failed: {answer}")).to_owned()
    }

    /// Writes to the stdin of a process without waiting for the answer. Returns the id of the request.
    pub async fn send_write(&mut self, process: &str, write_id: &str, bytes: impl AsRef<[u8]>) -> i64 {
        self.send("process/write", json!({"processId": process, "writeId": write_id, "chunk": base64(bytes)})).await
    }

    /// The member `processes` of the answer to `process/list`.
    pub async fn processes(&mut self) -> Value {
        self.call("process/list", json!({})).await["processes"].take()
    }

    /// Closes the stdin of a process with `process/closeStdin`, and waits for the answer.
    pub async fn close_stdin(&mut self, process: &str) {
        assert_eq!(self.call("process/closeStdin", json!({"processId": process})).await, json!({}));
    }

    /// Reads output notifications of a process until their text, joined, contains `text`. Returns the joined text.
    pub async fn output_until(&mut self, process: &str, text: &str) -> String {
        let mut seen = Vec::new();
        loop {
            let event = self.event(process).await;
            assert_eq!(event["method"], "process/output", "the process ended before it wrote {text:?}");
            seen.extend(unbase64(&event["params"]["chunk"]));
            let seen = String::from_utf8_lossy(&seen);
            if seen.contains(text) {
                return seen.into_owned();
            }
        }
    }
}
