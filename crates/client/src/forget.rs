//! What the server need not do any more, because nobody here waits for it.

use std::sync::Arc;
use std::time::Duration;

use protocol::fs::{CancelSearchParams, UnwatchParams};
use protocol::{Capabilities, HttpCancelParams, NoResult, methods};
use tokio::sync::mpsc;

use crate::error::ExecServerError;
use crate::shared::{CallOptions, Shared};

/// How long to wait for one of a thousand calls to end.
const BUSY_PATIENCE: Duration = Duration::from_millis(50);

/// Something nobody wants any more, by its id.
#[derive(Debug)]
pub(crate) enum Forgotten {
    Request(String),
    Watch(String),
    Search(String),
}

impl Forgotten {
    fn can_be_told(&self, capabilities: &Capabilities) -> bool {
        match self {
            Self::Request(_) => capabilities.http_cancel,
            Self::Watch(_) => capabilities.fs_watch,
            Self::Search(_) => capabilities.fs_search,
        }
    }

    async fn tell(&self, shared: &Shared) -> Result<NoResult, ExecServerError> {
        match self {
            Self::Request(id) => {
                let params = HttpCancelParams { request_id: id.clone() };
                shared.call::<methods::HttpCancel>(&params, CallOptions::WAIT).await
            }
            Self::Watch(id) => {
                let params = UnwatchParams { watch_id: id.clone() };
                shared.call::<methods::FsUnwatch>(&params, CallOptions::WAIT).await
            }
            Self::Search(id) => {
                let params = CancelSearchParams { search_id: id.clone() };
                shared.call::<methods::FsCancelSearch>(&params, CallOptions::WAIT).await
            }
        }
    }
}

/// Tells the server, one after the other: a thousand dropped handles are no reason for a thousand calls.
pub(crate) async fn forget_all(shared: Arc<Shared>, mut forgotten: mpsc::UnboundedReceiver<Forgotten>) {
    while let Some(forgotten) = forgotten.recv().await {
        let Ok(capabilities) = shared.capabilities().await else { continue };
        if !forgotten.can_be_told(&capabilities) {
            continue;
        }
        while let Err(error) = forgotten.tell(&shared).await {
            if !matches!(error, ExecServerError::TooManyRequests(_)) {
                tracing::debug!(?forgotten, %error, "cannot be ended");
                break;
            }
            tokio::time::sleep(BUSY_PATIENCE).await;
        }
    }
}
