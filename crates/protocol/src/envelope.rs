//! The JSON-RPC envelope: decodes and encodes requests, notifications, responses and errors. Params and results stay raw JSON
//! until the caller knows the method. The envelope knows no method and no session.
//!
//! Start with [`decode`] and [`Incoming`]. [`decode_params`] is the second step, once the method is known.

mod decode;
mod encode;
mod limits;
mod params;
mod published_text;

pub use decode::{DecodeError, Incoming, Notification, Request, Response, decode, sniff_id, sniff_method};
pub use encode::{encode_base64_response, encode_error, encode_notification, encode_request, encode_response};
pub use limits::{MAX_DEPTH, MAX_VALUES, check_json};
pub use params::decode_params;

#[cfg(test)]
mod tests;
