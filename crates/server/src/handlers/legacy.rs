//! The methods `command/exec`, `command/exec/write` and `command/exec/terminate`: the same processes as with `process/*`, in the form of the
//! first published protocol.

use std::path::PathBuf;
use std::sync::Arc;

use protocol::{
    LegacyExecParams, LegacyExecResult, LegacyTerminateParams, LegacyWriteParams, LegacyWriteResult, WireError,
};
use session::{OfferResult, StartedAs};

use super::start::{self, StartSpec};
use super::{NamedProcess, stdin, stop, unknown_process};
use crate::connection::Call;
use crate::environment::child_env;
use crate::process::Dialect;
use crate::session::Session;

pub(super) fn exec(call: Call, params: LegacyExecParams, session: &Arc<Session>) {
    let cwd = PathBuf::from(&params.cwd);
    if !cwd.is_absolute() {
        let error = format!("cwd `{}` must be an absolute path", params.cwd);
        return call.finish::<()>(Err(WireError::invalid_params(error)));
    }
    let env = child_env(&call.connection.shared.env, None, &params.env);
    let spec = StartSpec {
        id: params.process_id,
        argv: params.argv,
        arg0: params.arg0,
        cwd,
        env,
        terminal: params.tty.then(spawn::TerminalSize::default),
        pipe_stdin: false,
        // Output is sent in notifications as it comes.
        started_as: StartedAs::Followed,
        timeout: None,
        umask: None,
        limits: None,
        snapshot: None,
        sandbox: None,
        proxy: None,
        dialect: Dialect::Legacy { output_bytes_cap: params.output_bytes_cap },
    };
    start::begin(call, spec, session, |call, process_id| {
        call.finish(Ok(LegacyExecResult { process_id, running: true, exit_code: None, stdout: None, stderr: None }));
    });
}

pub(super) fn write(call: Call, params: LegacyWriteParams, _: &Arc<Session>, named: NamedProcess) {
    let Some(process) = named.process() else {
        return call.finish::<()>(Err(unknown_process(&params.process_id)));
    };
    let id = params.process_id;
    stdin::offer(call, process, None, params.chunk.0.into(), move |call, offer| match offer {
        OfferResult::Accepted | OfferResult::Repeated => call.finish(Ok(LegacyWriteResult { accepted: true })),
        // `stdin::offer` waits while the queue is full, and answers `TotalLimitReached` itself. So here stdin
        // is closed.
        OfferResult::Full | OfferResult::TotalLimitReached | OfferResult::Closed => {
            call.finish::<()>(Err(WireError::invalid_request(format!("stdin of process {id} is closed"))));
        }
    });
}

pub(super) fn terminate(call: Call, _: LegacyTerminateParams, _: &Arc<Session>, named: NamedProcess) {
    stop::terminate_named(call, named);
}
