//! `tcp/connect`, and the notifications `tcp/data`, `tcp/flow` and `tcp/close` of a client: byte streams to TCP ports that
//! this machine can reach. A stream belongs to its connection and ends with it, because TCP cannot be resumed.
//!
//! A stream ends normally when each side has sent the end of its direction. A side that wants to end the stream earlier
//! sends `tcp/close`. The other side answers with `tcp/close`, unless it has already sent `tcp/close` or the end of its
//! direction. Until that answer the id is in use, so late bytes never get into another stream.

mod dial;
mod pump;

use std::collections::hash_map::Entry;
use std::sync::Arc;

use protocol::{
    ErrorData, PushedTcpData, StreamViolation, TcpCloseNotification, TcpConnectParams, TcpConnectResult,
    TcpFlowNotification, WireError, decode_base64, error_kind,
};
use tokio::sync::OwnedSemaphorePermit;

use self::pump::PumpEnd;
use crate::budget::BudgetShare;
use crate::connection::{Call, Connection, PortEntry};
use crate::limits::{MAX_HOST_NAME_BYTES, PORT_WINDOW_BYTES, SMALL_PORT_WINDOW_BYTES};
use crate::port_stream::{CloseCause, ForwardedStream, StopReason, StreamEnd};
use crate::session::Session;

/// Keeps the id of a stream in use, with its share of the limits. Dropping this value frees all of it, except the id if
/// [`Self::keep_until_confirmed`] was called.
struct StreamRegistration {
    connection: Arc<Connection>,
    stream: Arc<ForwardedStream>,
    /// The share of `--max-port-buffers` for bytes of the client that the port has not taken.
    _window: BudgetShare,
    /// One of the permits of `--max-port-streams-total`.
    _permit: OwnedSemaphorePermit,
    /// Whether it is decided how long the id stays in use.
    is_settled: bool,
}

impl StreamRegistration {
    fn begin(connection: &Arc<Connection>, id: String, credit: u64) -> Result<(Self, u64), WireError> {
        let shared = &connection.shared;
        let mut streams = connection.ports.lock();
        let (own, all) = (shared.config.max_port_streams, shared.config.max_port_streams_total);
        if streams.len() >= own {
            let text = format!("connection has reached its limit of {own} TCP streams (--max-port-streams)");
            return Err(refused(error_kind::TOO_MANY_STREAMS, text));
        }
        let entry = match streams.entry(id) {
            Entry::Occupied(known) => {
                let id = protocol::shortened(known.key());
                return Err(WireError::invalid_params(format!("stream id `{id}` is already in use")));
            }
            Entry::Vacant(entry) => entry,
        };
        let permit = Arc::clone(&shared.port_permits).try_acquire_owned().map_err(|_| {
            let text = format!("server has reached its limit of {all} TCP streams (--max-port-streams-total)");
            refused(error_kind::TOO_MANY_STREAMS, text)
        })?;
        let mut memory = shared.port_budget.share();
        let window = if memory.try_set(PORT_WINDOW_BYTES) {
            PORT_WINDOW_BYTES
        } else {
            memory.set(SMALL_PORT_WINDOW_BYTES);
            SMALL_PORT_WINDOW_BYTES
        };
        let stream = Arc::new(ForwardedStream::new(entry.key().clone(), window as u64, credit));
        entry.insert(PortEntry::Open(Arc::clone(&stream)));
        drop(streams);
        let connection = Arc::clone(connection);
        let registration = Self { connection, stream, _window: memory, _permit: permit, is_settled: false };
        Ok((registration, window as u64))
    }

    /// Closes the stream because of `cause`. The id stays in use until the client has answered, because bytes of this
    /// stream may be on their way. It is free at once if the client has sent its last message on this stream.
    fn close(mut self, cause: CloseCause) {
        // The client may use the id again as soon as it has the `tcp/close`.
        let connection = Arc::clone(&self.connection);
        let mut streams = connection.ports.lock();
        if self.stream.client_sends_nothing_more() {
            streams.remove(&self.stream.id);
        } else {
            streams.insert(self.stream.id.clone(), PortEntry::Closing);
        }
        self.is_settled = true;
        drop(streams);
        if self.stream.end(StreamEnd::Closed(Some(cause))) {
            self.queue();
        }
    }

    fn queue(&self) {
        self.connection.outbound.queue_port(Arc::clone(&self.stream));
    }
}

impl Drop for StreamRegistration {
    fn drop(&mut self) {
        if !self.is_settled {
            self.connection.ports.lock().remove(&self.stream.id);
        }
    }
}

/// `tcp/connect`. A task connects to the port, so that other requests are handled meanwhile.
pub(super) fn connect(call: Call, params: TcpConnectParams, session: Arc<Session>) {
    if let Err(error) = check(&call.connection, &params) {
        return call.finish::<()>(Err(error));
    }
    let connection = Arc::clone(&call.connection);
    match StreamRegistration::begin(&connection, params.stream_id, params.credit) {
        Ok((registration, credit)) => connection.spawn(async move {
            serve(call, (params.host, params.port), credit, &session, registration).await;
        }),
        Err(error) => call.finish::<()>(Err(error)),
    }
}

/// Refuses a stream that the settings or the sandbox forbid, or whose parameters are invalid.
fn check(connection: &Connection, params: &TcpConnectParams) -> Result<(), WireError> {
    let config = &connection.shared.config;
    if !config.forwards_ports {
        let text = "this server does not forward ports (--no-port-forward)";
        return Err(refused(error_kind::PORT_FORWARD_OFF, text.to_owned()));
    }
    let limit = config.max_id_bytes;
    if params.stream_id.len() > limit {
        return Err(WireError::invalid_params(format!(
            "streamId exceeds the limit of {limit} bytes (--max-id-bytes)"
        )));
    }
    if params.host.is_empty() || params.host.len() > MAX_HOST_NAME_BYTES {
        return Err(WireError::invalid_params(format!("host must have 1 to {MAX_HOST_NAME_BYTES} bytes")));
    }
    if params.port == 0 {
        return Err(WireError::invalid_params("port must be at least 1"));
    }
    if params.sandbox.as_ref().is_some_and(protocol::SandboxContext::restricts_network) {
        let text = format!(
            "the sandbox does not allow the network, so {} cannot be reached",
            dial::address_text(&params.host, params.port)
        );
        return Err(refused(error_kind::SANDBOX_DENIED, text));
    }
    Ok(())
}

/// Connects to the port, answers the request, and passes bytes until the stream ends.
async fn serve(
    call: Call,
    (host, port): (String, u16),
    credit: u64,
    session: &Session,
    registration: StreamRegistration,
) {
    let stream = Arc::clone(&registration.stream);
    let dialled = tokio::select! {
        biased;
        reason = stream.stopped() => Err(reason),
        dialled = dial::dial(&call.connection.shared, session, &host, port) => Ok(dialled),
    };
    let socket = match dialled {
        Ok(Ok(socket)) => socket,
        Ok(Err(error)) => {
            drop(registration);
            return call.finish::<()>(Err(error));
        }
        Err(reason) => {
            let error = match violation(reason) {
                None => refused("cancelled", "tcp/connect was cancelled".to_owned()),
                Some(text) => refused(error_kind::STREAM_VIOLATION, text.to_owned()),
            };
            call.finish::<()>(Err(error));
            return close(registration, reason);
        }
    };
    // Bytes of the port are sent as events. The send queue sends answers first, so this answer precedes the bytes.
    call.finish(Ok(TcpConnectResult { credit }));
    let end = tokio::select! {
        biased;
        reason = stream.stopped() => Err(reason),
        end = pump::run(&registration.connection.outbound, &stream, &socket) => Ok(end),
    };
    match end {
        // The end of the direction to the client is in the send queue already.
        Ok(PumpEnd::Complete) => pump::let_kernel_finish(&socket),
        Ok(PumpEnd::Broken(cause)) => registration.close(cause),
        Err(reason) => close(registration, reason),
    }
}

/// The rule that the client has broken. None: it has closed the stream.
fn violation(reason: StopReason) -> Option<&'static str> {
    match reason {
        StopReason::ClosedByClient => None,
        StopReason::Violation(StreamViolation::OverCredit) => Some("the client has sent more bytes than its credit"),
        StopReason::Violation(StreamViolation::AfterEnd) => {
            Some("the client has sent bytes after the end of its direction")
        }
        StopReason::InvalidBytes => Some("the client has sent bytes that are not valid base64"),
    }
}

/// Ends a stream in both directions because of `reason`, and tells the client.
fn close(registration: StreamRegistration, reason: StopReason) {
    match violation(reason) {
        Some(text) => registration.close(CloseCause { kind: error_kind::STREAM_VIOLATION, message: text.to_owned() }),
        None => {
            if registration.stream.end(StreamEnd::Closed(None)) {
                registration.queue();
            }
        }
    }
}

/// `tcp/data` of the client. The error text says why the message is refused.
pub(crate) fn data(connection: &Connection, data: &PushedTcpData<'_>) -> Result<(), String> {
    let Some(stream) = open_stream(connection, data)? else { return Ok(()) };
    match decode_base64(&data.chunk) {
        Ok(bytes) => stream.receive(bytes, data.end),
        Err(_) => stream.stop(StopReason::InvalidBytes),
    }
    Ok(())
}

/// `tcp/flow` of the client. Ignored if the stream has ended, because the client may not know that yet.
pub(crate) fn flow(connection: &Connection, flow: &TcpFlowNotification) {
    if let Some(PortEntry::Open(stream)) = connection.ports.lock().get(&flow.stream_id) {
        stream.grant(flow.credit);
    }
}

/// `tcp/close` of the client: ends an open stream, or confirms a `tcp/close` of this server. Ignored if the id is not
/// in use, because the client may not know that the stream has ended.
pub(crate) fn close_by_client(connection: &Connection, close: &TcpCloseNotification) {
    let mut streams = connection.ports.lock();
    match streams.get(&close.stream_id) {
        Some(PortEntry::Open(stream)) => stream.stop(StopReason::ClosedByClient),
        Some(PortEntry::Closing) => drop(streams.remove(&close.stream_id)),
        None => {}
    }
}

/// The open stream to which `data` belongs. None: this server has closed the stream. The end of the client's direction is
/// an answer to that.
fn open_stream(connection: &Connection, data: &PushedTcpData<'_>) -> Result<Option<Arc<ForwardedStream>>, String> {
    let mut streams = connection.ports.lock();
    let id: &str = &data.stream_id;
    match streams.get(id) {
        Some(PortEntry::Open(stream)) => Ok(Some(Arc::clone(stream))),
        Some(PortEntry::Closing) => {
            if data.end {
                streams.remove(id);
            }
            Ok(None)
        }
        None => Err(format!("no TCP stream has the id `{}`", protocol::shortened(id))),
    }
}

fn refused(kind: &str, text: String) -> WireError {
    WireError::invalid_request(text).with_data(ErrorData::of_kind(kind))
}
