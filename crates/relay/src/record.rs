//! Records: pieces of the byte stream of one direction, each encrypted with the number of the record as nonce. So a
//! records must be decrypted in the order of their numbers, each once, and a number must never be used for two texts.

use std::fmt;

use aws_lc_rs::aead::{Aad, LessSafeKey};

use crate::cipher_suite::{CipherKey, nonce, record_key};
use crate::handshake::HandshakeFailure;
use crate::limits::{MAX_NOISE_BYTES, MAX_RECORD_BYTES, TAG_BYTES};

/// Why a record cannot be encrypted or decrypted. The stream has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordFailure {
    /// A record was altered, or is not the one with the expected number.
    #[error("a record was altered on its way")]
    Altered,
    /// A record is longer than the protocol allows, or too short to be one.
    #[error("a record has a length that the protocol does not allow")]
    Length,
    /// All numbers of records are used.
    #[error("the stream has used up its record numbers")]
    Exhausted,
}

/// Encrypts the records that this end sends.
pub struct RecordSealer {
    key: LessSafeKey,
    /// The last number is not used, so that a count of records has 32 bits too.
    next: u32,
}

impl RecordSealer {
    pub(crate) fn new(key: &CipherKey) -> Result<Self, HandshakeFailure> {
        Ok(Self { key: record_key(key).map_err(|_| HandshakeFailure::Keys)?, next: 0 })
    }

    /// Encrypts `text` in its place, appends the tag, and returns the number of the record.
    pub fn seal(&mut self, text: &mut Vec<u8>) -> Result<u32, RecordFailure> {
        let number = self.next;
        if text.len() > MAX_RECORD_BYTES {
            return Err(RecordFailure::Length);
        }
        self.next = number.checked_add(1).ok_or(RecordFailure::Exhausted)?;
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce(number.into()), Aad::empty(), text)
            .map_err(|_| RecordFailure::Length)?;
        text.extend_from_slice(tag.as_ref());
        Ok(number)
    }

    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, next: u32) {
        self.next = next;
    }
}

/// Decrypts the records of the peer, in the order of their numbers.
pub struct RecordOpener {
    key: LessSafeKey,
    /// None after the record with the last number.
    next: Option<u32>,
}

impl RecordOpener {
    pub(crate) fn new(key: &CipherKey) -> Result<Self, HandshakeFailure> {
        Ok(Self { key: record_key(key).map_err(|_| HandshakeFailure::Keys)?, next: Some(0) })
    }

    /// Decrypts the next record in its buffer, and returns the plaintext.
    pub fn open<'a>(&mut self, record: &'a mut [u8]) -> Result<&'a [u8], RecordFailure> {
        let number = self.next.ok_or(RecordFailure::Exhausted)?;
        if !(TAG_BYTES..=MAX_NOISE_BYTES).contains(&record.len()) {
            return Err(RecordFailure::Length);
        }
        let plaintext =
            self.key.open_in_place(nonce(number.into()), Aad::empty(), record).map_err(|_| RecordFailure::Altered)?;
        self.next = number.checked_add(1);
        if plaintext.len() > MAX_RECORD_BYTES { Err(RecordFailure::Length) } else { Ok(plaintext) }
    }
}

/// Only the next number: the key must not reach a log.
impl fmt::Debug for RecordSealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordSealer").field("next", &self.next).finish_non_exhaustive()
    }
}

/// Only the next number: the key must not reach a log.
impl fmt::Debug for RecordOpener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordOpener").field("next", &self.next).finish_non_exhaustive()
    }
}
