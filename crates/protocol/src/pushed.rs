//! What a server pushes, as a client decodes it: borrowed from the message, and lenient towards older servers.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};

use crate::Stream;
use crate::base64_bytes::CowText;

/// Params of `process/output`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushedOutput<'a> {
    /// Which process.
    #[serde(borrow)]
    pub process_id: Cow<'a, str>,
    /// Its place among the events of the process.
    pub seq: u64,
    /// Where it came from.
    pub stream: Stream,
    /// The text of the bytes in base64. Not a string: decoding it finds whatever does not belong there.
    #[serde(borrow, deserialize_with = "text")]
    pub chunk: Cow<'a, [u8]>,
}

fn text<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'a, [u8]>, D::Error> {
    Ok(match CowText::deserialize(deserializer)?.0 {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    })
}

/// Params of `process/closed`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushedClose<'a> {
    /// Which process.
    #[serde(borrow)]
    pub process_id: Cow<'a, str>,
    /// Always the last; an old server does not say.
    #[serde(default)]
    pub seq: Option<u64>,
}
