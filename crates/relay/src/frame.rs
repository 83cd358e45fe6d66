//! Frames: what a relay reads of each message, and the checks that every frame must pass.

use bytes::Bytes;
use prost::Message as _;

use crate::limits::{MAX_FRAME_BYTES, MAX_STREAM_ID_BYTES, RELAY_VERSION};
use crate::wire::{self, RelayMessageFrame, relay_message_frame::Body};

/// Extensions of the published protocol that an end supports. Sent with the handshake, in the clear. A relay that alters
/// them can make a stream stall or end, which it can do anyway, and learns nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u32);

impl Features {
    /// An end of the published protocol.
    pub const NONE: Self = Self(0);
    /// Acknowledges records, grants credit, and can resume a stream on another socket.
    pub const ACKNOWLEDGES: Self = Self(1);
    /// Understands control frames between the messages of the encrypted stream, for example the reason of a close.
    pub const CONTROLS: Self = Self(2);
    /// In a harness: it would use a direct path. In an executor: it offers one. A direct path also needs
    /// [`Self::ACKNOWLEDGES`] and [`Self::CONTROLS`] at both ends.
    pub const DIRECT_PATH: Self = Self(4);
    /// What the ends of this crate always support.
    pub const OURS: Self = Self(Self::ACKNOWLEDGES.0 | Self::CONTROLS.0);

    /// These features and those of `other`.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether this end supports everything that `other` names.
    pub fn includes(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A frame that has passed all checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The stream that the frame belongs to.
    pub stream_id: String,
    /// Number of records that the sender of the frame has received without a gap.
    pub ack: u32,
    /// Bit `i` is set if the record `ack + 1 + i` was received too.
    pub ack_bits: u32,
    /// Records below this number may be sent to the sender of the frame. 0 from a peer that does not acknowledge.
    pub credit: u32,
    /// Proves that `ack`, `ack_bits` and `credit` come from the peer. 0 from a peer that does not acknowledge.
    pub ack_tag: u64,
    /// What the sender supports. Only handshake frames say it.
    pub features: Features,
    /// What the frame is about.
    pub body: FrameBody,
}

/// The kinds of frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameBody {
    /// A record, which is a piece of the encrypted byte stream.
    Data {
        /// Number of the record.
        seq: u32,
        /// The encrypted text with its tag.
        record: Bytes,
    },
    /// Only `ack`, `ack_bits` and `credit` matter.
    Ack,
    /// The socket was replaced: the peer has to send again from this record on. As the first frame of a harness, it
    /// only tells the relay which stream its socket has.
    Resume {
        /// Number of the first record that the sender has not received.
        next_seq: u32,
    },
    /// The stream is over.
    Reset {
        /// For logs. It comes from the relay or the peer, so it may say anything.
        reason: String,
    },
    /// Asks for an acknowledgement.
    Heartbeat,
    /// A message of the Noise handshake.
    Handshake(Bytes),
}

/// Why a message is not a frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The message is not protobuf of the right type, or is too long.
    #[error("a message of the relay is not a frame")]
    Undecodable,
    /// The frame breaks a rule.
    #[error("a frame of the relay is invalid: {problem}")]
    Invalid {
        /// The stream that the frame names, cut to [`MAX_STREAM_ID_BYTES`].
        stream_id: String,
        /// The rule that it breaks.
        problem: FrameProblem,
    },
}

/// The rule that a frame breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameProblem {
    /// The version is not [`RELAY_VERSION`].
    #[error("its version is not {RELAY_VERSION}")]
    Version,
    /// The stream id is blank or longer than [`MAX_STREAM_ID_BYTES`].
    #[error("its stream id is blank or longer than {MAX_STREAM_ID_BYTES} bytes")]
    StreamId,
    /// There is no body, or one that this version does not know.
    #[error("it has no body of a known kind")]
    Body,
    /// A record that is one of several segments, which the protocol does not have.
    #[error("its record is one of several segments")]
    Segment,
    /// A record, a handshake or the reason of a reset is empty.
    #[error("its payload is empty")]
    Empty,
}

impl Frame {
    /// A frame without acknowledgement, credit and features.
    pub fn new(stream_id: impl Into<String>, body: FrameBody) -> Self {
        Self {
            stream_id: stream_id.into(),
            ack: 0,
            ack_bits: 0,
            credit: 0,
            ack_tag: 0,
            features: Features::NONE,
            body,
        }
    }

    /// Reads a message of the socket. A record that makes up most of its message is not copied.
    pub fn decode(message: Bytes) -> Result<Self, FrameError> {
        if message.len() > MAX_FRAME_BYTES {
            return Err(FrameError::Undecodable);
        }
        let message_bytes = message.len();
        let frame = RelayMessageFrame::decode(message).map_err(|_| FrameError::Undecodable)?;
        let RelayMessageFrame { version, mut stream_id, ack, ack_bits, body, features, credit, ack_tag, .. } = frame;
        match valid_body(version, &stream_id, body) {
            Ok(mut body) => {
                if let FrameBody::Data { record, .. } = &mut body
                    && record.len() < message_bytes / 2
                {
                    // A record keeps the memory of its whole message. A message that is mostly something else is not kept.
                    *record = Bytes::copy_from_slice(record);
                }
                Ok(Self { stream_id, ack, ack_bits, credit, ack_tag, features: Features(features), body })
            }
            Err(problem) => {
                stream_id.truncate(stream_id.floor_char_boundary(MAX_STREAM_ID_BYTES));
                Err(FrameError::Invalid { stream_id, problem })
            }
        }
    }

    /// The message for the socket.
    pub fn encode(&self) -> Vec<u8> {
        self.clone().prepare().0.encode_to_vec()
    }

    /// As [`Frame::encode`], for a caller that has a buffer for the message.
    pub fn prepare(self) -> EncodedFrame {
        let body = match self.body {
            FrameBody::Data { seq, record } => {
                Body::Data(wire::RelayData { seq, segment_index: 0, segment_count: 1, payload: record })
            }
            FrameBody::Ack => Body::AckFrame(wire::RelayAck {}),
            FrameBody::Resume { next_seq } => Body::Resume(wire::RelayResume { next_seq }),
            FrameBody::Reset { reason } => Body::Reset(wire::RelayReset { reason }),
            FrameBody::Heartbeat => Body::Heartbeat(wire::RelayHeartbeat {}),
            FrameBody::Handshake(payload) => Body::Handshake(wire::RelayHandshake { payload }),
        };
        EncodedFrame(RelayMessageFrame {
            version: RELAY_VERSION,
            stream_id: self.stream_id,
            ack: self.ack,
            ack_bits: self.ack_bits,
            body: Some(body),
            traceparent: None,
            tracestate: None,
            features: self.features.0,
            credit: self.credit,
            ack_tag: self.ack_tag,
        })
    }
}

/// A frame that is ready to be written to a buffer, so that its record is copied only once.
#[derive(Clone, Debug)]
pub struct EncodedFrame(RelayMessageFrame);

impl EncodedFrame {
    /// Length of the message.
    pub fn message_bytes(&self) -> usize {
        self.0.encoded_len()
    }

    /// Appends the message to `out`.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        self.0.encode_raw(out);
    }
}

fn valid_body(version: u32, stream_id: &str, body: Option<Body>) -> Result<FrameBody, FrameProblem> {
    if version != RELAY_VERSION {
        return Err(FrameProblem::Version);
    }
    if stream_id.trim().is_empty() || stream_id.len() > MAX_STREAM_ID_BYTES {
        return Err(FrameProblem::StreamId);
    }
    let body = match body.ok_or(FrameProblem::Body)? {
        Body::Data(data) => {
            if (data.segment_index, data.segment_count) != (0, 1) {
                return Err(FrameProblem::Segment);
            }
            FrameBody::Data { seq: data.seq, record: data.payload }
        }
        Body::AckFrame(_) => FrameBody::Ack,
        Body::Resume(resume) => FrameBody::Resume { next_seq: resume.next_seq },
        Body::Reset(reset) => FrameBody::Reset { reason: reset.reason },
        Body::Heartbeat(_) => FrameBody::Heartbeat,
        Body::Handshake(handshake) => FrameBody::Handshake(handshake.payload),
    };
    let is_empty = match &body {
        FrameBody::Data { record: bytes, .. } | FrameBody::Handshake(bytes) => bytes.is_empty(),
        FrameBody::Reset { reason } => reason.is_empty(),
        FrameBody::Ack | FrameBody::Resume { .. } | FrameBody::Heartbeat => false,
    };
    if is_empty { Err(FrameProblem::Empty) } else { Ok(body) }
}

#[cfg(test)]
mod tests;
