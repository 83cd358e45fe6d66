//! Reading messages: one pass for syntax and the envelope's members, one for the limits, nothing copied but the id.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, IgnoredAny, MapAccess};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::limits;
use super::published_text::published_text;
use crate::{RequestId, WireError};

/// A message that arrived.
#[derive(Debug)]
pub enum Incoming<'a> {
    /// Wants an answer.
    Request(Request<'a>),
    /// Wants none.
    Notification(Notification<'a>),
    /// Answers a request of ours, with success.
    Response(Response<'a>),
    /// Answers a request of ours, with failure.
    Error {
        /// Which request.
        id: RequestId,
        /// Why it failed.
        error: WireError,
    },
}

/// A call.
#[derive(Debug)]
pub struct Request<'a> {
    /// To be echoed.
    pub id: RequestId,
    /// What is called.
    pub method: Cow<'a, str>,
    /// Not decoded yet.
    pub params: Option<&'a RawValue>,
    /// The caller's trace, if it sent a usable one.
    pub trace: Option<TraceContext>,
}

/// A message without answer.
#[derive(Debug)]
pub struct Notification<'a> {
    /// What happened.
    pub method: Cow<'a, str>,
    /// Not decoded yet.
    pub params: Option<&'a RawValue>,
}

/// A successful answer.
#[derive(Debug)]
pub struct Response<'a> {
    /// Which request.
    pub id: RequestId,
    /// Not decoded yet.
    pub result: &'a RawValue,
}

/// W3C trace context of a caller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    /// Names the trace and the parent span.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Vendor data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
}

/// Why a message is not one. The sender is to blame.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Bytes that are no text.
    #[error("invalid UTF-8: {0}")]
    Utf8(#[from] std::str::Utf8Error),
    /// Text that is no JSON.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// JSON that is no object.
    #[error("expected a JSON-RPC object")]
    NotAnObject,
    /// See [`MAX_VALUES`](crate::MAX_VALUES).
    #[error("JSON-RPC message exceeds the limit of {} JSON values", limits::MAX_VALUES)]
    TooManyValues,
    /// See [`MAX_DEPTH`](crate::MAX_DEPTH).
    #[error("JSON-RPC message exceeds the limit of {} nested containers", limits::MAX_DEPTH)]
    TooDeep,
    /// Two members of the same name.
    #[error("duplicate JSON object key `{0}`")]
    DuplicateKey(String),
    /// An object that is neither request, notification nor answer.
    #[error("missing field `{0}`")]
    Missing(&'static str),
    /// A member of the wrong type.
    #[error("{0}")]
    Member(String),
    /// An id that is neither a string nor an integer of 64 bits.
    #[error("data did not match any variant of untagged enum RequestId")]
    Id,
}

/// Decodes one message.
pub fn decode(bytes: &[u8]) -> Result<Incoming<'_>, DecodeError> {
    let text = std::str::from_utf8(bytes)?;
    let members = match serde_json::from_str::<EnvelopeMembers<'_>>(text) {
        Ok(members) => members,
        Err(error) => return Err(syntax_error(text, error)),
    };
    limits::check(text)?;
    members.classify()
}

/// The id of a request of which only the beginning is known, for an answer to a message too large to take.
pub fn sniff_id(prefix: &[u8]) -> Option<RequestId> {
    let rest = members_of_object(prefix)?.trim_start().strip_prefix("\"id\"")?;
    let (id, _) = first_value(rest.trim_start().strip_prefix(':')?)?;
    serde_json::from_str(id.get()).ok()
}

/// The method of a request of which only the beginning is known, or which is not JSON to its end. None if anything before the method
/// cannot be read.
pub fn sniff_method(prefix: &[u8]) -> Option<String> {
    let mut rest = members_of_object(prefix)?;
    loop {
        let (name, after) = first_value(rest)?;
        let (value, after) = first_value(after.trim_start().strip_prefix(':')?)?;
        if serde_json::from_str::<MemberName<'_>>(name.get()).ok()?.0 == "method" {
            return serde_json::from_str(value.get()).ok();
        }
        rest = after.trim_start().strip_prefix(',')?;
    }
}

/// What follows the brace that opens an object.
fn members_of_object(prefix: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(prefix).unwrap_or_else(|error| {
        // The cut may have gone through a character; what stands before it is enough.
        std::str::from_utf8(&prefix[..error.valid_up_to()]).unwrap_or_default()
    });
    text.trim_start().strip_prefix('{')
}

/// The first value of a text, and what follows it. A value that runs to the end of the text may go on behind it, and is none.
fn first_value(text: &str) -> Option<(&RawValue, &str)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    let value = values.next()?.ok()?;
    let rest = text.get(values.byte_offset()..).filter(|rest| !rest.is_empty())?;
    Some((value, rest))
}

/// A scalar or an array is well-formed JSON of the wrong kind and says so; anything else says where it stops being JSON.
fn syntax_error(text: &str, error: serde_json::Error) -> DecodeError {
    if !error.is_data() || text.trim_start().starts_with('{') {
        return DecodeError::Json(error);
    }
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => DecodeError::NotAnObject,
        Err(error) => DecodeError::Json(error),
    }
}

#[derive(Default)]
struct EnvelopeMembers<'a> {
    id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    params: Option<&'a RawValue>,
    trace: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for EnvelopeMembers<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = EnvelopeMembers<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON-RPC object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<EnvelopeMembers<'de>, A::Error> {
                let mut members = EnvelopeMembers::default();
                while let Some(MemberName(key)) = map.next_key::<MemberName<'de>>()? {
                    let slot = match &*key {
                        "id" => &mut members.id,
                        "method" => &mut members.method,
                        "params" => &mut members.params,
                        "trace" => &mut members.trace,
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
        deserializer.deserialize_map(Visitor)
    }
}

#[derive(Deserialize)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> EnvelopeMembers<'a> {
    fn classify(self) -> Result<Incoming<'a>, DecodeError> {
        if let Some(method) = self.method {
            let method = serde_json::from_str::<MemberName<'a>>(method.get())
                .map_err(|error| DecodeError::Member(published_text::<String>(method.get(), &error)))?
                .0;
            return Ok(match self.id {
                Some(id) => Incoming::Request(Request {
                    id: request_id(Some(id))?,
                    method,
                    params: self.params,
                    trace: self.trace.and_then(|trace| serde_json::from_str(trace.get()).ok()),
                }),
                None => Incoming::Notification(Notification { method, params: self.params }),
            });
        }
        if let Some(result) = self.result {
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
