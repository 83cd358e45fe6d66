//! Base64 as the wire wants it: standard alphabet, padded, strict. Uses the best SIMD the processor has, because
//! every byte of process output passes through here.

use std::borrow::Cow;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::PAD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
type BestEngine = base64::engine::Simd;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
type BestEngine = base64::engine::GeneralPurpose;

static ENGINE: LazyLock<BestEngine> = LazyLock::new(|| {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    return base64::engine::Simd::standard(PAD);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return base64::engine::GeneralPurpose::new(&base64::alphabet::STANDARD, PAD);
});

/// How many characters `raw` bytes become, padding included.
pub const fn encoded_len(raw: usize) -> usize {
    raw.div_ceil(3) * 4
}

/// Appends the base64 text of `bytes` to `out` without an intermediate string.
pub fn encode_base64_into(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + encoded_len(bytes.len()), 0);
    // The space is exactly what padded base64 needs, so the engine cannot run out of it.
    let written = ENGINE.encode_slice(bytes, &mut out[start..]).unwrap_or(0);
    debug_assert_eq!(written, encoded_len(bytes.len()));
}

/// Decodes padded standard base64, strictly.
pub fn decode_base64(text: &str) -> Result<Vec<u8>, base64::DecodeError> {
    ENGINE.decode(text)
}

/// Bytes that travel as a base64 string.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Base64Bytes(pub Vec<u8>);

impl Serialize for Base64Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&ENGINE.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = CowText::deserialize(deserializer)?.0;
        decode_base64(&text).map(Self).map_err(|error| de::Error::custom(format_args!("invalid base64: {error}")))
    }
}

/// Borrows the string where the input allows it, so that a large write is not copied before it is decoded.
#[derive(Deserialize)]
struct CowText<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_missing_padding_and_foreign_alphabets() {
        for bad in ["aGk", "aGk=\n", "-_-_", "a", "aGl="] {
            assert!(decode_base64(bad).is_err(), "{bad:?} must not decode");
        }
    }

    #[test]
    fn encodes_what_it_announces() {
        for n in 0..100 {
            let raw = vec![7u8; n];
            let mut out = b"x".to_vec();
            encode_base64_into(&mut out, &raw);
            assert_eq!(out.len(), 1 + encoded_len(n));
            assert_eq!(decode_base64(std::str::from_utf8(&out[1..]).unwrap()).unwrap(), raw);
        }
    }
}
