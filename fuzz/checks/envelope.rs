//! Checks that must succeed for any bytes that arrive as a message. Used by the fuzz target and by the test that
//! replays the corpus, so that an input that once broke the decoder is checked in every test run.

use protocol::{
    Incoming, RequestId, decode, encode_error, encode_notification, encode_request, encode_response, sniff_id,
};
use serde_json::value::RawValue;

/// `sniff_id` is checked with every prefix of a message up to this length, in bytes.
const LONGEST_CUT: usize = 256;

/// Panics if one of the checks fails for these bytes.
pub(crate) fn check(bytes: &[u8]) {
    let Ok(message) = decode(bytes) else {
        // Any result is right, but it must not panic.
        let _ = sniff_id(bytes);
        return;
    };
    let is_json = serde_json::from_slice::<&RawValue>(bytes).is_ok();
    assert!(is_json, "a message was decoded that is not JSON");
    check_sniffing(bytes, &message);
    check_params(&message);
    check_round_trip(&message);
}

/// For a message that is cut short, `sniff_id` finds the right id or none.
fn check_sniffing(bytes: &[u8], message: &Incoming<'_>) {
    let id = match message {
        Incoming::Request(request) => Some(&request.id),
        Incoming::Response(response) => Some(&response.id),
        Incoming::Error { id, .. } => Some(id),
        Incoming::Notification(_) => None,
    };
    for cut in 0..=bytes.len().min(LONGEST_CUT) {
        let sniffed = sniff_id(&bytes[..cut]);
        assert!(sniffed.is_none() || sniffed.as_ref() == id, "cut at {cut}: {sniffed:?} instead of {id:?}");
    }
}

/// The decoder refuses deep nesting itself, so that decoding the params never fails because of it.
fn check_params(message: &Incoming<'_>) {
    let raw = match message {
        Incoming::Request(request) => request.params,
        Incoming::Notification(notification) => notification.params,
        Incoming::Response(response) => Some(response.result),
        Incoming::Error { .. } => None,
    };
    if let Some(Err(error)) = raw.map(|raw| serde_json::from_str::<serde_json::Value>(raw.get())) {
        assert!(!error.to_string().contains("recursion"), "{error}");
    }
}

/// A message survives encoding and decoding. Only members that the envelope does not know are left out.
fn check_round_trip(message: &Incoming<'_>) {
    let again = match message {
        Incoming::Request(request) => encode_request(&request.id, &request.method, &request.params),
        Incoming::Notification(notification) => encode_notification(&notification.method, &notification.params),
        Incoming::Response(response) => encode_response(&response.id, &response.result),
        Incoming::Error { id, error } => encode_error(id, error),
    };
    let decoded = decode(&again).expect("an encoded message can be decoded");
    assert_eq!(parts(&decoded), parts(message));
}

/// The members of a message that survive encoding, in one comparable value.
#[derive(Debug, PartialEq)]
struct Parts<'a> {
    id: Option<&'a RequestId>,
    method: Option<&'a str>,
    body: Option<&'a str>,
    error: Option<&'a protocol::WireError>,
}

fn parts<'a>(message: &'a Incoming<'_>) -> Parts<'a> {
    // Missing params are encoded as `null`.
    let body = |raw: Option<&'a RawValue>| Some(raw.map_or("null", RawValue::get));
    match message {
        Incoming::Request(request) => {
            Parts { id: Some(&request.id), method: Some(&request.method), body: body(request.params), error: None }
        }
        Incoming::Notification(notification) => {
            Parts { id: None, method: Some(&notification.method), body: body(notification.params), error: None }
        }
        Incoming::Response(response) => {
            Parts { id: Some(&response.id), method: None, body: body(Some(response.result)), error: None }
        }
        Incoming::Error { id, error } => Parts { id: Some(id), method: None, body: None, error: Some(error) },
    }
}
