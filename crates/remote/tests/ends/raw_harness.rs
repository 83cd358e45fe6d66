//! A harness that sends exactly the frames that a test chooses, also wrong ones.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use relay::{Frame, FrameBody, HarnessHandshake, MAX_FRAME_BYTES, RelayIdentity, StreamBinding};
use remote::{ConnectBundle, Registry};
use testkit::TestService;
use transport::{ConnectOptions, MessageLimits, MessageStream, ReadEvent};

use crate::support::{ENVIRONMENT, WAIT, registry, within};

/// A socket to the relay, and the bundle with which it was opened.
pub(crate) struct RawHarness {
    pub(crate) identity: Arc<RelayIdentity>,
    pub(crate) bundle: ConnectBundle,
    socket: MessageStream,
}

impl RawHarness {
    pub(crate) async fn dial(service: &TestService) -> Self {
        Self::dial_as(&registry(service), Arc::new(RelayIdentity::generate().unwrap())).await
    }

    /// Opens another socket for the harness with these keys.
    pub(crate) async fn dial_as(registry: &Registry, identity: Arc<RelayIdentity>) -> Self {
        let bundle = registry.connect(&identity.public_key(), Duration::from_secs(10)).await.unwrap();
        let options = ConnectOptions {
            limits: MessageLimits { message_bytes: MAX_FRAME_BYTES },
            is_binary: true,
            ..ConnectOptions::default()
        };
        let socket = tokio::time::timeout(WAIT, transport::connect(&bundle.url, options)).await.unwrap().unwrap();
        Self { identity, bundle, socket }
    }

    /// Tells the relay which stream uses this socket, as every harness does first.
    pub(crate) async fn name_stream(&mut self, stream_id: &str) {
        self.send(&Frame::new(stream_id, FrameBody::Resume { next_seq: 0 }).encode()).await;
    }

    /// A valid first message of a handshake, and the state of the handshake after it.
    pub(crate) fn first_message(&self, stream_id: &str) -> (HarnessHandshake, Bytes) {
        let ConnectBundle { executor_registration_id, executor_public_key, harness_key_authorization, .. } =
            &self.bundle;
        let binding =
            StreamBinding { environment_id: ENVIRONMENT, registration_id: executor_registration_id, stream_id };
        let begun = HarnessHandshake::begin(&self.identity, executor_public_key, binding, harness_key_authorization);
        let (waiting, message) = begun.unwrap();
        (waiting, message.into())
    }

    pub(crate) async fn send(&mut self, message: &[u8]) {
        let mut bytes = Vec::new();
        self.socket.framing.frame(&mut bytes, message.len(), |out| out.extend_from_slice(message));
        self.socket.writer.write_all(&bytes).await.unwrap();
    }

    pub(crate) async fn send_body(&mut self, stream_id: &str, body: FrameBody) {
        self.send(&Frame::new(stream_id, body).encode()).await;
    }

    pub(crate) async fn next_frame(&mut self) -> Frame {
        loop {
            match within("a frame for the harness", self.socket.reader.next()).await {
                Ok(ReadEvent::Message(message)) => return Frame::decode(message).unwrap(),
                Ok(ReadEvent::Closed(_)) | Err(_) => panic!("the relay has closed the socket"),
                Ok(_) => {}
            }
        }
    }

    /// Waits for the reset of a stream.
    pub(crate) async fn expect_reset(&mut self, stream_id: &str) {
        let frame = self.next_frame().await;
        assert_eq!(frame.stream_id, stream_id);
        let FrameBody::Reset { reason } = &frame.body else { panic!("{frame:?}") };
        assert_eq!(reason, "noise_relay_protocol_error");
    }
}
