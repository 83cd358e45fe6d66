//! One HTTP request to a target. The connection to the target has no task: the future of the request, and later the
//! body of the response, read and write. So the target is read no faster than the program takes the response, and
//! dropping the response closes the connection.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::limits::MAX_RESPONSE_HEAD_BYTES;

type UpstreamDriver = http1::Connection<TokioIo<TcpStream>, Incoming>;

/// Sends a request over a fresh connection, and waits for the headers of the response.
pub(crate) async fn exchange(
    target: TcpStream,
    request: Request<Incoming>,
) -> Result<Response<UpstreamBody>, hyper::Error> {
    let (mut sender, mut driver) = http1::Builder::new()
        .max_buf_size(MAX_RESPONSE_HEAD_BYTES)
        .max_header_size(MAX_RESPONSE_HEAD_BYTES)
        .handshake(TokioIo::new(target))
        .await?;
    let mut is_over = false;
    let response = {
        let mut answer = pin!(sender.send_request(request));
        poll_fn(|cx| {
            if let ready @ Poll::Ready(_) = answer.as_mut().poll(cx) {
                return ready;
            }
            drive(&mut driver, &mut is_over, cx);
            answer.as_mut().poll(cx)
        })
        .await?
    };
    Ok(response.map(|body| UpstreamBody { body, driver, is_over }))
}

/// The body of a response, with the connection that it comes from.
pub(crate) struct UpstreamBody {
    body: Incoming,
    driver: UpstreamDriver,
    /// The driver has ended and must not be polled again.
    is_over: bool,
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        if let ready @ Poll::Ready(_) = Pin::new(&mut this.body).poll_frame(cx) {
            return ready;
        }
        drive(&mut this.driver, &mut this.is_over, cx);
        Pin::new(&mut this.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Reads and writes as much as possible without waiting. hyper reports an error to the response or body that is
/// waited for.
fn drive(driver: &mut UpstreamDriver, is_over: &mut bool, cx: &mut Context<'_>) {
    if !*is_over {
        *is_over = Pin::new(driver).poll(cx).is_ready();
    }
}
