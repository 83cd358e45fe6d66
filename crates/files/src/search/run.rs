//! Running a search: threads that walk and search at the same time, each with buffers of its own.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use grep_matcher::{ByteSet, LineMatchKind, LineTerminator, Match, Matcher};
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder};
use parking_lot::Mutex;
use rustix::fs::OFlags;

use super::lines::{Lines, PendingLines};
use super::tasks::TaskStack;
use super::walk::Task;
use super::{MAX_SEARCHED_BYTES, PreparedSearch, SearchCompletion, SearchHit, SearchQuery, SearchSummary};
use crate::Cancel;

/// What a thread may hold of one file: the longest line and the lines around it, or, if matches may span lines, all of the file.
const HEAP_BYTES: usize = MAX_SEARCHED_BYTES + (1 << 20);

impl PreparedSearch {
    /// Searches, and hands over what it finds as it finds it, from several threads at once. A sink that takes its time slows the
    /// search down, and one that breaks ends it. The calling thread works too, alone if the machine gives no more threads.
    ///
    /// Binary files are those with a NUL byte: they are left as soon as it is met, so one that begins like a text may have been told
    /// of up to there. Only regular files are opened, and none is waited for.
    pub fn run(&self, cancel: &Cancel, sink: &(dyn Fn(SearchHit) -> ControlFlow<()> + Sync)) -> SearchSummary {
        let mut end = self.noted.clone();
        let first = self.walk.first_task().unwrap_or_else(|error| {
            end.note_error(&self.search.root, &error);
            None
        });
        let tasks = TaskStack::of(first);
        let run =
            Run { prepared: self, cancel, sink, tasks, is_stopped: AtomicBool::new(false), total: Mutex::default() };
        thread::scope(|scope| {
            // With fewer threads than wanted the search is only slower.
            let start_one = |_| thread::Builder::new().spawn_scoped(scope, || Worker::of(&run).work());
            let _started = (1..self.search.thread_count()).map_while(|number| start_one(number).ok()).count();
            Worker::of(&run).work();
        });
        end.add(run.total.into_inner());
        end.completion = match (run.is_stopped.into_inner(), cancel.is_cancelled()) {
            (true, _) => SearchCompletion::Stopped,
            (false, true) => SearchCompletion::Cancelled,
            (false, false) => SearchCompletion::Complete,
        };
        end
    }
}

/// What the threads of a search share.
struct Run<'r> {
    prepared: &'r PreparedSearch,
    cancel: &'r Cancel,
    sink: &'r (dyn Fn(SearchHit) -> ControlFlow<()> + Sync),
    tasks: TaskStack<Task>,
    is_stopped: AtomicBool,
    total: Mutex<SearchSummary>,
}

impl Run<'_> {
    fn hand_over(&self, found: SearchHit) -> ControlFlow<()> {
        if self.is_over() {
            return ControlFlow::Break(());
        }
        let handed = (self.sink)(found);
        if handed.is_break() {
            self.is_stopped.store(true, Ordering::Relaxed);
        }
        handed
    }

    fn is_over(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed) || self.cancel.is_cancelled()
    }
}

/// What a thread has in memory at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SearchedUnit {
    Line,
    /// A match may span lines.
    File,
}

fn searcher(search: &SearchQuery, unit: SearchedUnit) -> Searcher {
    SearcherBuilder::new()
        .line_number(true)
        .multi_line(unit == SearchedUnit::File)
        .before_context(search.context_before as usize)
        .after_context(search.context_after as usize)
        .max_matches(search.max_matches_per_file)
        .binary_detection(BinaryDetection::quit(0))
        // A file that shrinks while it is mapped would end the whole process.
        .memory_map(MmapChoice::never())
        .heap_limit(Some(HEAP_BYTES))
        .build()
}

/// One thread, and its part of the counts.
struct Worker<'r> {
    run: &'r Run<'r>,
    searcher: Searcher,
    unit: SearchedUnit,
    part: SearchSummary,
}

impl<'r> Worker<'r> {
    fn of(run: &'r Run<'r>) -> Self {
        let search = &run.prepared.search;
        let is_multi_line = search.pattern.as_ref().is_some_and(|pattern| pattern.multi_line);
        let unit = if is_multi_line { SearchedUnit::File } else { SearchedUnit::Line };
        Self { run, searcher: searcher(search, unit), unit, part: SearchSummary::default() }
    }

    /// Does one task after the other until all are done or the search is over.
    fn work(mut self) {
        while let Some(task) = self.run.tasks.take() {
            let mut added = Vec::new();
            if self.run.is_over() || self.look_at(task, &mut added).is_break() {
                self.run.tasks.close();
            }
            self.run.tasks.finish(added);
        }
    }

    fn look_at(&mut self, task: Task, added: &mut Vec<Task>) -> ControlFlow<()> {
        let PreparedSearch { search, matcher, walk, .. } = self.run.prepared;
        match (task, matcher) {
            (Task::File(path), None) => self.list(path),
            (Task::File(path), Some(matcher)) => self.search(&path, matcher),
            (Task::Directory(directory), matcher) => {
                let run = self.run;
                *added = walk.tasks_in(&directory, search, &|| run.is_over(), &mut self.part);
                if matcher.is_some() {
                    return ControlFlow::Continue(());
                }
                // To list a file takes less time than to give it to another thread.
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
        self.part.files_searched += 1;
        self.part.files_matched += 1;
        self.run.hand_over(SearchHit::File { path: path.into() })
    }

    fn search(&mut self, path: &Path, matcher: &RegexMatcher) -> ControlFlow<()> {
        let file = match open(path) {
            Ok(Some(file)) => file,
            Ok(None) => return ControlFlow::Continue(()),
            Err(error) => {
                self.part.note_error(path, &error);
                return ControlFlow::Continue(());
            }
        };
        self.part.files_searched += 1;
        let run = self.run;
        let hand_over = |found| run.hand_over(found);
        let pending = PendingLines::of(path, &hand_over);
        let mut lines = Lines::of(matcher, &pending);
        let searched = self.searcher.search_reader(
            InterruptibleMatcher { matcher, run },
            InterruptibleFile { file, run, pending: &pending, unit: self.unit, unit_bytes: 0 },
            &mut lines,
        );
        let flushed = pending.flush();
        self.part.matches += lines.matches();
        self.part.files_matched += u64::from(lines.matches() > 0);
        match searched {
            Err(error) if !run.is_over() => self.part.note_error(path, &error),
            _ => {}
        }
        flushed
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            // The others would wait for what this thread adds.
            self.run.tasks.close();
        }
        self.run.total.lock().add(std::mem::take(&mut self.part));
    }
}

/// Opens a file without waiting, neither for the writer of a FIFO nor for the holder of a lease. `None` if it is no regular file.
pub(super) fn open(path: &Path) -> io::Result<Option<File>> {
    let without_waiting = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(without_waiting.bits().cast_signed()).open(path)?;
    Ok(file.metadata()?.is_file().then_some(file))
}

/// A file that ends early when the search is over: a large one without a match asks nobody else. What was found in one piece of it is
/// handed over before the next piece is read, so that a match does not wait for the end of a large or slow file.
struct InterruptibleFile<'r> {
    file: File,
    run: &'r Run<'r>,
    pending: &'r PendingLines<'r>,
    unit: SearchedUnit,
    /// Bytes read so far of the present line, or of the file.
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
    /// Fails when a line, or a file that is searched as a whole, is longer than a thread may hold.
    fn check_size(&mut self, read: &[u8]) -> io::Result<()> {
        let ends_unit = |byte: &u8| self.unit == SearchedUnit::Line && *byte == b'\n';
        let unit_bytes = self.unit_bytes + read.iter().position(ends_unit).unwrap_or(read.len());
        self.unit_bytes = read.iter().rposition(ends_unit).map_or(unit_bytes, |end| read.len() - end - 1);
        if unit_bytes <= MAX_SEARCHED_BYTES {
            return Ok(());
        }
        let what = match self.unit {
            SearchedUnit::Line => "it has a line of more than 8 MiB, so it was searched only up to there",
            SearchedUnit::File => "it has more than 8 MiB, so it is not searched for matches that span lines",
        };
        Err(io::Error::new(io::ErrorKind::FileTooLarge, what))
    }
}

/// A matcher that finds nothing more when the search is over: a file that is searched as a whole has been read by then, and a long line
/// with many matches can take hours.
struct InterruptibleMatcher<'r> {
    matcher: &'r RegexMatcher,
    run: &'r Run<'r>,
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
