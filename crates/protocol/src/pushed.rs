//! `process/output` and `process/closed` as a client decodes them. The types borrow from the message, and members
//! that older servers leave out are optional. The types that a server encodes are in `output.rs` and `process.rs`.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};

use crate::Stream;
use crate::base64_bytes::CowText;

/// Params of `process/output`, borrowed from the message.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushedOutput<'a> {
    /// The process that wrote the output.
    #[serde(borrow)]
    pub process_id: Cow<'a, str>,
    /// Sequence number of this event among the events of the process.
    pub seq: u64,
    /// The stream that the process wrote to.
    pub stream: Stream,
    /// The output in base64, not decoded yet. It may contain any bytes, because
    /// [`recognise_output`](crate::recognise_output) saves the time to check them. Decoding the base64 finds every
    /// wrong byte.
    #[serde(borrow, deserialize_with = "text_as_bytes")]
    pub chunk: Cow<'a, [u8]>,
}

fn text_as_bytes<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'a, [u8]>, D::Error> {
    Ok(match CowText::deserialize(deserializer)?.0 {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    })
}

/// Params of `process/closed`, borrowed from the message.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushedClose<'a> {
    /// The process that has closed.
    #[serde(borrow)]
    pub process_id: Cow<'a, str>,
    /// Sequence number of this event, which is always the last of the process. None if an older server leaves it out.
    #[serde(default)]
    pub seq: Option<u64>,
}
