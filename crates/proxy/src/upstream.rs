//! One HTTP request to a target. No task drives the connection to the target. It is polled by the request future, and
//! afterwards by the response body. So the target is read no faster than the program takes the response, and
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

use crate::joined_body::JoinedBody;
use crate::limits::{MAX_HEADERS, MAX_RESPONSE_HEAD_BYTES};
use crate::target_stream::{TargetStream, bound_reads};

type UpstreamDriver = http1::Connection<TokioIo<TargetStream>, JoinedBody<Incoming>>;

/// Sends a request over a fresh connection, and waits for the headers of the response.
pub(crate) async fn exchange(
    target: TcpStream,
    request: Request<JoinedBody<Incoming>>,
) -> Result<Response<UpstreamBody>, hyper::Error> {
    let (target, head_count) = bound_reads(target);
    let (mut sender, mut driver) = http1::Builder::new()
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_RESPONSE_HEAD_BYTES)
        .max_header_size(MAX_RESPONSE_HEAD_BYTES)
        .handshake(TokioIo::new(target))
        .await?;
    let mut driver_has_ended = false;
    let response = {
        let mut answer = pin!(sender.send_request(request));
        poll_fn(|cx| {
            if let ready @ Poll::Ready(_) = answer.as_mut().poll(cx) {
                return ready;
            }
            drive(&mut driver, &mut driver_has_ended, cx);
            answer.as_mut().poll(cx)
        })
        .await?
    };
    head_count.end();
    Ok(response.map(|body| UpstreamBody { body, driver, driver_has_ended }))
}

/// The body of a response, with the connection that it comes from.
pub(crate) struct UpstreamBody {
    body: Incoming,
    driver: UpstreamDriver,
    /// The driver has ended and must not be polled again.
    driver_has_ended: bool,
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
        drive(&mut this.driver, &mut this.driver_has_ended, cx);
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
fn drive(driver: &mut UpstreamDriver, driver_has_ended: &mut bool, cx: &mut Context<'_>) {
    if !*driver_has_ended {
        *driver_has_ended = Pin::new(driver).poll(cx).is_ready();
    }
}
