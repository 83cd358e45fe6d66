//! `fs/search` and `fs/cancelSearch`. A search belongs to its connection: whoever comes back asks again.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use files::{Pattern, PreparedSearch, SearchCompletion, SearchHit, SearchSummary};
use parking_lot::Mutex;
use protocol::fs::{
    CancelSearchParams, FoundFile, FoundLine, FoundNotification, MatchRange, SearchCase, SearchError, SearchParams,
    SearchResult,
};
use protocol::{Base64Bytes, NoResult, PathUri, WireError, encode_notification, notification};
use tokio::sync::{Notify, mpsc};

use super::native;
use crate::connection::{Call, Connection, SearchCancel};
use crate::files::{Question, Weight};
use crate::limits::MAX_HANDLE_ID_BYTES;
use crate::session::Session;

/// What is gathered before it is sent.
const BATCH_BYTES: usize = 64 << 10;
/// A batch of matches is sent at the latest this long after the one before it, or after its first match if that came later.
const BATCH_TIME: Duration = Duration::from_millis(20);
/// What a line or a file takes on the wire beside its text.
const AROUND_BYTES: usize = 96;
/// What a match in a line takes.
const MATCH_BYTES: usize = 26;
/// Batches that wait to be sent before the search does.
const WAITING_BATCHES: usize = 4;

/// A search by its name, until it is dropped.
struct ActiveSearch {
    connection: Arc<Connection>,
    id: String,
    cancel: SearchCancel,
}

impl ActiveSearch {
    fn begin(connection: &Arc<Connection>, id: String) -> Result<Self, WireError> {
        if id.len() > MAX_HANDLE_ID_BYTES {
            return Err(WireError::invalid_request(format!("search ID must not exceed {MAX_HANDLE_ID_BYTES} bytes")));
        }
        let mut searches = connection.searches.lock();
        if searches.contains_key(&id) {
            return Err(WireError::invalid_request(format!("search `{id}` is already active")));
        }
        let cancel = SearchCancel::default();
        searches.insert(id.clone(), cancel.clone());
        drop(searches);
        Ok(Self { connection: Arc::clone(connection), id, cancel })
    }
}

impl Drop for ActiveSearch {
    fn drop(&mut self) {
        self.cancel.cancel();
        self.connection.searches.lock().remove(&self.id);
    }
}

pub(in crate::handlers) fn search(call: Call, params: SearchParams, session: Arc<Session>) {
    let begun = native(&params.path, params.sandbox.as_ref()).and_then(|root| {
        files::check_search_size(params.pattern.as_deref(), &params.globs).map_err(|error| refused(&error))?;
        Ok((root, ActiveSearch::begin(&call.connection, params.search_id.clone())?))
    });
    let (root, running) = match begun {
        Ok(begun) => begun,
        Err(error) => return call.finish::<()>(Err(error)),
    };
    let connection = Arc::clone(&call.connection);
    connection.spawn(async move {
        let (gather, mut telling) = gather(params.max_matches);
        let SearchCancel { running: cancel, waiting } = running.cancel.clone();
        let question = Question::of(params.pattern.as_deref(), &params.globs);
        let place = session.files.searches.place(question, files::SearchQuery::default_threads());
        let place = match waiting.run_until_cancelled(place).await {
            Some(Some(place)) => place,
            Some(None) => return,
            None => {
                drop(running);
                return call.finish(Ok(result(cancelled(), 0)));
            }
        };
        let threads = place.threads;
        // Looking at the root can hang, and a large expression takes its time.
        let searching = session.files.work.run_for_reply(Weight::Large, move || {
            // It may have waited long for its place.
            if cancel.is_cancelled() {
                return Ok(cancelled());
            }
            let prepared = prepare(root, &params, threads)?;
            let mut end = prepared.run(&cancel, &|found| gather.add(found));
            gather.flush();
            end.matches = end.matches.min(params.max_matches.unwrap_or(u64::MAX));
            drop(prepared);
            // On this thread: a search whose connection has ended keeps its place until it has ended too.
            drop(place);
            Ok(end)
        });
        let (end, last_seq) = tokio::join!(searching, tell(&call.connection, &running.id, &mut telling));
        let Some((end, _slot)) = end else { return };
        // The name is free before the client learns that the search is over.
        drop(running);
        call.finish(end.map(|end| result(end, last_seq)));
    });
}

/// Sends what is found, no faster than it is taken, and returns the number of the last message.
async fn tell(connection: &Connection, id: &str, telling: &mut Telling) -> u64 {
    let mut seq = 0;
    while let Some(batches) = telling.next().await {
        for Batch { files, bytes, .. } in batches {
            // Nobody is there to be told any more, which ends the search as well.
            let Some(room) = connection.outbound.room_for_reply(bytes).await else {
                telling.batches.close();
                return seq;
            };
            seq += 1;
            let found = FoundNotification { search_id: id.to_owned(), seq, files };
            connection.outbound.reply_covering(encode_notification(notification::FS_FOUND, &found), None, Some(room));
        }
    }
    seq
}

pub(in crate::handlers) fn cancel(call: Call, params: CancelSearchParams, _: Arc<Session>) {
    if let Some(cancel) = call.connection.searches.lock().get(&params.search_id) {
        cancel.cancel();
    }
    call.finish(Ok(NoResult {}));
}

fn cancelled() -> SearchSummary {
    SearchSummary { completion: SearchCompletion::Cancelled, ..SearchSummary::default() }
}

fn prepare(root: std::path::PathBuf, params: &SearchParams, threads: usize) -> Result<PreparedSearch, WireError> {
    // A root that is not there would be an error among the results; as the only thing asked for, it is the answer.
    std::fs::symlink_metadata(&root).map_err(|error| super::wire_error(&files::FileError::os(error, &root)))?;
    let context = params.context_lines.unwrap_or(0);
    let search = files::SearchQuery {
        pattern: params.pattern.as_ref().map(|text| Pattern {
            text: text.clone(),
            fixed_strings: params.fixed_strings,
            case: match params.case {
                SearchCase::Sensitive => files::CaseSensitivity::Sensitive,
                SearchCase::Insensitive => files::CaseSensitivity::Insensitive,
                SearchCase::Smart => files::CaseSensitivity::Smart,
            },
            word: params.word,
            multi_line: params.multi_line,
        }),
        globs: params.globs.clone(),
        hidden: params.hidden,
        respect_ignore: params.respect_ignore,
        follow_symlinks: params.follow_symlinks,
        max_depth: params.max_depth,
        max_file_size: params.max_file_bytes,
        max_matches_per_file: params.max_matches_per_file,
        context_before: context,
        context_after: context,
        threads: Some(threads),
        ..files::SearchQuery::below(root)
    };
    search.prepare().map_err(|error| refused(&error))
}

fn refused(error: &files::PrepareSearchError) -> WireError {
    WireError::invalid_params(format!("fs/search: {error}"))
}

fn result(end: SearchSummary, last_seq: u64) -> SearchResult {
    let errors = end.errors.into_iter();
    SearchResult {
        files_searched: end.files_searched,
        files_matched: end.files_matched,
        matches: end.matches,
        stopped: end.completion != SearchCompletion::Complete,
        last_seq,
        errors: errors
            .map(|error| SearchError { path: PathUri::from_native(&error.path), message: error.text })
            .collect(),
        error_count: end.error_count,
    }
}

/// What is found, on its way from the threads that search to the task that tells.
struct Gather {
    open: Arc<OpenBatch>,
    send: mpsc::Sender<Batch>,
}

/// What the task that tells receives.
struct Telling {
    open: Arc<OpenBatch>,
    batches: mpsc::Receiver<Batch>,
    /// When to look whether the open batch has waited long enough.
    look_at: Option<Instant>,
}

/// Matches that are still being gathered. A batch is sent while its lock is held, so that batches stay in order.
struct OpenBatch {
    batch: Mutex<Batch>,
    /// The batch has got its first match.
    begun: Notify,
}

struct Batch {
    files: Vec<FoundFile>,
    bytes: usize,
    /// When the batch before it was taken.
    since: Instant,
    /// How many more may be found.
    left: u64,
}

impl Batch {
    fn empty(left: u64) -> Self {
        Self { files: Vec::new(), bytes: 0, since: Instant::now(), left }
    }

    /// Takes what was gathered and begins anew.
    fn take(&mut self) -> Self {
        let left = self.left;
        std::mem::replace(self, Self::empty(left))
    }
}

fn gather(max_matches: Option<u64>) -> (Gather, Telling) {
    let (send, batches) = mpsc::channel(WAITING_BATCHES);
    let batch = Mutex::new(Batch::empty(max_matches.unwrap_or(u64::MAX)));
    let open = Arc::new(OpenBatch { batch, begun: Notify::new() });
    (Gather { open: Arc::clone(&open), send }, Telling { open, batches, look_at: None })
}

impl Gather {
    fn add(&self, found: SearchHit) -> ControlFlow<()> {
        let (path, lines) = match found {
            SearchHit::File { path } => (path, None),
            SearchHit::Lines { path, lines } => (path, Some(lines)),
        };
        let Some(path) = PathUri::from_native(&path) else { return ControlFlow::Continue(()) };
        let mut batch = self.open.batch.lock();
        if batch.left == 0 {
            return ControlFlow::Break(());
        }
        let lines = match lines {
            None => {
                batch.left -= 1;
                Vec::new()
            }
            Some(lines) => take_lines(lines, &mut batch.left),
        };
        let text: usize = lines.iter().map(wire_bytes).sum();
        batch.bytes += path.as_str().len() + AROUND_BYTES + text;
        batch.files.push(FoundFile { path, lines });
        if batch.bytes < BATCH_BYTES && batch.since.elapsed() < BATCH_TIME && batch.left > 0 {
            if batch.files.len() == 1 {
                self.open.begun.notify_one();
            }
            return ControlFlow::Continue(());
        }
        // Whoever does not take what was found makes the search wait, and a client that is gone ends it.
        match self.send.blocking_send(batch.take()) {
            Ok(()) if batch.left > 0 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }

    fn flush(&self) {
        let mut batch = self.open.batch.lock();
        if !batch.files.is_empty() {
            let _nobody_listens = self.send.blocking_send(batch.take());
        }
    }
}

impl Telling {
    /// The next batches, in order; `None` when the search is over. A batch that is not full does not wait for the next match.
    async fn next(&mut self) -> Option<Vec<Batch>> {
        loop {
            let look_at = self.look_at.map(tokio::time::Instant::from_std);
            tokio::select! {
                batch = self.batches.recv() => return batch.map(|batch| vec![batch]),
                () = self.open.begun.notified() => self.look_at = Some(Instant::now() + BATCH_TIME),
                () = at(look_at) => match self.take_open() {
                    Ok(batches) => {
                        self.look_at = None;
                        return Some(batches);
                    }
                    Err(later) => self.look_at = later,
                },
            }
        }
    }

    /// Takes the open batch, and those that were sent before it. Fails with the time of the next look.
    fn take_open(&mut self) -> Result<Vec<Batch>, Option<Instant>> {
        // A thread that has the lock may be waiting for this task.
        let Some(mut open) = self.open.batch.try_lock() else { return Err(Some(Instant::now() + BATCH_TIME)) };
        if open.files.is_empty() {
            return Err(None);
        }
        let due = open.since + BATCH_TIME;
        if due > Instant::now() {
            return Err(Some(due));
        }
        let mut batches: Vec<Batch> = std::iter::from_fn(|| self.batches.try_recv().ok()).collect();
        batches.push(open.take());
        Ok(batches)
    }
}

async fn at(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

fn wire_bytes(line: &FoundLine) -> usize {
    let raw = line.raw.as_ref().map_or(0, |raw| protocol::encoded_len(raw.0.len()));
    AROUND_BYTES + line.text.len() + raw + line.matches.len() * MATCH_BYTES
}

/// As many as may be found; lines around them do not count.
fn take_lines(lines: Vec<files::HitLine>, left: &mut u64) -> Vec<FoundLine> {
    let mut taken = Vec::with_capacity(lines.len());
    for line in lines {
        if !line.is_context {
            if *left == 0 {
                break;
            }
            *left -= 1;
        }
        let (text, raw) = match String::from_utf8(line.text) {
            Ok(text) => (text, None),
            Err(error) => {
                let raw = error.into_bytes();
                (String::from_utf8_lossy(&raw).into_owned(), Some(Base64Bytes(raw)))
            }
        };
        taken.push(FoundLine {
            number: line.number,
            offset: line.offset,
            text,
            raw,
            matches: line.matches.into_iter().map(|(start, end)| MatchRange { start, end }).collect(),
            cut: line.cut,
        });
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_count_as_what_they_take_on_the_wire() {
        let (gather, mut telling) = gather(None);
        let line = files::HitLine {
            number: 1,
            offset: 0,
            text: vec![b'a'; 4096],
            cut: false,
            matches: (0..4096).map(|at| (at, at + 1)).collect(),
            is_context: false,
        };
        let path = std::path::Path::new("/a").into();
        assert!(gather.add(SearchHit::Lines { path, lines: vec![line] }).is_continue());
        let batch = telling.batches.try_recv().expect("it is as much as is gathered at most");
        let encoded = serde_json::to_string(&batch.files).unwrap().len();
        assert!((encoded / 2..encoded * 2).contains(&batch.bytes), "{} for {encoded}", batch.bytes);
    }

    /// Nothing here takes this long, even on a loaded machine.
    const AT_LAST: Duration = Duration::from_secs(20);

    fn listed(name: &str) -> SearchHit {
        SearchHit::File { path: std::path::Path::new(name).into() }
    }

    fn names(batches: Vec<Batch>) -> Vec<String> {
        let files = batches.into_iter().flat_map(|batch| batch.files);
        files.map(|file| file.path.as_str().to_owned()).collect()
    }

    #[tokio::test]
    async fn a_match_does_not_wait_for_the_next() {
        let (gather, mut telling) = gather(None);
        assert!(gather.add(listed("/a")).is_continue());
        let first = tokio::time::timeout(AT_LAST, telling.next()).await.expect("the match waits for the next");
        assert_eq!(names(first.unwrap()), ["file:///a"], "while the search goes on");
        assert!(gather.add(listed("/b")).is_continue() && gather.add(listed("/c")).is_continue());
        let mut found = Vec::new();
        while found.len() < 2 {
            found.extend(names(telling.next().await.unwrap()));
        }
        assert_eq!(found, ["file:///b", "file:///c"]);
        gather.flush();
        drop(gather);
        assert!(telling.next().await.is_none());
    }

    #[tokio::test]
    async fn batches_stay_in_order_whoever_takes_them() {
        let (gather, mut telling) = gather(None);
        let searching = std::thread::spawn(move || {
            for number in 0..20_000 {
                assert!(gather.add(listed(&format!("/{number:05}-{}", "x".repeat(100)))).is_continue());
                if number % 1000 == 0 {
                    std::thread::yield_now();
                }
            }
            gather.flush();
        });
        let mut found = Vec::new();
        while let Some(batches) = telling.next().await {
            found.extend(names(batches));
        }
        searching.join().unwrap();
        assert_eq!(found.len(), 20_000);
        assert!(found.is_sorted());
    }
}
