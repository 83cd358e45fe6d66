//! Handles one message or control frame of a peer: requests go to their handlers, `initialized` finishes the
//! handshake, answers go to the requests of this server, pings are answered, pongs are noted, and every other message is
//! refused with an error that says why.

use std::sync::Arc;

use bytes::Bytes;
use protocol::{
    ErrorData, Incoming, Notification, RequestId, WireError, decode, encode_error, error_kind, notification, sniff_id,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use transport::ReadEvent;

use crate::connection::Connection;
use crate::handlers;
use crate::metrics::Transport;
use crate::outbound::AnswerOrigin;

/// Whether the connection goes on after a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterMessage {
    Continue,
    /// The peer has broken the protocol. It was told why.
    End,
}

/// Handles one event of the stream. Returns as soon as the next event may be handled.
pub(super) async fn handle(connection: &Arc<Connection>, event: ReadEvent) -> AfterMessage {
    match event {
        ReadEvent::Message(message) => return handle_message(connection, message).await,
        ReadEvent::TooLarge { prefix } => refuse_too_large(connection, &prefix),
        ReadEvent::Ping(payload) => connection.outbound.pong(payload),
        ReadEvent::Pong(payload) => connection.outbound.note_pong(&payload),
        // The caller ends the connection.
        ReadEvent::Closed(_) => {}
    }
    AfterMessage::Continue
}

async fn handle_message(connection: &Arc<Connection>, message: Bytes) -> AfterMessage {
    // Uploads consist of many large blocks, so a faster decoder tries them first.
    if let Some((id, params)) = protocol::fs::recognise_write_block(&message) {
        handlers::write_block(connection, id, params);
        return AfterMessage::Continue;
    }
    // Most bytes of TCP streams arrive in messages that have exactly the form that `protocol::TcpData` writes.
    if let Some(data) = protocol::recognise_tcp_data(&message)
        && connection.shared.config.forwards_ports
    {
        handle_stream_message(connection, handlers::port_data(connection, &data));
        return AfterMessage::Continue;
    }
    match decode(&message) {
        Ok(Incoming::Request(request)) => handlers::dispatch(connection, request, &message).await,
        Ok(Incoming::Notification(notification)) => handle_notification(connection, &notification, &message),
        Ok(Incoming::Response(response)) => {
            return take_answer(connection, &response.id, Some(response.result.get()));
        }
        Ok(Incoming::Error { id, .. }) => return take_answer(connection, &id, None),
        Err(error) => {
            let kind = if connection.transport == Transport::websocket { "websocket JSON-RPC" } else { "JSON-RPC" };
            let from = name_in_errors(connection);
            let error = WireError::invalid_request(format!("failed to parse {kind} message from {from}: {error}"));
            // An upload fails if this message was, or may have been, one of its blocks.
            handlers::note_refused_message(connection, &message, &error.message);
            connection.outbound.reply(encode_error(&RequestId::UNKNOWN, &error));
        }
    }
    AfterMessage::Continue
}

fn handle_notification(connection: &Connection, notification: &Notification<'_>, message: &[u8]) {
    if connection.shared.config.forwards_ports
        && let Some(handled) = handle_if_about_stream(connection, notification)
    {
        handle_stream_message(connection, handled);
    } else if notification.method != notification::INITIALIZED {
        let reason = format!("unexpected notification `{}`", protocol::shortened(&notification.method));
        handlers::note_refused_message(connection, message, &reason);
        refuse(connection, reason);
    } else if !connection.note_initialized() {
        refuse(connection, "client must call initialize before sending initialized".to_owned());
    }
}

/// Handles a notification about a TCP stream. None: it is about something else. The error text says why the
/// notification is refused.
fn handle_if_about_stream(connection: &Connection, notification: &Notification<'_>) -> Option<Result<(), String>> {
    let params = notification.params;
    Some(match &*notification.method {
        notification::TCP_DATA => params_of(params).and_then(|data| handlers::port_data(connection, &data)),
        notification::TCP_FLOW => params_of(params).map(|flow| handlers::port_flow(connection, &flow)),
        notification::TCP_CLOSE => params_of(params).map(|close| handlers::close_port(connection, &close)),
        _ => return None,
    })
}

fn params_of<'a, T: Deserialize<'a>>(params: Option<&'a RawValue>) -> Result<T, String> {
    serde_json::from_str(params.map_or("null", RawValue::get)).map_err(|error| error.to_string())
}

/// Refuses a message about a TCP stream if it could not be handled.
fn handle_stream_message(connection: &Connection, handled: Result<(), String>) {
    if let Err(reason) = handled {
        refuse(connection, reason);
    }
}

/// Refuses a message that is too large. `prefix` is its beginning, which usually contains the id of the request.
fn refuse_too_large(connection: &Connection, prefix: &[u8]) {
    let id = sniff_id(prefix).unwrap_or(RequestId::UNKNOWN);
    let limit = connection.shared.config.max_message_bytes;
    let from = name_in_errors(connection);
    let reason = format!("JSON-RPC message from {from} exceeds maximum length of {limit} bytes");
    handlers::note_refused_message(connection, prefix, &reason);
    let data = ErrorData::of_kind(error_kind::MESSAGE_TOO_LARGE);
    connection.outbound.reply(encode_error(&id, &WireError::invalid_request(reason).with_data(data)));
}

/// Takes an answer to a request of this server. `result` is its JSON text, and None if the answer is an error. An answer
/// without a request ends the connection: client and server do not agree on what was asked, so a later answer could
/// be taken for the answer to another question.
fn take_answer(connection: &Connection, id: &RequestId, result: Option<&str>) -> AfterMessage {
    match connection.outbound.take_client_answer(id, result) {
        AnswerOrigin::Requested => AfterMessage::Continue,
        AnswerOrigin::Unrequested => {
            let id = id.to_string();
            refuse(connection, format!("no request with id {} is waiting for an answer", protocol::shortened(&id)));
            AfterMessage::End
        }
    }
}

/// Refuses a message that is no request, or whose id cannot be read. So the error has the id for unknown requests.
fn refuse(connection: &Connection, reason: String) {
    connection.outbound.reply(encode_error(&RequestId::UNKNOWN, &WireError::invalid_request(reason)));
}

/// The name of the peer in error messages, as the published protocol has it.
fn name_in_errors(connection: &Connection) -> String {
    let peer = &connection.peer;
    match connection.transport {
        Transport::websocket => format!("exec-server websocket {peer}"),
        Transport::unix | Transport::stdio | Transport::relay | Transport::direct => format!("exec-server {peer}"),
    }
}
