//! Trees in which a careless search would hang or use too much memory. Where the search expects an ignore file, a
//! directory or a file, it finds a FIFO or a file on which another process holds a lease. A blocking `open` of these
//! would wait. One tree has too many ignore rules.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::ops::ControlFlow;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use files::{Cancel, FileRoot, PrepareSearchError, SearchCompletion, SearchQuery, SearchSummary};
use rustix::fs::{CWD, FileType, RenameFlags, mknodat, renameat_with};

use super::{listing, names, run, set, tree};

/// A search of these few files takes milliseconds. A lease that its holder keeps makes a blocking `open` wait for 45
/// seconds by default.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Runs a task on a thread of its own. Fails the test if the task panics or is not finished after [`TIMEOUT`].
fn run_with_timeout<T: Send + 'static>(task: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(task()));
    receiver.recv_timeout(TIMEOUT).expect("the search panicked or hangs")
}

/// A Perl script that takes a write lease on the file that the variable `FILE` names, prints `leased`, and keeps the
/// lease until its stdin ends.
const HOLD_LEASE: &str = include_str!("../../../testkit/hold_lease.pl");

/// A process that holds a write lease on a file until this value is dropped.
struct LeaseHolder(Child);

impl LeaseHolder {
    fn start(file: &Path) -> Self {
        let mut perl = Command::new("perl");
        perl.args(["-e", HOLD_LEASE]).env("FILE", file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = perl.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "leased\n");
        Self(child)
    }
}

impl Drop for LeaseHolder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _exit_status = self.0.wait();
    }
}

const IGNORE_FILES: [&str; 4] = [".gitignore", ".ignore", ".rgignore", ".git/info/exclude"];

#[test]
fn a_leased_ignore_file_keeps_only_its_directory_from_being_searched() {
    for name in IGNORE_FILES {
        let root = tree(&[("fine/a", ""), ("leased/b", ""), ("leased/.git/info/x", "")]);
        let leased = root.path().join("leased").join(name);
        fs::write(&leased, "x\n").unwrap();
        let holder = LeaseHolder::start(&leased);
        let search = listing(&root);
        let (found, end) = run_with_timeout(move || run(search));
        assert_eq!((found.len(), end.error_count), (1, 1), "{name}");
        assert_eq!(end.errors[0].path, leased);
        assert!(end.errors[0].text.contains("lease"), "{}", end.errors[0].text);
        let below = root.path().join("leased");
        let refusal = run_with_timeout(move || SearchQuery::below(below).prepare(FileRoot::host()).unwrap_err());
        assert!(
            matches!(&refusal, PrepareSearchError::Root(error) if error.path() == Some(leased.as_path())),
            "{refusal}"
        );
        drop(holder);
        assert_eq!(names(root.path(), listing(&root)), set(&["fine/a", "leased/b"]));
    }
}

#[test]
fn a_leased_file_is_an_error_and_does_not_block_the_search() {
    let root = tree(&[("a", "x\n"), ("leased", "x\n")]);
    let leased = root.path().join("leased");
    let _holder = LeaseHolder::start(&leased);
    let search = super::search(&root, super::pattern("x"));
    let (found, end) = run_with_timeout(move || run(search));
    let paths: Vec<_> = end.errors.into_iter().map(|error| error.path).collect();
    assert_eq!((found.len(), paths), (1, vec![leased]));
}

/// A thread that keeps exchanging two names, as fast as it can, until this value is dropped.
struct ExchangeThread {
    must_end: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl ExchangeThread {
    fn start(first: PathBuf, second: PathBuf) -> Self {
        let must_end = Arc::new(AtomicBool::new(false));
        let thread_must_end = Arc::clone(&must_end);
        let exchange = move || {
            while !thread_must_end.load(Ordering::Relaxed) {
                renameat_with(CWD, &first, CWD, &second, RenameFlags::EXCHANGE).unwrap();
            }
        };
        Self { must_end, thread: Some(thread::spawn(exchange)) }
    }
}

impl Drop for ExchangeThread {
    fn drop(&mut self) {
        self.must_end.store(true, Ordering::Relaxed);
        let _join_result = self.thread.take().unwrap().join();
    }
}

/// The number of searches while two names are exchanged. A walker that checks the kind of a file before it opens the
/// file in a blocking way hangs within some tens of searches.
const SEARCHES: usize = 100;

/// Runs a search [`SEARCHES`] times, and returns the summaries of those that could begin.
fn search_often(search: SearchQuery) -> Vec<SearchSummary> {
    run_with_timeout(move || (0..SEARCHES).filter_map(|_| run_to_end(search.clone())).collect())
}

/// Runs a search to its end. `None` if the search cannot begin, because an ignore file in its root is a FIFO.
fn run_to_end(search: SearchQuery) -> Option<SearchSummary> {
    let prepared = search.prepare(FileRoot::host()).ok()?;
    Some(prepared.run(&Cancel::new(), &|_| ControlFlow::Continue(())))
}

fn make_fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, 0o600.into(), 0).unwrap();
}

#[test]
fn an_ignore_file_that_turns_into_a_fifo_does_not_block_a_search() {
    for name in IGNORE_FILES {
        let root = tree(&[("fine/a", ""), ("raced/b", ""), ("raced/.git/info/x", "")]);
        let raced = root.path().join("raced").join(name);
        fs::write(&raced, "x\n").unwrap();
        let fifo = root.path().join("raced/fifo");
        make_fifo(&fifo);
        let _exchanging = ExchangeThread::start(raced.clone(), fifo);
        for end in search_often(listing(&root)) {
            assert_eq!(end.completion, SearchCompletion::Complete);
            assert!(end.errors.iter().all(|error| error.path == raced), "{end:?}");
        }
        search_often(SearchQuery::below(root.path().join("raced")));
    }
}

#[test]
fn a_followed_directory_that_turns_into_a_fifo_does_not_block_a_search() {
    let root = tree(&[("fine/a", ""), ("target/b", "")]);
    let fifo = root.path().join("fifo");
    make_fifo(&fifo);
    symlink("target", root.path().join("link")).unwrap();
    let _exchanging = ExchangeThread::start(root.path().join("target"), fifo);
    for end in search_often(SearchQuery { follow_symlinks: true, ..listing(&root) }) {
        assert_eq!(end.completion, SearchCompletion::Complete);
    }
}

#[test]
fn a_file_that_turns_into_a_fifo_does_not_block_a_search() {
    let root = tree(&[("fine/a", "x\n"), ("raced", "x\n")]);
    let fifo = root.path().join("fifo");
    make_fifo(&fifo);
    let _exchanging = ExchangeThread::start(root.path().join("raced"), fifo);
    for end in search_often(super::search(&root, super::pattern("x"))) {
        assert_eq!(end.completion, SearchCompletion::Complete);
    }
}

/// An environment variable says where the configuration of git is. So the test starts itself in another process, in
/// which the variable `INNER` names the directory to search.
#[test]
fn a_leased_configuration_of_git_does_not_block_a_search() {
    const INNER: &str = "SEARCH_WITH_LEASED_CONFIGURATION";
    if let Some(root) = std::env::var_os(INNER) {
        let (found, end) = run_with_timeout(move || run(SearchQuery::below(root)));
        assert_eq!((found.len(), end.error_count), (2, 1), "{end:?}");
        assert!(end.errors[0].text.contains("lease"), "{}", end.errors[0].text);
        return;
    }
    let root = tree(&[(".git/x", ""), ("a", ""), ("b", ""), ("configuration/excludes", "a\n")]);
    let excludes = root.path().join("configuration/excludes");
    let configuration = root.path().join("configuration/.config");
    fs::write(&configuration, format!("[core]\n\texcludesFile = {}\n", excludes.display())).unwrap();
    fs::write(root.path().join(".ignore"), "configuration\n").unwrap();
    for leased in [&configuration, &excludes] {
        let _holder = LeaseHolder::start(leased);
        let mut inner = Command::new(std::env::current_exe().unwrap());
        inner.args(["--exact", "traps::a_leased_configuration_of_git_does_not_block_a_search", "--nocapture"]);
        inner.env(INNER, root.path()).env("GIT_CONFIG_GLOBAL", &configuration);
        let mut inner = inner.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut out, mut errors) = (String::new(), String::new());
        inner.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        inner.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert!(inner.wait().unwrap().success(), "{out}{errors}");
        assert!(out.contains("1 passed"), "{out}");
    }
}

#[test]
fn a_directory_is_left_out_if_it_and_those_above_it_have_too_many_rules() {
    let rules: String = (0..5000).map(|number| format!("name-{number}\n")).collect();
    let directories = ["a", "a/b", "a/b/c", "a/b/c/d", "a/b/c/d/e"];
    let root = tree(&[("a/b/c/d/e/f", "")]);
    for directory in directories.map(|name| root.path().join(name)) {
        fs::write(directory.join("f"), "").unwrap();
        fs::write(directory.join(".ignore"), &rules).unwrap();
    }
    let (found, end) = run(listing(&root));
    assert_eq!((found.len(), end.error_count), (directories.len() - 1, 1));
    assert_eq!(end.errors[0].path, root.path().join("a/b/c/d/e"));
    assert!(end.errors[0].text.contains("20,000 rules"), "{}", end.errors[0].text);
}
