//! The streamed bodies of one connection, and how much of them may wait to be read.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::{PushedBodyDelta, decode_base64};
use tokio::sync::mpsc;

/// Pieces of one body that may wait.
const PIECES: usize = 256;
/// Bytes of all bodies that may wait.
const WAITING_BYTES: usize = 16 * 1024 * 1024;
/// The largest piece a server sends.
const PIECE_BYTES: usize = 1024 * 1024;

/// What a reader gets.
pub(crate) enum Piece {
    Bytes(Bytes),
    End,
    Failed(String),
}

#[derive(Default)]
pub(crate) struct Bodies {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    streams: Mutex<HashMap<String, Stream>>,
    last_id: AtomicU64,
    waiting_bytes: AtomicUsize,
}

struct Stream {
    sender: mpsc::Sender<Piece>,
    last_seq: u64,
    failure: Arc<Mutex<String>>,
}

/// A place in the table, given back when it is dropped.
pub(crate) struct Registration {
    shared: Arc<Shared>,
    id: String,
    failure: Arc<Mutex<String>>,
}

impl Bodies {
    pub(crate) fn next_id(&self) -> String {
        format!("http-{}", self.shared.last_id.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(crate) fn register(&self) -> (Registration, mpsc::Receiver<Piece>) {
        let id = self.next_id();
        let (sender, pieces) = mpsc::channel(PIECES);
        let failure: Arc<Mutex<String>> = Arc::default();
        let stream = Stream { sender, last_seq: 0, failure: Arc::clone(&failure) };
        self.shared.streams.lock().insert(id.clone(), stream);
        (Registration { shared: Arc::clone(&self.shared), id, failure }, pieces)
    }

    /// A piece came. An error closes the connection: the server does not keep to the protocol.
    pub(crate) fn push(&self, delta: &PushedBodyDelta<'_>) -> Result<(), String> {
        let mut streams = self.shared.streams.lock();
        // Whoever is gone ignores the rest.
        let Some(stream) = streams.get_mut(&*delta.request_id) else { return Ok(()) };
        let bytes = decode_base64(&*delta.delta_base64).map_err(|error| format!("invalid base64: {error}"))?;
        if bytes.len() > PIECE_BYTES {
            return Err(format!("body delta exceeds {PIECE_BYTES} bytes"));
        }
        let failure = stream.take(delta, Bytes::from(bytes), &self.shared.waiting_bytes).err();
        if failure.is_some() || delta.done {
            if let (Some(failure), Some(stream)) = (failure, streams.remove(&*delta.request_id)) {
                stream.fail(failure);
            } else {
                streams.remove(&*delta.request_id);
            }
        }
        Ok(())
    }

    /// The connection is gone.
    pub(crate) fn fail_all(&self, text: &str) {
        for (_, stream) in self.shared.streams.lock().drain() {
            stream.fail(text.to_owned());
        }
    }
}

impl Stream {
    fn take(&mut self, delta: &PushedBodyDelta<'_>, bytes: Bytes, waiting: &AtomicUsize) -> Result<(), String> {
        if delta.seq != self.last_seq + 1 {
            return Err(format!("body delta {} came after {}", delta.seq, self.last_seq));
        }
        self.last_seq = delta.seq;
        if !bytes.is_empty() {
            let length = bytes.len();
            if waiting.fetch_add(length, Ordering::Relaxed) + length > WAITING_BYTES {
                waiting.fetch_sub(length, Ordering::Relaxed);
                return Err(format!("queued body deltas exceed {WAITING_BYTES} bytes"));
            }
            if self.sender.try_send(Piece::Bytes(bytes)).is_err() {
                waiting.fetch_sub(length, Ordering::Relaxed);
                return Err("body delta channel filled before delivery".to_owned());
            }
        }
        match (&delta.error, delta.done) {
            (Some(error), _) => Err(error.clone()),
            (None, true) if self.sender.try_send(Piece::End).is_err() => {
                Err("body delta channel filled before delivery".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// What was received before is still read; then comes the failure.
    fn fail(self, text: String) {
        (*self.failure.lock()).clone_from(&text);
        // Without room for it, the reader finds it at the end of the channel.
        let _full = self.sender.try_send(Piece::Failed(text));
    }
}

impl Registration {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// A piece was read.
    pub(crate) fn taken(&self, length: usize) {
        self.shared.waiting_bytes.fetch_sub(length, Ordering::Relaxed);
    }

    /// Nothing more is queued from now on.
    pub(crate) fn give_up(&self) {
        self.shared.streams.lock().remove(&self.id);
    }

    /// Why there is no end.
    pub(crate) fn failure(&self) -> String {
        self.failure.lock().clone()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.give_up();
    }
}
