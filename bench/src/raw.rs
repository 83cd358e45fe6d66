//! A client with as little work of its own as possible: it does not parse JSON, and does not copy the output of
//! processes out of the received message.

use anyhow::{Result, bail};
use bytes::Bytes;
use memchr::memmem;
use transport::{ConnectOptions, Framing, MessageStream, ReadEvent, Reader, Writer, connect};

/// A connection to a server: to the product, after the handshake that opens a session, or to an echo server.
pub(crate) struct RawClient {
    reader: Reader,
    writer: Writer,
    framing: Framing,
    next_id: u64,
}

impl RawClient {
    /// Opens a connection with a new session.
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let mut client = Self::connect_without_handshake(url).await?;
        client.send("initialize", r#"{"clientName":"bench"}"#).await?;
        client.next().await?;
        client.send_text(r#"{"method":"initialized"}"#).await?;
        Ok(client)
    }

    /// Opens a connection and sends nothing over it.
    pub(crate) async fn connect_without_handshake(url: &str) -> Result<Self> {
        let MessageStream { reader, writer, framing, .. } = connect(url, ConnectOptions::default()).await?;
        Ok(Self { reader, writer, framing, next_id: 1 })
    }

    /// Sends one request and waits for its answer.
    pub(crate) async fn ask(&mut self, method: &str, params: &str) -> Result<Bytes> {
        self.send(method, params).await?;
        self.answer().await
    }

    /// Sends `requests`, made by [`encode_requests`](Self::encode_requests), in one write, and waits for all `count`
    /// answers.
    pub(crate) async fn ask_all(&mut self, requests: &[u8], count: usize) -> Result<()> {
        self.writer.write_all(requests).await?;
        for _ in 0..count {
            self.answer().await?;
        }
        Ok(())
    }

    /// The frames of `count` requests that differ only in their ids.
    pub(crate) fn encode_requests(&self, method: &str, params: &str, count: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for id in 0..count {
            let text = format!(r#"{{"id":{id},"method":"{method}","params":{params}}}"#);
            self.framing.frame(&mut out, text.len(), |out| out.extend_from_slice(text.as_bytes()));
        }
        out
    }

    /// Sends a message to an echo server and waits for it to come back.
    pub(crate) async fn echo(&mut self, text: &str) -> Result<Bytes> {
        self.send_text(text).await?;
        self.next().await
    }

    /// Takes the next message as an answer. Fails if it is an error.
    async fn answer(&mut self) -> Result<Bytes> {
        let answer = self.next().await?;
        if answer.starts_with(br#"{"error""#) {
            bail!("{}", String::from_utf8_lossy(&answer));
        }
        Ok(answer)
    }

    /// Sends one request without waiting for the answer, which the caller gets from [`next`](Self::next).
    pub(crate) async fn send(&mut self, method: &str, params: &str) -> Result<()> {
        let id = self.next_id;
        self.next_id += 1;
        self.send_text(&format!(r#"{{"id":{id},"method":"{method}","params":{params}}}"#)).await
    }

    async fn send_text(&mut self, text: &str) -> Result<()> {
        let mut out = Vec::with_capacity(text.len() + 16);
        self.framing.frame(&mut out, text.len(), |out| out.extend_from_slice(text.as_bytes()));
        Ok(self.writer.write_all(&out).await?)
    }

    /// Sends `process/start` without waiting for the answer.
    pub(crate) async fn send_start(&mut self, process: &str, argv: &[&str], tty: bool) -> Result<()> {
        let argv = serde_json::to_string(argv)?;
        self.send(
            "process/start",
            &format!(r#"{{"processId":"{process}","argv":{argv},"cwd":"file:///","env":{{}},"tty":{tty}}}"#),
        )
        .await
    }

    /// Waits for the next message, and answers pings meanwhile.
    pub(crate) async fn next(&mut self) -> Result<Bytes> {
        loop {
            match self.reader.next().await? {
                ReadEvent::Message(message) => return Ok(message),
                ReadEvent::Ping(payload) => {
                    let mut out = Vec::new();
                    self.framing.pong(&mut out, &payload);
                    self.writer.write_all(&out).await?;
                }
                ReadEvent::Pong(_) => {}
                ReadEvent::TooLarge { .. } => bail!("a message is too large"),
                ReadEvent::Closed(_) => bail!("the connection ended"),
            }
        }
    }

    /// Waits for the next `process/closed`: some process has ended, and all its output was received.
    pub(crate) async fn wait_for_process_closed(&mut self) -> Result<()> {
        loop {
            let message = self.next().await?;
            if is_notification(&message, "process/closed") {
                return Ok(());
            }
            if message.starts_with(br#"{"error""#) {
                bail!("{}", String::from_utf8_lossy(&message));
            }
        }
    }
}

/// Whether a message is a notification whose name begins with `notification`.
pub(crate) fn is_notification(message: &[u8], notification: &str) -> bool {
    message.strip_prefix(br#"{"method":""#).is_some_and(|rest| rest.starts_with(notification.as_bytes()))
}

/// The base64 text of an output notification. None for any other message.
pub(crate) fn output_chunk(message: &[u8]) -> Option<&str> {
    const MEMBER: &[u8] = br#""chunk":""#;
    // The chunk is the last member, so only `"}}` follows it. The members before it are short.
    let start = memmem::find(&message[..message.len().min(512)], MEMBER)? + MEMBER.len();
    std::str::from_utf8(message.get(start..message.len() - 3)?).ok()
}
