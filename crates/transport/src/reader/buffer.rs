//! The buffer between a byte source and a decoder. Reads start small and grow while they fill the buffer; for a message whose length is
//! known they are large at once. The memory is freed when the reader has to wait with few bytes in the buffer.

use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Size of the first read. Most requests fit, and one page of memory is cheap to allocate.
const FIRST_READ_BYTES: usize = 4 * 1024;
/// Size up to which reads grow. Larger reads were not noticeably faster. Only a read for a long frame can be larger.
const LARGE_READ_BYTES: usize = 256 * 1024;
/// If the buffer holds fewer bytes than this while the reader waits, its capacity is reduced to the bytes that it holds.
const IDLE_BYTES: usize = 2 * 1024;
/// Messages of up to this size are copied out of the buffer. Without the copy, a small message that is kept for long would keep a whole
/// read buffer allocated.
const COPIED_BYTES: usize = 16 * 1024;

/// Bytes that were read and not decoded yet.
#[derive(Debug)]
pub(super) struct ReadBuffer {
    pub(super) bytes: BytesMut,
    /// Size of the next read if the decoder does not know how many bytes it needs.
    read_size: usize,
}

impl ReadBuffer {
    pub(super) fn new(already_read: Bytes) -> Self {
        Self { bytes: already_read.into(), read_size: FIRST_READ_BYTES }
    }

    /// Reads once and returns how many bytes were read; 0 is the end. `missing_bytes` is how many more bytes the decoder needs for the
    /// current frame, 0 if that is not known. However large this number is, one call makes the buffer at most twice as large or 256 KiB
    /// larger, whichever is more. So memory for a long message is allocated only as its bytes arrive.
    pub(super) fn poll_fill(
        &mut self,
        source: &mut (impl AsyncRead + Unpin),
        missing_bytes: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let needed = missing_bytes.min(LARGE_READ_BYTES.max(self.bytes.len()));
        self.bytes.reserve(needed.max(self.read_size));
        let room = self.bytes.capacity() - self.bytes.len();
        let read = pin!(source.read_buf(&mut self.bytes)).poll(cx);
        match read {
            Poll::Pending => self.shrink(),
            Poll::Ready(Ok(count)) if count == room => {
                self.read_size = (self.read_size * 4).min(LARGE_READ_BYTES);
            }
            Poll::Ready(_) => {}
        }
        read
    }

    fn shrink(&mut self) {
        if self.bytes.len() < IDLE_BYTES {
            self.bytes = BytesMut::from(&self.bytes[..]);
            self.read_size = FIRST_READ_BYTES;
        }
    }
}

/// Removes a message from the front of a read buffer, without a copy if it is large.
pub(crate) fn take_message(buffer: &mut BytesMut, message_bytes: usize) -> Bytes {
    if message_bytes > COPIED_BYTES {
        return buffer.split_to(message_bytes).freeze();
    }
    let copy = Bytes::copy_from_slice(&buffer[..message_bytes]);
    buffer.advance(message_bytes);
    copy
}
