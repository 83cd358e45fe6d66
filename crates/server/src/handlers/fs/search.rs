//! `fs/search` and `fs/cancelSearch`. A search belongs to its connection: after a reconnection the client must search again.
//!
//! The threads of a search put matches into a batch ([`BatchSender`]); a task sends full or old batches to the client ([`BatchReceiver`]).

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use files::{FileRoot, Pattern, PreparedSearch, SearchCompletion, SearchHit, SearchSummary};
use parking_lot::Mutex;
use protocol::fs::{
    CancelSearchParams, FoundFile, FoundLine, FoundNotification, MatchRange, SearchCase, SearchError, SearchParams,
    SearchResult,
};
use protocol::{Base64Bytes, NoResult, PathUri, WireError, encode_notification, notification};
use tokio::sync::{Notify, mpsc};

use super::locate;
use crate::connection::{Call, Connection, SearchCancel};
use crate::files::{MemoryNeed, SearchCost};
use crate::limits::MAX_HANDLE_ID_BYTES;
use crate::session::Session;

/// A batch of matches is sent when it has this many bytes.
const BATCH_BYTES: usize = 64 << 10;
/// A batch that is not full is sent at the latest about this long after its first match. If the previous batch is at
/// least this old, a match is sent at once.
const BATCH_TIME: Duration = Duration::from_millis(20);
/// Bytes that a line or a file takes in a message, its text not counted.
const AROUND_BYTES: usize = 96;
/// Bytes that the position of a match in a line takes in a message.
const MATCH_BYTES: usize = 26;
/// While this many batches are unsent, the search waits.
const WAITING_BATCHES: usize = 4;

/// The entry of a running search in the searches of its connection. Dropping this value cancels the search and frees
/// its id.
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
    let begun = locate(&params.path, params.sandbox.as_ref(), &session).and_then(|located| {
        files::check_search_size(params.pattern.as_deref(), &params.globs).map_err(refused)?;
        Ok((located, ActiveSearch::begin(&call.connection, params.search_id.clone())?))
    });
    let ((file_root, root), active) = match begun {
        Ok(begun) => begun,
        Err(error) => return call.finish::<()>(Err(error)),
    };
    let connection = Arc::clone(&call.connection);
    connection.spawn(async move {
        let file_root = match file_root.ready().await {
            Ok(file_root) => file_root,
            Err(error) => {
                drop(active);
                return call.finish::<()>(Err(error));
            }
        };
        let (sender, mut receiver) = batch_channel(params.max_matches);
        // `cancel` stops the threads of the search, and `waiting` the wait for a permit.
        let SearchCancel { running: cancel, waiting } = active.cancel.clone();
        let cost = SearchCost::of(params.pattern.as_deref(), &params.globs);
        let permit = session.files.searches.permit(cost, files::SearchQuery::default_threads());
        let permit = match waiting.run_until_cancelled(permit).await {
            Some(Some(permit)) => permit,
            Some(None) => return,
            // The client has cancelled the search.
            None => {
                drop(active);
                return call.finish(Ok(result(cancelled_summary(), 0)));
            }
        };
        let threads = permit.threads;
        // Reading the root can hang, and compiling a large pattern takes long.
        let searching = session.files.operations.run_for_reply(MemoryNeed::Large, move || {
            // The search may have waited long for its permit.
            if cancel.is_cancelled() {
                return Ok(cancelled_summary());
            }
            let prepared = prepare(&file_root, root, &params, threads)?;
            let mut summary = prepared.run(&cancel, &|found| sender.add(found));
            sender.flush();
            // The threads may have found more matches than `sender` has accepted.
            summary.matches = summary.matches.min(params.max_matches.unwrap_or(u64::MAX));
            drop(prepared);
            // The permit is dropped on this thread, because the search may run for a moment after the end of its connection.
            drop(permit);
            Ok(summary)
        });
        let (ended, last_seq) = tokio::join!(searching, send_batches(&call.connection, &active.id, &mut receiver));
        // After a panic of the search, dropping `call` answers with an error.
        let Some((summary, _session_permit)) = ended else { return };
        // The id is free again before the client learns that the search has ended.
        drop(active);
        call.finish(summary.map(|summary| result(summary, last_seq)));
    });
}

/// Sends batches, no faster than the client receives them. Returns the sequence number of the last message; 0 if
/// there was none.
async fn send_batches(connection: &Connection, id: &str, receiver: &mut BatchReceiver) -> u64 {
    let mut seq = 0;
    while let Some(batches) = receiver.next().await {
        for Batch { files, bytes, .. } in batches {
            let Some(room) = connection.outbound.room_for_reply(bytes).await else {
                // The connection has ended. Closing the channel ends the search.
                receiver.batches.close();
                return seq;
            };
            seq += 1;
            let found = FoundNotification { search_id: id.to_owned(), seq, files };
            connection.outbound.reply_in_room(encode_notification(notification::FS_FOUND, &found), room);
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

fn cancelled_summary() -> SearchSummary {
    SearchSummary { completion: SearchCompletion::Cancelled, ..SearchSummary::default() }
}

fn prepare(
    file_root: &FileRoot,
    root: std::path::PathBuf,
    params: &SearchParams,
    threads: usize,
) -> Result<PreparedSearch, WireError> {
    // A search reports unreadable files in its result. But if the root does not exist, the request fails.
    files::check_present(file_root, &root).map_err(super::failed)?;
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
    search.prepare(file_root).map_err(refused)
}

fn refused(error: files::PrepareSearchError) -> WireError {
    match error {
        // The path is at fault and not the query, so this is reported as by other operations.
        files::PrepareSearchError::Root(error) if error.io().raw_os_error().is_some() => super::failed(error),
        query => WireError::invalid_params(format!("fs/search: {query}")),
    }
}

fn result(summary: SearchSummary, last_seq: u64) -> SearchResult {
    let errors = summary.errors.into_iter();
    SearchResult {
        files_searched: summary.files_searched,
        files_matched: summary.files_matched,
        matches: summary.matches,
        stopped: summary.completion != SearchCompletion::Complete,
        last_seq,
        errors: errors
            .map(|error| SearchError { path: PathUri::from_native(&error.path), message: error.text })
            .collect(),
        error_count: summary.error_count,
    }
}

/// The sending end of the channel for batches. The threads of the search add matches to it.
struct BatchSender {
    open: Arc<OpenBatch>,
    send: mpsc::Sender<Batch>,
}

/// The receiving end of the channel for batches, for the task that sends messages to the client.
struct BatchReceiver {
    open: Arc<OpenBatch>,
    batches: mpsc::Receiver<Batch>,
    /// The time of the next check whether the open batch is old enough to be sent.
    check_at: Option<Instant>,
}

/// The batch to which matches are added. Its lock is held while a full batch goes into the channel, so that batches stay in order.
struct OpenBatch {
    batch: Mutex<Batch>,
    /// Notified when the batch gets its first match.
    begun: Notify,
}

/// Matches that are sent in one message.
struct Batch {
    files: Vec<FoundFile>,
    /// Approximate size of `files` in the message.
    bytes: usize,
    /// The time at which the previous batch was taken.
    since: Instant,
    /// The number of matches that the search may still add. A matching line is one match. In a search without a
    /// pattern, a file is one match.
    left: u64,
}

impl Batch {
    fn empty(left: u64) -> Self {
        Self { files: Vec::new(), bytes: 0, since: Instant::now(), left }
    }

    /// Takes the matches, and leaves an empty batch.
    fn take(&mut self) -> Self {
        let left = self.left;
        std::mem::replace(self, Self::empty(left))
    }
}

fn batch_channel(max_matches: Option<u64>) -> (BatchSender, BatchReceiver) {
    let (send, batches) = mpsc::channel(WAITING_BATCHES);
    let batch = Mutex::new(Batch::empty(max_matches.unwrap_or(u64::MAX)));
    let open = Arc::new(OpenBatch { batch, begun: Notify::new() });
    (BatchSender { open: Arc::clone(&open), send }, BatchReceiver { open, batches, check_at: None })
}

impl BatchSender {
    /// Adds a match to the open batch. `Break` ends the search.
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
        let line_bytes: usize = lines.iter().map(wire_bytes).sum();
        batch.bytes += path.as_str().len() + AROUND_BYTES + line_bytes;
        batch.files.push(FoundFile { path, lines });
        if batch.bytes < BATCH_BYTES && batch.since.elapsed() < BATCH_TIME && batch.left > 0 {
            if batch.files.len() == 1 {
                self.open.begun.notify_one();
            }
            return ControlFlow::Continue(());
        }
        // If the client does not read, the channel is full and the search waits. If the connection has ended, the search ends.
        match self.send.blocking_send(batch.take()) {
            Ok(()) if batch.left > 0 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }

    /// Sends the last batch.
    fn flush(&self) {
        let mut batch = self.open.batch.lock();
        if !batch.files.is_empty() {
            // This fails only if the connection has ended, and then nobody needs the batch.
            let _send_result = self.send.blocking_send(batch.take());
        }
    }
}

impl BatchReceiver {
    /// The next batches, in order. None when the search has ended. A batch that is not full is returned after [`BATCH_TIME`].
    async fn next(&mut self) -> Option<Vec<Batch>> {
        loop {
            let check_at = self.check_at.map(tokio::time::Instant::from_std);
            tokio::select! {
                batch = self.batches.recv() => return batch.map(|batch| vec![batch]),
                () = self.open.begun.notified() => self.check_at = Some(Instant::now() + BATCH_TIME),
                () = wait_until(check_at) => match self.take_open() {
                    Ok(batches) => {
                        self.check_at = None;
                        return Some(batches);
                    }
                    Err(later) => self.check_at = later,
                },
            }
        }
    }

    /// Takes the open batch, and full batches that precede it, if the open batch is old enough. Otherwise fails with
    /// the time of the next check. `Err(None)`: the open batch is empty, so no check is needed.
    fn take_open(&mut self) -> Result<Vec<Batch>, Option<Instant>> {
        // Waiting for the lock could be a deadlock: a thread that holds it may be waiting until this task empties the channel.
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

/// Waits until `time`, or for ever if there is none.
async fn wait_until(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Approximate number of bytes that a line takes in a message.
fn wire_bytes(line: &FoundLine) -> usize {
    let raw = line.raw.as_ref().map_or(0, |raw| protocol::encoded_len(raw.0.len()));
    AROUND_BYTES + line.text.len() + raw + line.matches.len() * MATCH_BYTES
}

/// Converts lines until `left` matching lines were taken, and counts `left` down. Context lines do not count.
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
    fn the_bytes_of_a_batch_are_between_half_and_twice_its_encoded_size() {
        let (sender, mut receiver) = batch_channel(None);
        let line = files::HitLine {
            number: 1,
            offset: 0,
            text: vec![b'a'; 4096],
            cut: false,
            matches: (0..4096).map(|at| (at, at + 1)).collect(),
            is_context: false,
        };
        let path = std::path::Path::new("/a").into();
        assert!(sender.add(SearchHit::Lines { path, lines: vec![line] }).is_continue());
        let batch = receiver.batches.try_recv().expect("one such line fills a batch");
        let encoded = serde_json::to_string(&batch.files).unwrap().len();
        assert!((encoded / 2..encoded * 2).contains(&batch.bytes), "{} for {encoded}", batch.bytes);
    }

    /// Longer than anything in these tests takes, even on a loaded machine.
    const TIMEOUT: Duration = Duration::from_secs(20);

    fn file_hit(name: &str) -> SearchHit {
        SearchHit::File { path: std::path::Path::new(name).into() }
    }

    fn uris(batches: Vec<Batch>) -> Vec<String> {
        let files = batches.into_iter().flat_map(|batch| batch.files);
        files.map(|file| file.path.as_str().to_owned()).collect()
    }

    #[tokio::test]
    async fn a_match_is_sent_without_waiting_for_the_next_match() {
        let (sender, mut receiver) = batch_channel(None);
        assert!(sender.add(file_hit("/a")).is_continue());
        let first =
            tokio::time::timeout(TIMEOUT, receiver.next()).await.expect("the match must not wait for the next match");
        assert_eq!(uris(first.unwrap()), ["file:///a"]);
        assert!(sender.add(file_hit("/b")).is_continue() && sender.add(file_hit("/c")).is_continue());
        let mut found = Vec::new();
        while found.len() < 2 {
            found.extend(uris(receiver.next().await.unwrap()));
        }
        assert_eq!(found, ["file:///b", "file:///c"]);
        sender.flush();
        drop(sender);
        assert!(receiver.next().await.is_none());
    }

    #[tokio::test]
    async fn full_and_open_batches_stay_in_order() {
        let (sender, mut receiver) = batch_channel(None);
        let searching = std::thread::spawn(move || {
            for number in 0..20_000 {
                assert!(sender.add(file_hit(&format!("/{number:05}-{}", "x".repeat(100)))).is_continue());
                if number % 1000 == 0 {
                    std::thread::yield_now();
                }
            }
            sender.flush();
        });
        let mut found = Vec::new();
        while let Some(batches) = receiver.next().await {
            found.extend(uris(batches));
        }
        searching.join().unwrap();
        assert_eq!(found.len(), 20_000);
        assert!(found.is_sorted());
    }
}
