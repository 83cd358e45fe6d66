//! The body of a response. Over HTTP/1.1 it is read only while the caller waits for the next piece. Over HTTP/2, at
//! most 1 MiB is received that the caller has not taken yet. So a slow caller slows the sender down. This module does
//! not know redirects or headers. Start with [`Body::next`].

use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body as _, Incoming};

use crate::deadline::Deadline;
use crate::error::{FailureKind, FetchError, RequestFailure};
use crate::pool::ConnectionLease;

/// The largest piece that [`Body::next`] returns. [`Body::discard`] reads at most about as much.
const MAX_PIECE_BYTES: usize = 1024 * 1024;

/// The body of a response. Dropping it before its end closes the connection, or with HTTP/2 resets the stream. After its end, the
/// connection can be used for other requests.
pub struct Body {
    incoming: Incoming,
    /// Received bytes that were too many for one piece and are returned next.
    rest: Bytes,
    /// The connection from which the body is read. None after the end of the body, and after an error.
    lease: Option<ConnectionLease>,
    deadline: Deadline,
    /// A larger body is an error. None: no limit.
    max_bytes: Option<u64>,
    /// Bytes received so far, including those in `rest`.
    received: u64,
}

/// The limits that a request sets for the body of its response.
#[derive(Clone, Copy)]
pub(crate) struct BodyLimits {
    pub(crate) deadline: Deadline,
    /// A larger body is an error. None: no limit.
    pub(crate) max_bytes: Option<u64>,
}

impl Body {
    pub(crate) fn new(incoming: Incoming, lease: ConnectionLease, limits: BodyLimits) -> Self {
        let BodyLimits { deadline, max_bytes } = limits;
        let mut body = Self { incoming, rest: Bytes::new(), lease: Some(lease), deadline, max_bytes, received: 0 };
        body.release_connection_at_end();
        body
    }

    /// Waits for the next piece, which has between 1 byte and 1 MiB. `None` at the end, and in every call after an error.
    ///
    /// Cancel safe: if the future is dropped, no bytes are lost, and the next call returns them.
    pub async fn next(&mut self) -> Result<Option<Bytes>, FetchError> {
        let next = self.advance().await;
        if next.is_err() {
            self.lease = None;
            self.rest = Bytes::new();
        }
        next.map_err(RequestFailure::into_body_error)
    }

    /// Reads the rest of the body. Fails if the rest has more than `limit` bytes.
    pub async fn collect(self, limit: u64) -> Result<Bytes, FetchError> {
        Ok(self.collect_while(limit, |_| true).await?.unwrap_or_default())
    }

    /// Like [`Self::collect`], but calls `may_hold` before each piece is added, with the number of bytes that would
    /// then be in memory. Stops and returns `None` when `may_hold` returns false.
    pub async fn collect_while(
        mut self,
        limit: u64,
        mut may_hold: impl FnMut(usize) -> bool,
    ) -> Result<Option<Bytes>, FetchError> {
        // `max_bytes` is for the whole body, so the bytes that were returned already are added.
        let limit = (self.received - self.rest.len() as u64).saturating_add(limit);
        self.max_bytes = Some(self.max_bytes.map_or(limit, |max_bytes| max_bytes.min(limit)));
        let Some(first) = self.next().await? else { return Ok(Some(Bytes::new())) };
        if !may_hold(first.len()) {
            return Ok(None);
        }
        let mut all = BytesMut::from(first);
        while let Some(piece) = self.next().await? {
            if !may_hold(all.len() + piece.len()) {
                return Ok(None);
            }
            all.extend_from_slice(&piece);
        }
        Ok(Some(all.freeze()))
    }

    /// Drops the body of a response that is not needed. Reads about 1 MiB at most of the bytes that have already
    /// arrived, so that an HTTP/1.1 connection can be used again if the body ends within them. Does not wait for
    /// more: a new connection costs less than waiting, and over HTTP/2 only the stream is reset.
    pub(crate) fn discard(mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        while let Some(lease) = &mut self.lease {
            match lease.poll_data(&mut self.incoming, &mut cx) {
                Poll::Ready(Some(Ok(data))) if self.received < MAX_PIECE_BYTES as u64 => {
                    self.received += data.len() as u64;
                    self.release_connection_at_end();
                }
                Poll::Ready(None) => self.release_connection(),
                _ => return,
            }
        }
    }

    /// [`Self::next`] without the cleanup after an error.
    async fn advance(&mut self) -> Result<Option<Bytes>, RequestFailure> {
        if !self.rest.is_empty() {
            return Ok(Some(self.split_rest()));
        }
        let Some(lease) = &mut self.lease else { return Ok(None) };
        // If the response has a `content-length`, a body that is too large is refused before it is read.
        if let Some(max_bytes) = self.max_bytes
            && self.received.saturating_add(self.incoming.size_hint().lower()) > max_bytes
        {
            return Err(too_large(max_bytes));
        }
        let data = poll_fn(|cx| lease.poll_data(&mut self.incoming, cx));
        let data = self.deadline.within(data).await?;
        let Some(data) = data.transpose()? else {
            self.release_connection();
            return Ok(None);
        };
        self.received += data.len() as u64;
        if let Some(max_bytes) = self.max_bytes.filter(|max_bytes| self.received > *max_bytes) {
            return Err(too_large(max_bytes));
        }
        self.release_connection_at_end();
        self.rest = data;
        Ok(Some(self.split_rest()))
    }

    fn split_rest(&mut self) -> Bytes {
        self.rest.split_to(self.rest.len().min(MAX_PIECE_BYTES))
    }

    /// Returns the connection to the pool if the end of the body has arrived. [`Self::next`] does this as early as
    /// possible: a caller that has got the last byte may never call it again.
    fn release_connection_at_end(&mut self) {
        if self.incoming.is_end_stream() {
            self.release_connection();
        }
    }

    /// Returns the connection to the pool, because no more bytes are expected. Does nothing if it was returned
    /// before.
    pub(crate) fn release_connection(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.finish();
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("received", &self.received).finish_non_exhaustive()
    }
}

fn too_large(max_bytes: u64) -> RequestFailure {
    RequestFailure::new(FailureKind::BodyTooLarge, format!("it is larger than {max_bytes} bytes"))
}
