//! The task of one connection: reads messages, calls their handlers, sends answers and events, and closes the connection.
//!
//! Start reading at [`serve`], which runs from the beginning to the end of a connection, and [`converse`], which has the steps. `inbox` holds
//! messages that have arrived, `incoming` handles one message, `peer_timer` decides when to ping and when a silent peer counts as lost,
//! `writer` sends, and `goodbye` waits for the peer after the close frame. What a request means is in `handlers`.

mod goodbye;
mod inbox;
mod incoming;
mod peer_timer;
mod writer;

use std::collections::VecDeque;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Instant;

use protocol::{TakenOverNotification, encode_notification, notification};
use transport::{AcceptedStream, CloseReason, Framing, MessageStream, ReadError, ReadEvent, Reader, Writer};

use self::inbox::Inbox;
use self::incoming::AfterMessage;
use self::peer_timer::{PeerState, PeerTimer};
use crate::connection::Connection;
use crate::handlers;
use crate::limits::LAST_ANSWERS_PATIENCE;
use crate::metrics::Transport;
use crate::outbound::Intake;
use crate::server_state::ServerState;
use crate::survive::survive;

/// Up to this many messages that have arrived together are handled one after the other, before their answers are sent in one write.
const MESSAGES_AT_ONCE: usize = 32;

/// WebSocket close code for a normal end.
const NORMAL: u16 = 1000;

/// WebSocket close code for a peer that has broken the protocol.
const PROTOCOL_ERROR: u16 = 1002;

/// WebSocket close code, from the range for applications, for a connection whose session another connection has taken over. A client that
/// gets this code must not reconnect by itself, because it would take the session back.
const TAKEN_OVER: u16 = 4010;

/// Why a connection ends, with a text for the log. The text of [`Self::TakenOver`] is also sent to the peer. A
/// goodbye is the close frame, with the messages that are queued before it.
#[derive(Clone, Copy, Debug)]
enum ConnectionEnd {
    /// The peer has closed the connection, or has broken the protocol. It can still read a goodbye.
    Orderly(&'static str),
    /// The peer sends nothing more, but may still read the answers to its last requests. Only a stream of lines, which has no close frames,
    /// ends in this way.
    InputEnded(&'static str),
    /// The writer has already sent the goodbye, because the server shuts down.
    GoodbyeSent(&'static str),
    /// The peer cannot be reached any more.
    Lost(&'static str),
    /// The peer may be alive, but another connection has taken over its session.
    TakenOver(&'static str),
}

impl ConnectionEnd {
    /// The end of a connection whose writer has ended.
    fn of_writer(written: &io::Result<()>) -> Self {
        match written {
            Ok(()) => Self::GoodbyeSent("the server shuts down"),
            Err(_) => Self::Lost("connection lost"),
        }
    }

    /// The end of a connection that its peer has closed. `reason` is missing if the stream ended without a close frame.
    fn of_close(reason: Option<&CloseReason>, framing: Framing) -> Self {
        let may_await_answers = reason.is_none() && framing == Framing::Lines;
        if may_await_answers { Self::InputEnded("closed by the peer") } else { Self::Orderly("closed by the peer") }
    }

    /// Code and reason of the close frame that is still to be sent. None if it was sent already or the peer cannot be reached.
    fn goodbye(self) -> Option<(u16, &'static str)> {
        match self {
            Self::Orderly(_) | Self::InputEnded(_) => Some((NORMAL, "")),
            Self::TakenOver(reason) => Some((TAKEN_OVER, reason)),
            Self::GoodbyeSent(_) | Self::Lost(_) => None,
        }
    }

    fn log_text(self) -> &'static str {
        match self {
            Self::Orderly(words)
            | Self::InputEnded(words)
            | Self::GoodbyeSent(words)
            | Self::Lost(words)
            | Self::TakenOver(words) => words,
        }
    }
}

/// Serves a connection until it ends.
pub(crate) async fn serve(accepted: AcceptedStream, transport: Transport, shared: Arc<ServerState>) {
    let AcceptedStream { stream, principal } = accepted;
    let MessageStream { reader, writer, framing, proof_of_receipt, peer } = stream;
    let connection = Arc::new(Connection::new(&shared, transport, framing, proof_of_receipt, peer, principal));
    shared.metrics.connection_opened(transport, &connection.principal);
    shared.add_connection(&connection.outbound);
    tracing::debug!(peer = %connection.peer, principal = %connection.principal, "connection opened");
    if survive(converse(&connection, reader, writer)).await.is_none() {
        clean_up_after_panic(&connection).await;
    }
    connection.outbound.drop_answers();
    shared.remove_connection(&connection.outbound);
    shared.metrics.connection_closed(transport, &connection.principal);
}

/// Frees the session and ends the handlers of a connection whose task has panicked.
async fn clean_up_after_panic(connection: &Connection) {
    connection.detach();
    connection.outbound.end_now();
    // The requests for file metadata are stored in the connection and hold references to it. Without this line the connection would never
    // be freed.
    drop(std::mem::take(&mut *connection.file_metadata_requests.lock()));
    connection.end_handlers().await;
}

/// Reads and writes until the connection ends, and then sends a close frame to a peer that can still read.
async fn converse(connection: &Arc<Connection>, reader: Reader, writer: Writer) {
    let mut inbox = Inbox::new(reader);
    let mut writing = pin!(writer::run(Arc::clone(&connection.outbound), writer));
    let mut end = handle_until_end(connection, &mut inbox, writing.as_mut()).await;
    if !matches!(end, ConnectionEnd::GoodbyeSent(_) | ConnectionEnd::TakenOver(_)) {
        carry_out_unanswered(connection, inbox.take_rest()).await;
    }
    // The peer sends nothing more, and what it had sent before was handled.
    connection.outbound.give_up_client_requests();
    if let ConnectionEnd::InputEnded(_) = end {
        end = answer_last_requests(connection, end, writing.as_mut()).await;
    }
    tracing::debug!(peer = %connection.peer, reason = end.log_text(), "connection ended");
    connection.detach();
    // Another connection that is resuming the session may be waiting for a sign of life of this connection. This call ends that wait.
    connection.outbound.end_now();
    // Ending the handlers answers the open requests of a connection that was taken over, before the close frame is queued.
    connection.end_handlers().await;
    queue_goodbye(connection, end);
    // A lost peer is not waited for.
    if !matches!(end, ConnectionEnd::Lost(_)) {
        let writing = end.goodbye().is_some().then_some(writing);
        goodbye::wait_for_peer(writing, &mut inbox, connection).await;
    }
}

/// Handles messages and drives the writer until there is a reason to end the connection.
async fn handle_until_end<W>(
    connection: &Arc<Connection>,
    inbox: &mut Inbox,
    mut writing: Pin<&mut W>,
) -> ConnectionEnd
where
    W: Future<Output = io::Result<()>>,
{
    let outbound = &connection.outbound;
    let mut peer_timer = PeerTimer::new(outbound, &connection.shared.config, inbox.received_bytes());
    let mut alarm = pin!(tokio::time::sleep_until(peer_timer.due_at().into()));
    let mut is_displaced = false;
    loop {
        // The alarm is reset only if it must be earlier. An alarm that is too early costs less than a new timer for each message.
        let due_at = peer_timer.due_at().into();
        if due_at < alarm.deadline() {
            alarm.as_mut().reset(due_at);
        }
        let intake = outbound.intake();
        tokio::select! {
            () = outbound.room_for_requests(), if intake == Intake::ControlFrames => {}
            first = inbox.next(intake) => {
                if let Some(end) = handle_batch(connection, inbox, first).await {
                    return end;
                }
            }
            written = &mut writing => return ConnectionEnd::of_writer(&written),
            () = outbound.goodbye_queued(), if !peer_timer.goodbye_is_queued() => peer_timer.note_goodbye(Instant::now()),
            () = outbound.ended() => return ConnectionEnd::Lost("not alive when the client resumed its session over another connection"),
            () = outbound.displaced(), if !is_displaced => {
                if connection.can_reconnect() {
                    return ConnectionEnd::TakenOver("session has been taken over by another connection");
                }
                // A client on stdio would not notice a close frame. So its connection stays open. Its waiting requests are refused here, and
                // its further requests by the handlers.
                is_displaced = true;
                connection.end_handlers().await;
            }
            () = &mut alarm => {
                if peer_timer.check(inbox.received_bytes(), Instant::now()) == PeerState::TimedOut {
                    return ConnectionEnd::Lost("no sign of life");
                }
                alarm.as_mut().reset(peer_timer.due_at().into());
            }
        }
    }
}

/// Handles `first` and the messages that have arrived together with it. Returns why the connection has to end; None if it goes on.
async fn handle_batch(
    connection: &Arc<Connection>,
    inbox: &mut Inbox,
    first: Result<ReadEvent, ReadError>,
) -> Option<ConnectionEnd> {
    let outbound = &connection.outbound;
    // Until `end_handling`, answers do not wake the writer. The caller polls the writer directly after this function.
    outbound.begin_handling();
    let mut end = handle_event(connection, first).await;
    for _ in 1..MESSAGES_AT_ONCE {
        if end.is_some() {
            break;
        }
        let Some(next) = inbox.next_buffered(outbound.intake()) else { break };
        end = handle_event(connection, next).await;
    }
    // Requests for file metadata were only collected so far. They are answered together, in one write.
    handlers::answer_file_metadata_requests(connection);
    outbound.end_handling();
    end
}

async fn handle_event(connection: &Arc<Connection>, event: Result<ReadEvent, ReadError>) -> Option<ConnectionEnd> {
    match event {
        Ok(ReadEvent::Closed(reason)) => {
            if reason.as_ref().is_some_and(|reason| reason.code == NORMAL) {
                connection.note_closed_by_client();
            }
            Some(ConnectionEnd::of_close(reason.as_ref(), connection.outbound.framing))
        }
        Ok(event) => {
            connection.outbound.note_received();
            match incoming::handle(connection, event).await {
                AfterMessage::Continue => None,
                AfterMessage::End => Some(end_by_protocol_error(connection, PROTOCOL_ERROR)),
            }
        }
        Err(ReadError::Violation(violation)) => {
            tracing::debug!(%violation, "protocol error");
            Some(end_by_protocol_error(connection, violation.close_code()))
        }
        Err(_) => Some(ConnectionEnd::Lost("connection lost")),
    }
}

/// Queues the close frame for a peer that has broken the protocol. It replaces the goodbye of [`queue_goodbye`]: only
/// the first close counts.
fn end_by_protocol_error(connection: &Connection, close_code: u16) -> ConnectionEnd {
    connection.outbound.close(close_code, "protocol error");
    ConnectionEnd::Orderly("protocol error")
}

/// Handles requests that arrived before the end of the connection and were parked because too many answers were
/// unsent. The client may rely on the effects of these requests. Their answers are dropped, because the client has
/// sent a close frame, has broken the protocol or cannot be reached. After [`ConnectionEnd::InputEnded`] there are no
/// such requests: the end of the input is handled after all requests before it.
async fn carry_out_unanswered(connection: &Arc<Connection>, requests: VecDeque<ReadEvent>) {
    if requests.is_empty() {
        return;
    }
    connection.outbound.stop_answering();
    for request in requests {
        // The connection ends anyway.
        let _after = incoming::handle(connection, request).await;
    }
    handlers::answer_file_metadata_requests(connection);
}

/// Waits until the last requests of a peer that sends nothing more are answered, at most [`LAST_ANSWERS_PATIENCE`]. Returns how the connection
/// ends after that.
async fn answer_last_requests<W>(connection: &Connection, end: ConnectionEnd, writing: Pin<&mut W>) -> ConnectionEnd
where
    W: Future<Output = io::Result<()>>,
{
    tracing::debug!(peer = %connection.peer, reason = end.log_text(), "answering the last requests");
    // The session is detached at once, so that another connection can resume it. A session on stdio stays attached until its last requests
    // are answered: detaching would end the session and kill its processes, which these requests may be about.
    if connection.can_reconnect() {
        connection.detach();
    }
    tokio::select! {
        () = connection.wait_for_last_answers() => end,
        () = connection.outbound.ended() => end,
        written = writing => ConnectionEnd::of_writer(&written),
        () = tokio::time::sleep(LAST_ANSWERS_PATIENCE) => end,
    }
}

/// Queues the close frame behind everything that is still to be sent.
fn queue_goodbye(connection: &Connection, end: ConnectionEnd) {
    let Some((code, reason)) = end.goodbye() else { return };
    let outbound = &connection.outbound;
    // On a stream of lines there is no close frame, so a notification tells the peer why the connection ends.
    if matches!(end, ConnectionEnd::TakenOver(_)) && !outbound.framing.has_close_codes() {
        let message = TakenOverNotification { message: reason.to_owned() };
        outbound.reply(encode_notification(notification::SESSION_TAKEN_OVER, &message));
    }
    outbound.close(code, reason);
}

#[cfg(test)]
mod tests;
