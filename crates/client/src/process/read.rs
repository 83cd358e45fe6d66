//! Reading the output that the server retains. If a connection is lost before the answer, the client reads again over
//! the next connection. If the server can send parts of a chunk, the client then asks for fewer bytes, so that each
//! connection brings some progress.

use protocol::{ReadParams, ReadResult, methods};
use recovery::WriteSize;

use crate::client_core::{CallOptions, ClientCore};
use crate::error::ExecServerError;
use crate::records::BegunChunk;

/// Reads retained output. The chunks of the returned answer are complete, even if they came in parts.
pub(crate) async fn read(core: &ClientCore, params: ReadParams) -> Result<ReadResult, ExecServerError> {
    let mut begun = BegunChunk::default();
    let mut asked = params.clone();
    loop {
        let Some(mut answer) = core.call_until_lost::<methods::ProcessRead>(&asked, CallOptions::WAIT).await? else {
            core.write_size.lock().note_connection_lost();
            if core.capabilities().await?.read_parts {
                asked = limited_params(core, &params, &begun);
            }
            continue;
        };
        let bytes: usize = answer.chunks.iter().map(|chunk| chunk.chunk.0.len()).sum();
        core.write_size.lock().note_carried(bytes);
        if answer.partial {
            begun.extend(answer).map_err(|error| ExecServerError::Protocol(error.to_string()))?;
            asked = limited_params(core, &params, &begun);
            continue;
        }
        begun.complete(&mut answer);
        return Ok(answer);
    }
}

/// The params of the same read with a limit of bytes, which `write_size` decides for reads too. If a part of a chunk
/// has come, the read continues after that part.
fn limited_params(core: &ClientCore, params: &ReadParams, begun: &BegunChunk) -> ReadParams {
    // If a connection is lost before the answer, the client can ask for a smaller part of the chunk.
    let can_be_divided = true;
    let most = core.write_size.lock().bytes(can_be_divided).min(WriteSize::MOST_BYTES) as u64;
    let max_bytes = Some(params.max_bytes.map_or(most, |max_bytes| max_bytes.min(most)));
    ReadParams { max_bytes, part: Some(begun.part()), ..params.clone() }
}
