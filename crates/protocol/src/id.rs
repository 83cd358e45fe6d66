//! Identifiers. Each has a type of its own, so that a session id cannot be passed where a process id is meant. The types accept
//! any text: the server checks the length.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The id of a request: a string or an integer of 64 bits. The answer repeats it with the same type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RequestId {
    /// The id is a JSON integer.
    Integer(i64),
    /// The id is a JSON string.
    Text(Box<str>),
}

impl RequestId {
    /// The id of an error about a message without a usable id: the id could not be read or is too long, or the
    /// message is not a request.
    pub const UNKNOWN: Self = Self::Integer(-1);
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Integer(n) => serializer.serialize_i64(*n),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RequestIdVisitor;
        impl de::Visitor<'_> for RequestIdVisitor {
            type Value = RequestId;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a 64-bit integer as request id")
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<RequestId, E> {
                Ok(RequestId::Integer(n))
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<RequestId, E> {
                i64::try_from(n)
                    .map(RequestId::Integer)
                    .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(n), &self))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<RequestId, E> {
                Ok(RequestId::Text(text.into()))
            }
        }
        deserializer.deserialize_any(RequestIdVisitor)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(n) => n.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text of the id on the wire.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        // Allows a lookup in a map by borrowed text, without creating an id first.
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id!(
    /// Names a process. Chosen by the client, unique within its session.
    ProcessId
);
text_id!(
    /// Names a session. Chosen by the server, and secret: a client that presents it can resume the session.
    SessionId
);
text_id!(
    /// Names a write to stdin, so that the client can repeat the write safely. Chosen by the client.
    WriteId
);
