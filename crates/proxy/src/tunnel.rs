//! Passes bytes between a program and a target, in both directions, without looking at them. When one side ends its
//! direction, the other side is told, and the other direction goes on.

use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;

use crate::limits::TUNNEL_BUFFER_BYTES;

/// Runs until both directions have ended, or one side is lost. A side that does not read makes the other side wait.
pub(crate) async fn tunnel(mut program: impl AsyncRead + AsyncWrite + Unpin, mut target: TcpStream) {
    let copied =
        copy_bidirectional_with_sizes(&mut program, &mut target, TUNNEL_BUFFER_BYTES, TUNNEL_BUFFER_BYTES).await;
    if let Err(error) = copied {
        tracing::debug!(%error, "a tunnel ended with an error");
    }
}
