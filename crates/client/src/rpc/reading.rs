//! The task that reads a connection. It gives answers to their callers, answers pings, and passes all other messages
//! to the `PeerHandler`. A request of the server that cannot be answered at once gets a task. It pings a silent server, and ends the connection if the server stays silent. It never waits
//! for the code that consumes the messages.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::{
    DecodeError, Incoming as Message, Request, RequestId, WireError, encode_error, encode_response, notification,
    sniff_id,
};
use recovery::{LifeSigns, Silence};
use tokio::time::{Instant, sleep_until};
use tokio_util::task::TaskTracker;
use transport::{ReadError, ReadEvent, Reader};

use super::answering::AnswerAdmission;
use super::{AnswerLoad, Disconnect, PeerHandler, RequestAnswer, RequestResult, Rpc};

/// After this many bytes, the reading task lets other tasks of its thread run.
const BYTES_BETWEEN_YIELDS: u64 = 512 * 1024;

/// The close code of a WebSocket whose session another client has taken over. A session is what a server keeps for
/// one client, for example its processes.
const TAKEN_OVER_CODE: u16 = 4010;

/// How long a companion, for example the child process that serves the connection, may take to exit after the
/// connection has ended.
const EXIT_REPORT_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) async fn run(
    rpc: Arc<Rpc>,
    mut reader: Reader,
    handler: Arc<dyn PeerHandler>,
    silence_timeout: Duration,
    tasks: TaskTracker,
) {
    let recipient = Recipient { handler: &*handler, tasks: &tasks };
    let disconnect = tokio::select! {
        disconnect = read(&rpc, &mut reader, recipient, silence_timeout) => disconnect,
        // Another task has already ended the connection.
        () = rpc.stop.cancelled() => return,
    };
    rpc.finish(match disconnect {
        Disconnect(None) => Disconnect(exit_report(&rpc).await),
        disconnect => disconnect,
    });
}

/// A text that says how the child process which serves the connection exited, if there is one. It may explain why the
/// connection ended.
async fn exit_report(rpc: &Rpc) -> Option<String> {
    let mut companion = rpc.companion.lock().take()?;
    tokio::time::timeout(EXIT_REPORT_TIMEOUT, companion.exit_report()).await.ok()
}

/// Takes the messages of the server, and owns the tasks that answer its requests.
#[derive(Clone, Copy)]
struct Recipient<'a> {
    handler: &'a dyn PeerHandler,
    tasks: &'a TaskTracker,
}

async fn read(
    rpc: &Arc<Rpc>,
    reader: &mut Reader,
    recipient: Recipient<'_>,
    silence_timeout: Duration,
) -> Disconnect {
    let mut life_signs = LifeSigns::new(silence_timeout, Instant::now().into_std());
    let silence_check = sleep_until(life_signs.poll_timeout().into());
    tokio::pin!(silence_check);
    let mut next_yield = BYTES_BETWEEN_YIELDS;
    loop {
        // A fast server always has more to read. The tasks that consume its messages, or ask it to pause, must run
        // too.
        if reader.received_bytes() >= next_yield {
            next_yield = reader.received_bytes() + BYTES_BETWEEN_YIELDS;
            tokio::task::yield_now().await;
        }
        tokio::select! {
            // Bytes that have come are handled before the timeout.
            biased;
            next = reader.next() => match next {
                Ok(event) => if let Err(disconnect) = handle(rpc, recipient, event) {
                    return disconnect;
                },
                Err(error) => return Disconnect(reason_of(&error)),
            },
            () = &mut silence_check, if rpc.outbox.supports_ping() => {
                life_signs.handle_sign(reader.last_received().into_std());
                life_signs.handle_sign(rpc.outbox.last_write_resumed().into_std());
                match life_signs.handle_timeout(Instant::now().into_std()) {
                    Silence::Short => {}
                    Silence::Ping => rpc.outbox.push_ping(),
                    Silence::TooLong => return Disconnect(Some(format!("no sign of life for {silence_timeout:?}"))),
                }
                silence_check.as_mut().reset(life_signs.poll_timeout().into());
            }
        }
    }
}

fn reason_of(error: &ReadError) -> Option<String> {
    match error {
        // The connection was cut. The text of the error would add nothing.
        ReadError::Io(error)
            if matches!(error.kind(), std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset) =>
        {
            None
        }
        other => Some(other.to_string()),
    }
}

fn handle(rpc: &Arc<Rpc>, recipient: Recipient<'_>, event: ReadEvent) -> Result<(), Disconnect> {
    match event {
        ReadEvent::Message(message) => handle_message(rpc, recipient, &message),
        ReadEvent::Ping(payload) => {
            rpc.outbox.push_pong(&payload);
            check_outbox(rpc)
        }
        ReadEvent::Pong(_) => Ok(()),
        ReadEvent::TooLarge { prefix } => {
            // Only the beginning of the message was kept. If an id comes first, the message is the answer to a call.
            let Some(RequestId::Integer(id)) = sniff_id(&prefix) else {
                return Err(Disconnect(Some("exec-server sent a message that is too large".to_owned())));
            };
            let error = WireError::internal("the answer is larger than a message may be");
            rpc.calls.lock().settle(id, Err(error));
            Ok(())
        }
        ReadEvent::Closed(reason) => {
            if reason.as_ref().is_some_and(|reason| reason.code == TAKEN_OVER_CODE) {
                rpc.note_takeover();
            }
            Err(Disconnect(reason.map(|reason| reason.reason).filter(|text| !text.is_empty())))
        }
    }
}

fn handle_message(rpc: &Arc<Rpc>, recipient: Recipient<'_>, message: &Bytes) -> Result<(), Disconnect> {
    let handler = recipient.handler;
    // Output of processes, bytes of TCP streams and blocks of files are recognised without a JSON parser, because they are long and
    // frequent.
    if let Some(output) = protocol::recognise_output(message) {
        return handler.handle_output(&output).map_err(notification_failed);
    }
    if let Some(data) = protocol::recognise_tcp_data(message) {
        return handler.handle_tcp_data(&data).map_err(notification_failed);
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
            handler.handle_notification(&received.method, received.params).map_err(notification_failed)
        }
        Ok(Message::Request(request)) => {
            answer(rpc, recipient, &request)?;
            check_outbox(rpc)
        }
        Err(error) => Err(malformed(&error)),
    }
}

/// Answers a request of the server, at once or in a task.
fn answer(rpc: &Arc<Rpc>, recipient: Recipient<'_>, request: &Request<'_>) -> Result<(), Disconnect> {
    let admission = rpc.answering.lock().begin(&request.id);
    let (load, duty) = match admission {
        AnswerAdmission::Broken(reason) => return Err(Disconnect(Some(reason.to_owned()))),
        // The id is not noted, so the answer is not noted either.
        AnswerAdmission::Full(id) => (AnswerLoad::TooHigh, AnswerDuty::new(rpc, id)),
        AnswerAdmission::Admitted(id) => (AnswerLoad::Bearable, AnswerDuty::new(rpc, id)),
    };
    match recipient.handler.answer_request(&request.method, request.params, load) {
        RequestAnswer::Now(result) => duty.answer(result),
        RequestAnswer::Later(result) => {
            let stop = rpc.stop.clone();
            recipient.tasks.spawn(async move {
                if let Some(result) = stop.run_until_cancelled(result).await {
                    duty.answer(result);
                }
            });
        }
    }
    Ok(())
}

/// A request of the server that has no answer yet. If it is dropped, because the code that answers has panicked, the
/// server gets an error.
struct AnswerDuty {
    rpc: Arc<Rpc>,
    id: i64,
    is_done: bool,
}

impl AnswerDuty {
    fn new(rpc: &Arc<Rpc>, id: i64) -> Self {
        Self { rpc: Arc::clone(rpc), id, is_done: false }
    }

    fn answer(mut self, result: RequestResult) {
        self.is_done = true;
        self.send(result);
    }

    fn send(&self, result: RequestResult) {
        let id = RequestId::Integer(self.id);
        self.rpc.outbox.push(&match result {
            Ok(result) => encode_response(&id, &result),
            Err(error) => encode_error(&id, &error),
        });
    }
}

impl Drop for AnswerDuty {
    fn drop(&mut self) {
        if !self.is_done {
            self.send(Err(WireError::internal("the client has failed to answer")));
        }
        self.rpc.answering.lock().finish(self.id);
    }
}

fn check_outbox(rpc: &Rpc) -> Result<(), Disconnect> {
    if rpc.outbox.is_overfull() {
        return Err(Disconnect(Some("exec-server sends requests or pings and does not read the answers".to_owned())));
    }
    Ok(())
}

fn malformed(error: &DecodeError) -> Disconnect {
    Disconnect(Some(format!("exec-server sent a malformed message: {error}")))
}

fn notification_failed(error: String) -> Disconnect {
    Disconnect(Some(format!("exec-server notification handling failed: {error}")))
}
