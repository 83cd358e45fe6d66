//! The bytes between the kernel and a decoder. Reads begin small, grow while the peer keeps up with them, and are large at
//! once for a message whose length is known; the memory is given back whenever the peer makes us wait with little in hand.

use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// A request usually fits, and a page costs nothing to get.
const FIRST_READ_BYTES: usize = 4 * 1024;
/// Beyond this a larger read no longer saves noticeable time.
const LARGE_READ_BYTES: usize = 256 * 1024;
/// With less than this in hand while waiting, only what is in hand is kept.
const IDLE_BYTES: usize = 2 * 1024;
/// Messages up to here are copied out of the buffer: one that is kept for long would otherwise pin all of a large read that it
/// shares with its neighbours.
const COPIED_BYTES: usize = 16 * 1024;

/// Read bytes that no decoder has taken yet.
#[derive(Debug)]
pub(super) struct ReadBuffer {
    pub(super) bytes: BytesMut,
    read_bytes: usize,
}

impl ReadBuffer {
    pub(super) fn new(already_read: Bytes) -> Self {
        Self { bytes: already_read.into(), read_bytes: FIRST_READ_BYTES }
    }

    /// Reads once; 0 is the end. `missing` is how much the decoder knows it still needs. The buffer at most doubles for it: the
    /// peer has to send a length, not just to claim it, before we hold memory for it.
    pub(super) fn poll_fill(
        &mut self,
        source: &mut (impl AsyncRead + Unpin),
        missing: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let known = missing.min(LARGE_READ_BYTES.max(self.bytes.len()));
        self.bytes.reserve(known.max(self.read_bytes));
        let room = self.bytes.capacity() - self.bytes.len();
        let read = pin!(source.read_buf(&mut self.bytes)).poll(cx);
        match read {
            Poll::Pending => self.release(),
            Poll::Ready(Ok(count)) if count == room => {
                self.read_bytes = (self.read_bytes * 4).min(LARGE_READ_BYTES);
            }
            Poll::Ready(_) => {}
        }
        read
    }

    fn release(&mut self) {
        if self.bytes.len() < IDLE_BYTES {
            self.bytes = BytesMut::from(&self.bytes[..]);
            self.read_bytes = FIRST_READ_BYTES;
        }
    }
}

/// Takes a message off the front of a read buffer, without a copy if it is large.
pub(crate) fn take(buffer: &mut BytesMut, message_bytes: usize) -> Bytes {
    if message_bytes > COPIED_BYTES {
        return buffer.split_to(message_bytes).freeze();
    }
    let copy = Bytes::copy_from_slice(&buffer[..message_bytes]);
    buffer.advance(message_bytes);
    copy
}
