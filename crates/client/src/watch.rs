//! What changes in a tree of the environment, over as many connections as it takes.

mod entry;

use std::sync::Arc;

use protocol::fs::{FileChange, WatchParams};
use protocol::{ErrorCode, PathUri, methods};

use crate::client::{ExecServerClient, Handle};
use crate::error::ExecServerError;
use crate::forget::Forgotten;
use crate::job::Job;
use crate::shared::{CallOptions, Shared};

pub(crate) use entry::{WatchEntry, Watches};

/// Something has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// In an order in which they can be applied.
    pub changes: Vec<FileChange>,
    /// More has changed than could be told, before these: look again at everything.
    pub overflow: bool,
}

/// A watch under way. Dropping it ends it.
pub struct Watch {
    entry: Arc<WatchEntry>,
    handle: Arc<Handle>,
}

impl Watch {
    /// Waits for the next changes; none when what was watched is gone. Cancel safe.
    pub async fn recv(&mut self) -> Option<Result<Changes, ExecServerError>> {
        let mut changes = self.entry.recv().await?;
        if let (Ok(changes), Some(paths)) = (&mut changes, self.handle.shared.connector.paths()) {
            for change in &mut changes.changes {
                change.path = paths.to_local(&change.path);
                change.from = change.from.take().map(|from| paths.to_local(&from));
            }
        }
        Some(changes)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let inbound = &self.handle.shared.inbound;
        inbound.watches.remove(&self.entry.id);
        if !self.entry.is_over() {
            inbound.job(Job::Forget(Forgotten::Watch(self.entry.id.clone())));
        }
    }
}

impl ExecServerClient {
    /// Watches a file or a directory, with everything below it if it is `recursive`. A lost connection loses no change; where that
    /// cannot be kept, an overflow is reported. Extension `fsWatch`.
    pub async fn watch(&self, path: &PathUri, recursive: bool) -> Result<Watch, ExecServerError> {
        let shared = &self.handle().shared;
        if !shared.capabilities().await?.fs_watch {
            return Err(ExecServerError::Protocol("the server cannot watch files".to_owned()));
        }
        let path = shared.connector.paths().map_or_else(|| path.clone(), |paths| paths.to_remote(path));
        let id = format!("watch-{:x}", shared.next_number());
        let entry = Arc::new(WatchEntry::new(id, path, recursive));
        // Before it is sent: the first change may come right behind the answer.
        shared.inbound.watches.add(&entry);
        let watch = Watch { entry, handle: Arc::clone(self.handle()) };
        let begun = begin(shared, &watch.entry).await;
        if let Err(error) = &begun {
            watch.entry.fail(error.clone());
        }
        begun.map(|()| watch)
    }
}

/// Until the server has it. A connection that is lost on the way leaves it open whether it has.
async fn begin(shared: &Shared, entry: &WatchEntry) -> Result<(), ExecServerError> {
    loop {
        match shared.call_for_user::<methods::FsWatch>(&entry.anew()).await {
            Ok(_) => {
                entry.has_begun();
                return Ok(());
            }
            Err(ExecServerError::Disconnected(_)) => {}
            Err(error) => return Err(error),
        }
        match shared.call::<methods::FsWatch>(&entry.again(), CallOptions::WAIT).await {
            Ok(_) => {
                entry.has_begun();
                return Ok(());
            }
            Err(error) if is_unknown(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

pub(crate) fn is_unknown(error: &ExecServerError) -> bool {
    matches!(error, ExecServerError::Server { code, .. } if *code == ErrorCode::NotFound.number())
}

impl WatchEntry {
    /// Asks for a watch that is not there.
    pub(crate) fn anew(&self) -> WatchParams {
        WatchParams {
            watch_id: self.id.clone(),
            path: self.path.clone(),
            recursive: self.recursive,
            after_seq: None,
            sandbox: None,
        }
    }

    /// Asks for what was missed.
    pub(crate) fn again(&self) -> WatchParams {
        WatchParams { after_seq: Some(self.last_seq()), ..self.anew() }
    }
}
