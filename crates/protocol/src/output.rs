//! Writes output notifications straight into the buffer of a connection, and recognises them when they arrive.
//!
//! Nearly every byte that a process prints passes through here. So the bytes go neither through `serde` nor through
//! an intermediate string, and the length of a notification is known before it is written. This file knows neither
//! WebSocket frames nor sockets. Start with [`OutputEvent`], which the server writes; the client reads it with
//! [`recognise_output`].

use crate::{ProcessId, PushedOutput, Stream, base64_bytes};

/// A process id as quoted JSON text. It is escaped once, when the process starts, and not for every notification.
#[derive(Clone, Debug)]
pub struct ProcessIdJson(Box<str>);

impl From<&ProcessId> for ProcessIdJson {
    fn from(id: &ProcessId) -> Self {
        Self(serde_json::Value::from(id.as_str()).to_string().into())
    }
}

/// Output of a process that is to be written as a notification.
#[derive(Clone, Copy, Debug)]
pub enum OutputEvent<'a> {
    /// The notification `process/output`.
    Current {
        /// Id of the process that wrote the output.
        process: &'a ProcessIdJson,
        /// Sequence number of this event among the events of the process.
        seq: u64,
        /// The stream that the process wrote to.
        stream: Stream,
        /// The output, not encoded.
        bytes: &'a [u8],
    },
    /// The notification `command/exec/outputDelta`.
    Legacy {
        /// Id of the process that wrote the output.
        process: &'a ProcessIdJson,
        /// The stream that the process wrote to.
        stream: Stream,
        /// The output, not encoded.
        bytes: &'a [u8],
    },
}

const CURRENT: &str = r#"{"method":"process/output","params":{"processId":"#;
const LEGACY: &str = r#"{"method":"command/exec/outputDelta","params":{"processId":"#;
const SEQ: &str = r#","seq":"#;
const STREAM: &str = r#","stream":""#;
const CHUNK: &str = r#"","chunk":""#;
const END: &str = r#""}}"#;

impl OutputEvent<'_> {
    /// Exactly how many bytes [`write_to`](Self::write_to) appends.
    pub fn encoded_len(&self) -> usize {
        let shared = STREAM.len() + CHUNK.len() + END.len();
        match *self {
            Self::Current { process, seq, stream, bytes } => {
                let seq_digits = seq.checked_ilog10().unwrap_or(0) as usize + 1;
                CURRENT.len() + SEQ.len() + seq_digits + shared + values_len(process, stream, bytes)
            }
            Self::Legacy { process, stream, bytes } => LEGACY.len() + shared + values_len(process, stream, bytes),
        }
    }

    /// Appends the notification as JSON text to `out`.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let (stream, bytes) = match *self {
            Self::Current { process, seq, stream, bytes } => {
                out.extend_from_slice(CURRENT.as_bytes());
                out.extend_from_slice(process.0.as_bytes());
                out.extend_from_slice(SEQ.as_bytes());
                out.extend_from_slice(seq.to_string().as_bytes());
                (stream, bytes)
            }
            Self::Legacy { process, stream, bytes } => {
                out.extend_from_slice(LEGACY.as_bytes());
                out.extend_from_slice(process.0.as_bytes());
                (stream, bytes)
            }
        };
        out.extend_from_slice(STREAM.as_bytes());
        out.extend_from_slice(stream.as_str().as_bytes());
        out.extend_from_slice(CHUNK.as_bytes());
        base64_bytes::encode_base64_into(out, bytes);
        out.extend_from_slice(END.as_bytes());
    }
}

/// Decodes a `process/output` notification that is spelled exactly as [`OutputEvent`] writes it, without scanning the
/// chunk. Returns `None` for any other message, also for another spelling of the same notification: [`crate::decode`]
/// handles those. The chunk is not checked here: the caller decodes its base64, and that finds every wrong byte.
pub fn recognise_output(message: &[u8]) -> Option<PushedOutput<'_>> {
    let rest = message.strip_prefix(CURRENT.as_bytes())?.strip_prefix(b"\"")?.strip_suffix(END.as_bytes())?;
    // The scans below stop before the chunk, which is nearly all of a long message.
    let id_end = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    let (process_id, rest) = rest.split_at(id_end);
    let rest = rest.strip_prefix(b"\"")?.strip_prefix(SEQ.as_bytes())?;
    let seq_end = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    let (seq, rest) = rest.split_at(seq_end);
    let rest = rest.strip_prefix(STREAM.as_bytes())?;
    let (stream, rest) = [Stream::Stdout, Stream::Stderr, Stream::Pty]
        .into_iter()
        .find_map(|stream| Some((stream, rest.strip_prefix(stream.as_str().as_bytes())?)))?;
    let chunk = rest.strip_prefix(CHUNK.as_bytes())?;
    Some(PushedOutput {
        process_id: std::str::from_utf8(process_id).ok()?.into(),
        seq: std::str::from_utf8(seq).ok()?.parse().ok()?,
        stream,
        chunk: chunk.into(),
    })
}

/// Length of the values that both notifications have: process id, stream and chunk.
fn values_len(process: &ProcessIdJson, stream: Stream, bytes: &[u8]) -> usize {
    process.0.len() + stream.as_str().len() + base64_bytes::encoded_len(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_written_notification_has_the_computed_length_and_decodes_to_the_same_values(id in ".{0,20}", seq in any::<u64>(), bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let process = ProcessIdJson::from(&ProcessId::from(id.as_str()));
            let event = OutputEvent::Current { process: &process, seq, stream: Stream::Stderr, bytes: &bytes };
            let mut out = Vec::new();
            event.write_to(&mut out);
            prop_assert_eq!(out.len(), event.encoded_len());
            let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
            prop_assert_eq!(&value["method"], "process/output");
            prop_assert_eq!(&value["params"]["processId"], &serde_json::Value::from(id.as_str()));
            prop_assert_eq!(&value["params"]["seq"], &serde_json::Value::from(seq));
            prop_assert_eq!(crate::decode_base64(value["params"]["chunk"].as_str().unwrap()).unwrap(), bytes.clone());

            let decoded: PushedOutput<'_> = serde_json::from_str(value["params"].to_string().as_str()).map(|output: PushedOutput<'_>| {
                PushedOutput { process_id: output.process_id.into_owned().into(), chunk: output.chunk.into_owned().into(), ..output }
            }).unwrap();
            match recognise_output(&out) {
                Some(recognised) => prop_assert_eq!(format!("{recognised:?}"), format!("{decoded:?}")),
                None => prop_assert!(process.0.contains('\\'), "{}", process.0),
            }

            let event = OutputEvent::Legacy { process: &process, stream: Stream::Pty, bytes: &bytes };
            let mut out = Vec::new();
            event.write_to(&mut out);
            prop_assert_eq!(out.len(), event.encoded_len());
            let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
            prop_assert_eq!(&value["params"]["stream"], "pty");
        }
    }
}
