//! A chunk of output that comes in parts, because the connections break too early to carry the whole chunk.

use protocol::{ChunkPart, OutputChunk, ReadResult};

/// The longest chunk that is put together from parts. Servers cut output into chunks of at most 256 KiB, so the limit
/// leaves a wide margin.
const MAX_CHUNK_BYTES: usize = 16 * 1024 * 1024;

/// The first part of a chunk whose rest has not come yet, if there is such a chunk.
#[derive(Debug, Default)]
pub(crate) struct BegunChunk {
    chunk: Option<OutputChunk>,
}

impl BegunChunk {
    /// How much of the chunk has come. A read sends this to get the rest of the chunk.
    pub(crate) fn part(&self) -> ChunkPart {
        let part = |chunk: &OutputChunk| ChunkPart { seq: chunk.seq, offset: chunk.chunk.0.len() as u64 };
        self.chunk.as_ref().map(part).unwrap_or_default()
    }

    /// Adds an answer whose only chunk is not complete. Fails if all parts together are longer than
    /// [`MAX_CHUNK_BYTES`].
    pub(crate) fn extend(&mut self, answer: ReadResult) -> Result<(), ChunkTooLong> {
        let Some(next) = answer.chunks.into_iter().next() else { return Ok(()) };
        match &mut self.chunk {
            Some(begun) if begun.seq == next.seq => {
                if begun.chunk.0.len() + next.chunk.0.len() > MAX_CHUNK_BYTES {
                    return Err(ChunkTooLong(next.seq));
                }
                begun.chunk.0.extend(next.chunk.0);
            }
            // The first part of a chunk. If another chunk was begun before, the server no longer retains that chunk.
            begun => *begun = Some(next),
        }
        Ok(())
    }

    /// Puts the earlier parts in front of the first chunk of `answer`, if that is the rest of the same chunk.
    pub(crate) fn complete(&mut self, answer: &mut ReadResult) {
        let Some(begun) = self.chunk.take() else { return };
        if let Some(first) = answer.chunks.first_mut().filter(|first| first.seq == begun.seq) {
            let rest = std::mem::replace(&mut first.chunk, begun.chunk);
            first.chunk.0.extend(rest.0);
        }
    }
}

/// The server sends too many parts of the chunk with this sequence number.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the output with sequence number {0} is longer than {MAX_CHUNK_BYTES} bytes")]
pub(crate) struct ChunkTooLong(u64);

#[cfg(test)]
mod tests {
    use protocol::{Base64Bytes, Stream};

    use super::*;

    fn answer(bytes: usize) -> ReadResult {
        let chunk = OutputChunk { seq: 7, stream: Stream::Stdout, chunk: Base64Bytes(vec![0; bytes]) };
        ReadResult { chunks: vec![chunk], ..ReadResult::default() }
    }

    #[test]
    fn parts_that_are_too_long_together_are_refused() {
        let mut begun = BegunChunk::default();
        begun.extend(answer(MAX_CHUNK_BYTES - 1)).unwrap();
        begun.extend(answer(1)).unwrap();
        assert_eq!(begun.extend(answer(1)), Err(ChunkTooLong(7)));
    }
}
