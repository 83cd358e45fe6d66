//! A harness that behaves as the published one: it names its stream once, acknowledges nothing, announces no features, and
//! loses its stream with its socket.

use bytes::Bytes;
use relay::{Frame, FrameBody, HarnessHandshake, RelayIdentity, RelayPublicKey, StreamBinding};
use serde_json::json;
use transport::{MessageStream, ReadEvent};

use super::reference_stream::{ReferenceStream, append_frames, dial};
use super::registry_client::RegistryClient;

/// Why a [`ReferenceHarness`] has no stream any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReferenceFailure {
    /// The registry has refused, with this status and this body.
    Registry(u16, String),
    /// There is no socket to the relay.
    Dial(String),
    /// The relay or the executor has reset the stream, for this reason.
    Reset(String),
    /// The socket has ended.
    SocketLost,
    /// The executor has broken the protocol.
    Broken(String),
}

/// A harness with a finished handshake.
pub struct ReferenceHarness {
    /// The stream, as the frames name it.
    pub stream_id: String,
    socket: MessageStream,
    stream: ReferenceStream,
    /// Messages that were received and not taken.
    waiting: std::collections::VecDeque<Bytes>,
}

impl ReferenceHarness {
    /// Asks the registry at `base_url` for a bundle for an environment, connects, and makes the handshake with new
    /// keys.
    pub async fn connect(base_url: &str, token: &str, environment: &str) -> Result<Self, ReferenceFailure> {
        Self::connect_as(&RelayIdentity::generate().unwrap(), base_url, token, environment).await
    }

    /// Like [`connect`](Self::connect), with the keys in `identity`.
    pub async fn connect_as(
        identity: &RelayIdentity,
        base_url: &str,
        token: &str,
        environment: &str,
    ) -> Result<Self, ReferenceFailure> {
        let registry = RegistryClient::new(base_url, token, environment);
        let bundle = registry.call("connect", &json!({"harness_public_key": identity.public_key()})).await;
        let bundle = bundle.map_err(|(status, body)| ReferenceFailure::Registry(status, body))?;
        let member = |name: &str| bundle[name].as_str().unwrap_or_default();
        let key: RelayPublicKey = serde_json::from_value(bundle["executor_public_key"].clone()).unwrap();
        let mut socket = dial(member("url")).await.map_err(ReferenceFailure::Dial)?;
        let stream_id = unique_id();
        let binding = StreamBinding {
            environment_id: environment,
            registration_id: member("executor_registration_id"),
            stream_id: &stream_id,
        };
        let (handshake, message) =
            HarnessHandshake::begin(identity, &key, binding, member("harness_key_authorization")).unwrap();
        let bodies = [FrameBody::Resume { next_seq: 0 }, FrameBody::Handshake(message.into())];
        let frames = bodies.map(|body| Frame::new(&stream_id, body));
        write(&mut socket, &frames).await?;
        loop {
            let frame = next_frame(&mut socket).await?;
            match frame.body {
                _ if frame.stream_id != stream_id => {}
                FrameBody::Handshake(message) => {
                    let channel = handshake.finish(&message);
                    let channel = channel.map_err(|failure| ReferenceFailure::Broken(failure.to_string()))?;
                    let stream = ReferenceStream::new(&stream_id, channel);
                    return Ok(Self { stream_id, socket, stream, waiting: std::collections::VecDeque::new() });
                }
                FrameBody::Reset { reason } => return Err(ReferenceFailure::Reset(reason)),
                _ => {}
            }
        }
    }

    /// Sends a message.
    pub async fn send(&mut self, message: &[u8]) -> Result<(), ReferenceFailure> {
        let frames = self.stream.send(message).map_err(|failure| ReferenceFailure::Broken(failure.to_string()))?;
        write(&mut self.socket, &frames).await
    }

    /// Waits for the next message.
    pub async fn receive(&mut self) -> Result<Bytes, ReferenceFailure> {
        loop {
            if let Some(message) = self.waiting.pop_front() {
                return Ok(message);
            }
            let frame = next_frame(&mut self.socket).await?;
            if frame.stream_id != self.stream_id {
                continue;
            }
            if let FrameBody::Reset { reason } = frame.body {
                return Err(ReferenceFailure::Reset(reason));
            }
            let messages = self.stream.handle(frame);
            self.waiting.extend(messages.map_err(|failure| ReferenceFailure::Broken(failure.to_string()))?);
        }
    }
}

/// An id that no other stream of this process has.
fn unique_id() -> String {
    static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let number = LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("reference-stream-{}-{number}", std::process::id())
}

async fn write(socket: &mut MessageStream, frames: &[Frame]) -> Result<(), ReferenceFailure> {
    let mut bytes = Vec::new();
    append_frames(socket, frames, &mut bytes);
    socket.writer.write_all(&bytes).await.map_err(|_| ReferenceFailure::SocketLost)
}

/// The next frame of any stream. A message that is none ends the connection, as with the published harness.
async fn next_frame(socket: &mut MessageStream) -> Result<Frame, ReferenceFailure> {
    loop {
        match socket.reader.next().await {
            Ok(ReadEvent::Message(message)) => {
                return Frame::decode(message).map_err(|error| ReferenceFailure::Broken(error.to_string()));
            }
            Ok(ReadEvent::Ping(payload)) => {
                let mut pong = Vec::new();
                socket.framing.pong(&mut pong, &payload);
                socket.writer.write_all(&pong).await.map_err(|_| ReferenceFailure::SocketLost)?;
            }
            Ok(ReadEvent::Pong(_)) => {}
            Ok(ReadEvent::TooLarge { .. } | ReadEvent::Closed(_)) | Err(_) => {
                return Err(ReferenceFailure::SocketLost);
            }
        }
    }
}
