//! Prints the events of a process: its output as it is, or one JSON object per line. [`EventPrinter::print_event`]
//! returns when the event is written, so a slow reader of our output slows its caller down.

use std::io;

use client::{ExecProcessEvent, Stream};
use serde_json::json;
use tokio::io::{AsyncWrite, AsyncWriteExt as _, Stderr, Stdout};

use super::json_events::JsonEvents;
use super::print::{cannot_write, report};

/// Prints events to stdout and stderr.
pub(crate) struct EventPrinter {
    /// Set if events are printed as JSON.
    json: Option<JsonEvents>,
    stdout: Stdout,
    stderr: Stderr,
}

impl EventPrinter {
    pub(crate) fn new(is_json: bool) -> Self {
        let json = is_json.then(JsonEvents::default);
        Self { json, stdout: tokio::io::stdout(), stderr: tokio::io::stderr() }
    }

    /// Prints an event. As JSON, every event goes to stdout. Otherwise only output is printed: to the stream of the
    /// same name, or to stdout if the process has a terminal.
    pub(crate) async fn print_event(&mut self, event: &ExecProcessEvent) -> io::Result<()> {
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

    /// Says that this many bytes are missing at this place of the output, because the server no longer retains them.
    pub(crate) async fn print_dropped(&mut self, bytes: u64) -> io::Result<()> {
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
