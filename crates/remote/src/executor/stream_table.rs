//! The streams of an executor, as a value: which frame belongs to a stream, begins a handshake, or is refused. It knows no
//! sockets and no keys; `S` is a stream.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use relay::{Frame, FrameBody};

/// Most streams of one executor.
pub(super) const MAX_STREAMS: usize = 128;

/// Most handshakes that wait for an answer of the registry. A further one is refused.
pub(super) const MAX_HANDSHAKES: usize = 32;

/// What to do with a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FrameVerdict<S> {
    /// The frame belongs to this stream.
    Deliver(S),
    /// The frame begins a handshake, which has this number from now on.
    Begin(u64),
    /// The frame cannot be used, and its sender has to learn it. Says why.
    Reset(&'static str),
    /// The frame says nothing.
    Ignore,
}

/// A stream, or the handshake before it.
#[derive(Debug)]
enum StreamEntry<S> {
    /// The number tells apart two handshakes with the same stream id.
    Handshake {
        number: u64,
        message: MessageHash,
    },
    Stream {
        stream: S,
        message: MessageHash,
    },
}

/// Hash of the handshake message with which an entry began. A copy of this message is ignored.
type MessageHash = u64;

/// All streams and handshakes.
#[derive(Debug)]
pub(super) struct StreamTable<S> {
    entries: HashMap<String, StreamEntry<S>>,
    handshakes: usize,
    last_number: u64,
    /// Has random keys, so that nobody can construct two messages with the same hash.
    hasher: RandomState,
}

impl<S> Default for StreamTable<S> {
    fn default() -> Self {
        Self { entries: HashMap::new(), handshakes: 0, last_number: 0, hasher: RandomState::new() }
    }
}

impl<S: Clone> StreamTable<S> {
    /// Decides about a frame that has arrived.
    pub(super) fn handle(&mut self, frame: &Frame) -> FrameVerdict<S> {
        match (self.entries.get(&frame.stream_id), &frame.body) {
            // The relay has delivered the same handshake message twice.
            (
                Some(StreamEntry::Stream { message, .. } | StreamEntry::Handshake { message, .. }),
                FrameBody::Handshake(copy),
            ) if *message == self.hasher.hash_one(copy) => FrameVerdict::Ignore,
            // A stream goes on: whoever sends a second handshake is not its harness, or has forgotten it.
            (Some(StreamEntry::Stream { .. }), FrameBody::Handshake(_)) => {
                FrameVerdict::Reset("handshake on a stream")
            }
            (Some(StreamEntry::Stream { stream, .. }), _) => FrameVerdict::Deliver(stream.clone()),
            (Some(StreamEntry::Handshake { .. }), FrameBody::Handshake(_)) => {
                self.drop_handshake(&frame.stream_id);
                FrameVerdict::Reset("handshake repeated")
            }
            (Some(StreamEntry::Handshake { .. }), FrameBody::Data { .. }) => {
                self.drop_handshake(&frame.stream_id);
                FrameVerdict::Reset("record before the handshake")
            }
            (Some(StreamEntry::Handshake { .. }), FrameBody::Reset { .. }) => {
                self.drop_handshake(&frame.stream_id);
                FrameVerdict::Ignore
            }
            (None, FrameBody::Handshake(message)) => self.begin(&frame.stream_id, self.hasher.hash_one(message)),
            // The end behind an unknown stream has to learn that it is over. The first frame of every harness is such a
            // resume, and asks for nothing.
            (None, FrameBody::Data { .. }) => FrameVerdict::Reset("record of an unknown stream"),
            (None, FrameBody::Resume { next_seq }) if *next_seq > 0 || frame.ack > 0 => {
                FrameVerdict::Reset("resumption of an unknown stream")
            }
            // The harness does not know that its stream has ended, perhaps because the reset was lost with a socket.
            (None, FrameBody::Heartbeat) => FrameVerdict::Reset("heartbeat of an unknown stream"),
            _ => FrameVerdict::Ignore,
        }
    }

    fn begin(&mut self, stream_id: &str, message: MessageHash) -> FrameVerdict<S> {
        if self.handshakes >= MAX_HANDSHAKES {
            return FrameVerdict::Reset("too many handshakes");
        }
        if self.entries.len() - self.handshakes >= MAX_STREAMS {
            return FrameVerdict::Reset("too many streams");
        }
        self.last_number += 1;
        self.handshakes += 1;
        let entry = StreamEntry::Handshake { number: self.last_number, message };
        self.entries.insert(stream_id.to_owned(), entry);
        FrameVerdict::Begin(self.last_number)
    }

    fn drop_handshake(&mut self, stream_id: &str) {
        if let Some(StreamEntry::Handshake { .. }) = self.entries.remove(stream_id) {
            self.handshakes -= 1;
        }
    }

    /// The hash of the message of the handshake with this number, if this handshake is still in the table.
    fn handshake_message(&self, stream_id: &str, number: u64) -> Option<MessageHash> {
        match self.entries.get(stream_id) {
            Some(StreamEntry::Handshake { number: known, message }) if *known == number => Some(*message),
            _ => None,
        }
    }

    /// A handshake has failed. Returns whether it was still wanted.
    pub(super) fn forget_handshake(&mut self, stream_id: &str, number: u64) -> bool {
        let is_known = self.handshake_message(stream_id, number).is_some();
        if is_known {
            self.drop_handshake(stream_id);
        }
        is_known
    }

    /// A handshake has succeeded, and becomes a stream. Returns false, and forgets the handshake, if it is no longer
    /// wanted or there are too many streams.
    pub(super) fn finish_handshake(&mut self, stream_id: &str, number: u64, stream: S) -> bool {
        let Some(message) = self.handshake_message(stream_id, number) else { return false };
        self.drop_handshake(stream_id);
        if self.entries.len() - self.handshakes >= MAX_STREAMS {
            return false;
        }
        self.entries.insert(stream_id.to_owned(), StreamEntry::Stream { stream, message });
        true
    }

    /// Removes a stream, if it is the one that `is_same` accepts. Another stream may have its id by now.
    pub(super) fn remove(&mut self, stream_id: &str, is_same: impl FnOnce(&S) -> bool) -> bool {
        let is_known =
            matches!(self.entries.get(stream_id), Some(StreamEntry::Stream { stream, .. }) if is_same(stream));
        if is_known {
            self.entries.remove(stream_id);
        }
        is_known
    }

    /// The streams whose handshake is complete, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = &S> {
        self.entries.values().filter_map(|entry| match entry {
            StreamEntry::Stream { stream, .. } => Some(stream),
            StreamEntry::Handshake { .. } => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(stream_id: &str, body: FrameBody) -> Frame {
        Frame::new(stream_id, body)
    }

    fn handshake(stream_id: &str) -> Frame {
        frame(stream_id, FrameBody::Handshake("m".into()))
    }

    fn other_handshake(stream_id: &str) -> Frame {
        frame(stream_id, FrameBody::Handshake("other".into()))
    }

    fn data(stream_id: &str) -> Frame {
        frame(stream_id, FrameBody::Data { seq: 0, record: "r".into() })
    }

    fn reset(stream_id: &str) -> Frame {
        frame(stream_id, FrameBody::Reset { reason: "r".to_owned() })
    }

    #[test]
    fn a_handshake_becomes_a_stream_that_gets_its_frames() {
        let mut table = StreamTable::default();
        assert_eq!(table.handle(&frame("s", FrameBody::Resume { next_seq: 0 })), FrameVerdict::Ignore);
        assert_eq!(table.handle(&handshake("s")), FrameVerdict::Begin(1));
        assert!(table.finish_handshake("s", 1, 'x'));
        assert_eq!(table.handle(&data("s")), FrameVerdict::Deliver('x'));
        assert_eq!(table.handle(&reset("s")), FrameVerdict::Deliver('x'));
        assert!(matches!(table.handle(&other_handshake("s")), FrameVerdict::Reset(_)));
        assert_eq!(table.handle(&data("s")), FrameVerdict::Deliver('x'), "the stream goes on");
        assert!(!table.remove("s", |stream| *stream == 'y') && table.remove("s", |stream| *stream == 'x'));
        assert!(matches!(table.handle(&data("s")), FrameVerdict::Reset(_)));
    }

    #[test]
    fn whatever_disturbs_a_handshake_ends_it() {
        for disturbance in [other_handshake("s"), data("s"), reset("s")] {
            let mut table = StreamTable::default();
            assert_eq!(table.handle(&handshake("s")), FrameVerdict::Begin(1));
            let is_reset = matches!(disturbance.body, FrameBody::Reset { .. });
            assert_eq!(table.handle(&disturbance) == FrameVerdict::Ignore, is_reset);
            assert!(!table.finish_handshake("s", 1, 'x'));
            // The id may be used again, and the result of the first handshake does not count for the second.
            assert_eq!(table.handle(&handshake("s")), FrameVerdict::Begin(2));
            assert!(!table.finish_handshake("s", 1, 'x') && !table.forget_handshake("s", 1));
            assert!(table.finish_handshake("s", 2, 'x'));
        }
    }

    #[test]
    fn a_copy_of_a_handshake_changes_nothing() {
        let mut table = StreamTable::default();
        assert_eq!(table.handle(&handshake("s")), FrameVerdict::Begin(1));
        assert_eq!(table.handle(&handshake("s")), FrameVerdict::Ignore);
        assert!(table.finish_handshake("s", 1, 'x'));
        assert_eq!(table.handle(&handshake("s")), FrameVerdict::Ignore);
        assert_eq!(table.handle(&data("s")), FrameVerdict::Deliver('x'));
    }

    #[test]
    fn an_end_that_resumes_an_unknown_stream_learns_it() {
        let mut table = StreamTable::<char>::default();
        for body in [FrameBody::Resume { next_seq: 7 }, FrameBody::Heartbeat] {
            assert!(matches!(table.handle(&frame("s", body)), FrameVerdict::Reset(_)));
        }
        for body in [FrameBody::Ack, FrameBody::Reset { reason: "r".to_owned() }] {
            assert_eq!(table.handle(&frame("s", body)), FrameVerdict::Ignore);
        }
    }

    #[test]
    fn handshakes_and_streams_have_limits() {
        let mut table = StreamTable::default();
        for number in 0..MAX_STREAMS {
            let id = number.to_string();
            assert!(matches!(table.handle(&handshake(&id)), FrameVerdict::Begin(_)));
            assert!(table.finish_handshake(&id, number as u64 + 1, ()));
        }
        assert_eq!(table.handle(&handshake("more")), FrameVerdict::Reset("too many streams"));
        assert!(table.remove("0", |()| true));
        for number in 0..MAX_HANDSHAKES {
            assert!(matches!(table.handle(&handshake(&format!("h{number}"))), FrameVerdict::Begin(_)));
        }
        assert_eq!(table.handle(&handshake("more")), FrameVerdict::Reset("too many handshakes"));
        assert!(table.finish_handshake("h0", MAX_STREAMS as u64 + 1, ()));
        assert!(!table.finish_handshake("h1", MAX_STREAMS as u64 + 2, ()), "the last stream was taken meanwhile");
        assert_eq!(table.all().count(), MAX_STREAMS);
    }
}
