//! An executor that behaves as the published one: it acknowledges nothing, announces no features, and all its streams end
//! with its socket.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use relay::{ExecutorHandshake, Frame, FrameBody, RelayIdentity, StreamBinding};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use transport::{MessageLimits, MessageStream, ReadEvent, in_memory};

use super::reference_stream::{ReferenceStream, append_frames, dial};
use super::registry_client::RegistryClient;

/// The wait before the socket is replaced. The published executor waits at least as long.
const REDIAL_WAIT: Duration = Duration::from_secs(1);

/// Queued frames of one stream or one socket.
const QUEUED_FRAMES: usize = 128;

/// The reason of every reset of the published executor.
const PROTOCOL_ERROR: &str = "noise_relay_protocol_error";

/// A running executor. It ends when it is dropped.
pub struct ReferenceExecutor {
    task: JoinHandle<()>,
}

/// What the tasks of an executor share.
struct Shared {
    registry: RegistryClient,
    identity: RelayIdentity,
    registration_id: String,
    serve: Box<dyn Fn(MessageStream) + Send + Sync>,
}

impl ReferenceExecutor {
    /// Registers with the registry at `base_url`. Each stream becomes a message stream in memory, which `serve` gets.
    /// Panics if the registry refuses.
    pub async fn start(
        base_url: &str,
        token: &str,
        environment: &str,
        serve: impl Fn(MessageStream) + Send + Sync + 'static,
    ) -> Self {
        let registry = RegistryClient::new(base_url, token, environment);
        let identity = RelayIdentity::generate().unwrap();
        let registration = register(&registry, &identity).await;
        let text = |name: &str| registration[name].as_str().unwrap().to_owned();
        let (url, registration_id) = (text("url"), text("executor_registration_id"));
        let shared = Arc::new(Shared { registry, identity, registration_id, serve: Box::new(serve) });
        let task = tokio::spawn(async move {
            loop {
                // The published executor registers again after a 4xx. Scripted services accept the first URL for good.
                if let Ok(socket) = dial(&url).await {
                    serve_socket(&shared, socket).await;
                }
                // sleep: as long as the published executor waits.
                tokio::time::sleep(REDIAL_WAIT).await;
            }
        });
        Self { task }
    }
}

impl Drop for ReferenceExecutor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn register(registry: &RegistryClient, identity: &RelayIdentity) -> Value {
    let body = json!({"security_profile": "noise_hybrid_ik_v1", "executor_public_key": identity.public_key()});
    registry.call("register", &body).await.expect("the registry refuses the executor")
}

/// Serves streams until the socket ends. All of them end with it.
async fn serve_socket(shared: &Arc<Shared>, mut socket: MessageStream) {
    let (outgoing, mut frames) = mpsc::channel::<Frame>(QUEUED_FRAMES);
    let mut streams: HashMap<String, mpsc::Sender<Frame>> = HashMap::new();
    let mut tasks = JoinSet::new();
    loop {
        let event = tokio::select! {
            event = socket.reader.next() => event,
            Some(frame) = frames.recv() => {
                let mut bytes = Vec::new();
                append_frames(&socket, &[frame], &mut bytes);
                if socket.writer.write_all(&bytes).await.is_err() {
                    return;
                }
                continue;
            }
        };
        let message = match event {
            Ok(ReadEvent::Message(message)) => message,
            Ok(ReadEvent::Ping(payload)) => {
                let mut pong = Vec::new();
                socket.framing.pong(&mut pong, &payload);
                if socket.writer.write_all(&pong).await.is_err() {
                    return;
                }
                continue;
            }
            Ok(ReadEvent::Pong(_)) => continue,
            Ok(ReadEvent::TooLarge { .. } | ReadEvent::Closed(_)) | Err(_) => return,
        };
        let Ok(frame) = Frame::decode(message) else { continue };
        streams.retain(|_, stream| !stream.is_closed());
        match (streams.get(&frame.stream_id), &frame.body) {
            (None, FrameBody::Handshake(message)) => {
                let (sender, receiver) = mpsc::channel(QUEUED_FRAMES);
                streams.insert(frame.stream_id.clone(), sender);
                let (shared, outgoing, message) = (Arc::clone(shared), outgoing.clone(), message.clone());
                tasks.spawn(async move {
                    let id = frame.stream_id;
                    let ended_by_harness = serve_stream(&shared, &id, &message, receiver, &outgoing).await.is_none();
                    if !ended_by_harness {
                        let _socket_may_be_gone = outgoing.send(reset(&id)).await;
                    }
                });
            }
            (None, FrameBody::Data { .. }) => {
                let _dropped_if_full = outgoing.try_send(reset(&frame.stream_id));
            }
            (Some(stream), _) => {
                if stream.try_send(frame.clone()).is_err() {
                    streams.remove(&frame.stream_id);
                    let _dropped_if_full = outgoing.try_send(reset(&frame.stream_id));
                }
            }
            (None, _) => {}
        }
    }
}

fn reset(stream_id: &str) -> Frame {
    Frame::new(stream_id, FrameBody::Reset { reason: PROTOCOL_ERROR.to_owned() })
}

/// Serves a stream to its end. None: the harness or the relay has ended it.
async fn serve_stream(
    shared: &Shared,
    id: &str,
    message: &Bytes,
    mut frames: mpsc::Receiver<Frame>,
    outgoing: &mpsc::Sender<Frame>,
) -> Option<()> {
    let binding = StreamBinding {
        environment_id: &shared.registry.environment,
        registration_id: &shared.registration_id,
        stream_id: id,
    };
    let Ok(handshake) = ExecutorHandshake::read(&shared.identity, binding, message) else { return Some(()) };
    let body = json!({
        "executor_registration_id": shared.registration_id,
        "harness_public_key": handshake.harness_key(),
        "harness_key_authorization": handshake.authorization(),
    });
    let answer = shared.registry.call("validate", &body).await;
    if !answer.is_ok_and(|answer| answer["valid"] == true) {
        return Some(());
    }
    let Ok((answer, channel)) = handshake.accept() else { return Some(()) };
    outgoing.send(Frame::new(id, FrameBody::Handshake(answer.into()))).await.ok()?;
    let stream = Mutex::new(ReferenceStream::new(id, channel));
    let (server, client) = in_memory(MessageLimits::default());
    (shared.serve)(server);
    let MessageStream { mut reader, mut writer, framing, .. } = client;
    let (pongs, mut wanted_pongs) = mpsc::channel(1);
    let to_harness = async {
        loop {
            match reader.next().await {
                Ok(ReadEvent::Message(message)) => {
                    let sent = stream.lock().unwrap().send(&message);
                    let Ok(sent) = sent else { return Some(()) };
                    for frame in sent {
                        outgoing.send(frame).await.ok()?;
                    }
                }
                Ok(ReadEvent::Ping(payload)) => pongs.send(payload).await.ok()?,
                Ok(ReadEvent::Pong(_) | ReadEvent::TooLarge { .. }) => {}
                Ok(ReadEvent::Closed(_)) | Err(_) => return Some(()),
            }
        }
    };
    let to_server = async {
        loop {
            let mut bytes = Vec::new();
            tokio::select! {
                frame = frames.recv() => {
                    let frame = frame.filter(|frame| !matches!(frame.body, FrameBody::Reset { .. }))?;
                    let messages = stream.lock().unwrap().handle(frame);
                    let Ok(messages) = messages else { return Some(()) };
                    for message in messages {
                        framing.frame(&mut bytes, message.len(), |out| out.extend_from_slice(&message));
                    }
                }
                Some(payload) = wanted_pongs.recv() => {
                    framing.pong(&mut bytes, &payload);
                }
            }
            if writer.write_all(&bytes).await.is_err() {
                return Some(());
            }
        }
    };
    tokio::select! {
        end = to_harness => end,
        end = to_server => end,
    }
}
