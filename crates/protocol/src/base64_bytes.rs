//! Base64 as the wire requires it: standard alphabet, padded, and decoded strictly. This module uses SIMD instructions where the processor
//! has them, because every byte of process output passes through here.

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

/// Length in characters of the base64 text of `raw` bytes, padding included.
pub const fn encoded_len(raw: usize) -> usize {
    raw.div_ceil(3) * 4
}

/// Bytes that are encoded at a time. A multiple of three, so that padding stands only at the end, and small enough that the
/// text stays in the first-level cache until it is copied.
const STAGING_RAW_BYTES: usize = 6 * 1024;

/// Appends the base64 text of `bytes` to `out`. The text is first written into a small buffer on the stack, which is cheaper
/// than filling the new space in `out` with zeros.
pub fn encode_base64_into(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(encoded_len(bytes.len()));
    let mut staging = [0u8; encoded_len(STAGING_RAW_BYTES)];
    for piece in bytes.chunks(STAGING_RAW_BYTES) {
        // The buffer has exactly the size for a whole piece, so the engine cannot run out of space.
        let written = ENGINE.encode_slice(piece, &mut staging).unwrap_or(0);
        debug_assert_eq!(written, encoded_len(piece.len()));
        out.extend_from_slice(&staging[..written]);
    }
}

/// Decodes base64. Missing padding, unused bits that are not zero, line breaks and other alphabets are errors.
pub fn decode_base64(text: impl AsRef<[u8]>) -> Result<Vec<u8>, base64::DecodeError> {
    ENGINE.decode(text)
}

/// Decodes base64 into the start of `buffer`, and returns how many bytes were decoded. The buffer grows if it is too small and
/// never shrinks, so that one buffer serves many messages.
pub fn decode_base64_into(text: &str, buffer: &mut Vec<u8>) -> Result<usize, base64::DecodeError> {
    let max_decoded_bytes = text.len().div_ceil(4) * 3;
    if buffer.len() < max_decoded_bytes {
        buffer.resize(max_decoded_bytes, 0);
    }
    ENGINE.decode_slice(text, buffer).map_err(|error| match error {
        base64::DecodeSliceError::DecodeError(error) => error,
        base64::DecodeSliceError::OutputSliceTooSmall => base64::DecodeError::InvalidLength(text.len()),
    })
}

/// Bytes that are a base64 string on the wire.
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
        decode_base64(&*text).map(Self).map_err(de::Error::custom)
    }
}

/// A string that borrows from the input if it has no escapes, so that a large write is not copied before it is decoded.
#[derive(Deserialize)]
pub(crate) struct CowText<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_but_strict_standard_base64_is_refused() {
        for bad in ["aGk", "aGk=\n", "-_-_", "a", "aGl="] {
            assert!(decode_base64(bad).is_err(), "{bad:?} must not decode");
        }
    }

    #[test]
    fn the_encoded_length_is_exact_and_the_bytes_survive() {
        let mut buffer = Vec::new();
        for n in (0..100).chain([
            STAGING_RAW_BYTES - 1,
            STAGING_RAW_BYTES,
            STAGING_RAW_BYTES + 1,
            5 * STAGING_RAW_BYTES + 2,
        ]) {
            let raw: Vec<u8> = (0..n).map(|i| i as u8).collect();
            let mut out = b"x".to_vec();
            encode_base64_into(&mut out, &raw);
            assert_eq!(out.len(), 1 + encoded_len(n));
            let text = std::str::from_utf8(&out[1..]).unwrap();
            assert_eq!(decode_base64(text).unwrap(), raw);
            let decoded = decode_base64_into(text, &mut buffer).unwrap();
            assert_eq!(buffer[..decoded], raw);
        }
    }
}
