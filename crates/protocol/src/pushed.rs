//! What a server pushes, as a client decodes it: borrowed from the message, and lenient towards older servers.

use std::borrow::Cow;

use serde::Deserialize;

use crate::Stream;

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
    /// The bytes, still in base64.
    #[serde(borrow)]
    pub chunk: Cow<'a, str>,
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
