//! `process/flow`: a client pauses the events of one process, and still gets the events of its other processes.

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
        // The events are paused before the answer is queued, so that no event follows the answer.
        let paused = session.pause(&process, connection);
        return call.finish(if paused { Ok(NoResult {}) } else { Err(resumed_elsewhere()) });
    }
    // The answer is queued before the events that waited.
    call.finish(Ok(NoResult {}));
    session.unpause(&process, connection);
}
