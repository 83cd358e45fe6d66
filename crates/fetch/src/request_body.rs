//! The body of a request as hyper takes it. The protocol of the server says that a request with an empty body is sent
//! without `content-length`. Over HTTP/2, hyper would send `content-length: 0`, except for GET, HEAD, DELETE and
//! CONNECT. So [`RequestBody`] does not tell hyper the length of an empty body.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

/// A body in memory. Its length is sent unless the body is empty.
pub(crate) struct RequestBody(Full<Bytes>);

impl RequestBody {
    pub(crate) fn new(body: Bytes) -> Self {
        Self(Full::new(body))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_end_stream() { SizeHint::new() } else { self.0.size_hint() }
    }
}
