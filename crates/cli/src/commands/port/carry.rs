//! Carries the bytes of one accepted connection to a stream of the environment, and back.

use std::io;
use std::pin::pin;

use bytes::BufMut as _;
use client::{ExecServerError, PortReader, PortStream, PortWriter};
use rustix::net::{Shutdown, shutdown, sockopt};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

/// Most bytes that are read from the accepted connection at once.
const PIECE_BYTES: usize = 64 << 10;

/// Why a connection has ended before both directions have ended.
pub(super) enum CarryError {
    /// The program on this machine has broken its connection.
    Here,
    /// The stream has failed, in the environment or on the way there.
    There(String),
}

/// Carries bytes until both directions have ended. `socket` must be set to reset its connection when it is dropped (zero
/// linger). After both directions have ended in order, this function undoes that setting.
pub(super) async fn carry(socket: &TcpStream, stream: PortStream) -> Result<(), CarryError> {
    let (reader, writer) = stream.into_split();
    let mut up = pin!(send(socket, writer));
    let mut down = pin!(receive(socket, reader));
    tokio::select! {
        sent = &mut up => match sent {
            Ok(()) => down.await?,
            Err(CarryError::Here) => return Err(CarryError::Here),
            // Bytes that the port has sent before are still delivered.
            Err(failed) => return down.await.and(Err(failed)),
        },
        received = &mut down => {
            received?;
            up.await?;
        }
    }
    sockopt::set_socket_linger(socket, None).map_err(|_| CarryError::Here)
}

/// From the accepted connection to the environment.
async fn send(socket: &TcpStream, mut writer: PortWriter) -> Result<(), CarryError> {
    let mut piece = Vec::new();
    loop {
        socket.readable().await.map_err(here)?;
        piece.reserve_exact(PIECE_BYTES);
        let mut room = piece.limit(PIECE_BYTES);
        let read = socket.try_read_buf(&mut room);
        piece = room.into_inner();
        match read {
            Ok(0) => return writer.shutdown().await.map_err(there),
            Ok(_) => writer.write_all(&piece).await.map_err(there)?,
            // A connection that is idle keeps no memory.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => piece = Vec::new(),
            Err(error) => return Err(here(error)),
        }
        piece.clear();
    }
}

/// From the environment to the accepted connection.
async fn receive(socket: &TcpStream, mut reader: PortReader) -> Result<(), CarryError> {
    while let Some(bytes) = reader.recv().await {
        let bytes = bytes.map_err(|error: ExecServerError| CarryError::There(error.to_string()))?;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match socket.try_write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => socket.writable().await.map_err(here)?,
                Err(error) => return Err(here(error)),
            }
        }
    }
    shutdown(socket, Shutdown::Write).map_err(|error| here(error.into()))
}

fn here(_: io::Error) -> CarryError {
    CarryError::Here
}

fn there(error: io::Error) -> CarryError {
    CarryError::There(error.to_string())
}
