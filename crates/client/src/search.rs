//! Searching the environment. A search belongs to its connection: whoever loses it asks again.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use protocol::fs::{FoundFile, FoundNotification, SearchParams, SearchResult};
use protocol::methods;
use tokio::sync::Notify;

use crate::client::{ExecServerClient, Handle};
use crate::error::ExecServerError;
use crate::forget::Forgotten;
use crate::job::Job;

/// What may wait for a reader that is slower than the search, about.
const WAITING_BYTES: usize = 64 * 1024 * 1024;
/// What a line or a file takes beside its text, about.
const AROUND_BYTES: usize = 128;

type Answering = Pin<Box<dyn Future<Output = Result<SearchResult, ExecServerError>> + Send>>;

/// A search under way. It begins when it is first asked for what it has found; dropping it cancels it.
pub struct Search {
    found: Arc<Found>,
    answer: Answering,
    result: Option<SearchResult>,
    is_over: bool,
    handle: Arc<Handle>,
}

impl Search {
    /// Waits for the next file, or a further part of one; none when everything was told. Cancel safe.
    pub async fn recv(&mut self) -> Option<Result<FoundFile, ExecServerError>> {
        loop {
            match self.found.take() {
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
                () = self.found.news.notified() => continue,
                answer = &mut self.answer => answer,
            };
            self.is_over = true;
            self.handle.shared.inbound.searches.remove(&self.found.id);
            match answer {
                Ok(result) => self.result = Some(result),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// How it went, once [`recv`](Self::recv) has returned none.
    pub fn result(&self) -> Option<&SearchResult> {
        self.result.as_ref()
    }

    fn to_local(&self, mut file: FoundFile) -> FoundFile {
        if let Some(paths) = self.handle.shared.connector.paths() {
            file.path = paths.to_local(&file.path);
        }
        file
    }

    fn end(&mut self) {
        let inbound = &self.handle.shared.inbound;
        inbound.searches.remove(&self.found.id);
        if !std::mem::replace(&mut self.is_over, true) {
            inbound.job(Job::Forget(Forgotten::Search(self.found.id.clone())));
        }
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        self.end();
    }
}

impl ExecServerClient {
    /// Searches files by their lines or their names. The id in the params is ours to choose. Extension `fsSearch`.
    pub async fn search(&self, mut params: SearchParams) -> Result<Search, ExecServerError> {
        let shared = &self.handle().shared;
        if !shared.capabilities().await?.fs_search {
            return Err(ExecServerError::Protocol("the server cannot search files".to_owned()));
        }
        if let Some(paths) = shared.connector.paths() {
            params.path = paths.to_remote(&params.path);
        }
        params.search_id = format!("search-{:x}", shared.next_number());
        let found = Arc::new(Found::new(params.search_id.clone()));
        shared.inbound.searches.add(&found);
        let caller = Arc::clone(shared);
        let answer = Box::pin(async move { caller.call_for_user::<methods::FsSearch>(&params).await });
        Ok(Search { found, answer, result: None, is_over: false, handle: Arc::clone(self.handle()) })
    }
}

/// What was found and not read yet.
pub(crate) struct Found {
    id: String,
    state: Mutex<State>,
    news: Notify,
}

#[derive(Default)]
struct State {
    last_seq: u64,
    files: VecDeque<FoundFile>,
    bytes: usize,
    failure: Option<ExecServerError>,
}

impl Found {
    fn new(id: String) -> Self {
        Self { id, state: Mutex::default(), news: Notify::new() }
    }

    fn push(&self, found: FoundNotification) {
        let mut state = self.state.lock();
        if found.seq == state.last_seq + 1 {
            state.last_seq = found.seq;
        } else {
            let text = format!("results {} came after {}", found.seq, state.last_seq);
            state.failure.get_or_insert(ExecServerError::Protocol(text));
        }
        state.bytes += found.files.iter().map(cost).sum::<usize>();
        if state.bytes > WAITING_BYTES {
            let text = format!("more than {WAITING_BYTES} bytes of results wait to be read");
            state.failure.get_or_insert(ExecServerError::Protocol(text));
        }
        if state.failure.is_none() {
            state.files.extend(found.files);
        }
        drop(state);
        self.news.notify_one();
    }

    /// What was received before a failure is still read.
    fn take(&self) -> Result<Option<FoundFile>, ExecServerError> {
        let mut state = self.state.lock();
        if let Some(file) = state.files.pop_front() {
            state.bytes = state.bytes.saturating_sub(cost(&file));
            return Ok(Some(file));
        }
        state.failure.take().map_or(Ok(None), Err)
    }
}

fn cost(file: &FoundFile) -> usize {
    let raw = |line: &protocol::fs::FoundLine| line.raw.as_ref().map_or(0, |raw| raw.0.len());
    let matches = |line: &protocol::fs::FoundLine| line.matches.len() * size_of::<protocol::fs::MatchRange>();
    let lines: usize = file.lines.iter().map(|line| AROUND_BYTES + line.text.len() + raw(line) + matches(line)).sum();
    AROUND_BYTES + file.path.as_str().len() + lines
}

/// The searches of a client.
#[derive(Default)]
pub(crate) struct Searches(Mutex<HashMap<String, Arc<Found>>>);

impl Searches {
    fn add(&self, found: &Arc<Found>) {
        self.0.lock().insert(found.id.clone(), Arc::clone(found));
    }

    fn remove(&self, id: &str) {
        self.0.lock().remove(id);
    }

    pub(crate) fn push(&self, found: FoundNotification) {
        let search = self.0.lock().get(&found.search_id).cloned();
        if let Some(search) = search {
            search.push(found);
        }
    }
}
