//! The jobs of one lane, that is, jobs that are done one after the other: they ask the server to end HTTP requests,
//! watches and searches which no handle uses any more.

use std::sync::Arc;

use protocol::fs::{CancelSearchParams, UnwatchParams};
use protocol::{Capabilities, HttpCancelParams, NoResult, methods};

use super::BUSY_WAIT;
use crate::client_core::{CallOptions, ClientCore};
use crate::error::ExecServerError;
use crate::jobs::{BackgroundJob, Forgotten, JobLane};

/// Does the jobs of this lane until the client is closing and no job is left.
pub(super) async fn forget_all(core: Arc<ClientCore>) {
    while let Some((job, _unfinished)) = core.inbound.jobs().next(JobLane::Forgotten).await {
        let BackgroundJob::Forget(forgotten) = job else { continue };
        let Ok(capabilities) = core.capabilities().await else { continue };
        if !can_be_ended(&forgotten, &capabilities) {
            continue;
        }
        while let Err(error) = ask_to_end(&core, &forgotten).await {
            if !matches!(error, ExecServerError::TooManyRequests(_)) {
                tracing::debug!(?forgotten, %error, "cannot end a request, watch or search");
                break;
            }
            tokio::time::sleep(BUSY_WAIT).await;
        }
    }
}

/// Whether the server knows the request that [`ask_to_end`] sends.
fn can_be_ended(forgotten: &Forgotten, capabilities: &Capabilities) -> bool {
    match forgotten {
        Forgotten::Request(_) => capabilities.http_cancel,
        Forgotten::Watch(_) => capabilities.fs_watch,
        Forgotten::Search(_) => capabilities.fs_search,
    }
}

async fn ask_to_end(core: &ClientCore, forgotten: &Forgotten) -> Result<NoResult, ExecServerError> {
    match forgotten {
        Forgotten::Request(id) => {
            let params = HttpCancelParams { request_id: id.clone() };
            core.call::<methods::HttpCancel>(&params, CallOptions::WAIT).await
        }
        Forgotten::Watch(id) => {
            let params = UnwatchParams { watch_id: id.clone() };
            core.call::<methods::FsUnwatch>(&params, CallOptions::WAIT).await
        }
        Forgotten::Search(id) => {
            let params = CancelSearchParams { search_id: id.clone() };
            core.call::<methods::FsCancelSearch>(&params, CallOptions::WAIT).await
        }
    }
}
