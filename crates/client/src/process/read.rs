//! Reading retained output over as many connections as it takes. Where a connection does not carry the whole answer, less is asked for, down
//! to parts of a chunk, so that each connection brings the reader further.

use protocol::{ChunkPart, OutputChunk, ReadParams, ReadResult, methods};
use recovery::WriteSize;

use crate::error::ExecServerError;
use crate::shared::{CallOptions, Shared};

/// Reads. The chunks of the answer are whole, whatever it took to get them.
pub(crate) async fn read(shared: &Shared, params: ReadParams) -> Result<ReadResult, ExecServerError> {
    let mut begun = BegunChunk::default();
    let mut asked = params.clone();
    loop {
        let Some(mut answer) = shared.call_until_lost::<methods::ProcessRead>(&asked, CallOptions::WAIT).await?
        else {
            shared.write_size.lock().handle_lost();
            if shared.capabilities().await?.read_parts {
                asked = limited(shared, &params, &begun);
            }
            continue;
        };
        let bytes: usize = answer.chunks.iter().map(|chunk| chunk.chunk.0.len()).sum();
        shared.write_size.lock().handle_taken(bytes);
        if answer.partial {
            begun.extend(answer);
            asked = limited(shared, &params, &begun);
            continue;
        }
        begun.complete(&mut answer);
        return Ok(answer);
    }
}

fn limited(shared: &Shared, params: &ReadParams, begun: &BegunChunk) -> ReadParams {
    let most = shared.write_size.lock().bytes(true).min(WriteSize::MOST_BYTES) as u64;
    let max_bytes = Some(params.max_bytes.map_or(most, |max_bytes| max_bytes.min(most)));
    ReadParams { max_bytes, part: Some(begun.part()), ..params.clone() }
}

/// The beginning of a chunk whose rest has not come.
#[derive(Debug, Default)]
pub(crate) struct BegunChunk {
    chunk: Option<OutputChunk>,
}

impl BegunChunk {
    /// What to ask for next.
    pub(crate) fn part(&self) -> ChunkPart {
        let part = |chunk: &OutputChunk| ChunkPart { seq: chunk.seq, offset: chunk.chunk.0.len() as u64 };
        self.chunk.as_ref().map(part).unwrap_or_default()
    }

    /// Takes an answer whose only chunk is not whole.
    pub(crate) fn extend(&mut self, answer: ReadResult) {
        let Some(next) = answer.chunks.into_iter().next() else { return };
        match &mut self.chunk {
            Some(begun) if begun.seq == next.seq => begun.chunk.0.extend(next.chunk.0),
            // The chunk that was begun is no longer retained.
            begun => *begun = Some(next),
        }
    }

    /// Puts what was begun in front of the first chunk of an answer, if it is the same one.
    pub(crate) fn complete(&mut self, answer: &mut ReadResult) {
        let Some(begun) = self.chunk.take() else { return };
        if let Some(first) = answer.chunks.first_mut().filter(|first| first.seq == begun.seq) {
            let rest = std::mem::replace(&mut first.chunk, begun.chunk);
            first.chunk.0.extend(rest.0);
        }
    }
}
