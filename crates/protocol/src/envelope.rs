//! The JSON-RPC envelope: telling requests, notifications and answers apart, with params left as raw JSON until the
//! method is known. Knows no method and no session.

mod decode;
mod encode;
mod limits;
mod params;
mod published_text;

pub use decode::{
    DecodeError, Incoming, Notification, Request, Response, TraceContext, decode, sniff_id, sniff_method,
};
pub use encode::{encode_base64_response, encode_error, encode_notification, encode_request, encode_response};
pub use limits::{MAX_DEPTH, MAX_VALUES};
pub use params::decode_params;

#[cfg(test)]
mod tests;
