//! Byte streams to TCP ports that the environment (the machine of the server) can reach. A stream ends with its connection to
//! the server, because TCP cannot be resumed; new streams can be opened as soon as the client has reconnected.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use protocol::{
    TcpCloseNotification, TcpConnectParams, TcpConnectResult, TcpData, TcpFlowNotification, TypedMethod as _,
    methods, notification,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::client::ExecServerClient;
use crate::client_core::ClientHandle;
use crate::error::ExecServerError;
use crate::records::{PORT_WINDOW_BYTES, PortRecord};
use crate::rpc::{CallError, CallSlot, Rpc};

/// The most bytes in one message. A longer message would make other messages wait.
const PIECE_BYTES: usize = 64 << 10;

/// A byte stream to a TCP port. If it is dropped before both directions have ended, the server resets the connection to
/// the port.
pub struct PortStream {
    reader: PortReader,
    writer: PortWriter,
}

/// Reads the bytes that the port sends. A slow reader makes the port wait.
pub struct PortReader {
    link: Arc<PortLink>,
    /// The part of the current chunk that was not read yet.
    chunk: Bytes,
}

/// Writes bytes to the port. A shutdown ends this direction only; the port can still send.
pub struct PortWriter {
    link: Arc<PortLink>,
    /// The wait for credit or for room in the outbox, if a write has to wait.
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

/// The part of a stream that both halves share. When both are dropped, the server is told, unless the stream has ended.
struct PortLink {
    record: Arc<PortRecord>,
    /// The connection that the stream belongs to.
    rpc: Arc<Rpc>,
    /// Keeps the client open while the stream is used.
    handle: Arc<ClientHandle>,
}

impl Drop for PortLink {
    fn drop(&mut self) {
        self.handle.core.inbound.ports.remove(&self.record);
        if self.record.must_be_closed() {
            let close = TcpCloseNotification { stream_id: self.record.id.clone(), kind: None, message: None };
            self.rpc.notify(notification::TCP_CLOSE, &close);
        }
    }
}

impl ExecServerClient {
    /// Opens a stream to a port that the environment can reach. `host` is a name or an address there, such as `localhost`.
    pub async fn connect_port(&self, host: &str, port: u16) -> Result<PortStream, ExecServerError> {
        let core = &self.handle().core;
        loop {
            let (generation, rpc) = core.rpc(core.options.when_recovering).await?;
            let record = core.inbound.ports.add(format!("tcp-{}", core.next_number()));
            let params = TcpConnectParams {
                stream_id: record.id.clone(),
                host: host.to_owned(),
                port,
                credit: PORT_WINDOW_BYTES,
                sandbox: None,
            };
            // If the caller drops this future, dropping `link` tells the server to close the stream.
            let link = PortLink { record, rpc: Arc::clone(&rpc), handle: Arc::clone(self.handle()) };
            let method = methods::TcpConnect::METHOD.name();
            match rpc.call::<TcpConnectResult>(method, &params, CallSlot::Ordinary).await {
                Ok(result) => {
                    link.record.grant(result.credit);
                    return Ok(PortStream::new(link));
                }
                Err(error) => {
                    link.record.note_unknown_to_server();
                    match error {
                        CallError::NotSent => core.wait_while_current(generation).await,
                        CallError::Lost => return Err(core.lost_call_error(&rpc)),
                        CallError::Failed(error) => return Err(error),
                    }
                }
            }
        }
    }
}

impl PortStream {
    fn new(link: PortLink) -> Self {
        let link = Arc::new(link);
        Self {
            reader: PortReader { link: Arc::clone(&link), chunk: Bytes::new() },
            writer: PortWriter { link, waiting: None },
        }
    }

    /// Splits the stream into its two directions, which two tasks can use independently.
    pub fn into_split(self) -> (PortReader, PortWriter) {
        (self.reader, self.writer)
    }
}

impl PortReader {
    /// Waits for the next bytes. Returns `None` after the last ones. No bytes are lost if the future is dropped.
    pub async fn recv(&mut self) -> Option<Result<Bytes, ExecServerError>> {
        std::future::poll_fn(|cx| self.poll_recv(cx)).await
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ExecServerError>>> {
        if !self.chunk.is_empty() {
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.chunk))));
        }
        let next = ready!(self.link.record.poll_next(cx));
        Poll::Ready(next.map(|bytes| {
            let bytes = Bytes::from(bytes?);
            if let Some(credit) = self.link.record.note_consumed(bytes.len()) {
                let flow = TcpFlowNotification { stream_id: self.link.record.id.clone(), credit };
                self.link.rpc.notify(notification::TCP_FLOW, &flow);
            }
            Ok(bytes)
        }))
    }
}

impl AsyncRead for PortReader {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        match ready!(self.poll_recv(cx)) {
            Some(Ok(mut bytes)) => {
                let count = bytes.len().min(buffer.remaining());
                buffer.put_slice(&bytes[..count]);
                bytes.advance(count);
                self.chunk = bytes;
                Poll::Ready(Ok(()))
            }
            Some(Err(error)) => Poll::Ready(Err(io::Error::other(error))),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for PortWriter {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        loop {
            if let Some(waiting) = &mut self.waiting {
                ready!(waiting.as_mut().poll(cx));
                self.waiting = None;
            }
            let PortLink { record, rpc, .. } = &*self.link;
            if rpc.has_room_now() {
                let allowed = record.take_credit(bytes.len().min(PIECE_BYTES)).map_err(io::Error::other)?;
                if allowed > 0 {
                    rpc.send_tcp_data(&TcpData { stream: &record.id_json, bytes: &bytes[..allowed], end: false });
                    return Poll::Ready(Ok(allowed));
                }
            }
            let link = Arc::clone(&self.link);
            self.waiting = Some(Box::pin(async move {
                link.rpc.wait_for_room().await;
                link.record.credit().await;
            }));
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let PortLink { record, rpc, .. } = &*self.link;
        if record.end_sending().map_err(io::Error::other)? {
            rpc.send_tcp_data(&TcpData { stream: &record.id_json, bytes: &[], end: true });
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for PortStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(cx, buffer)
    }
}

impl AsyncWrite for PortStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.writer).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_shutdown(cx)
    }
}
