//! Searching the files of an environment, the machine on which the server runs. A search ends when its connection is
//! lost; the caller has to search again.

use std::pin::Pin;
use std::sync::Arc;

use protocol::fs::{FoundFile, SearchParams, SearchResult};
use protocol::methods;

use crate::client::ExecServerClient;
use crate::client_core::ClientHandle;
use crate::error::ExecServerError;
use crate::jobs::{BackgroundJob, Forgotten};
use crate::records::SearchRecord;

type SearchAnswer = Pin<Box<dyn Future<Output = Result<SearchResult, ExecServerError>> + Send>>;

/// A running search. The request is sent with the first call of [`recv`](Self::recv). Dropping the value cancels the
/// search.
pub struct Search {
    /// The files that have come and that no call of `recv` has returned yet.
    record: Arc<SearchRecord>,
    /// Sends the request when it is first polled, and waits for its answer, which comes after the last file.
    answer: SearchAnswer,
    result: Option<SearchResult>,
    /// The request was answered, or the search was cancelled.
    is_over: bool,
    handle: Arc<ClientHandle>,
}

impl Search {
    /// Waits for the next file with matches. A file with many matches comes in several parts. Returns `None` after
    /// the last file, and after an error. Cancel safe.
    pub async fn recv(&mut self) -> Option<Result<FoundFile, ExecServerError>> {
        loop {
            match self.record.take() {
                Err(error) => {
                    self.end();
                    return Some(Err(error));
                }
                Ok(Some(file)) => return Some(Ok(self.to_local(file))),
                Ok(None) if self.is_over => return None,
                Ok(None) => {}
            }
            let answer = tokio::select! {
                biased;
                () = self.record.changed() => continue,
                answer = &mut self.answer => answer,
            };
            self.is_over = true;
            self.handle.core.inbound.searches.remove(&self.record.id);
            match answer {
                Ok(result) => self.result = Some(result),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// The totals of the search, once [`recv`](Self::recv) has returned `None`. A search that failed has none.
    pub fn result(&self) -> Option<&SearchResult> {
        self.result.as_ref()
    }

    /// Maps the path of a file from the environment to this machine.
    fn to_local(&self, mut file: FoundFile) -> FoundFile {
        if let Some(paths) = self.handle.core.connector.paths() {
            file.path = paths.to_local(&file.path);
        }
        file
    }

    /// Ends the search. If the request was not answered, a background job cancels the search on the server.
    fn end(&mut self) {
        let inbound = &self.handle.core.inbound;
        inbound.searches.remove(&self.record.id);
        if !std::mem::replace(&mut self.is_over, true) {
            inbound.add_job(BackgroundJob::Forget(Forgotten::Search(self.record.id.clone())));
        }
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        self.end();
    }
}

impl ExecServerClient {
    /// Searches files by their lines or their names. The client sets `search_id` of the params. Needs the extension
    /// `fsSearch`.
    pub async fn search(&self, mut params: SearchParams) -> Result<Search, ExecServerError> {
        let core = &self.handle().core;
        if !core.capabilities().await?.fs_search {
            return Err(ExecServerError::Protocol("the server cannot search files".to_owned()));
        }
        if let Some(paths) = core.connector.paths() {
            params.path = paths.to_remote(&params.path);
        }
        params.sandbox = core.remote_sandbox(params.sandbox.as_ref())?;
        // Waits until the queue of background jobs has room for the job that cancels the search.
        core.wait_for_room_for_job().await?;
        params.search_id = format!("search-{:x}", core.next_number());
        let record = Arc::new(SearchRecord::new(params.search_id.clone()));
        core.inbound.searches.add(&record);
        let calling_core = Arc::clone(core);
        let answer = Box::pin(async move { calling_core.call_for_user::<methods::FsSearch>(&params).await });
        Ok(Search { record, answer, result: None, is_over: false, handle: Arc::clone(self.handle()) })
    }
}
