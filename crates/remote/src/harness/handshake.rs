//! The handshake of a harness over a new socket: it names its stream, sends the first message and waits for the second.

use std::time::Duration;

use relay::{Features, Frame, FrameBody, HarnessHandshake, RelayIdentity, StreamBinding};
use transport::{MessageStream, ReadEvent};

use super::error::HarnessError;
use crate::registry::ConnectBundle;
use crate::relayed_stream::NewStream;

/// How long the executor may take to answer. It asks its registry meanwhile, for which it has 10 s.
pub(super) const TIMEOUT: Duration = Duration::from_secs(12);

pub(super) async fn shake_hands(
    socket: &mut MessageStream,
    identity: &RelayIdentity,
    environment_id: &str,
    bundle: &ConnectBundle,
    features: Features,
) -> Result<NewStream, HarnessError> {
    let stream_id = uuid::Uuid::new_v4().to_string();
    let binding =
        StreamBinding { environment_id, registration_id: &bundle.executor_registration_id, stream_id: &stream_id };
    let authorization = &bundle.harness_key_authorization;
    let (handshake, message) =
        HarnessHandshake::begin(identity, &bundle.executor_public_key, binding, authorization)?;
    let answer = async {
        let mut first = Frame::new(&stream_id, FrameBody::Handshake(message.into()));
        first.features = features;
        let mut frames = Vec::new();
        for frame in [Frame::new(&stream_id, FrameBody::Resume { next_seq: 0 }), first] {
            let message = frame.encode();
            socket.framing.frame(&mut frames, message.len(), |out| out.extend_from_slice(&message));
        }
        socket.writer.write_all(&frames).await.map_err(|_| HarnessError::SocketLost)?;
        read_answer(socket, &stream_id).await
    };
    let (message, peer) = tokio::time::timeout(TIMEOUT, answer).await.map_err(|_| HarnessError::TimedOut)??;
    let channel = handshake.finish(&message)?;
    Ok(NewStream { id: stream_id, channel, features: peer, awaits_first_record: false, on_control: None })
}

/// Waits for the handshake message of the executor. Frames of other streams are none of our business.
async fn read_answer(socket: &mut MessageStream, stream_id: &str) -> Result<(bytes::Bytes, Features), HarnessError> {
    loop {
        let message = match socket.reader.next().await {
            Ok(ReadEvent::Message(message)) => message,
            Ok(ReadEvent::Ping(payload)) => {
                let mut pong = Vec::new();
                socket.framing.pong(&mut pong, &payload);
                socket.writer.write_all(&pong).await.map_err(|_| HarnessError::SocketLost)?;
                continue;
            }
            Ok(ReadEvent::Pong(_) | ReadEvent::TooLarge { .. }) => continue,
            Ok(ReadEvent::Closed(_)) | Err(_) => return Err(HarnessError::SocketLost),
        };
        let Ok(frame) = Frame::decode(message) else { continue };
        if frame.stream_id != stream_id {
            continue;
        }
        match frame.body {
            FrameBody::Handshake(message) => return Ok((message, frame.features)),
            FrameBody::Reset { .. } => return Err(HarnessError::Reset),
            // A record before the answer cannot be decrypted, so the relay has mixed something up.
            FrameBody::Data { .. } => return Err(HarnessError::Reset),
            FrameBody::Ack | FrameBody::Resume { .. } | FrameBody::Heartbeat => {}
        }
    }
}
