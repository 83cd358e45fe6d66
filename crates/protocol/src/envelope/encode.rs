//! Writing messages. The `jsonrpc` member is never sent; member order is that of the published protocol.

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

/// Most messages are no longer, and need no second allocation.
const SHORT_MESSAGE_BYTES: usize = 256;

fn write(message: &impl Serialize) -> Vec<u8> {
    let mut text = Vec::with_capacity(SHORT_MESSAGE_BYTES);
    // Our own types have string keys and cannot fail to serialize into memory.
    let _infallible = serde_json::to_writer(&mut text, message);
    text
}

/// A request as JSON text.
pub fn encode_request(id: &RequestId, method: &str, params: &impl Serialize) -> Vec<u8> {
    write(&OutgoingRequest { id, method, params })
}

/// A notification as JSON text.
pub fn encode_notification(method: &str, params: &impl Serialize) -> Vec<u8> {
    write(&OutgoingNotification { method, params })
}

/// A successful answer as JSON text.
pub fn encode_response(id: &RequestId, result: &impl Serialize) -> Vec<u8> {
    write(&OutgoingResponse { id, result })
}

/// An error answer as JSON text.
pub fn encode_error(id: &RequestId, error: &WireError) -> Vec<u8> {
    write(&OutgoingError { error, id })
}

/// A successful answer whose result is mostly base64: what stands before it, the bytes, what stands after it. They are
/// encoded straight into the message.
pub fn encode_base64_response(id: &RequestId, before: &str, bytes: &[u8], after: &str) -> Vec<u8> {
    let mut message = [&br#"{"id":"#[..], &write(id), br#","result":"#, before.as_bytes()].concat();
    message.reserve_exact(crate::encoded_len(bytes.len()) + after.len() + 1);
    crate::encode_base64_into(&mut message, bytes);
    message.extend_from_slice(after.as_bytes());
    message.push(b'}');
    message
}
