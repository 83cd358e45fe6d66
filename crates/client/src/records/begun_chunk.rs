//! A chunk of output that comes in parts, because the connections are too short-lived to carry it whole.

use protocol::{ChunkPart, OutputChunk, ReadResult};

/// The first part of a chunk. The rest has not come yet.
#[derive(Debug, Default)]
pub(crate) struct BegunChunk {
    chunk: Option<OutputChunk>,
}

impl BegunChunk {
    /// The part that a read must ask for next.
    pub(crate) fn part(&self) -> ChunkPart {
        let part = |chunk: &OutputChunk| ChunkPart { seq: chunk.seq, offset: chunk.chunk.0.len() as u64 };
        self.chunk.as_ref().map(part).unwrap_or_default()
    }

    /// Takes an answer whose only chunk is not complete.
    pub(crate) fn extend(&mut self, answer: ReadResult) {
        let Some(next) = answer.chunks.into_iter().next() else { return };
        match &mut self.chunk {
            Some(begun) if begun.seq == next.seq => begun.chunk.0.extend(next.chunk.0),
            // The server no longer retains the chunk that was begun.
            begun => *begun = Some(next),
        }
    }

    /// Puts the parts that have come in front of the first chunk of `answer`, if that is the rest of the same chunk.
    pub(crate) fn complete(&mut self, answer: &mut ReadResult) {
        let Some(begun) = self.chunk.take() else { return };
        if let Some(first) = answer.chunks.first_mut().filter(|first| first.seq == begun.seq) {
            let rest = std::mem::replace(&mut first.chunk, begun.chunk);
            first.chunk.0.extend(rest.0);
        }
    }
}
