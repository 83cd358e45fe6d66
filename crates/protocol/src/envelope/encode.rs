//! Encodes messages as JSON text. As in the published protocol of `codex exec-server`, the member `jsonrpc` is never
//! sent, and the members have a fixed order.

use serde::Serialize;

use crate::{RequestId, WireError};

#[derive(Serialize)]
struct OutgoingRequest<'a, P> {
    id: &'a RequestId,
    method: &'a str,
    params: &'a P,
}

#[derive(Serialize)]
struct OutgoingNotification<'a, P> {
    method: &'a str,
    params: &'a P,
}

#[derive(Serialize)]
struct OutgoingResponse<'a, R> {
    id: &'a RequestId,
    result: &'a R,
}

#[derive(Serialize)]
struct OutgoingError<'a> {
    error: &'a WireError,
    id: &'a RequestId,
}

/// Initial capacity of a message. Most messages are shorter and need only one allocation.
const SHORT_MESSAGE_BYTES: usize = 256;

fn write(message: &impl Serialize) -> Vec<u8> {
    let mut text = Vec::with_capacity(SHORT_MESSAGE_BYTES);
    // The types of this protocol have string keys only, so they cannot fail to serialize into memory.
    let _infallible = serde_json::to_writer(&mut text, message);
    text
}

/// Encodes a request. The member `params` is present even if it is null.
pub fn encode_request(id: &RequestId, method: &str, params: &impl Serialize) -> Vec<u8> {
    write(&OutgoingRequest { id, method, params })
}

/// Encodes a notification. The member `params` is present even if it is null.
pub fn encode_notification(method: &str, params: &impl Serialize) -> Vec<u8> {
    write(&OutgoingNotification { method, params })
}

/// Encodes a successful answer to the request `id`.
pub fn encode_response(id: &RequestId, result: &impl Serialize) -> Vec<u8> {
    write(&OutgoingResponse { id, result })
}

/// Encodes an error as the answer to the request `id`.
pub fn encode_error(id: &RequestId, error: &WireError) -> Vec<u8> {
    write(&OutgoingError { error, id })
}

/// Encodes a successful answer whose result is mostly base64, such as a file. The result is `before`, the base64 text of
/// `bytes`, and `after`, which together must be valid JSON. The bytes are encoded straight into the message.
pub fn encode_base64_response(id: &RequestId, before: &str, bytes: &[u8], after: &str) -> Vec<u8> {
    let mut message = [&br#"{"id":"#[..], &write(id), br#","result":"#, before.as_bytes()].concat();
    message.reserve_exact(crate::encoded_len(bytes.len()) + after.len() + 1);
    crate::encode_base64_into(&mut message, bytes);
    message.extend_from_slice(after.as_bytes());
    message.push(b'}');
    message
}
