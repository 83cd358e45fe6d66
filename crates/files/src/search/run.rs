//! Running a search. Several threads take tasks from one stack: a directory to list or a file to search. Each thread has its own buffers
//! and its own [`SearchSummary`], and all share a [`RunningSearch`].

use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use grep_matcher::{ByteSet, LineMatchKind, LineTerminator, Match, Matcher};
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder};
use parking_lot::Mutex;
use rustix::fs::{FileType, Mode, OFlags};

use super::lines::{LineSink, PendingLines};
use super::tasks::TaskStack;
use super::walk::Task;
use super::{MAX_SEARCHED_BYTES, PreparedSearch, SearchCompletion, SearchHit, SearchQuery, SearchSummary};
use crate::Cancel;
use crate::root::EnteredRoot;
use crate::stat::{kind, stat_open};

/// Most bytes of one file that a thread holds in memory: the longest line and the lines around it, or the whole file if matches may span
/// lines.
const HEAP_BYTES: usize = MAX_SEARCHED_BYTES + (1 << 20);

impl PreparedSearch {
    /// Runs the search, and passes results to `sink` as they are found, from several threads at once. A slow sink
    /// slows the search down. The search ends early when the sink returns `Break` or the flag `cancel` is set. The
    /// calling thread searches too, and searches alone if no further thread can be started.
    ///
    /// A file with a NUL byte is binary. Its search ends at the first NUL byte, so matches before that byte may have
    /// been delivered. Only regular files are searched. No open waits for the writer of a FIFO or the holder of a
    /// lease.
    pub fn run(&self, cancel: &Cancel, sink: &(dyn Fn(SearchHit) -> ControlFlow<()> + Sync)) -> SearchSummary {
        let mut summary = self.preparation.clone();
        let begun = self.file_root.enter().and_then(|inside| Ok((self.walk.first_task(&inside)?, inside)));
        let (first, inside) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                summary.add_error(&self.query.root, io::Error::from(error));
                return summary;
            }
        };
        let tasks = TaskStack::new(first);
        let run = RunningSearch {
            prepared: self,
            cancel,
            sink,
            tasks,
            is_stopped: AtomicBool::new(false),
            total: Mutex::default(),
        };
        thread::scope(|scope| {
            // If a thread cannot be started, the search runs with the threads that it has.
            let start_one = |_| thread::Builder::new().spawn_scoped(scope, || run.work_on_new_thread());
            let _started_count = (1..self.query.thread_count()).map_while(|number| start_one(number).ok()).count();
            Worker::new(&run, &inside).work();
        });
        summary.add(run.total.into_inner());
        summary.completion = match (run.is_stopped.into_inner(), cancel.is_cancelled()) {
            (true, _) => SearchCompletion::Stopped,
            (false, true) => SearchCompletion::Cancelled,
            (false, false) => SearchCompletion::Complete,
        };
        summary
    }
}

/// The state that the threads of a search share.
struct RunningSearch<'r> {
    prepared: &'r PreparedSearch,
    cancel: &'r Cancel,
    sink: &'r (dyn Fn(SearchHit) -> ControlFlow<()> + Sync),
    tasks: TaskStack<Task>,
    /// Whether the sink has returned `Break`.
    is_stopped: AtomicBool,
    /// The sum of the summaries of all threads that have ended.
    total: Mutex<SearchSummary>,
}

impl RunningSearch<'_> {
    fn work_on_new_thread(&self) {
        // If this fails, the search runs with the other threads.
        if let Ok(inside) = self.prepared.file_root.enter() {
            Worker::new(self, &inside).work();
        }
    }

    fn deliver(&self, hit: SearchHit) -> ControlFlow<()> {
        if self.is_over() {
            return ControlFlow::Break(());
        }
        let delivered = (self.sink)(hit);
        if delivered.is_break() {
            self.is_stopped.store(true, Ordering::Relaxed);
        }
        delivered
    }

    fn is_over(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed) || self.cancel.is_cancelled()
    }
}

/// The part of a file that the searcher must hold in memory as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SearchedUnit {
    Line,
    /// For patterns whose matches may span lines.
    File,
}

fn searcher(query: &SearchQuery, unit: SearchedUnit) -> Searcher {
    SearcherBuilder::new()
        .line_number(true)
        .multi_line(unit == SearchedUnit::File)
        .before_context(query.context_before as usize)
        .after_context(query.context_after as usize)
        .max_matches(query.max_matches_per_file)
        .binary_detection(BinaryDetection::quit(0))
        // A file that is truncated while it is mapped would kill the process with SIGBUS.
        .memory_map(MmapChoice::never())
        .heap_limit(Some(HEAP_BYTES))
        .build()
}

/// One thread of a search. Its summary is added to the total when the thread ends.
struct Worker<'r> {
    run: &'r RunningSearch<'r>,
    inside: &'r EnteredRoot<'r>,
    searcher: Searcher,
    unit: SearchedUnit,
    summary: SearchSummary,
}

impl<'r> Worker<'r> {
    fn new(run: &'r RunningSearch<'r>, inside: &'r EnteredRoot<'r>) -> Self {
        let query = &run.prepared.query;
        let is_multi_line = query.pattern.as_ref().is_some_and(|pattern| pattern.multi_line);
        let unit = if is_multi_line { SearchedUnit::File } else { SearchedUnit::Line };
        Self { run, inside, searcher: searcher(query, unit), unit, summary: SearchSummary::default() }
    }

    /// Performs tasks until none is left or the search is over.
    fn work(mut self) {
        while let Some(task) = self.run.tasks.take() {
            let mut added = Vec::new();
            if self.run.is_over() || self.perform(task, &mut added).is_break() {
                self.run.tasks.close();
            }
            self.run.tasks.finish(added);
        }
    }

    fn perform(&mut self, task: Task, added: &mut Vec<Task>) -> ControlFlow<()> {
        let PreparedSearch { query, matcher, walk, .. } = self.run.prepared;
        match (task, matcher) {
            (Task::File(path), None) => self.list(path),
            (Task::File(path), Some(matcher)) => self.search(&path, matcher),
            (Task::Directory(directory), matcher) => {
                let run = self.run;
                *added = walk.tasks_in(self.inside, &directory, query, &|| run.is_over(), &mut self.summary);
                if matcher.is_some() {
                    return ControlFlow::Continue(());
                }
                // Delivering the name of a file takes less time than passing a task to another thread.
                for task in std::mem::take(added) {
                    match task {
                        Task::File(path) => self.list(path)?,
                        Task::Directory(_) => added.push(task),
                    }
                }
                ControlFlow::Continue(())
            }
        }
    }

    fn list(&mut self, path: PathBuf) -> ControlFlow<()> {
        self.summary.files_searched += 1;
        self.summary.files_matched += 1;
        self.run.deliver(SearchHit::File { path: path.into() })
    }

    fn search(&mut self, path: &Path, matcher: &RegexMatcher) -> ControlFlow<()> {
        let file = match open(self.inside, path) {
            Ok(Some(file)) => file,
            Ok(None) => return ControlFlow::Continue(()),
            Err(error) => {
                self.summary.add_error(path, error);
                return ControlFlow::Continue(());
            }
        };
        self.summary.files_searched += 1;
        let run = self.run;
        let deliver = |hit| run.deliver(hit);
        let pending = PendingLines::new(path, &deliver);
        let mut line_sink = LineSink::new(matcher, &pending);
        let searched = self.searcher.search_reader(
            InterruptibleMatcher { matcher, run },
            InterruptibleFile { file, run, pending: &pending, unit: self.unit, unit_bytes: 0 },
            &mut line_sink,
        );
        let flushed = pending.flush();
        self.summary.matches += line_sink.matches();
        self.summary.files_matched += u64::from(line_sink.matches() > 0);
        match searched {
            Err(error) if !run.is_over() => self.summary.add_error(path, &error),
            _ => {}
        }
        flushed
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            // The other threads would wait for ever for the tasks that this thread might add.
            self.run.tasks.close();
        }
        self.run.total.lock().add(std::mem::take(&mut self.summary));
    }
}

/// Opens a file without waiting for the writer of a FIFO or the holder of a lease. `None` if it is not a regular file.
pub(super) fn open(inside: &EnteredRoot<'_>, path: &Path) -> io::Result<Option<File>> {
    let without_waiting = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = inside.open(path, without_waiting, Mode::empty())?;
    Ok((kind(&stat_open(&file)?) == FileType::RegularFile).then(|| File::from(file)))
}

/// A file that reports its end early when the search is over, because the searcher has no other way to stop in a large file without
/// matches. Before each read it delivers the pending lines, so that a match does not wait for the rest of a large or slow file.
struct InterruptibleFile<'r> {
    file: File,
    run: &'r RunningSearch<'r>,
    pending: &'r PendingLines<'r>,
    unit: SearchedUnit,
    /// Bytes read so far of the current line, or of the file.
    unit_bytes: usize,
}

impl Read for InterruptibleFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.pending.flush().is_break() || self.run.is_over() {
            return Ok(0);
        }
        let count = self.file.read(buffer)?;
        self.check_size(&buffer[..count])?;
        Ok(count)
    }
}

impl InterruptibleFile<'_> {
    /// Fails if the current line, or a file that is searched as a whole, exceeds [`MAX_SEARCHED_BYTES`].
    fn check_size(&mut self, read: &[u8]) -> io::Result<()> {
        let ends_unit = |byte: &u8| self.unit == SearchedUnit::Line && *byte == b'\n';
        let unit_bytes = self.unit_bytes + read.iter().position(ends_unit).unwrap_or(read.len());
        self.unit_bytes = read.iter().rposition(ends_unit).map_or(unit_bytes, |end| read.len() - end - 1);
        if unit_bytes <= MAX_SEARCHED_BYTES {
            return Ok(());
        }
        let text = match self.unit {
            SearchedUnit::Line => "the file has a line of more than 8 MiB, so it was searched only up to that line",
            SearchedUnit::File => "the file has more than 8 MiB, so it is not searched for matches that span lines",
        };
        Err(io::Error::new(io::ErrorKind::FileTooLarge, text))
    }
}

/// A matcher that finds nothing once the search is over. [`InterruptibleFile`] cannot stop the search of a file that is already in memory,
/// and a long line with many matches can take hours.
struct InterruptibleMatcher<'r> {
    matcher: &'r RegexMatcher,
    run: &'r RunningSearch<'r>,
}

impl Matcher for InterruptibleMatcher<'_> {
    type Captures = <RegexMatcher as Matcher>::Captures;
    type Error = <RegexMatcher as Matcher>::Error;

    fn find_at(&self, haystack: &[u8], at: usize) -> Result<Option<Match>, Self::Error> {
        if self.run.is_over() { Ok(None) } else { self.matcher.find_at(haystack, at) }
    }

    fn new_captures(&self) -> Result<Self::Captures, Self::Error> {
        self.matcher.new_captures()
    }

    fn shortest_match_at(&self, haystack: &[u8], at: usize) -> Result<Option<usize>, Self::Error> {
        if self.run.is_over() { Ok(None) } else { self.matcher.shortest_match_at(haystack, at) }
    }

    fn non_matching_bytes(&self) -> Option<&ByteSet> {
        self.matcher.non_matching_bytes()
    }

    fn line_terminator(&self) -> Option<LineTerminator> {
        self.matcher.line_terminator()
    }

    fn find_candidate_line(&self, haystack: &[u8]) -> Result<Option<LineMatchKind>, Self::Error> {
        self.matcher.find_candidate_line(haystack)
    }
}
