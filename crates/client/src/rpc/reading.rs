//! The task that reads: answers go to their callers, pings are answered, the rest is passed on. It never waits for anybody but the peer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::{DecodeError, Incoming as Message, RequestId, encode_error, encode_response, notification, sniff_id};
use recovery::{LifeSigns, Silence};
use tokio::time::{Instant, sleep_until};
use transport::{ReadError, ReadEvent, Reader};

use super::{End, Rpc};
use crate::inbound::Inbound;

/// What is read before other tasks of the same thread get their turn.
const TURN_BYTES: u64 = 512 * 1024;

/// The code with which a server closes a connection whose session another client has taken.
const TAKEN_OVER: u16 = 4010;

/// How long a companion may take to end after its stream has.
const LAST_WORDS: Duration = Duration::from_millis(500);

pub(super) async fn run(rpc: Arc<Rpc>, mut reader: Reader, inbound: Arc<Inbound>, silence_timeout: Duration) {
    let end = tokio::select! {
        end = read(&rpc, &mut reader, &inbound, silence_timeout) => end,
        () = rpc.stop.cancelled() => return,
    };
    rpc.finish(match end {
        End(None) => End(last_words(&rpc).await),
        end => end,
    });
}

/// A child that ended without a word to us may have had one for the person at the terminal.
async fn last_words(rpc: &Rpc) -> Option<String> {
    let mut companion = rpc.companion.lock().take()?;
    tokio::time::timeout(LAST_WORDS, companion.last_words()).await.ok()
}

async fn read(rpc: &Rpc, reader: &mut Reader, inbound: &Inbound, silence_timeout: Duration) -> End {
    let mut life_signs = LifeSigns::new(silence_timeout, Instant::now().into_std());
    let look = sleep_until(life_signs.poll_timeout().into());
    tokio::pin!(look);
    let mut let_others = TURN_BYTES;
    loop {
        // A fast peer always has more; whoever reads what it sends, and asks it to wait, must get a turn.
        if reader.received_bytes() >= let_others {
            let_others = reader.received_bytes() + TURN_BYTES;
            tokio::task::yield_now().await;
        }
        tokio::select! {
            // What has come counts before the clock does.
            biased;
            next = reader.next() => match next {
                Ok(incoming) => if let Err(end) = handle(rpc, inbound, incoming) {
                    return end;
                },
                Err(error) => return End(end_of(&error)),
            },
            () = &mut look, if rpc.outbox.supports_ping() => {
                life_signs.handle_sign(reader.last_received().into_std());
                life_signs.handle_sign(rpc.outbox.last_drained().into_std());
                match life_signs.handle_timeout(Instant::now().into_std()) {
                    Silence::Short => {}
                    Silence::Ping => rpc.outbox.push_ping(),
                    Silence::TooLong => return End(Some(format!("no sign of life for {silence_timeout:?}"))),
                }
                look.as_mut().reset(life_signs.poll_timeout().into());
            }
        }
    }
}

fn end_of(error: &ReadError) -> Option<String> {
    match error {
        // Somebody in between cut it: there is nothing to add.
        ReadError::Io(error)
            if matches!(error.kind(), std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset) =>
        {
            None
        }
        other => Some(other.to_string()),
    }
}

fn handle(rpc: &Rpc, inbound: &Inbound, incoming: ReadEvent) -> Result<(), End> {
    match incoming {
        ReadEvent::Message(message) => handle_message(rpc, inbound, &message),
        ReadEvent::Ping(payload) => {
            rpc.outbox.push_pong(&payload);
            is_read(rpc)
        }
        ReadEvent::Pong(_) => Ok(()),
        ReadEvent::TooLarge { prefix } => {
            let Some(RequestId::Integer(id)) = sniff_id(&prefix) else {
                return Err(End(Some("exec-server sent a message that is too large".to_owned())));
            };
            let error = protocol::WireError::internal("the answer is larger than a message may be");
            rpc.calls.lock().settle(id, Err(error));
            Ok(())
        }
        ReadEvent::Closed(reason) => {
            if reason.as_ref().is_some_and(|reason| reason.code == TAKEN_OVER) {
                rpc.note_takeover();
            }
            Err(End(reason.map(|reason| reason.reason).filter(|words| !words.is_empty())))
        }
    }
}

fn handle_message(rpc: &Rpc, inbound: &Inbound, message: &Bytes) -> Result<(), End> {
    if let Some(output) = protocol::recognise_output(message) {
        return inbound.output(&output).map_err(notification_failed);
    }
    if let Some((id, result)) = protocol::fs::recognise_block_answer(message) {
        rpc.calls.lock().settle(id, Ok(message.slice(result)));
        return Ok(());
    }
    match protocol::decode(message) {
        Ok(Message::Response(response)) => {
            if let RequestId::Integer(id) = response.id {
                let result = message.slice_ref(response.result.get().as_bytes());
                rpc.calls.lock().settle(id, Ok(result));
            }
            Ok(())
        }
        Ok(Message::Error { id, error }) => {
            if let RequestId::Integer(id) = id {
                rpc.calls.lock().settle(id, Err(error));
            }
            Ok(())
        }
        Ok(Message::Notification(received)) => {
            if received.method == notification::SESSION_TAKEN_OVER {
                rpc.note_takeover();
            }
            inbound.notification(&received.method, received.params).map_err(notification_failed)
        }
        Ok(Message::Request(request)) => {
            if !matches!(request.id, RequestId::Integer(0..)) {
                return Err(End(Some("exec-server sent an invalid request ID".to_owned())));
            }
            let reply = match inbound.request(&request.method) {
                Ok(result) => encode_response(&request.id, &result),
                Err(error) => encode_error(&request.id, &error),
            };
            rpc.outbox.push(&reply);
            is_read(rpc)
        }
        Err(error) => Err(malformed(&error)),
    }
}

fn is_read(rpc: &Rpc) -> Result<(), End> {
    if rpc.outbox.is_overfull() {
        return Err(End(Some("exec-server sends and does not read".to_owned())));
    }
    Ok(())
}

fn malformed(error: &DecodeError) -> End {
    End(Some(format!("exec-server sent a malformed message: {error}")))
}

fn notification_failed(error: String) -> End {
    End(Some(format!("exec-server notification handling failed: {error}")))
}
