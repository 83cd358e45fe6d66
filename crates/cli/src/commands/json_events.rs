//! Turns the events of a process into lines of JSON, for `--json`. Output is text if it is UTF-8, and base64
//! otherwise. A character whose bytes come in two events is put together.

use bytes::Bytes;
use client::{ExecProcessEvent, Stream};
use protocol::Base64Bytes;
use serde_json::{Value, json};

use crate::terminal_text::json_line;

/// Turns the events of one process into lines.
#[derive(Debug, Default)]
pub(crate) struct JsonEvents {
    /// For each stream, the first bytes of a character whose last bytes have not come.
    begun: [Vec<u8>; 3],
}

impl JsonEvents {
    /// The lines for an event. There may be none.
    pub(crate) fn render(&mut self, event: &ExecProcessEvent) -> Bytes {
        let mut lines = Vec::new();
        match event {
            ExecProcessEvent::Output(output) => self.add_output(output.stream, &output.chunk, &mut lines),
            ExecProcessEvent::Exited { exit_code, sandbox_denied, sandbox_denials, timed_out, resources, .. } => {
                self.add_incomplete(&mut lines);
                let sandbox_denied = sandbox_denied.unwrap_or(false);
                let mut exited = json!({"type": "exited", "exitCode": exit_code, "timedOut": timed_out,
                    "sandboxDenied": sandbox_denied});
                if !sandbox_denials.is_empty() {
                    exited["sandboxDenials"] = json!(sandbox_denials);
                }
                if let Some(usage) = resources.usage {
                    exited["usage"] = json!(usage);
                }
                if let Some(reached) = resources.limit_reached {
                    exited["limitReached"] = json!(reached);
                }
                push_line(&mut lines, &exited);
            }
            ExecProcessEvent::Closed { .. } | ExecProcessEvent::Failed(_) => self.add_incomplete(&mut lines),
        }
        lines.into()
    }

    /// Adds a line for the output. An incomplete character at the end of `chunk` is held back.
    fn add_output(&mut self, stream: Stream, chunk: &[u8], lines: &mut Vec<u8>) {
        let begun = &mut self.begun[index(stream)];
        let mut bytes = std::mem::take(begun);
        bytes.extend_from_slice(chunk);
        if let Err(error) = std::str::from_utf8(&bytes)
            && error.error_len().is_none()
        {
            *begun = bytes.split_off(error.valid_up_to());
        }
        push_output(lines, stream, bytes);
    }

    /// Adds the incomplete characters that were held back. It is called when the process has exited or its output is
    /// over: the last bytes of these characters are not expected any more.
    fn add_incomplete(&mut self, lines: &mut Vec<u8>) {
        for stream in [Stream::Stdout, Stream::Stderr, Stream::Pty] {
            push_output(lines, stream, std::mem::take(&mut self.begun[index(stream)]));
        }
    }
}

fn index(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
        Stream::Pty => 2,
    }
}

fn push_output(lines: &mut Vec<u8>, stream: Stream, bytes: Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    let line = match String::from_utf8(bytes) {
        Ok(text) => json!({"type": "output", "stream": stream, "text": text}),
        Err(error) => json!({"type": "output", "stream": stream, "base64": Base64Bytes(error.into_bytes())}),
    };
    push_line(lines, &line);
}

fn push_line(lines: &mut Vec<u8>, line: &Value) {
    lines.extend_from_slice(json_line(line).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::ProcessOutputChunk;

    fn output(bytes: &[u8]) -> ExecProcessEvent {
        let chunk = Bytes::copy_from_slice(bytes);
        ExecProcessEvent::Output(ProcessOutputChunk { seq: 1, stream: Stream::Stdout, chunk })
    }

    fn rendered(pieces: &[&[u8]]) -> Vec<Value> {
        let mut events = JsonEvents::default();
        let mut lines: Vec<u8> = pieces.iter().flat_map(|piece| events.render(&output(piece))).collect();
        lines.extend(events.render(&ExecProcessEvent::Closed { seq: 9 }));
        lines.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }

    #[test]
    fn characters_that_act_on_a_terminal_are_escaped() {
        let line = JsonEvents::default().render(&output("\u{9b}31m\u{7f}\u{202e}".as_bytes()));
        let expected = "{\"stream\":\"stdout\",\"text\":\"\\u009b31m\\u007f\\u202e\",\"type\":\"output\"}\n";
        assert_eq!(std::str::from_utf8(&line).unwrap(), expected);
    }

    #[test]
    fn a_character_that_was_cut_in_two_is_put_together() {
        let lines = rendered(&["é".as_bytes().split_at(1).0, b"\xa9!"]);
        assert_eq!(lines, [json!({"type": "output", "stream": "stdout", "text": "é!"})]);
    }

    #[test]
    fn bytes_that_are_no_text_and_a_last_incomplete_character_are_base64() {
        assert_eq!(
            rendered(&[b"a\xff", b"b\xc3"]),
            [
                json!({"type": "output", "stream": "stdout", "base64": "Yf8="}),
                json!({"type": "output", "stream": "stdout", "text": "b"}),
                json!({"type": "output", "stream": "stdout", "base64": "ww=="}),
            ]
        );
    }
}
