//! Passes the bytes of one stream between its socket and the [`ForwardedStream`], in both directions at once.

use std::io;
use std::pin::pin;
use std::sync::Arc;

use bytes::BufMut as _;
use protocol::{TcpFlowNotification, encode_notification, error_kind, notification};
use rustix::net::{Shutdown, shutdown};
use tokio::net::TcpStream;

use crate::outbound::Outbound;
use crate::port_stream::{CloseCause, ForwardedStream, StreamEnd};

/// How a stream has ended without a [`StopReason`](crate::port_stream::StopReason).
pub(super) enum PumpEnd {
    /// Both sides have sent the end of their direction.
    Complete,
    /// The connection to the port has failed, for example with a reset.
    Broken(CloseCause),
}

/// Passes bytes until both directions have ended, or the socket fails.
pub(super) async fn run(outbound: &Outbound, stream: &Arc<ForwardedStream>, socket: &TcpStream) -> PumpEnd {
    let mut reading = pin!(read(outbound, stream, socket));
    let mut writing = pin!(write(outbound, stream, socket));
    let ended = tokio::select! {
        read = &mut reading => match read {
            Ok(()) => writing.await,
            failed => failed,
        },
        // When writing has ended or failed, there may still be bytes of the port to read, such as an answer that it
        // sent before it stopped reading.
        written = &mut writing => match (reading.await, written) {
            (Ok(()), written) => written,
            (failed, Ok(())) | (Err(_), failed) => failed,
        },
    };
    match ended {
        Ok(()) => PumpEnd::Complete,
        Err(error) => {
            let message = format!("the port has broken the connection: {error}");
            PumpEnd::Broken(CloseCause { kind: error_kind::CONNECTION_RESET, message })
        }
    }
}

/// Passes bytes from the port to the client, until the port has ended its direction.
async fn read(outbound: &Outbound, stream: &Arc<ForwardedStream>, socket: &TcpStream) -> io::Result<()> {
    let queue_if = |has_to_be_queued: bool| {
        if has_to_be_queued {
            outbound.queue_port(Arc::clone(stream));
        }
    };
    loop {
        let allowed = stream.room_to_read().await;
        socket.readable().await?;
        let mut piece = stream.memory_for_piece().limit(allowed);
        match socket.try_read_buf(&mut piece) {
            Ok(0) => {
                queue_if(stream.end(StreamEnd::Complete));
                return Ok(());
            }
            Ok(_) => queue_if(stream.send(piece.into_inner()).await),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.drop_spare_memory(),
            Err(error) => return Err(error),
        }
    }
}

/// Passes bytes from the client to the port, until the client has ended its direction.
async fn write(outbound: &Outbound, stream: &ForwardedStream, socket: &TcpStream) -> io::Result<()> {
    while let Some(bytes) = stream.next_received().await {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match socket.try_write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => socket.writable().await?,
                Err(error) => return Err(error),
            }
        }
        if let Some(credit) = stream.note_consumed(bytes.len()) {
            let flow = TcpFlowNotification { stream_id: stream.id.clone(), credit };
            outbound.reply(encode_notification(notification::TCP_FLOW, &flow));
        }
    }
    Ok(shutdown(socket, Shutdown::Write)?)
}

/// Turns the reset on close off again: when the socket is closed, the kernel sends the bytes that it still holds.
pub(super) fn let_kernel_finish(socket: &TcpStream) {
    if let Err(error) = rustix::net::sockopt::set_socket_linger(socket, None) {
        tracing::debug!(%error, "the last bytes of a TCP stream may be lost");
    }
}
