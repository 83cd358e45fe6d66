//! Credit of one direction of a TCP stream. The sending side counts in [`SendCredit`] how many bytes it may still send.
//! The receiving side keeps in [`ReceivedBytes`] the bytes that it has not consumed. Client and server use both, each
//! for one direction.

use std::collections::VecDeque;

use super::MAX_TCP_CHUNK_BYTES;

/// Chunks are merged up to this size, so that many tiny chunks do not take much more memory than their bytes.
const MERGED_BYTES: usize = 16 << 10;

/// How many bytes a sender may still send.
#[derive(Debug)]
pub struct SendCredit(u64);

impl SendCredit {
    /// The credit at the beginning of a stream.
    pub fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Adds credit that the receiver has given. Stops at the largest `u64`.
    pub fn grant(&mut self, bytes: u64) {
        self.0 = self.0.saturating_add(bytes);
    }

    /// How many of `wanted` bytes may be sent now.
    pub fn allowed(&self, wanted: usize) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX).min(wanted)
    }

    /// Uses up credit for bytes that are sent. `bytes` must not exceed [`Self::allowed`].
    pub fn spend(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(bytes as u64);
    }
}

/// The reason why a receiver ends a stream: the sender has broken a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamViolation {
    /// It has sent more bytes than its credit, or more than one message may carry.
    OverCredit,
    /// It has sent bytes after the end of the direction.
    AfterEnd,
}

/// The receiving side of one direction: the bytes that were not consumed, and the credit of the sender.
#[derive(Debug)]
pub struct ReceivedBytes {
    chunks: VecDeque<Vec<u8>>,
    /// Bytes that the sender may still send.
    open: u64,
    /// Bytes that were consumed and for which the sender has no new credit yet.
    to_grant: u64,
    /// The sender gets new credit when [`Self::to_grant`] has reached this number of bytes.
    grant_step: u64,
    has_ended: bool,
}

impl ReceivedBytes {
    /// A direction whose sender may send up to `window` bytes that are not consumed.
    pub fn new(window: u64) -> Self {
        Self {
            chunks: VecDeque::new(),
            open: window,
            to_grant: 0,
            // With new credit for each quarter of the window, the sender need not wait until the whole window is
            // consumed.
            grant_step: (window / 4).max(1),
            has_ended: false,
        }
    }

    /// Adds the bytes of a message. `is_end`: no bytes follow in this direction.
    pub fn push(&mut self, bytes: Vec<u8>, is_end: bool) -> Result<(), StreamViolation> {
        if self.has_ended {
            return Err(StreamViolation::AfterEnd);
        }
        let length = bytes.len() as u64;
        if length > self.open || bytes.len() > MAX_TCP_CHUNK_BYTES {
            return Err(StreamViolation::OverCredit);
        }
        self.open -= length;
        self.has_ended = is_end;
        match self.chunks.back_mut() {
            _ if bytes.is_empty() => {}
            Some(last) if last.len() + bytes.len() <= MERGED_BYTES => last.extend_from_slice(&bytes),
            _ => self.chunks.push_back(bytes),
        }
        Ok(())
    }

    /// Takes the next bytes. They count as not consumed until [`Self::note_consumed`] is called for them.
    pub fn pop(&mut self) -> Option<Vec<u8>> {
        self.chunks.pop_front()
    }

    /// Whether every byte was popped and no byte will follow.
    pub fn is_over(&self) -> bool {
        self.has_ended && self.chunks.is_empty()
    }

    /// Whether the sender has sent the end of the direction.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Notes that popped bytes were consumed. Returns the credit that the sender must be given now, if it is enough for
    /// a message.
    pub fn note_consumed(&mut self, bytes: usize) -> Option<u64> {
        self.to_grant += bytes as u64;
        if self.to_grant < self.grant_step || self.has_ended {
            return None;
        }
        self.open += self.to_grant;
        Some(std::mem::take(&mut self.to_grant))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_beyond_the_credit_or_after_the_end_are_refused() {
        let mut received = ReceivedBytes::new(10);
        received.push(vec![1; 10], false).unwrap();
        assert_eq!(received.push(vec![1], false), Err(StreamViolation::OverCredit));
        assert_eq!(received.pop().unwrap().len(), 10);
        assert_eq!(
            received.push(vec![1], false),
            Err(StreamViolation::OverCredit),
            "popped bytes are not consumed yet"
        );
        assert_eq!(received.note_consumed(10), Some(10));
        received.push(vec![1; 10], true).unwrap();
        assert_eq!(received.push(Vec::new(), true), Err(StreamViolation::AfterEnd));
        let mut wide = ReceivedBytes::new(u64::MAX);
        assert_eq!(wide.push(vec![0; MAX_TCP_CHUNK_BYTES + 1], false), Err(StreamViolation::OverCredit));
    }

    #[test]
    fn tiny_chunks_are_merged() {
        let mut received = ReceivedBytes::new(1 << 20);
        (0..MERGED_BYTES).for_each(|_| received.push(vec![7], false).unwrap());
        (0..100).for_each(|_| received.push(Vec::new(), false).unwrap());
        assert_eq!((received.pop().unwrap().len(), received.pop()), (MERGED_BYTES, None));
    }

    proptest! {
        /// However the bytes are split into messages, a sender that respects its credit is never refused, never stuck,
        /// and loses nothing.
        #[test]
        fn every_byte_arrives_in_order_and_the_sender_never_gets_stuck(
            window in 1u64..5000,
            sizes in proptest::collection::vec(1usize..4000, 1..60),
        ) {
            let (mut credit, mut received) = (SendCredit::new(window), ReceivedBytes::new(window));
            let total: usize = sizes.iter().sum();
            let (mut sent, mut arrived) = (0, Vec::new());
            let mut sizes = sizes.into_iter().cycle();
            while arrived.len() < total {
                let wanted = sizes.next().unwrap_or(1).min(total - sent);
                let length = credit.allowed(wanted);
                credit.spend(length);
                let bytes = (sent..sent + length).map(|at| at as u8).collect();
                sent += length;
                prop_assert_eq!(received.push(bytes, false), Ok(()));
                prop_assert!((sent - arrived.len()) as u64 <= window);
                let Some(chunk) = received.pop() else {
                    prop_assert!(length > 0, "neither side can go on");
                    continue;
                };
                if let Some(more) = received.note_consumed(chunk.len()) {
                    credit.grant(more);
                }
                arrived.extend(chunk);
            }
            prop_assert!(arrived.iter().enumerate().all(|(at, byte)| *byte == at as u8));
        }
    }
}
