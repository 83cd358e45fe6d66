//! Bytes of a fixed length as base64 in JSON, with padding as the published protocol has it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize as _, Deserializer, Serializer};

pub(crate) fn serialize<const N: usize, S: Serializer>(bytes: &[u8; N], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(bytes))
}

pub(crate) fn deserialize<'de, const N: usize, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; N], D::Error> {
    let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
    // The text is not repeated in the error: it may be long, and it comes from a peer.
    let bytes = STANDARD.decode(&*text).map_err(|_| serde::de::Error::custom("is not base64 with padding"))?;
    let found = bytes.len();
    <[u8; N]>::try_from(bytes).map_err(|_| serde::de::Error::custom(format!("has {found} bytes instead of {N}")))
}
