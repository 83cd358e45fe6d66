//! Watching files of an environment, the machine on which the server runs, for changes. A watch continues over new
//! connections.

use std::sync::Arc;

use protocol::{PathUri, SandboxContext, methods};

use crate::client::ExecServerClient;
use crate::client_core::{CallOptions, ClientCore, ClientHandle};
use crate::error::ExecServerError;
use crate::jobs::{BackgroundJob, Forgotten};
use crate::records::{Changes, WatchRecord};

/// A running watch. Dropping the value ends the watch.
pub struct Watch {
    record: Arc<WatchRecord>,
    handle: Arc<ClientHandle>,
}

impl Watch {
    /// Waits for the next changes. Returns `None` when the watch is over: after the last change of a file or
    /// directory that is gone, and after an error. Cancel safe.
    pub async fn recv(&mut self) -> Option<Result<Changes, ExecServerError>> {
        let mut changes = self.record.recv().await?;
        if let (Ok(changes), Some(paths)) = (&mut changes, self.handle.core.connector.paths()) {
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
        let inbound = &self.handle.core.inbound;
        inbound.watches.remove(&self.record.id);
        if !self.record.is_over() {
            // The background job ends the watch on the server.
            inbound.add_job(BackgroundJob::Forget(Forgotten::Watch(self.record.id.clone())));
        }
    }
}

impl ExecServerClient {
    /// Watches a file or a directory; with `recursive` also everything below the directory. After a lost connection,
    /// the server repeats the missed changes. If it cannot, the watch reports an overflow. Needs the extension
    /// `fsWatch`.
    pub async fn watch(&self, path: &PathUri, recursive: bool) -> Result<Watch, ExecServerError> {
        self.watch_in_sandbox(path, recursive, None).await
    }

    /// As [`watch`](Self::watch), but only what the sandbox allows to read is watched.
    pub async fn watch_in_sandbox(
        &self,
        path: &PathUri,
        recursive: bool,
        sandbox: Option<&SandboxContext>,
    ) -> Result<Watch, ExecServerError> {
        let core = &self.handle().core;
        if !core.capabilities().await?.fs_watch {
            return Err(ExecServerError::Protocol("the server cannot watch files".to_owned()));
        }
        let path = core.connector.paths().map_or_else(|| path.clone(), |paths| paths.to_remote(path));
        let sandbox = core.remote_sandbox(sandbox)?;
        // Waits until the queue of background jobs has room for the job that ends the watch.
        core.wait_for_room_for_job().await?;
        let id = format!("watch-{:x}", core.next_number());
        let record = Arc::new(WatchRecord::new(id, path, recursive, sandbox));
        // The record is added before the request is sent, because the first change may come right after the answer.
        core.inbound.watches.add(&record);
        let watch = Watch { record, handle: Arc::clone(self.handle()) };
        let begun = begin(core, &watch.record).await;
        if let Err(error) = &begun {
            // A failed watch counts as over, so dropping it adds no job.
            watch.record.fail(error.clone());
        }
        begun.map(|()| watch)
    }
}

/// Begins the watch on the server. If the connection is lost before the answer, the client asks whether the server
/// has the watch, and begins it again if not.
async fn begin(core: &ClientCore, record: &WatchRecord) -> Result<(), ExecServerError> {
    loop {
        match core.call_for_user::<methods::FsWatch>(&record.begin_params()).await {
            Ok(_) => break,
            Err(ExecServerError::Disconnected(_)) => {}
            Err(error) => return Err(error),
        }
        match core.call::<methods::FsWatch>(&record.resume_params(), CallOptions::WAIT).await {
            Ok(_) => break,
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    record.set_begun();
    Ok(())
}
