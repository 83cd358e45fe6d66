//! One connection to the [`TestService`](super::TestService): HTTP requests to the registry, until the connection becomes
//! the WebSocket of an end.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use relay::MAX_FRAME_BYTES;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use transport::{Framing, MessageLimits, MessageStream, PeerLabel, ProofOfReceipt, ReadEvent, Reader, Writer};

use super::hub::{PassedMessage, SocketHandle, SocketMessage, SocketOwner};
use super::script::{Leg, Operation, RegistryAnswer, RegistryCall};
use super::{PREFIX, ServiceState};
use crate::http_peer::read_http_request;

/// Messages are gathered until the buffer for a socket holds so many bytes.
const BATCH_BYTES: usize = 256 << 10;

/// Serves a connection to its end.
pub(super) async fn serve(state: Arc<ServiceState>, mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    while let Some(request) = read_http_request(&mut stream).await {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        let path = head.split(' ').nth(1).unwrap_or_default();
        if head.starts_with("GET ") {
            match upgrade(&state, head, path) {
                Ok((owner, answer)) => {
                    if stream.write_all(answer.as_bytes()).await.is_ok() {
                        serve_socket(&state, owner, stream).await;
                    }
                    return;
                }
                Err((status, wait)) => {
                    let head = answer_head(status, wait, 0);
                    let _peer_may_be_gone = stream.write_all(head.as_bytes()).await;
                    return;
                }
            }
        }
        let answer = match registry_call(head, path, body) {
            Some(call) => state.call(call),
            None => RegistryAnswer::Status(404, "no such call".to_owned()),
        };
        if !write_answer(&mut stream, answer).await {
            return;
        }
    }
}

fn registry_call(head: &str, path: &str, body: &str) -> Option<RegistryCall> {
    let (environment, operation) =
        path.strip_prefix(PREFIX)?.strip_prefix("/cloud/environment/")?.rsplit_once('/')?;
    Some(RegistryCall {
        operation: Operation::of_path(operation)?,
        environment: percent_decoded(environment),
        head: head.to_owned(),
        body: serde_json::from_str(body).unwrap_or_default(),
    })
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match hex {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns whether the connection goes on.
async fn write_answer(stream: &mut TcpStream, answer: RegistryAnswer) -> bool {
    let (text, goes_on) = match answer {
        RegistryAnswer::Status(status, body) => (answer_head(status, None, body.len()) + &body, true),
        RegistryAnswer::TooManyRequests(wait) => (answer_head(429, Some(wait), 0), true),
        RegistryAnswer::Json(body) => {
            let body = body.to_string();
            (answer_head(200, None, body.len()) + &body, true)
        }
        RegistryAnswer::Redirect(location) => {
            (format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"), true)
        }
        RegistryAnswer::Garbage => ("\u{1}\u{2}garbage\r\n\r\n".to_owned(), false),
        RegistryAnswer::Hang => return std::future::pending().await,
        RegistryAnswer::Close => return false,
        RegistryAnswer::CutInBody => (answer_head(200, None, 1000) + "{\"environment_id\":", false),
        RegistryAnswer::HangInBody => {
            let text = answer_head(200, None, 1000) + "{\"environment_id\":";
            let _peer_may_be_gone = stream.write_all(text.as_bytes()).await;
            return std::future::pending().await;
        }
    };
    stream.write_all(text.as_bytes()).await.is_ok() && goes_on
}

fn answer_head(status: u16, retry_after: Option<u64>, body_bytes: usize) -> String {
    let wait = retry_after.map(|seconds| format!("Retry-After: {seconds}\r\n")).unwrap_or_default();
    format!(
        "HTTP/1.1 {status} Scripted\r\nContent-Type: application/json\r\n{wait}Content-Length: {body_bytes}\r\n\r\n"
    )
}

/// The owner of the new socket and the answer to the upgrade. An error holds the status of the refusal and its
/// `Retry-After` in seconds.
fn upgrade(state: &ServiceState, head: &str, path: &str) -> Result<(SocketOwner, String), (u16, Option<u64>)> {
    let query = path.split_once('?').ok_or((404, None))?.1;
    let parameter = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let leg = match parameter("role") {
        Some("environment") => Leg::Executor,
        Some("harness") => Leg::Harness,
        _ => return Err((404, None)),
    };
    let secret = parameter("secret").unwrap_or_default();
    let owner = state.admit(leg, secret)?;
    let key = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("sec-websocket-key").then(|| value.trim())
    });
    let key = key.ok_or((400, None))?;
    let proof = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let proof = STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, proof.as_bytes()));
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {proof}\r\n\r\n"
    );
    Ok((owner, answer))
}

async fn serve_socket(state: &Arc<ServiceState>, owner: SocketOwner, stream: TcpStream) {
    let (read, write) = stream.into_split();
    let limits = MessageLimits { message_bytes: MAX_FRAME_BYTES };
    let framing = Framing::BinaryWebSocketServer;
    let MessageStream { reader, writer, .. } =
        MessageStream::new(read, write, framing, ProofOfReceipt::Pong, PeerLabel::new("an end"), limits);
    let (handle, messages, paused) = state.add_socket(&owner);
    tokio::select! {
        () = handle.cut.cancelled() => {}
        () = read_frames(state, &owner, &handle, reader, paused) => {}
        () = write_messages(writer, framing, messages) => {}
    }
    deliver(state, state.remove_socket(&owner, &handle)).await;
}

async fn read_frames(
    state: &Arc<ServiceState>,
    owner: &SocketOwner,
    handle: &SocketHandle,
    mut reader: Reader,
    mut paused: watch::Receiver<bool>,
) {
    loop {
        if paused.wait_for(|is_paused| !*is_paused).await.is_err() {
            return;
        }
        let event = tokio::select! {
            biased;
            _ = paused.wait_for(|is_paused| *is_paused) => continue,
            event = reader.next() => event,
        };
        match event {
            Ok(ReadEvent::Message(message)) => deliver(state, state.route(owner, handle, message)).await,
            Ok(ReadEvent::Ping(payload)) => {
                let _dropped_if_full = handle.messages.try_send(SocketMessage::Pong(payload));
            }
            Ok(ReadEvent::Pong(_)) => {}
            Ok(ReadEvent::TooLarge { .. }) => {
                state.note_violation(format!("{:?}: a message is longer than {MAX_FRAME_BYTES} bytes", owner.leg()));
            }
            Ok(ReadEvent::Closed(_)) | Err(_) => return,
        }
    }
}

async fn write_messages(mut writer: Writer, framing: Framing, mut messages: mpsc::Receiver<SocketMessage>) {
    let mut batch = Vec::new();
    while let Some(first) = messages.recv().await {
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                SocketMessage::Frame(bytes) => {
                    framing.frame(&mut batch, bytes.len(), |out| out.extend_from_slice(&bytes));
                }
                SocketMessage::Pong(payload) => {
                    framing.pong(&mut batch, &payload);
                }
            }
            next = if batch.len() < BATCH_BYTES { messages.try_recv().ok() } else { None };
        }
        if writer.write_all(&batch).await.is_err() {
            return;
        }
        batch.clear();
    }
}

/// Hands messages to their sockets. An executor makes the sender wait, and a harness that takes nothing is cut off.
async fn deliver(state: &ServiceState, deliveries: Vec<PassedMessage>) {
    for PassedMessage { to, leg, bytes } in deliveries {
        let message = SocketMessage::Frame(bytes);
        match leg {
            Leg::Executor => {
                tokio::select! {
                    _ = to.messages.send(message) => {}
                    () = to.cut.cancelled() => {}
                }
            }
            Leg::Harness => {
                if to.messages.try_send(message).is_err() {
                    state.note_slow_harness(&to);
                }
            }
        }
    }
}
