//! Prints the events of a process: its output as it is, or one JSON object per line. Each event is written before the next one is taken.

use std::io;

use client::{ExecProcessEvent, Stream};
use serde_json::json;
use tokio::io::{AsyncWrite, AsyncWriteExt as _, Stderr, Stdout};

use super::json_events::JsonEvents;
use super::print::{cannot_write, report};

/// Prints events to stdout and stderr.
pub(crate) struct EventPrinter {
    json: Option<JsonEvents>,
    stdout: Stdout,
    stderr: Stderr,
}

impl EventPrinter {
    pub(crate) fn new(is_json: bool) -> Self {
        let json = is_json.then(JsonEvents::default);
        Self { json, stdout: tokio::io::stdout(), stderr: tokio::io::stderr() }
    }

    /// Prints an event. Output of the process goes to the stream of the same name, and output of a terminal to stdout. The exit is printed
    /// only as JSON.
    pub(crate) async fn event(&mut self, event: &ExecProcessEvent) -> io::Result<()> {
        if let Some(json) = &mut self.json {
            return write(&mut self.stdout, &json.render(event)).await;
        }
        match event {
            ExecProcessEvent::Output(output) if output.stream == Stream::Stderr => {
                write(&mut self.stderr, &output.chunk).await
            }
            ExecProcessEvent::Output(output) => write(&mut self.stdout, &output.chunk).await,
            _ => Ok(()),
        }
    }

    /// Says that so many bytes at this place of the output are no longer retained.
    pub(crate) async fn dropped(&mut self, bytes: u64) -> io::Result<()> {
        if self.json.is_some() {
            let line = format!("{}\n", json!({"type": "dropped", "bytes": bytes}));
            return write(&mut self.stdout, line.as_bytes()).await;
        }
        report(&format!("{bytes} bytes of earlier output are no longer retained"));
        Ok(())
    }
}

async fn write(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    let written = async {
        to.write_all(bytes).await?;
        to.flush().await
    };
    written.await.map_err(cannot_write)
}
