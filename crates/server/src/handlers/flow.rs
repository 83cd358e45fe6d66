//! `process/flow`: a client that cannot take more of one process lets it wait, and hears of the others meanwhile.

use std::sync::Arc;

use protocol::{NoResult, ProcessFlowParams};

use super::{NamedProcess, resumed_elsewhere, unknown_process};
use crate::connection::Call;
use crate::session::Session;

pub(super) fn flow(call: Call, params: ProcessFlowParams, session: &Arc<Session>, named: NamedProcess) {
    let Some(process) = named.process() else {
        return call.finish::<()>(Err(unknown_process(&params.process_id)));
    };
    let connection = call.connection.number();
    if params.paused {
        // Before the answer: whoever has it gets no further event.
        let paused = session.pause(&process, connection);
        return call.finish(if paused { Ok(NoResult {}) } else { Err(resumed_elsewhere()) });
    }
    // The answer comes before what waited.
    call.finish(Ok(NoResult {}));
    session.unpause(&process, connection);
}
