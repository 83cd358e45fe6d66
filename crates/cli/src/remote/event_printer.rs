//! The events of a process on our stdout and stderr: the bare bytes, or one JSON object per line.

use std::io;

use client::{ExitStatus, Stream};
use protocol::Base64Bytes;
use serde::Serialize;
use tokio::io::{AsyncWriteExt as _, Stderr, Stdout};

use super::print::complain;

/// One event as JSON.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum EventJson<'a> {
    Output {
        stream: Stream,
        #[serde(flatten)]
        bytes: BytesJson<'a>,
    },
    Exited {
        exit_code: i32,
        sandbox_denied: bool,
        timed_out: bool,
    },
    /// So many bytes that stood here are no longer retained.
    Dropped {
        bytes: u64,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum BytesJson<'a> {
    Text(&'a str),
    Base64(Base64Bytes),
}

impl<'a> BytesJson<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(_) => Self::Base64(Base64Bytes(bytes.to_vec())),
        }
    }
}

/// Prints events in their order. Each is out when the call returns.
pub(crate) struct EventPrinter {
    is_json: bool,
    stdout: Stdout,
    stderr: Stderr,
}

impl EventPrinter {
    pub(crate) fn new(is_json: bool) -> Self {
        Self { is_json, stdout: tokio::io::stdout(), stderr: tokio::io::stderr() }
    }

    /// What a process wrote goes where it wrote it; a terminal has only one stream.
    pub(crate) async fn output(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        if self.is_json {
            return self.line(&EventJson::Output { stream, bytes: BytesJson::new(bytes) }).await;
        }
        match stream {
            Stream::Stderr => {
                self.stderr.write_all(bytes).await?;
                self.stderr.flush().await
            }
            Stream::Stdout | Stream::Pty => {
                self.stdout.write_all(bytes).await?;
                self.stdout.flush().await
            }
        }
    }

    /// Said only to programs: people see the exit code.
    pub(crate) async fn exited(&mut self, status: ExitStatus) -> io::Result<()> {
        let ExitStatus { code: exit_code, sandbox_denied, timed_out } = status;
        if self.is_json {
            self.line(&EventJson::Exited { exit_code, sandbox_denied, timed_out }).await
        } else {
            Ok(())
        }
    }

    /// Something is missing here.
    pub(crate) async fn dropped(&mut self, bytes: u64) -> io::Result<()> {
        if self.is_json {
            return self.line(&EventJson::Dropped { bytes }).await;
        }
        complain(&format!("{bytes} bytes of earlier output are no longer retained"));
        Ok(())
    }

    async fn line(&mut self, event: &EventJson<'_>) -> io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        self.stdout.write_all(&line).await?;
        self.stdout.flush().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_text_and_the_rest_is_base64() {
        let json = |bytes| {
            let event = EventJson::Output { stream: Stream::Stderr, bytes: BytesJson::new(bytes) };
            serde_json::to_string(&event).unwrap()
        };
        assert_eq!(json("grün\n".as_bytes()), r#"{"type":"output","stream":"stderr","text":"grün\n"}"#);
        assert_eq!(json(&[0xff, 0]), r#"{"type":"output","stream":"stderr","base64":"/wA="}"#);
        let exited = EventJson::Exited { exit_code: 143, sandbox_denied: false, timed_out: true };
        assert_eq!(
            serde_json::to_string(&exited).unwrap(),
            r#"{"type":"exited","exitCode":143,"sandboxDenied":false,"timedOut":true}"#
        );
    }
}
