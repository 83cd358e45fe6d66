//! One end of a stream as the published implementation has it: it acknowledges nothing and announces nothing.

use std::time::Instant;

use bytes::{Buf as _, Bytes, BytesMut};
use relay::{Channel, Features, Frame, MAX_FRAME_BYTES, RelayStream, StreamFailure};
use transport::{ConnectOptions, MessageLimits, MessageStream};

/// Messages over a [`RelayStream`], each after its length.
pub(super) struct ReferenceStream {
    stream: RelayStream,
    received: BytesMut,
}

impl ReferenceStream {
    pub(super) fn new(stream_id: &str, channel: Channel) -> Self {
        let stream = RelayStream::new(stream_id, channel, Features::NONE, Instant::now());
        Self { stream, received: BytesMut::new() }
    }

    /// The frames of a message.
    pub(super) fn send(&mut self, message: &[u8]) -> Result<Vec<Frame>, StreamFailure> {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        self.stream.write(&[&length[..], message].concat())?;
        Ok(std::iter::from_fn(|| self.stream.next_frame(Instant::now())).collect())
    }

    /// The messages that are complete after this frame.
    pub(super) fn handle(&mut self, frame: Frame) -> Result<Vec<Bytes>, StreamFailure> {
        self.stream.handle(frame, Instant::now())?;
        while let Some(bytes) = self.stream.read(Instant::now())? {
            self.received.extend_from_slice(&bytes);
        }
        let mut messages = Vec::new();
        while let Some(length) = self.received.first_chunk().map(|length| u32::from_be_bytes(*length) as usize) {
            assert!(length > 0, "an end of the published protocol was sent a control frame");
            if self.received.len() < 4 + length {
                break;
            }
            self.received.advance(4);
            messages.push(self.received.split_to(length).freeze());
        }
        Ok(messages)
    }
}

/// Connects to a relay. The error is a sentence.
pub(super) async fn dial(url: &str) -> Result<MessageStream, String> {
    let limits = MessageLimits { message_bytes: MAX_FRAME_BYTES };
    let options = ConnectOptions { limits, is_binary: true, ..ConnectOptions::default() };
    transport::connect(url, options).await.map_err(|error| error.to_string())
}

/// Appends frames as messages of the socket.
pub(super) fn append_frames(socket: &MessageStream, frames: &[Frame], out: &mut Vec<u8>) {
    for frame in frames {
        let message = frame.encode();
        socket.framing.frame(out, message.len(), |out| out.extend_from_slice(&message));
    }
}
