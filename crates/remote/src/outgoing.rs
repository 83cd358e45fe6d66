//! The frames that wait for one socket to a relay. Frames about streams (*control frames*: resets, answers of handshakes)
//! come first. After them the streams that have frames take turns, so that a fast stream does not delay the others.
//!
//! A stream is in the queue at most once, and its frames are made when the socket can take them. So the queue needs no
//! memory for output, and an acknowledgement that goes out is never old.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use relay::{EncodedFrame, Frame};
use tokio::sync::Notify;

use crate::relayed_stream::RelayedStream;

/// Bytes that one stream may send before the next one has its turn.
const TURN_BYTES: usize = 128 << 10;

/// While so many control frames wait, no further frame is read from the socket. A relay that makes this end send resets
/// and does not take them costs a bounded amount of memory, and no reset is dropped.
const MAX_CONTROL_FRAMES: usize = 256;

/// The queue of one socket.
#[derive(Debug, Default)]
pub(crate) struct OutgoingFrames {
    waiting: Mutex<WaitingFrames>,
    /// Wakes the writer.
    added: Notify,
    /// Wakes the reader.
    control_sent: Notify,
    /// Wakes those who wait until nothing is left.
    emptied: Notify,
}

#[derive(Debug, Default)]
struct WaitingFrames {
    control: VecDeque<Frame>,
    streams: VecDeque<Arc<RelayedStream>>,
    /// The writer has taken frames from this queue and has not written all of them to the socket.
    is_writing: bool,
}

impl OutgoingFrames {
    /// Adds a frame that is sent before those of the streams.
    pub(crate) fn push_control(&self, frame: Frame) {
        self.waiting.lock().control.push_back(frame);
        self.added.notify_one();
    }

    /// Adds a stream that has frames and is not in the queue.
    pub(crate) fn push_stream(&self, stream: Arc<RelayedStream>) {
        self.waiting.lock().streams.push_back(stream);
        self.added.notify_one();
    }

    /// Waits until something was added.
    pub(crate) async fn wait(&self) {
        loop {
            let added = self.added.notified();
            {
                let waiting = self.waiting.lock();
                if !waiting.control.is_empty() || !waiting.streams.is_empty() {
                    return;
                }
            }
            added.await;
        }
    }

    /// Waits until a further control frame may be added.
    pub(crate) async fn wait_for_room(&self) {
        loop {
            let sent = self.control_sent.notified();
            if self.waiting.lock().control.len() < MAX_CONTROL_FRAMES {
                return;
            }
            sent.await;
        }
    }

    /// Hands frames to `take` until nothing waits or `take` returns false.
    pub(crate) fn gather(self: &Arc<Self>, now: Instant, mut take: impl FnMut(&EncodedFrame) -> bool) {
        self.waiting.lock().is_writing = true;
        loop {
            let control = self.waiting.lock().control.pop_front();
            if let Some(frame) = control {
                self.control_sent.notify_one();
                if !take(&frame.prepare()) {
                    return;
                }
                continue;
            }
            // The lock of the queue is not held while a stream is locked: a stream locks the queue.
            let Some(stream) = self.waiting.lock().streams.pop_front() else { return };
            let mut has_room = true;
            let mut turn_bytes = 0;
            let has_more = stream.take_frames(self, now, |frame| {
                turn_bytes += frame.message_bytes();
                has_room = take(frame);
                has_room && turn_bytes < TURN_BYTES
            });
            if has_more {
                self.waiting.lock().streams.push_back(stream);
            }
            if !has_room {
                return;
            }
        }
    }

    /// Waits until the socket has taken everything.
    pub(crate) async fn wait_until_empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            {
                let waiting = self.waiting.lock();
                if waiting.control.is_empty() && waiting.streams.is_empty() && !waiting.is_writing {
                    return;
                }
            }
            emptied.await;
        }
    }

    /// The frames that were gathered are with the kernel.
    pub(crate) fn note_written(&self) {
        self.waiting.lock().is_writing = false;
        self.emptied.notify_waiters();
    }

    /// Drops everything that waits: the socket is gone, and the streams decide what they send over the next one.
    pub(crate) fn clear(&self) {
        let mut waiting = self.waiting.lock();
        waiting.control.clear();
        waiting.streams.clear();
        waiting.is_writing = false;
        drop(waiting);
        self.emptied.notify_waiters();
    }
}
