//! Tests of watches on real trees. The *sink* is the callback that receives the changes in batches. An *overflow* is
//! a batch that says that some changes are missing. Many tests keep a [`Mirror`], a list of the entries of the tree.
//! Only the reported changes update the mirror, and after an overflow it lists the tree again. In the end it must
//! equal the tree.
#![expect(clippy::unwrap_used, reason = "a failed unwrap in a helper function fails the test")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use files::{
    ChangeBatch, FileRoot, PathChange, PathChangeKind, PathWatch, WatchEnd, WatchOptions, WatchedDirectoryCount,
};
use tempfile::TempDir;

/// The timeout of every wait. Long enough for a busy machine, so only a bug makes a test wait this long.
const TIMEOUT: Duration = Duration::from_secs(30);

fn options() -> WatchOptions {
    WatchOptions { collect_time: Duration::from_millis(20), ..WatchOptions::default() }
}

/// Starts a watch whose sink sends each batch to the receiver.
fn watch(root: &Path, recursive: bool, options: WatchOptions) -> (PathWatch, Receiver<ChangeBatch>) {
    let (sender, receiver) = channel();
    let sink = Box::new(move |changes| match sender.send(changes) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    });
    (
        PathWatch::start(FileRoot::host(), root, recursive, options, &WatchedDirectoryCount::default(), sink)
            .unwrap(),
        receiver,
    )
}

/// The paths that exist below the root now, and whether each is a directory.
fn listing(root: &Path) -> BTreeMap<PathBuf, bool> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        let Ok(entries) = fs::read_dir(directory) else { continue };
        for entry in entries.flatten() {
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_directory {
                pending.push(entry.path());
            }
            found.insert(entry.path(), is_directory);
        }
    }
    found
}

/// The paths known to a client that has listed the tree once. Since then it applies the reported changes, and lists
/// the tree again only after an overflow.
struct Mirror {
    root: PathBuf,
    /// The known paths below the root, and whether each is a directory.
    known: BTreeMap<PathBuf, bool>,
    /// Number of overflows so far.
    overflows: usize,
    /// Number of renames so far.
    renames: usize,
    /// Number of all changes so far.
    change_count: usize,
    receiver: Receiver<ChangeBatch>,
    _watch: PathWatch,
}

impl Mirror {
    /// Starts a watch and lists the tree.
    fn start(root: &Path, options: WatchOptions) -> Self {
        let (watch, receiver) = watch(root, true, options);
        let known = listing(root);
        Self { root: root.to_owned(), known, overflows: 0, renames: 0, change_count: 0, receiver, _watch: watch }
    }

    fn apply(&mut self, changes: ChangeBatch) {
        assert!(changes.end.is_none(), "{:?}", changes.end);
        self.change_count += changes.changes.len();
        for change in changes.changes {
            match change.kind {
                PathChangeKind::Created | PathChangeKind::Modified if change.path == self.root => {}
                PathChangeKind::Created | PathChangeKind::Modified => {
                    self.known.insert(change.path, change.is_directory);
                }
                PathChangeKind::Removed => self.known.retain(|path, _| !path.starts_with(&change.path)),
                PathChangeKind::Renamed { from } => {
                    self.renames += 1;
                    self.rename(&from, &change.path, change.is_directory);
                }
            }
        }
        if changes.overflow {
            self.overflows += 1;
            self.known = listing(&self.root);
        }
    }

    fn rename(&mut self, from: &Path, to: &Path, is_directory: bool) {
        if self.overflows > 0 {
            // The rename may have happened before the mirror listed the tree after the overflow.
            for changed in [from, to] {
                self.known.retain(|path, _| !path.starts_with(changed));
                self.known.extend(fs::symlink_metadata(changed).map(|found| (changed.to_owned(), found.is_dir())));
                self.known.extend(listing(changed));
            }
            return;
        }
        self.known.retain(|path, _| !path.starts_with(to));
        let moved: Vec<PathBuf> = self.known.keys().filter(|path| path.starts_with(from)).cloned().collect();
        for path in moved {
            let is_moved_directory = self.known.remove(&path).unwrap();
            let below = path.strip_prefix(from).unwrap();
            let new_path = if below.as_os_str().is_empty() { to.to_owned() } else { to.join(below) };
            self.known.insert(new_path, is_moved_directory);
        }
        self.known.insert(to.to_owned(), is_directory);
    }

    /// Applies changes until the mirror equals the tree.
    fn catch_up(&mut self) {
        let actual = listing(&self.root);
        let deadline = Instant::now() + TIMEOUT;
        while self.known != actual {
            match self.receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(changes) => self.apply(changes),
                Err(error) => {
                    let missing: Vec<_> =
                        actual.keys().filter(|path| !self.known.contains_key(*path)).take(10).collect();
                    let extra: Vec<_> =
                        self.known.keys().filter(|path| !actual.contains_key(*path)).take(10).collect();
                    panic!("{error}: missing {missing:?}, removed but known {extra:?}, {} overflows", self.overflows);
                }
            }
        }
    }
}

/// Receives batches until one has a change of `path`, and returns all their changes.
fn changes_until(receiver: &Receiver<ChangeBatch>, path: &Path) -> Vec<PathChange> {
    let mut all = Vec::new();
    while !all.iter().any(|change: &PathChange| change.path == path) {
        all.extend(receiver.recv_timeout(TIMEOUT).unwrap().changes);
    }
    all
}

/// The kinds of all changes of one path.
fn kinds(changes: &[PathChange], path: &Path) -> Vec<PathChangeKind> {
    changes.iter().filter(|change| change.path == path).map(|change| change.kind.clone()).collect()
}

fn temporary_directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn each_kind_of_change_is_reported() {
    let root = temporary_directory();
    let (a, b) = (root.path().join("a"), root.path().join("b"));
    let (_watch, receiver) = watch(root.path(), true, options());
    fs::write(&a, "1").unwrap();
    assert_eq!(kinds(&changes_until(&receiver, &a), &a), [PathChangeKind::Created]);
    fs::write(&a, "2").unwrap();
    assert_eq!(kinds(&changes_until(&receiver, &a), &a), [PathChangeKind::Modified]);
    fs::rename(&a, &b).unwrap();
    let renamed = changes_until(&receiver, &b);
    assert_eq!(
        renamed,
        [PathChange { path: b.clone(), kind: PathChangeKind::Renamed { from: a }, is_directory: false }]
    );
    fs::remove_file(&b).unwrap();
    assert_eq!(kinds(&changes_until(&receiver, &b), &b), [PathChangeKind::Removed]);
}

#[test]
fn names_need_not_be_utf8() {
    let root = temporary_directory();
    let path = root.path().join(OsStr::from_bytes(b"\xff\xfe"));
    let (_watch, receiver) = watch(root.path(), true, options());
    fs::create_dir(&path).unwrap();
    fs::write(path.join("a"), "").unwrap();
    changes_until(&receiver, &path.join("a"));
}

#[test]
fn links_are_not_followed_below_the_root() {
    let (root, outside) = (temporary_directory(), temporary_directory());
    symlink(outside.path(), root.path().join("link")).unwrap();
    let (_watch, receiver) = watch(root.path(), true, options());
    fs::write(outside.path().join("unseen"), "").unwrap();
    fs::write(root.path().join("seen"), "").unwrap();
    assert_eq!(changes_until(&receiver, &root.path().join("seen")).len(), 1);
    // The root itself may be a link.
    let (_other_watch, receiver) = watch(&root.path().join("link"), true, options());
    let through_link = root.path().join("link/b");
    fs::write(&through_link, "").unwrap();
    changes_until(&receiver, &through_link);
}

#[test]
fn without_recursion_only_the_directory_itself_is_watched() {
    let root = temporary_directory();
    fs::create_dir(root.path().join("d")).unwrap();
    let (_watch, receiver) = watch(root.path(), false, options());
    fs::write(root.path().join("d/unseen"), "").unwrap();
    fs::create_dir_all(root.path().join("e/unseen")).unwrap();
    fs::write(root.path().join("seen"), "").unwrap();
    let changes = changes_until(&receiver, &root.path().join("seen"));
    assert!(changes.iter().all(|change| change.path.parent() == Some(root.path())), "{changes:?}");
}

#[test]
fn ten_thousand_new_files_are_all_reported() {
    let root = temporary_directory();
    let mut mirror = Mirror::start(root.path(), options());
    for number in 0..10_000 {
        File::create(root.path().join(number.to_string())).unwrap();
    }
    mirror.catch_up();
    assert_eq!(mirror.known.len(), 10_000);
}

#[test]
fn all_entries_of_new_directories_are_reported() {
    let root = temporary_directory();
    let mut mirror = Mirror::start(root.path(), options());
    thread::scope(|scope| {
        for thread in 0..4 {
            let root = root.path();
            scope.spawn(move || {
                for number in 0..100 {
                    let deep = root.join(format!("{thread}/{number}/a/b/c/d"));
                    fs::create_dir_all(&deep).unwrap();
                    fs::write(deep.join("file"), "x").unwrap();
                    fs::write(deep.join("../file"), "x").unwrap();
                }
            });
        }
    });
    mirror.catch_up();
    assert_eq!(mirror.overflows, 0);
    assert_eq!(mirror.known.len(), 4 * (1 + 100 * 7));
    // The new directories are watched too, also the deepest ones.
    fs::remove_dir_all(root.path().join("3/99")).unwrap();
    mirror.catch_up();
}

#[test]
fn trees_that_are_created_and_removed_quickly_are_not_left_in_the_mirror() {
    let root = temporary_directory();
    let mut mirror = Mirror::start(root.path(), options());
    for round in 0..100 {
        let top = root.path().join(format!("top{}", round % 3));
        fs::create_dir_all(top.join("a/b")).unwrap();
        fs::write(top.join("a/b/file"), "x").unwrap();
        fs::remove_dir_all(&top).unwrap();
    }
    fs::write(root.path().join("last"), "").unwrap();
    mirror.catch_up();
    assert_eq!(mirror.known.len(), 1);
}

#[test]
fn many_renames_in_a_row_are_followed() {
    let root = temporary_directory();
    for number in 0..50 {
        fs::create_dir_all(root.path().join(format!("d{number}/below"))).unwrap();
        fs::write(root.path().join(format!("f{number}")), "").unwrap();
    }
    let mut mirror = Mirror::start(root.path(), options());
    for round in 0..20 {
        for number in 0..50 {
            let name =
                |prefix: &str, round: usize| root.path().join(format!("{prefix}{number}{}", "x".repeat(round)));
            fs::rename(name("d", round), name("d", round + 1)).unwrap();
            fs::rename(name("f", round), name("f", round + 1)).unwrap();
        }
    }
    mirror.catch_up();
    assert_eq!(mirror.overflows, 0);
    assert!(mirror.renames > 0);
    // The watch knows the directories by their new names.
    for number in 0..50 {
        fs::write(root.path().join(format!("d{number}{}/below/new", "x".repeat(20))), "").unwrap();
    }
    mirror.catch_up();
}

/// Creates a file in every directory below the root, and waits until all these files are reported.
fn assert_every_directory_is_watched(mirror: &mut Mirror) {
    let directories =
        listing(&mirror.root).into_iter().filter_map(|(path, is_directory)| is_directory.then_some(path));
    for directory in directories {
        fs::write(directory.join("late"), "").unwrap();
    }
    mirror.catch_up();
}

#[test]
fn a_renamed_new_directory_and_another_one_with_its_old_name_are_both_watched() {
    let outer = temporary_directory();
    for round in 0..40 {
        let root = outer.path().join(round.to_string());
        fs::create_dir(&root).unwrap();
        let mut mirror = Mirror::start(&root, options());
        fs::create_dir_all(root.join("d/x")).unwrap();
        fs::rename(root.join("d"), root.join("e")).unwrap();
        fs::create_dir_all(root.join("d/y")).unwrap();
        mirror.catch_up();
        assert_every_directory_is_watched(&mut mirror);
        assert_eq!(mirror.overflows, 0, "round {round}");
    }
}

#[test]
fn new_directories_that_are_filled_and_then_renamed_are_reported_with_their_files() {
    let root = temporary_directory();
    let mut mirror = Mirror::start(root.path(), options());
    let temporary = root.path().join("tmp");
    for number in 0..200 {
        fs::create_dir(&temporary).unwrap();
        fs::write(temporary.join(format!("file-{number}")), "").unwrap();
        fs::rename(&temporary, root.path().join(format!("out-{number}"))).unwrap();
    }
    mirror.catch_up();
    assert_every_directory_is_watched(&mut mirror);
    assert_eq!((mirror.known.len(), mirror.overflows), (600, 0));
}

/// Random changes of a tree, which are the same for the same seed.
struct RandomChanges {
    /// State of the random number generator, at first the seed.
    state: u64,
    root: PathBuf,
    /// A directory that is not watched. Files and directories are moved to it and back.
    outside: PathBuf,
}

impl RandomChanges {
    /// A random number below the limit.
    fn number(&mut self, limit: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % limit
    }

    /// A random path below the root, with one to three names.
    fn path(&mut self) -> PathBuf {
        let mut path = self.root.clone();
        for _ in 0..=self.number(3) {
            path.push(["a", "b", "c"][usize::try_from(self.number(3)).unwrap()]);
        }
        path
    }

    /// Makes one random change. Nothing happens if the change is impossible in the present tree.
    fn step(&mut self) {
        let (path, other) = (self.path(), self.path());
        let _fails_if_impossible = match self.number(20) {
            0..8 => fs::create_dir_all(path),
            8..11 => fs::write(path, "x"),
            11..15 if !other.exists() => fs::rename(path, other),
            // If a directory replaces another one, the watch reports an overflow.
            15 => fs::rename(path, other),
            16 => fs::rename(path, self.outside.join("moved")),
            17 => fs::rename(self.outside.join("moved"), path),
            18 if path.is_dir() => fs::remove_dir_all(path),
            19 => fs::remove_file(path),
            _ => Ok(()),
        };
    }
}

#[test]
fn the_mirror_equals_the_tree_after_random_changes() {
    let outer = temporary_directory();
    let mut rounds_without_overflow = 0;
    for seed in 1..=20 {
        let (root, outside) = (outer.path().join(format!("{seed}")), outer.path().join(format!("{seed}-outside")));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&outside).unwrap();
        let mut mirror = Mirror::start(&root, options());
        thread::scope(|scope| {
            // In every other round two threads change the tree at the same time.
            for number in 0..=seed % 2 {
                let (root, outside) = (root.clone(), outside.clone());
                scope.spawn(move || {
                    let mut changes = RandomChanges { state: seed * 2 + number, root, outside };
                    (0..100).for_each(|_| changes.step());
                });
            }
        });
        mirror.catch_up();
        assert_every_directory_is_watched(&mut mirror);
        rounds_without_overflow += u32::from(mirror.overflows == 0);
    }
    assert!(rounds_without_overflow > 2, "only {rounds_without_overflow} of 20 rounds had no overflow");
}

#[test]
fn a_directory_stays_watched_if_it_is_moved_within_the_tree_but_not_if_it_is_moved_out() {
    let (root, outside) = (temporary_directory(), temporary_directory());
    fs::create_dir_all(root.path().join("a/b/c")).unwrap();
    let mut mirror = Mirror::start(root.path(), options());
    fs::rename(root.path().join("a"), root.path().join("z")).unwrap();
    fs::write(root.path().join("z/b/c/file"), "").unwrap();
    mirror.catch_up();
    assert_eq!(mirror.renames, 1);
    fs::rename(root.path().join("z"), outside.path().join("z")).unwrap();
    mirror.catch_up();
    let count_before = mirror.change_count;
    fs::write(outside.path().join("z/b/c/unseen"), "").unwrap();
    fs::write(root.path().join("seen"), "").unwrap();
    mirror.catch_up();
    assert_eq!(mirror.change_count, count_before + 1);
    // A directory that is moved in is reported with all its entries.
    fs::rename(outside.path().join("z"), root.path().join("back")).unwrap();
    mirror.catch_up();
    assert!(mirror.known.contains_key(&root.path().join("back/b/c/unseen")));
}

#[test]
fn a_watch_goes_on_after_an_overflow_by_too_many_changes() {
    let root = temporary_directory();
    let mut mirror = Mirror::start(root.path(), WatchOptions { max_pending: 10, ..options() });
    for number in 0..1000 {
        fs::create_dir(root.path().join(number.to_string())).unwrap();
    }
    mirror.catch_up();
    while mirror.overflows == 0 {
        let changes = mirror.receiver.recv_timeout(TIMEOUT).unwrap();
        mirror.apply(changes);
    }
    mirror.catch_up();
    fs::write(root.path().join("999/file"), "").unwrap();
    mirror.catch_up();
}

/// The number of inotify instances that this process has open. All watches of a process share one. nextest runs each
/// test in a process of its own, so no other test has watches in this process.
fn inotify_instances() -> usize {
    let links = fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter(|target| target.as_os_str() == "anon_inode:inotify").count()
}

/// Waits until a change of this path is reported.
fn wait_for_change(receiver: &Receiver<ChangeBatch>, path: &Path) {
    loop {
        let changes = receiver.recv_timeout(TIMEOUT).unwrap();
        assert!(changes.end.is_none(), "{:?}", changes.end);
        if changes.changes.iter().any(|change| change.path == path) {
            return;
        }
    }
}

#[test]
fn watches_share_one_inotify_instance_and_get_only_their_own_changes() {
    let root = temporary_directory();
    let below = root.path().join("below");
    fs::create_dir(&below).unwrap();
    let file = below.join("file");
    fs::write(&file, "").unwrap();
    // All of these watches need the directory `below`.
    let (whole, changes_of_whole) = watch(root.path(), true, options());
    let (_flat, changes_of_flat) = watch(&below, false, options());
    let (_single, changes_of_single) = watch(&file, false, options());
    let (again, _) = watch(&below, true, options());
    assert_eq!(inotify_instances(), 1);
    fs::write(&file, "1").unwrap();
    for receiver in [&changes_of_whole, &changes_of_flat, &changes_of_single] {
        wait_for_change(receiver, &file);
    }
    drop((whole, again));
    while !matches!(changes_of_whole.recv_timeout(TIMEOUT), Err(RecvTimeoutError::Disconnected)) {}
    // The watches that are left get the same changes as before.
    fs::write(root.path().join("other"), "").unwrap();
    fs::write(&file, "2").unwrap();
    wait_for_change(&changes_of_flat, &file);
    wait_for_change(&changes_of_single, &file);
    fs::create_dir(below.join("new")).unwrap();
    wait_for_change(&changes_of_flat, &below.join("new"));
    fs::remove_dir(below.join("new")).unwrap();
    let (_late, changes_of_late) = watch(root.path(), true, options());
    fs::write(&file, "3").unwrap();
    wait_for_change(&changes_of_late, &file);
    wait_for_change(&changes_of_single, &file);
    assert_eq!(inotify_instances(), 1);
}

#[test]
fn the_inotify_instance_is_closed_with_the_last_watch() {
    let root = temporary_directory();
    let start = |number: usize| {
        let directory = root.path().join(number.to_string());
        fs::create_dir_all(directory.join("a/b")).unwrap();
        watch(&directory, true, options())
    };
    for round in 0..5 {
        let watches: Vec<_> = (0..10).map(start).collect();
        assert_eq!(inotify_instances(), 1, "round {round}");
        for (watch, receiver) in watches {
            drop(watch);
            while receiver.recv_timeout(TIMEOUT).is_ok() {}
        }
        let ended = Instant::now();
        while inotify_instances() > 0 {
            assert!(ended.elapsed() < TIMEOUT, "the instance is still open");
            thread::yield_now();
        }
    }
}

#[test]
fn after_an_overflow_of_the_event_queue_the_missed_directories_are_watched() {
    let root = temporary_directory();
    fs::create_dir(root.path().join("moved")).unwrap();
    let (release, wait) = channel::<()>();
    let (sender, receiver) = channel();
    let sink = Box::new(move |changes| {
        sender.send(changes).unwrap();
        // The thread of the watch waits here, and takes no events from its queue, until the test drops `release`.
        let _fails_once_released = wait.recv();
        ControlFlow::Continue(())
    });
    let watch =
        PathWatch::start(FileRoot::host(), root.path(), true, options(), &WatchedDirectoryCount::default(), sink)
            .unwrap();
    let mut mirror = Mirror {
        root: root.path().to_owned(),
        known: listing(root.path()),
        overflows: 0,
        renames: 0,
        change_count: 0,
        receiver,
        _watch: watch,
    };
    fs::write(root.path().join("first"), "").unwrap();
    let first = mirror.receiver.recv_timeout(TIMEOUT).unwrap();
    mirror.apply(first);

    let queue_length: usize =
        fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    let (a, b) = (root.path().join("first"), root.path().join("second"));
    // Each rename is two events, so these are twice as many events as the kernel queues. The watch queues as many as
    // the kernel does by default.
    for _ in 0..=queue_length / 2 {
        fs::rename(&a, &b).unwrap();
        fs::rename(&b, &a).unwrap();
    }
    fs::create_dir_all(root.path().join("missed/below")).unwrap();
    fs::rename(root.path().join("moved"), root.path().join("missed/moved")).unwrap();
    drop(release);
    while mirror.overflows == 0 {
        let changes = mirror.receiver.recv_timeout(TIMEOUT).unwrap();
        mirror.apply(changes);
    }
    mirror.catch_up();
    fs::write(root.path().join("missed/below/file"), "").unwrap();
    fs::write(root.path().join("missed/moved/file"), "").unwrap();
    mirror.catch_up();
}

/// Receives batches until the watch ends, and returns the last batch.
fn receive_last(receiver: &Receiver<ChangeBatch>) -> ChangeBatch {
    loop {
        let changes = receiver.recv_timeout(TIMEOUT).unwrap();
        if changes.end.is_some() {
            assert!(matches!(receiver.recv_timeout(TIMEOUT), Err(RecvTimeoutError::Disconnected)));
            return changes;
        }
    }
}

#[test]
fn removing_or_moving_the_root_ends_the_watch() {
    let outer = temporary_directory();
    let root = outer.path().join("root");
    let removed = || PathChange { path: root.clone(), kind: PathChangeKind::Removed, is_directory: true };

    fs::create_dir_all(root.join("a/b")).unwrap();
    let (_removed_watch, receiver) = watch(&root, true, options());
    fs::remove_dir_all(&root).unwrap();
    let end = receive_last(&receiver);
    assert!(matches!(end.end, Some(WatchEnd::RootRemoved)));
    assert_eq!(end.changes.last(), Some(&removed()));

    fs::create_dir_all(root.join("a")).unwrap();
    let (_moved_watch, receiver) = watch(&root, true, options());
    fs::rename(&root, outer.path().join("outside")).unwrap();
    assert_eq!(receive_last(&receiver).changes, [removed()]);

    fs::create_dir(&root).unwrap();
    let held_open = File::open(&root).unwrap();
    let (_held_watch, receiver) = watch(&root, true, options());
    fs::remove_dir(&root).unwrap();
    assert_eq!(receive_last(&receiver).changes, [removed()], "also while a process has the directory open");
    drop(held_open);
}

#[test]
fn the_watch_of_a_single_file_goes_on_when_the_file_is_replaced() {
    let root = temporary_directory();
    let file = root.path().join("file");
    fs::write(&file, "1").unwrap();
    let (_watch, receiver) = watch(&file, false, options());
    let next = || {
        let changes = receiver.recv_timeout(TIMEOUT).unwrap();
        assert!(changes.changes.iter().all(|change| change.path == file), "{changes:?}");
        kinds(&changes.changes, &file)
    };
    fs::write(root.path().join("other"), "").unwrap();
    for _ in 0..3 {
        fs::rename(root.path().join("other"), &file).unwrap();
        assert_eq!(next(), [PathChangeKind::Modified]);
        fs::write(root.path().join("other"), "").unwrap();
    }
    fs::remove_file(&file).unwrap();
    assert_eq!(next(), [PathChangeKind::Removed]);
    fs::write(&file, "").unwrap();
    assert_eq!(next(), [PathChangeKind::Created]);
    fs::write(&file, "x").unwrap();
    assert_eq!(next(), [PathChangeKind::Modified]);
    fs::remove_dir_all(root.path()).unwrap();
    assert!(matches!(receive_last(&receiver).end, Some(WatchEnd::RootRemoved)));
}

#[test]
fn a_tree_with_too_many_directories_is_refused_and_one_that_grows_ends_the_watch() {
    let root = temporary_directory();
    let few_directories = WatchOptions { max_directories: 3, ..options() };
    fs::create_dir_all(root.path().join("a/b")).unwrap();
    let (_watch, receiver) = watch(root.path(), true, few_directories);
    fs::create_dir(root.path().join("c")).unwrap();
    let end = receive_last(&receiver);
    assert!(
        matches!(&end.end, Some(WatchEnd::Failed(error)) if error.to_string().contains("more than 3")),
        "{end:?}"
    );
    let refused = PathWatch::start(
        FileRoot::host(),
        root.path(),
        true,
        few_directories,
        &WatchedDirectoryCount::default(),
        Box::new(|_| ControlFlow::Continue(())),
    );
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::QuotaExceeded);
}

#[test]
fn a_missing_or_relative_path_cannot_be_watched() {
    let root = temporary_directory();
    let start = |path: &Path| {
        PathWatch::start(
            FileRoot::host(),
            path,
            true,
            options(),
            &WatchedDirectoryCount::default(),
            Box::new(|_| ControlFlow::Continue(())),
        )
    };
    assert_eq!(start(&root.path().join("missing")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert_eq!(start(Path::new("relative")).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn dropping_a_watch_ends_its_thread_and_closes_inotify() {
    let root = temporary_directory();
    let rounds = 100;
    for _ in 0..rounds {
        let (watch, receiver) = watch(root.path(), true, options());
        drop(watch);
        // The sink is dropped with the thread.
        assert!(matches!(receiver.recv_timeout(TIMEOUT), Err(RecvTimeoutError::Disconnected)));
    }
    // The instance of the last round may still be open. Only a number that grows with each round is an error.
    assert!(inotify_instances() < rounds / 2);
}

#[test]
fn a_sink_that_returns_break_ends_the_watch() {
    let root = temporary_directory();
    let (sender, receiver) = channel();
    let sink = Box::new(move |changes| {
        sender.send(changes).unwrap();
        ControlFlow::Break(())
    });
    let _watch =
        PathWatch::start(FileRoot::host(), root.path(), true, options(), &WatchedDirectoryCount::default(), sink)
            .unwrap();
    fs::write(root.path().join("a"), "").unwrap();
    receiver.recv_timeout(TIMEOUT).unwrap();
    assert!(matches!(receiver.recv_timeout(TIMEOUT), Err(RecvTimeoutError::Disconnected)));
}

#[test]
fn a_watch_whose_thread_panics_reports_its_end() {
    let root = TempDir::new().unwrap();
    let (sender, receiver) = channel();
    let mut deliveries = 0;
    let sink = Box::new(move |changes: ChangeBatch| {
        deliveries += 1;
        assert!(deliveries > 1, "this panic is on purpose");
        let _receiver_may_be_dropped = sender.send(changes);
        ControlFlow::Continue(())
    });
    let _watch =
        PathWatch::start(FileRoot::host(), root.path(), true, options(), &WatchedDirectoryCount::default(), sink)
            .unwrap();
    File::create(root.path().join("file")).unwrap();
    let last = receiver.recv_timeout(TIMEOUT).expect("the watch reports its end");
    assert!(last.overflow && matches!(last.end, Some(WatchEnd::Failed(_))), "{last:?}");
}
