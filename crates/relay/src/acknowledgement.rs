//! Proves that an acknowledgement comes from the peer. Acknowledgements travel in the header of a frame, which the relay
//! can read and alter. Without a proof a relay could acknowledge output that the peer never received, and the executor
//! would drop this output.

use std::fmt;

use aws_lc_rs::hmac;
use clatter::bytearray::ByteArray as _;

use crate::cipher_suite::CipherKey;

/// Input of the key derivation, so that the key for acknowledgements differs from the key for records.
const PURPOSE: &[u8] = b"exec-server/relay/acknowledgement/v1";

/// What a frame says about the records that its sender has received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Acknowledgement {
    pub(crate) ack: u32,
    pub(crate) ack_bits: u32,
    pub(crate) credit: u32,
}

/// Makes and checks the tags of the acknowledgements of one direction.
pub(crate) struct AcknowledgementKey(hmac::Key);

impl AcknowledgementKey {
    /// Derives the key from the key for the records of the same direction.
    pub(crate) fn derive(record_key: &CipherKey) -> Self {
        let root = hmac::Key::new(hmac::HMAC_SHA256, record_key.as_slice());
        Self(hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&root, PURPOSE).as_ref()))
    }

    /// The first 64 bits of an HMAC. This is long enough, because a relay can guess only once: a wrong tag ends the
    /// stream. A relay can repeat an old acknowledgement with its tag, but that has no effect.
    pub(crate) fn tag(&self, acknowledgement: Acknowledgement) -> u64 {
        let Acknowledgement { ack, ack_bits, credit } = acknowledgement;
        let mut text = [0; 12];
        for (place, number) in text.chunks_exact_mut(4).zip([ack, ack_bits, credit]) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        let tag = hmac::sign(&self.0, &text);
        tag.as_ref().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

/// Leaves out the key, which must not reach a log.
impl fmt::Debug for AcknowledgementKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcknowledgementKey").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_depends_on_every_number_and_on_the_key() {
        let [key, other] = [1, 2].map(|byte| AcknowledgementKey::derive(&CipherKey::from_slice(&[byte; 32])));
        let said = Acknowledgement { ack: 7, ack_bits: 5, credit: 71 };
        assert_eq!(key.tag(said), key.tag(said));
        assert_ne!(key.tag(said), other.tag(said));
        for altered in [
            Acknowledgement { ack: 8, ..said },
            Acknowledgement { ack_bits: 4, ..said },
            Acknowledgement { credit: 72, ..said },
        ] {
            assert_ne!(key.tag(said), key.tag(altered));
        }
    }
}
