//! Decodes the envelope of a message: one pass for the syntax and the members of the envelope, and one for the limits. Params
//! and results are borrowed from the message.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, IgnoredAny, MapAccess};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::limits;
use super::published_text::published_text;
use crate::{RequestId, WireError};

/// A message from the peer. Which members it has decides its kind: with `method` it is a request or a notification, otherwise a
/// response or an error.
#[derive(Debug)]
pub enum Incoming<'a> {
    /// A request, which the receiver must answer under its id.
    Request(Request<'a>),
    /// A notification, which gets no answer.
    Notification(Notification<'a>),
    /// The successful answer to a request that the receiver of this message has sent.
    Response(Response<'a>),
    /// The answer to a request that the receiver of this message has sent and that failed.
    Error {
        /// The request that failed, or -1 if the peer could not read its id.
        id: RequestId,
        /// Code, cause and message of the failure.
        error: WireError,
    },
}

/// A request of the peer. Its member `trace` (W3C trace context) is ignored.
#[derive(Debug)]
pub struct Request<'a> {
    /// The id that the answer must repeat.
    pub id: RequestId,
    /// Name of the method. The receiver may not know the method.
    pub method: Cow<'a, str>,
    /// Params, not decoded yet. None if the member is absent.
    pub params: Option<&'a RawValue>,
}

/// A notification of the peer.
#[derive(Debug)]
pub struct Notification<'a> {
    /// Name of the notification. The receiver may not know the notification.
    pub method: Cow<'a, str>,
    /// Params, not decoded yet. None if the member is absent.
    pub params: Option<&'a RawValue>,
}

/// A successful answer of the peer.
#[derive(Debug)]
pub struct Response<'a> {
    /// The id of the request that is answered. The receiver may know no such request.
    pub id: RequestId,
    /// Result, not decoded yet. It may be `null`.
    pub result: &'a RawValue,
}

/// Why a message could not be decoded. The fault is always the sender's. The texts are part of the published
/// protocol, that of `codex exec-server`.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The message is not UTF-8.
    #[error("invalid UTF-8: {0}")]
    Utf8(#[from] std::str::Utf8Error),
    /// The message is not JSON.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// The message is JSON, but not an object.
    #[error("expected a JSON-RPC object")]
    NotAnObject,
    /// The message has more than [`MAX_VALUES`](crate::MAX_VALUES) values.
    #[error("JSON-RPC message exceeds the limit of {} JSON values", limits::MAX_VALUES)]
    TooManyValues,
    /// The message has more than [`MAX_DEPTH`](crate::MAX_DEPTH) nested arrays and objects.
    #[error("JSON-RPC message exceeds the limit of {} nested containers", limits::MAX_DEPTH)]
    TooDeep,
    /// An object, at any depth, has two members of this name.
    #[error("duplicate JSON object key `{0}`")]
    DuplicateKey(String),
    /// The object lacks this member, so it is no request, notification, response or error.
    #[error("missing field `{0}`")]
    Missing(&'static str),
    /// The member `method` or `error` of the envelope does not have the form that it must have.
    #[error("{0}")]
    Member(String),
    /// The id is neither a string nor an integer of 64 bits.
    #[error("data did not match any variant of untagged enum RequestId")]
    Id,
}

/// Decodes one message, and checks the limits that [`DecodeError`] names. The size of the message is checked by the transport.
pub fn decode(bytes: &[u8]) -> Result<Incoming<'_>, DecodeError> {
    let text = std::str::from_utf8(bytes)?;
    let members = match serde_json::from_str::<EnvelopeMembers<'_>>(text) {
        Ok(members) => members,
        Err(error) => return Err(syntax_error(text, error)),
    };
    limits::check_json(text)?;
    members.classify()
}

/// Finds the id of a request in the beginning of its message. The server uses this for a message over the size
/// limit, of which it has kept only the beginning. None unless `id` is the first member, complete and valid.
pub fn sniff_id(prefix: &[u8]) -> Option<RequestId> {
    let rest = members_of_object(prefix)?.trim_start().strip_prefix("\"id\"")?;
    let (id, _) = first_value(rest.trim_start().strip_prefix(':')?)?;
    serde_json::from_str(id.get()).ok()
}

/// Finds the method of a request in the beginning of its message, or in a message that is malformed after the
/// method. None if the method or a member before it cannot be read, or if there is no method.
pub fn sniff_method(prefix: &[u8]) -> Option<String> {
    let mut rest = members_of_object(prefix)?;
    loop {
        let (name, after) = first_value(rest)?;
        let (value, after) = first_value(after.trim_start().strip_prefix(':')?)?;
        if serde_json::from_str::<JsonString<'_>>(name.get()).ok()?.0 == "method" {
            return serde_json::from_str(value.get()).ok();
        }
        rest = after.trim_start().strip_prefix(',')?;
    }
}

/// The text after the brace that opens the object. None if the text does not begin with an object.
fn members_of_object(prefix: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(prefix).unwrap_or_else(|error| {
        // The message may have been cut within a character. The text before that character is enough.
        std::str::from_utf8(&prefix[..error.valid_up_to()]).unwrap_or_default()
    });
    text.trim_start().strip_prefix('{')
}

/// The first value of `text`, and the text after it. None if the value reaches the end of the text, because a cut value could
/// have been longer.
fn first_value(text: &str) -> Option<(&RawValue, &str)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    let value = values.next()?.ok()?;
    let rest = text.get(values.byte_offset()..).filter(|rest| !rest.is_empty())?;
    Some((value, rest))
}

/// Makes the error for a text from which no envelope could be read. Valid JSON that is not an object gets an error
/// of its own. For any other text the error says where the JSON is invalid.
fn syntax_error(text: &str, error: serde_json::Error) -> DecodeError {
    if !error.is_data() || text.trim_start().starts_with('{') {
        return DecodeError::Json(error);
    }
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => DecodeError::NotAnObject,
        Err(error) => DecodeError::Json(error),
    }
}

/// The members of the envelope, not decoded yet. None for each absent member.
#[derive(Default)]
struct EnvelopeMembers<'a> {
    id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for EnvelopeMembers<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> de::Visitor<'de> for MembersVisitor {
            type Value = EnvelopeMembers<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON-RPC object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<EnvelopeMembers<'de>, A::Error> {
                let mut members = EnvelopeMembers::default();
                while let Some(JsonString(key)) = map.next_key::<JsonString<'de>>()? {
                    let slot = match &*key {
                        "id" => &mut members.id,
                        "method" => &mut members.method,
                        "params" => &mut members.params,
                        "result" => &mut members.result,
                        "error" => &mut members.error,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    *slot = Some(map.next_value()?);
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

/// A JSON string that borrows from the message if it has no escapes: the name of a member, or the value of `method`.
#[derive(Deserialize)]
struct JsonString<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> EnvelopeMembers<'a> {
    /// Decides which kind of message has these members, and decodes all but params and result.
    fn classify(self) -> Result<Incoming<'a>, DecodeError> {
        if let Some(method) = self.method {
            let method = serde_json::from_str::<JsonString<'a>>(method.get())
                .map_err(|error| DecodeError::Member(published_text::<String>(method.get(), &error)))?
                .0;
            return Ok(match self.id {
                Some(id) => Incoming::Request(Request { id: request_id(Some(id))?, method, params: self.params }),
                None => Incoming::Notification(Notification { method, params: self.params }),
            });
        }
        // A message with both a result and an error says that something went wrong. Older clients send `null` for no error.
        let has_error = self.error.is_some_and(|error| error.get() != "null");
        if let Some(result) = self.result.filter(|_| !has_error) {
            return Ok(Incoming::Response(Response { id: request_id(self.id)?, result }));
        }
        let json = self.error.ok_or(DecodeError::Missing("error"))?.get();
        let error = serde_json::from_str(json)
            .map_err(|error| DecodeError::Member(published_text::<WireError>(json, &error)))?;
        Ok(Incoming::Error { error, id: request_id(self.id)? })
    }
}

fn request_id(member: Option<&RawValue>) -> Result<RequestId, DecodeError> {
    let raw = member.ok_or(DecodeError::Missing("id"))?;
    serde_json::from_str(raw.get()).map_err(|_| DecodeError::Id)
}
