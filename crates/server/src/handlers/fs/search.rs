//! `fs/search` and `fs/cancelSearch`. A search belongs to its connection: whoever comes back asks again.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use files::{Cancel, Ending, Found, Pattern, PreparedSearch, SearchEnd};
use parking_lot::Mutex;
use protocol::fs::{
    FoundFile, FoundLine, FoundNotification, MatchRange, SearchCase, SearchError, SearchParams, SearchResult,
    SearchTarget,
};
use protocol::{Base64Bytes, NoResult, PathUri, WireError, encode_notification, notification};
use tokio::sync::mpsc;

use super::native;
use crate::connection::{Call, Connection};
use crate::files::Weight;
use crate::session::Session;

const SEARCH_ID_BYTES: usize = 32;
/// What is gathered before it is sent.
const BATCH_BYTES: usize = 64 << 10;
/// What is found does not wait longer than this for more to be found, unless nothing is.
const BATCH_TIME: Duration = Duration::from_millis(20);
/// What a line or a file takes on the wire beside its text.
const AROUND_BYTES: usize = 96;
/// What a match in a line takes.
const MATCH_BYTES: usize = 26;
/// Batches that wait to be sent before the search does.
const WAITING_BATCHES: usize = 4;

/// A search by its name, until it is dropped.
struct Running {
    connection: Arc<Connection>,
    id: String,
    cancel: Cancel,
}

impl Running {
    fn begin(connection: &Arc<Connection>, id: String) -> Result<Self, WireError> {
        if id.len() > SEARCH_ID_BYTES {
            return Err(WireError::invalid_request(format!("search ID must not exceed {SEARCH_ID_BYTES} bytes")));
        }
        let mut searches = connection.searches.lock();
        if searches.contains_key(&id) {
            return Err(WireError::invalid_request(format!("search `{id}` is already active")));
        }
        let cancel = Cancel::new();
        searches.insert(id.clone(), cancel.clone());
        drop(searches);
        Ok(Self { connection: Arc::clone(connection), id, cancel })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cancel.cancel();
        self.connection.searches.lock().remove(&self.id);
    }
}

pub(in crate::handlers) fn search(call: Call, params: SearchParams, session: Arc<Session>) {
    let begun = native(&params.path, params.sandbox.as_ref())
        .and_then(|root| Ok((root, Running::begin(&call.connection, params.search_id.clone())?)));
    let (root, running) = match begun {
        Ok(begun) => begun,
        Err(error) => return call.finish::<()>(Err(error)),
    };
    let connection = Arc::clone(&call.connection);
    connection.spawn(async move {
        let (send, batches) = mpsc::channel(WAITING_BATCHES);
        let cancel = running.cancel.clone();
        // Looking at the root can hang, and a large expression takes its time.
        let searching = session.files.work.run_for_reply(Weight::Large, move || {
            let prepared = prepare(root, &params)?;
            let gather = Gather::new(send, params.max_matches);
            let mut end = prepared.run(&cancel, &|found| gather.add(found));
            gather.flush();
            end.matches = end.matches.min(params.max_matches.unwrap_or(u64::MAX));
            Ok(end)
        });
        let (end, last_seq) = tokio::join!(searching, tell(&call.connection, &running.id, batches));
        let Some((end, _place)) = end else { return };
        // The name is free before the client learns that the search is over.
        drop(running);
        call.finish(end.map(|end| result(end, last_seq)));
    });
}

/// Sends what is found, no faster than it is taken, and returns the number of the last message.
async fn tell(connection: &Connection, id: &str, mut batches: mpsc::Receiver<Batch>) -> u64 {
    let mut seq = 0;
    while let Some(Batch { files, bytes, .. }) = batches.recv().await {
        // Nobody is there to be told any more, which ends the search as well.
        let Some(room) = connection.outbound.room_for_reply(bytes).await else { break };
        seq += 1;
        let found = FoundNotification { search_id: id.to_owned(), seq, files };
        connection.outbound.reply_covering(encode_notification(notification::FS_FOUND, &found), None, Some(room));
    }
    seq
}

pub(in crate::handlers) fn cancel(call: Call, params: SearchTarget, _: Arc<Session>) {
    if let Some(cancel) = call.connection.searches.lock().get(&params.search_id) {
        cancel.cancel();
    }
    call.finish(Ok(NoResult {}));
}

fn prepare(root: std::path::PathBuf, params: &SearchParams) -> Result<PreparedSearch, WireError> {
    // A root that is not there would be an error among the results; as the only thing asked for, it is the answer.
    std::fs::symlink_metadata(&root).map_err(|error| super::wire_error(&files::FileError::os(error, &root)))?;
    let context = params.context_lines.unwrap_or(0);
    let search = files::Search {
        pattern: params.pattern.as_ref().map(|text| Pattern {
            text: text.clone(),
            fixed_strings: params.fixed_strings,
            case: match params.case {
                SearchCase::Sensitive => files::Case::Sensitive,
                SearchCase::Insensitive => files::Case::Insensitive,
                SearchCase::Smart => files::Case::Smart,
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
        ..files::Search::below(root)
    };
    search.prepare().map_err(|error| WireError::invalid_params(format!("fs/search: {error}")))
}

fn result(end: SearchEnd, last_seq: u64) -> SearchResult {
    let errors = end.errors.into_iter();
    SearchResult {
        files_searched: end.files_searched,
        files_matched: end.files_matched,
        matches: end.matches,
        stopped: end.ending != Ending::Complete,
        last_seq,
        errors: errors
            .map(|error| SearchError { path: PathUri::from_native(&error.path), message: error.text })
            .collect(),
        error_count: end.error_count,
    }
}

/// What is found, on its way from the threads that search to the task that tells.
struct Gather {
    state: Mutex<Batch>,
    send: mpsc::Sender<Batch>,
}

struct Batch {
    files: Vec<FoundFile>,
    bytes: usize,
    since: Instant,
    /// How many more may be found.
    left: u64,
}

impl Batch {
    fn empty(left: u64) -> Self {
        Self { files: Vec::new(), bytes: 0, since: Instant::now(), left }
    }
}

impl Gather {
    fn new(send: mpsc::Sender<Batch>, max_matches: Option<u64>) -> Self {
        Self { state: Mutex::new(Batch::empty(max_matches.unwrap_or(u64::MAX))), send }
    }

    fn add(&self, found: Found) -> ControlFlow<()> {
        let (path, lines) = match found {
            Found::File { path } => (path, None),
            Found::Lines { path, lines } => (path, Some(lines)),
        };
        let Some(path) = PathUri::from_native(&path) else { return ControlFlow::Continue(()) };
        let mut state = self.state.lock();
        if state.left == 0 {
            return ControlFlow::Break(());
        }
        let lines = match lines {
            None => {
                state.left -= 1;
                Vec::new()
            }
            Some(lines) => take_lines(lines, &mut state.left),
        };
        let text: usize = lines.iter().map(wire_bytes).sum();
        state.bytes += path.as_str().len() + AROUND_BYTES + text;
        state.files.push(FoundFile { path, lines });
        if state.bytes < BATCH_BYTES && state.since.elapsed() < BATCH_TIME && state.left > 0 {
            return ControlFlow::Continue(());
        }
        let left = state.left;
        let batch = std::mem::replace(&mut *state, Batch::empty(left));
        drop(state);
        // Whoever does not take what was found makes the search wait, and a client that is gone ends it.
        match self.send.blocking_send(batch) {
            Ok(()) if left > 0 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }

    fn flush(&self) {
        let batch = std::mem::replace(&mut *self.state.lock(), Batch::empty(0));
        if !batch.files.is_empty() {
            let _nobody_listens = self.send.blocking_send(batch);
        }
    }
}

fn wire_bytes(line: &FoundLine) -> usize {
    let raw = line.raw.as_ref().map_or(0, |raw| protocol::encoded_len(raw.0.len()));
    AROUND_BYTES + line.text.len() + raw + line.matches.len() * MATCH_BYTES
}

/// As many as may be found; lines around them do not count.
fn take_lines(lines: Vec<files::FoundLine>, left: &mut u64) -> Vec<FoundLine> {
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
        let (send, mut batches) = mpsc::channel(1);
        let gather = Gather::new(send, None);
        let line = files::FoundLine {
            number: 1,
            offset: 0,
            text: vec![b'a'; 4096],
            cut: false,
            matches: (0..4096).map(|at| (at, at + 1)).collect(),
            is_context: false,
        };
        let path = std::path::Path::new("/a").into();
        assert!(gather.add(Found::Lines { path, lines: vec![line] }).is_continue());
        let batch = batches.try_recv().expect("it is as much as is gathered at most");
        let encoded = serde_json::to_string(&batch.files).unwrap().len();
        assert!((encoded / 2..encoded * 2).contains(&batch.bytes), "{} for {encoded}", batch.bytes);
    }
}
