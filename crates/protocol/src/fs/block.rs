//! Encodes messages that carry a block of a file, and recognises them when they arrive. Almost all of such a message
//! is base64, so this file scans the base64 only once, to encode or decode it.
//!
//! Only long messages that are spelled exactly as this file writes them are recognised, by their beginning and their
//! end. [`crate::decode`] handles all others. Start with [`BlockAnswer`] for reading and [`encode_write_block`] for
//! writing.

use std::ops::Range;

use super::WriteBlockParams;
use crate::{Base64Bytes, RequestId, decode_base64, encode_base64_into, encoded_len};

// The fixed parts of the messages. Ids, handles, offsets and base64 stand between them.
const ID: &[u8] = br#"{"id":"#;
const RESULT: &[u8] = br#","result":"#;
const CHUNK: &[u8] = br#"{"chunk":""#;
const NOT_EOF: &[u8] = br#"","eof":false}"#;
const EOF: &[u8] = br#"","eof":true}"#;
const WRITE: &[u8] = br#","method":"fs/writeBlock","params":{"handleId":""#;
const OFFSET: &[u8] = br#"","offset":"#;
const WRITE_CHUNK: &[u8] = br#","chunk":""#;
const WRITE_END: &[u8] = br#""}}"#;

/// Shorter messages are not recognised, because [`crate::decode`] is fast enough for them.
const MIN_RECOGNISED_BYTES: usize = 4 * 1024;

/// The answer to `fs/readBlock`, encoded piece by piece while the file is read.
#[derive(Debug)]
pub struct BlockAnswer {
    message: Vec<u8>,
}

impl BlockAnswer {
    /// Begins the answer. The block can have at most `max_block_bytes`; the message is allocated once, for a block
    /// of this size.
    pub fn begin(id: &RequestId, max_block_bytes: usize) -> Self {
        // A request id is a string or a number, which cannot fail to serialize into memory.
        let id = serde_json::to_vec(id).unwrap_or_default();
        let before = [ID, &id, RESULT, CHUNK];
        let before_bytes = before.iter().map(|part| part.len()).sum::<usize>();
        let length = before_bytes + encoded_len(max_block_bytes) + NOT_EOF.len() + 1;
        let mut message = Vec::with_capacity(length);
        before.iter().for_each(|part| message.extend_from_slice(part));
        Self { message }
    }

    /// Appends a piece of the block. The length of every piece but the last must be a multiple of three, because padding may
    /// only stand at the end.
    pub fn push(&mut self, piece: &[u8]) {
        encode_base64_into(&mut self.message, piece);
    }

    /// Returns the complete message. `eof` says that the block has fewer bytes than the request asked for.
    pub fn end(mut self, eof: bool) -> Vec<u8> {
        self.message.extend_from_slice(if eof { EOF } else { NOT_EOF });
        self.message.push(b'}');
        self.message
    }
}

/// Recognises a long answer that [`BlockAnswer`] could have written, with a non-negative number as its id. Returns
/// the id, and the range of the message that is the result. The base64 in the result is not checked. Returns none
/// for any other message.
pub fn recognise_block_answer(message: &[u8]) -> Option<(i64, Range<usize>)> {
    if message.len() < MIN_RECOGNISED_BYTES {
        return None;
    }
    let (id, rest) = leading_number(message.strip_prefix(ID)?)?;
    let result = rest.strip_prefix(RESULT)?.strip_suffix(b"}")?;
    if !result.starts_with(CHUNK) || !(result.ends_with(NOT_EOF) || result.ends_with(EOF)) {
        return None;
    }
    let end = message.len() - 1;
    Some((id, end - result.len()..end))
}

/// Decodes the result of `fs/readBlock` if it is spelled as [`BlockAnswer`] writes it. Returns the bytes of the
/// block and the member `eof`, or none if the result is spelled differently or has invalid base64.
pub fn decode_block_result(result: &[u8]) -> Option<(Vec<u8>, bool)> {
    let chunk = result.strip_prefix(CHUNK)?;
    let (chunk, eof) = match chunk.strip_suffix(NOT_EOF) {
        Some(chunk) => (chunk, false),
        None => (chunk.strip_suffix(EOF)?, true),
    };
    Some((decode_base64(chunk).ok()?, eof))
}

/// Decodes a long request that [`encode_write_block`] could have written, with a non-negative number as its id and a
/// handle without escapes. Returns none for any other message.
pub fn recognise_write_block(message: &[u8]) -> Option<(RequestId, WriteBlockParams)> {
    if message.len() < MIN_RECOGNISED_BYTES {
        return None;
    }
    let (id, rest) = leading_number(message.strip_prefix(ID)?)?;
    let rest = rest.strip_prefix(WRITE)?;
    let handle_end = rest.iter().take(MIN_RECOGNISED_BYTES).position(|byte| matches!(byte, b'"' | b'\\' | ..0x20))?;
    let (handle, rest) = rest.split_at(handle_end);
    let (offset, rest) = leading_number(rest.strip_prefix(OFFSET)?)?;
    let chunk = rest.strip_prefix(WRITE_CHUNK)?.strip_suffix(WRITE_END)?;
    let params = WriteBlockParams {
        handle_id: std::str::from_utf8(handle).ok()?.to_owned(),
        offset: u64::try_from(offset).ok()?,
        chunk: Base64Bytes(decode_base64(chunk).ok()?),
    };
    Some((RequestId::Integer(id), params))
}

/// Encodes a request of `fs/writeBlock`.
pub fn encode_write_block(id: &RequestId, handle_id: &str, offset: u64, block: &[u8]) -> Vec<u8> {
    // Strings and numbers cannot fail to serialize into memory.
    let id = serde_json::to_vec(id).unwrap_or_default();
    let handle = serde_json::to_vec(handle_id).unwrap_or_default();
    let handle = handle.get(1..handle.len() - 1).unwrap_or_default();
    let offset = offset.to_string();
    let before = [ID, &id, WRITE, handle, OFFSET, offset.as_bytes(), WRITE_CHUNK];
    let length = before.iter().map(|part| part.len()).sum::<usize>() + encoded_len(block.len()) + WRITE_END.len();
    let mut message = Vec::with_capacity(length);
    before.iter().for_each(|part| message.extend_from_slice(part));
    encode_base64_into(&mut message, block);
    message.extend_from_slice(WRITE_END);
    message
}

/// Splits off a non-negative number at the start of `text`. Returns none if there is none, if it does not fit an
/// `i64`, or if it has leading zeros, which JSON does not allow.
fn leading_number(text: &[u8]) -> Option<(i64, &[u8])> {
    const MAX_DIGITS: usize = 19;
    let digits = text.iter().take(MAX_DIGITS + 1).position(|byte| !byte.is_ascii_digit())?;
    let (digits, rest) = text.split_at(digits);
    if digits.len() > 1 && digits[0] == b'0' {
        return None;
    }
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fs::ReadBlockResult;
    use crate::{Incoming, decode, decode_params};

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 0..8000)
    }

    proptest! {
        #[test]
        fn a_recognised_answer_equals_the_decoded_one(id in 0..=i64::MAX, bytes in bytes(), triples in 1_usize..900, eof: bool) {
            let mut answer = BlockAnswer::begin(&RequestId::Integer(id), bytes.len());
            let capacity = answer.message.capacity();
            bytes.chunks(triples * 3).for_each(|piece| answer.push(piece));
            let message = answer.end(eof);
            prop_assert_eq!(message.capacity(), capacity, "the message was reallocated");
            let Ok(Incoming::Response(response)) = decode(&message) else { panic!("not an answer") };
            let result: ReadBlockResult = serde_json::from_str(response.result.get()).unwrap();
            prop_assert_eq!((response.id, &result.chunk.0, result.eof), (RequestId::Integer(id), &bytes, eof));
            match recognise_block_answer(&message) {
                Some((recognised, range)) => {
                    prop_assert_eq!(recognised, id);
                    prop_assert_eq!(&message[range.clone()], response.result.get().as_bytes());
                    prop_assert_eq!(decode_block_result(&message[range]), Some((bytes, eof)));
                }
                None => prop_assert!(message.len() < MIN_RECOGNISED_BYTES),
            }
        }

        #[test]
        fn a_recognised_request_equals_the_decoded_one(
            id in 0..=i64::MAX,
            handle in ".{0,20}",
            offset in 0..=i64::MAX as u64,
            bytes in bytes(),
        ) {
            let message = encode_write_block(&RequestId::Integer(id), &handle, offset, &bytes);
            prop_assert_eq!(message.capacity(), message.len());
            let Ok(Incoming::Request(request)) = decode(&message) else { panic!("not a request") };
            let decoded: WriteBlockParams = decode_params(request.params).unwrap();
            prop_assert_eq!(&decoded, &WriteBlockParams { handle_id: handle.clone(), offset, chunk: Base64Bytes(bytes) });
            match recognise_write_block(&message) {
                Some(recognised) => prop_assert_eq!(recognised, (RequestId::Integer(id), decoded)),
                None => prop_assert!(message.len() < MIN_RECOGNISED_BYTES || serde_json::to_string(&handle).unwrap().contains('\\')),
            }
        }

        #[test]
        fn a_changed_byte_never_makes_the_two_decoders_disagree(at in 0_usize..6000, new_byte: u8, bytes in bytes()) {
            let mut message = encode_write_block(&RequestId::Integer(7), "h", 12, &bytes);
            let at = at % message.len();
            message[at] = new_byte;
            if let Some((id, params)) = recognise_write_block(&message) {
                let Ok(Incoming::Request(request)) = decode(&message) else { panic!("not a request") };
                prop_assert_eq!((request.id, decode_params(request.params).unwrap()), (id, params));
            }
        }
    }
}
