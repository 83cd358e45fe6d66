//! The body of a request as hyper takes it. hyper sends `content-length: 0` for an empty body over HTTP/2 if the method is POST, PUT or PATCH,
//! and over HTTP/1.1 never. The protocol says never.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

/// A body in memory, whose length is sent unless it is empty.
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
