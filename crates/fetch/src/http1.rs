//! An HTTP/1.1 connection. hyper implements the protocol. The connection has no task: it reads and writes only inside
//! calls of its methods, for example while a caller waits for a piece of a body. So a body that nobody takes is not
//! read, and dropping the connection closes it. The clients of hyper-util and reqwest start a task for each
//! connection instead. Start with [`Http1Connection::exchange`].

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;

use crate::connect::ByteStream;
use crate::error::RequestFailure;
use crate::head_bounded_stream::{HeadAllowance, HeadBoundedStream};
use crate::request_body::RequestBody;

/// Limit for the bytes of the headers of a response. It also holds for HTTP/2. Informational responses (status 1xx)
/// before an HTTP/1.1 response count too.
pub const MAX_HEAD_BYTES: usize = 256 * 1024;

/// Limit for the number of headers of a response. It also holds for HTTP/2.
pub const MAX_HEADERS: usize = 1000;

/// Limit for the read buffer of hyper. hyper may exceed it a little, so a piece of a body can also be a little
/// larger.
const MAX_BUFFER_BYTES: usize = MAX_HEAD_BYTES;

/// The future of hyper that reads from the socket and writes to it.
type Http1Driver = http1::Connection<TokioIo<HeadBoundedStream>, RequestBody>;

/// An HTTP/1.1 connection, for one request after the other.
pub(crate) struct Http1Connection {
    sender: SendRequest<RequestBody>,
    driver: Http1Driver,
    /// Limits what the driver reads while the headers of a response are waited for.
    head_allowance: Arc<HeadAllowance>,
    /// The driver has ended and must not be polled again.
    is_over: bool,
}

impl Http1Connection {
    pub(crate) async fn new(stream: Box<dyn ByteStream>) -> Result<Self, RequestFailure> {
        let head_allowance = Arc::new(HeadAllowance::unlimited());
        let stream = HeadBoundedStream::new(stream, Arc::clone(&head_allowance));
        let (sender, driver) = http1::Builder::new()
            .max_buf_size(MAX_BUFFER_BYTES)
            .max_header_size(MAX_HEAD_BYTES)
            .max_headers(MAX_HEADERS)
            .handshake(TokioIo::new(stream))
            .await?;
        Ok(Self { sender, driver, head_allowance, is_over: false })
    }

    /// Sends a request and waits for the headers of the response. The error contains the request if no part of it was
    /// sent.
    pub(crate) async fn exchange(
        &mut self,
        request: http::Request<RequestBody>,
    ) -> Result<http::Response<Incoming>, TrySendError<http::Request<RequestBody>>> {
        self.head_allowance.begin();
        let mut answer = pin!(self.sender.try_send_request(request));
        let answered = poll_fn(|cx| {
            if let ready @ Poll::Ready(_) = answer.as_mut().poll(cx) {
                return ready;
            }
            drive(&mut self.driver, &mut self.is_over, cx);
            answer.as_mut().poll(cx)
        })
        .await;
        self.head_allowance.lift();
        answered
    }

    /// The next bytes of the body of the response, never empty. `None` at its end. Trailers are dropped.
    pub(crate) fn poll_data(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, RequestFailure>>> {
        let mut has_driven = false;
        loop {
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => return Poll::Ready(Some(Ok(data))),
                    _ => {}
                },
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error.into()))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending if has_driven => return Poll::Pending,
                Poll::Pending => {
                    drive(&mut self.driver, &mut self.is_over, cx);
                    has_driven = true;
                }
            }
        }
    }

    /// Whether another request can be sent. Reads from the socket to find out: a connection cannot be used again if
    /// the server has closed it, or has sent bytes that no request asked for.
    pub(crate) fn is_usable(&mut self) -> bool {
        drive(&mut self.driver, &mut self.is_over, &mut Context::from_waker(Waker::noop()));
        !self.is_over && self.sender.is_ready()
    }
}

/// Reads and writes as much as possible without waiting. An error is not returned here, because hyper reports it to
/// the response or body that is waited for.
fn drive(driver: &mut Http1Driver, is_over: &mut bool, cx: &mut Context<'_>) {
    if !*is_over {
        *is_over = Pin::new(driver).poll(cx).is_ready();
    }
}
