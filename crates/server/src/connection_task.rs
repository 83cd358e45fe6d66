//! The task of one connection: reads messages, hands each to its handler, writes answers and events, and says goodbye at the end.
//!
//! [`serve`] is the whole life of a connection, and [`converse`] names its steps. `inbox` orders what arrives, `incoming` handles one
//! message, `peer_timer` decides when to ping and when a silent peer is given up, `writer` sends, and `goodbye` waits for the peer
//! after the last message. What a request means is not known here; that is in `handlers`.

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
use self::peer_timer::{PeerState, PeerTimer};
use crate::connection::Connection;
use crate::handlers;
use crate::limits::LAST_ANSWERS_PATIENCE;
use crate::metrics::Transport;
use crate::outbound::Intake;
use crate::server_state::ServerState;
use crate::survive::survive;

/// Messages that have arrived together are handled in one turn, up to this many, so that their answers leave in one write.
const MESSAGES_IN_A_TURN: usize = 32;

/// WebSocket's close code for a connection that has done what it was opened for.
const NORMAL: u16 = 1000;

/// A close code from the range that WebSocket leaves to applications. A client that gets it must not reconnect by itself, because it
/// would take the session from its new owner.
const TAKEN_OVER: u16 = 4010;

/// Why a connection ends, with the words for the log.
#[derive(Clone, Copy, Debug)]
enum ConnectionEnd {
    /// The peer has closed the connection, or has broken the protocol. It can still read a goodbye.
    Orderly(&'static str),
    /// The peer sends nothing more, but may still read the answers to its last requests: the end of a stream of lines.
    InputEnded(&'static str),
    /// The writer has already sent a goodbye, because the server shuts down.
    GoodbyeSaid(&'static str),
    /// The peer cannot be reached any more.
    Lost(&'static str),
    /// The peer is still there, but another connection has taken its session.
    TakenOver(&'static str),
}

impl ConnectionEnd {
    /// The end of a connection whose writer has ended.
    fn of_writer(written: &io::Result<()>) -> Self {
        match written {
            Ok(()) => Self::GoodbyeSaid("the server shuts down"),
            Err(_) => Self::Lost("connection lost"),
        }
    }

    /// The end of a connection that its peer has closed. `reason` is missing if the stream ended without a close frame.
    fn of_close(reason: Option<&CloseReason>, framing: Framing) -> Self {
        let may_still_read = reason.is_none() && framing == Framing::Lines;
        if may_still_read { Self::InputEnded("closed by the peer") } else { Self::Orderly("closed by the peer") }
    }

    /// Close code and reason of the goodbye that is still to be sent; none if it was sent or cannot be.
    fn goodbye(self) -> Option<(u16, &'static str)> {
        match self {
            Self::Orderly(_) | Self::InputEnded(_) => Some((NORMAL, "")),
            Self::TakenOver(reason) => Some((TAKEN_OVER, reason)),
            Self::GoodbyeSaid(_) | Self::Lost(_) => None,
        }
    }

    fn words_for_log(self) -> &'static str {
        match self {
            Self::Orderly(words)
            | Self::InputEnded(words)
            | Self::GoodbyeSaid(words)
            | Self::Lost(words)
            | Self::TakenOver(words) => words,
        }
    }
}

/// Serves a connection until it ends.
pub(crate) async fn serve(accepted: AcceptedStream, transport: Transport, shared: Arc<ServerState>) {
    let AcceptedStream { stream, principal } = accepted;
    let MessageStream { reader, writer, framing, receipt_proof, peer } = stream;
    let connection = Arc::new(Connection::new(&shared, transport, framing, receipt_proof, peer, principal));
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
    // Their calls hold the connection.
    drop(std::mem::take(&mut *connection.metadata_requests.lock()));
    connection.end_handlers().await;
}

/// Reads and writes until the connection ends, and says goodbye to a peer that can still read.
async fn converse(connection: &Arc<Connection>, reader: Reader, writer: Writer) {
    let mut inbox = Inbox::new(reader);
    let mut writing = pin!(writer::run(Arc::clone(&connection.outbound), writer));
    let mut end = handle_until_end(connection, &mut inbox, writing.as_mut()).await;
    if !matches!(end, ConnectionEnd::GoodbyeSaid(_) | ConnectionEnd::TakenOver(_)) {
        carry_out_unanswered(connection, inbox.take_rest()).await;
    }
    if let ConnectionEnd::InputEnded(_) = end {
        end = answer_last_requests(connection, end, writing.as_mut()).await;
    }
    tracing::debug!(peer = %connection.peer, reason = end.words_for_log(), "connection ended");
    connection.detach();
    // A client that resumes the session need not wait until this connection is known to be dead.
    connection.outbound.end_now();
    // A connection that was taken over gets the answers to its requests before the goodbye.
    connection.end_handlers().await;
    queue_goodbye(connection, end);
    // Nothing may wait for a dead socket.
    if !matches!(end, ConnectionEnd::Lost(_)) {
        let writing = end.goodbye().is_some().then_some(writing);
        goodbye::part(writing, &mut inbox, connection).await;
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
    loop {
        // The alarm is set again only when it must be earlier. One that rings too early costs less than a new timer for each message.
        let due_at = peer_timer.due_at().into();
        if due_at < alarm.deadline() {
            alarm.as_mut().reset(due_at);
        }
        let intake = outbound.intake();
        tokio::select! {
            () = outbound.room_for_requests(), if intake == Intake::ControlFrames => {}
            first = inbox.next(intake) => {
                if let Some(end) = handle_turn(connection, inbox, first).await {
                    return end;
                }
            }
            written = &mut writing => return ConnectionEnd::of_writer(&written),
            () = outbound.goodbye_queued(), if !peer_timer.goodbye_is_queued() => peer_timer.note_goodbye(Instant::now()),
            () = outbound.ended() => return ConnectionEnd::Lost("replaced"),
            // A client on stdio would not notice the end of its connection. Its further requests are answered with the reason instead.
            () = outbound.displaced(), if connection.can_reconnect() => {
                return ConnectionEnd::TakenOver("session has been taken over by another connection");
            }
            () = &mut alarm => {
                if peer_timer.check(inbox.received_bytes(), Instant::now()) == PeerState::GivenUp {
                    return ConnectionEnd::Lost("no sign of life");
                }
                alarm.as_mut().reset(peer_timer.due_at().into());
            }
        }
    }
}

/// Handles `first` and what has arrived together with it. Returns why the connection has to end, if it has to.
async fn handle_turn(
    connection: &Arc<Connection>,
    inbox: &mut Inbox,
    first: Result<ReadEvent, ReadError>,
) -> Option<ConnectionEnd> {
    let outbound = &connection.outbound;
    outbound.begin_turn();
    let mut end = handle_event(connection, first).await;
    for _ in 1..MESSAGES_IN_A_TURN {
        if end.is_some() {
            break;
        }
        let Some(next) = inbox.next_buffered(outbound.intake()) else { break };
        end = handle_event(connection, next).await;
    }
    handlers::answer_metadata_requests(connection);
    outbound.end_turn();
    end
}

async fn handle_event(connection: &Arc<Connection>, event: Result<ReadEvent, ReadError>) -> Option<ConnectionEnd> {
    match event {
        Ok(ReadEvent::Closed(reason)) => {
            if reason.as_ref().is_some_and(|reason| reason.code == NORMAL) {
                connection.note_goodbye();
            }
            Some(ConnectionEnd::of_close(reason.as_ref(), connection.outbound.framing))
        }
        Ok(event) => {
            connection.outbound.note_received();
            incoming::handle(connection, event).await;
            None
        }
        Err(ReadError::Violation(violation)) => {
            tracing::debug!(%violation, "protocol error");
            connection.outbound.close(violation.close_code(), "protocol error");
            Some(ConnectionEnd::Orderly("protocol error"))
        }
        Err(_) => Some(ConnectionEnd::Lost("connection lost")),
    }
}

/// Handles requests that arrived before the end of the connection and waited for room for their answers. The client that sent them may
/// rely on their effects, but it does not read the answers any more.
async fn carry_out_unanswered(connection: &Arc<Connection>, requests: VecDeque<ReadEvent>) {
    if requests.is_empty() {
        return;
    }
    connection.outbound.stop_answering();
    for request in requests {
        incoming::handle(connection, request).await;
    }
    handlers::answer_metadata_requests(connection);
}

/// Gives the last requests of a peer that sends nothing more some time to be answered. Returns how the connection ends after that.
async fn answer_last_requests<W>(connection: &Connection, end: ConnectionEnd, writing: Pin<&mut W>) -> ConnectionEnd
where
    W: Future<Output = io::Result<()>>,
{
    tracing::debug!(peer = %connection.peer, reason = end.words_for_log(), "the last requests are answered");
    // A session that outlives its connection is free for the next connection at once. The session of stdio would end, and with it the
    // processes that the last requests are about.
    if connection.can_reconnect() {
        connection.detach();
    }
    tokio::select! {
        () = connection.everything_is_answered() => end,
        () = connection.outbound.ended() => end,
        written = writing => ConnectionEnd::of_writer(&written),
        () = tokio::time::sleep(LAST_ANSWERS_PATIENCE) => end,
    }
}

/// Queues the goodbye behind everything else that is still to be sent.
fn queue_goodbye(connection: &Connection, end: ConnectionEnd) {
    let Some((code, reason)) = end.goodbye() else { return };
    let outbound = &connection.outbound;
    if matches!(end, ConnectionEnd::TakenOver(_)) && !outbound.framing.has_close_codes() {
        let message = TakenOverNotification { message: reason.to_owned() };
        outbound.reply(encode_notification(notification::SESSION_TAKEN_OVER, &message));
    }
    outbound.close(code, reason);
}

#[cfg(test)]
mod tests;
