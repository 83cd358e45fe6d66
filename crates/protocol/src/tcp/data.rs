//! Faster code for `tcp/data`, which both sides send: writes it directly into the buffer of a connection, and decodes
//! it without a JSON parser. `output.rs` does the same for the output of processes.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};

use crate::base64_bytes::{self, CowText};

/// A stream id as quoted JSON text. It is escaped once for each stream, and not for every message.
#[derive(Clone, Debug)]
pub struct StreamIdJson(Box<str>);

impl From<&str> for StreamIdJson {
    fn from(id: &str) -> Self {
        Self(serde_json::Value::from(id).to_string().into())
    }
}

/// A `tcp/data` notification that is to be written.
#[derive(Clone, Copy, Debug)]
pub struct TcpData<'a> {
    /// The stream that the bytes belong to.
    pub stream: &'a StreamIdJson,
    /// The bytes, not encoded. May be empty with `end`.
    pub bytes: &'a [u8],
    /// Whether the sender sends no further bytes on this stream. It may still receive.
    pub end: bool,
}

const START: &str = r#"{"method":"tcp/data","params":{"streamId":"#;
const CHUNK: &str = r#","chunk":""#;
const END_OF_CHUNK: &str = r#""}}"#;
const END_OF_STREAM: &str = r#"","end":true}}"#;

impl TcpData<'_> {
    /// The number of bytes that [`write_to`](Self::write_to) appends.
    pub fn encoded_len(&self) -> usize {
        START.len()
            + self.stream.0.len()
            + CHUNK.len()
            + base64_bytes::encoded_len(self.bytes.len())
            + self.tail().len()
    }

    /// Appends the notification as JSON text to `out`.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        for text in [START, &self.stream.0, CHUNK] {
            out.extend_from_slice(text.as_bytes());
        }
        base64_bytes::encode_base64_into(out, self.bytes);
        out.extend_from_slice(self.tail().as_bytes());
    }

    fn tail(&self) -> &'static str {
        if self.end { END_OF_STREAM } else { END_OF_CHUNK }
    }
}

/// Params of `tcp/data`, borrowed from the message.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushedTcpData<'a> {
    /// The stream that the bytes belong to.
    #[serde(borrow)]
    pub stream_id: Cow<'a, str>,
    /// The chunk, which should be base64. It was not checked, because [`recognise_tcp_data`] does not scan it, so it
    /// may contain any bytes. The caller decodes the base64, which finds every wrong byte.
    #[serde(borrow, deserialize_with = "text_as_bytes")]
    pub chunk: Cow<'a, [u8]>,
    /// Whether the sender sends no further bytes on this stream. Absent: false.
    #[serde(default)]
    pub end: bool,
}

fn text_as_bytes<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'a, [u8]>, D::Error> {
    Ok(match CowText::deserialize(deserializer)?.0 {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    })
}

/// Decodes a `tcp/data` in exactly the form that [`TcpData`] writes, without scanning the chunk. Returns `None` for any
/// other message, also for a `tcp/data` that is formatted in another way: [`crate::decode`] handles those. The chunk is
/// not checked here: the caller decodes its base64, which finds every wrong byte.
pub fn recognise_tcp_data(message: &[u8]) -> Option<PushedTcpData<'_>> {
    let rest = message.strip_prefix(START.as_bytes())?.strip_prefix(b"\"")?;
    let id_end = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    let (stream_id, rest) = rest.split_at(id_end);
    let rest = rest.strip_prefix(b"\"")?.strip_prefix(CHUNK.as_bytes())?;
    // Base64 has no quotation mark, so for a valid chunk only one of the two endings can match.
    let (chunk, end) = match rest.strip_suffix(END_OF_STREAM.as_bytes()) {
        Some(chunk) => (chunk, true),
        None => (rest.strip_suffix(END_OF_CHUNK.as_bytes())?, false),
    };
    Some(PushedTcpData { stream_id: std::str::from_utf8(stream_id).ok()?.into(), chunk: chunk.into(), end })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_written_message_has_the_computed_length_and_decodes_to_the_same_values(
            id in ".{0,20}", bytes in proptest::collection::vec(any::<u8>(), 0..200), end in any::<bool>(),
        ) {
            let stream = StreamIdJson::from(id.as_str());
            let data = TcpData { stream: &stream, bytes: &bytes, end };
            let mut out = Vec::new();
            data.write_to(&mut out);
            prop_assert_eq!(out.len(), data.encoded_len());
            let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
            prop_assert_eq!(&value["method"], crate::notification::TCP_DATA);
            let params = value["params"].to_string();
            let decoded: PushedTcpData<'_> = serde_json::from_str(&params).unwrap();
            prop_assert_eq!((&*decoded.stream_id, decoded.end), (id.as_str(), end));
            prop_assert_eq!(crate::decode_base64(&decoded.chunk).unwrap(), bytes);
            match recognise_tcp_data(&out) {
                Some(recognised) => prop_assert_eq!(format!("{recognised:?}"), format!("{decoded:?}")),
                None => prop_assert!(stream.0.contains('\\'), "{}", stream.0),
            }
        }
    }

    #[test]
    fn a_chunk_that_hides_another_member_is_not_valid_base64() {
        let message = br#"{"method":"tcp/data","params":{"streamId":"t","chunk":"aGk=","end":false,"x":""}}"#;
        let recognised = recognise_tcp_data(message).unwrap();
        assert!(crate::decode_base64(&recognised.chunk).is_err());
    }
}
