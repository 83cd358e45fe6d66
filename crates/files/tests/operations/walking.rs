//! Tests of walks through directory trees: order, limits, links, hidden directories, and how a walk ends early.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use files::{Cancel, EntryKind, FileError, FileRoot, TreeWalkOptions, WalkItem, walk};

use crate::roles::{is_role_process, report_done, run_with_few_descriptors};
use crate::support::{TestDirectory, assert_refused, create_deep_tree, not_cancelled};

/// The largest limits that a walk accepts. Links are not followed.
const ALL: TreeWalkOptions = TreeWalkOptions {
    max_depth: 64,
    max_directories: 10_000,
    max_entries: 50_000,
    follow_directory_symlinks: false,
    prune_hidden_directories: false,
};
const FOLLOWING: TreeWalkOptions = TreeWalkOptions { follow_directory_symlinks: true, ..ALL };

/// Everything that a walk has passed to its visitor, and whether the walk was truncated. Entries are relative to the
/// root, and directories end with a slash.
struct WalkRecord {
    entries: Vec<String>,
    errors: Vec<(PathBuf, String)>,
    truncated: bool,
}

fn record_walk(root: &Path, options: &TreeWalkOptions) -> Result<WalkRecord, FileError> {
    let (mut entries, mut errors) = (Vec::new(), Vec::new());
    let end = walk(FileRoot::host(), root, options, &not_cancelled(), &mut |item| {
        match item {
            WalkItem::Entry { path, kind } => {
                let slash = if kind == EntryKind::Directory { "/" } else { "" };
                entries.push(format!("{}{slash}", path.strip_prefix(root).unwrap().to_string_lossy()));
            }
            WalkItem::Error { path, error } => errors.push((path.to_owned(), error.to_string())),
        }
        ControlFlow::Continue(())
    })?;
    Ok(WalkRecord { entries, errors, truncated: end.truncated })
}

/// The entries of a walk that must be neither truncated nor report an error.
fn entries(root: &Path, options: &TreeWalkOptions) -> Vec<String> {
    let record = record_walk(root, options).unwrap();
    assert!(record.errors.is_empty() && !record.truncated);
    record.entries
}

/// The entries of a walk that must be truncated.
fn truncated_entries(root: &Path, options: &TreeWalkOptions) -> Vec<String> {
    let record = record_walk(root, options).unwrap();
    assert!(record.truncated);
    record.entries
}

fn sample_tree() -> TestDirectory {
    let test_dir = TestDirectory::new();
    for file in ["b/2", "b/1", "a/x/deep", "c", "B", "a/y"] {
        test_dir.file(file, "");
    }
    test_dir
}

#[test]
fn entries_come_level_by_level_and_sorted() {
    let test_dir = sample_tree();
    assert_eq!(entries(test_dir.root(), &ALL), ["B", "a/", "b/", "c", "a/x/", "a/y", "b/1", "b/2", "a/x/deep"]);
}

#[test]
fn the_limits_of_directories_and_entries_truncate_a_walk_but_the_depth_limit_does_not() {
    let test_dir = sample_tree();
    let depth = |max_depth| TreeWalkOptions { max_depth, ..ALL };
    assert_eq!(entries(test_dir.root(), &depth(0)), ["B", "a/", "b/", "c"]);
    assert_eq!(entries(test_dir.root(), &depth(1)).len(), 8);
    let directories = |max_directories| TreeWalkOptions { max_directories, ..ALL };
    assert_eq!(truncated_entries(test_dir.root(), &directories(1)), ["B", "a/", "b/", "c"]);
    assert_eq!(truncated_entries(test_dir.root(), &directories(2)), ["B", "a/", "b/", "c", "a/x/", "a/y"]);
    assert_eq!(entries(test_dir.root(), &directories(4)).len(), 9);
    let names = |max_entries| TreeWalkOptions { max_entries, ..ALL };
    assert_eq!(truncated_entries(test_dir.root(), &names(3)), ["B", "a/", "b/"]);
    assert_eq!(truncated_entries(test_dir.root(), &names(5)), ["B", "a/", "b/", "c", "a/x/"]);
    assert_eq!(entries(test_dir.root(), &names(9)).len(), 9);
    test_dir.fifo("A");
    assert_eq!(truncated_entries(test_dir.root(), &names(9)).len(), 8, "a skipped entry counts too");
}

#[test]
fn limits_out_of_range_are_refused_before_the_root_is_examined() {
    let none = Path::new("/none/at/all");
    for options in [TreeWalkOptions { max_directories: 0, ..ALL }, TreeWalkOptions { max_entries: 0, ..ALL }] {
        assert_refused(record_walk(none, &options).map(|_| ()), "filesystem walk limits must be greater than zero");
    }
    for options in [
        TreeWalkOptions { max_depth: 65, ..ALL },
        TreeWalkOptions { max_directories: 10_001, ..ALL },
        TreeWalkOptions { max_entries: 50_001, ..ALL },
    ] {
        let text = "filesystem walk limits exceed maximums: depth=64, directories=10000, entries=50000";
        assert_refused(record_walk(none, &options).map(|_| ()), text);
    }
    assert_eq!(record_walk(none, &ALL).map(|_| ()).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_root_that_is_a_file_or_a_link_that_is_not_followed_has_no_entries() {
    let test_dir = sample_tree();
    assert!(entries(&test_dir.at("c"), &ALL).is_empty());
    let link = test_dir.link("b", "link");
    assert!(entries(&link, &ALL).is_empty());
    assert_eq!(entries(&link, &FOLLOWING), ["1", "2"]);
    let dangling = test_dir.link("none", "dangling");
    assert!(entries(&dangling, &ALL).is_empty());
    assert_eq!(record_walk(&dangling, &FOLLOWING).map(|_| ()).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn only_followed_links_to_directories_are_listed_and_no_directory_is_entered_twice() {
    let test_dir = TestDirectory::new();
    test_dir.file("d/a", "");
    test_dir.link("..", "d/up");
    test_dir.link("d", "to-d");
    test_dir.link("d/a", "to-a");
    test_dir.link("none", "to-none");
    test_dir.fifo("fifo");
    assert_eq!(entries(test_dir.root(), &ALL), ["d/", "d/a"]);
    assert_eq!(entries(test_dir.root(), &FOLLOWING), ["d/", "to-d/", "d/a", "d/up/"]);
}

#[test]
fn a_link_to_itself_is_reported_and_the_walk_goes_on() {
    let test_dir = sample_tree();
    let link = test_dir.link("loop", "loop");
    let record = record_walk(test_dir.root(), &FOLLOWING).unwrap();
    assert_eq!(record.errors, [(link, "Too many levels of symbolic links (os error 40)".to_owned())]);
    assert_eq!(record.entries.len(), 9);
}

#[test]
fn pruned_hidden_directories_are_listed_but_not_entered() {
    let test_dir = TestDirectory::new();
    test_dir.file(".hidden/a", "");
    test_dir.file("seen/b", "");
    test_dir.file(".file", "");
    test_dir.link(".hidden", "alias");
    let options = TreeWalkOptions { prune_hidden_directories: true, ..ALL };
    assert_eq!(entries(test_dir.root(), &options), [".file", ".hidden/", "seen/", "seen/b"]);
    let options = TreeWalkOptions { follow_directory_symlinks: true, ..options };
    let expected = [".file", ".hidden/", "alias/", "seen/", "alias/a", "seen/b"];
    assert_eq!(entries(test_dir.root(), &options), expected, "the alias is not hidden");
}

#[test]
fn names_may_contain_any_bytes() {
    let test_dir = TestDirectory::new();
    let name = OsStr::from_bytes(b"\xff\xfe");
    fs::create_dir(test_dir.at(name)).unwrap();
    fs::write(test_dir.at(name).join("a"), "").unwrap();
    let mut paths = Vec::new();
    let visit = &mut |item: WalkItem<'_>| {
        if let WalkItem::Entry { path, .. } = item {
            paths.push(path.to_owned());
        }
        ControlFlow::Continue(())
    };
    walk(FileRoot::host(), test_dir.root(), &ALL, &not_cancelled(), visit).unwrap();
    assert_eq!(paths, [test_dir.at(name), test_dir.at(name).join("a")]);
}

#[test]
fn the_visitor_and_the_caller_can_end_a_walk() {
    let test_dir = sample_tree();
    let mut count = 0;
    let stop_at_third = &mut |_: WalkItem<'_>| {
        count += 1;
        if count == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    assert!(walk(FileRoot::host(), test_dir.root(), &ALL, &not_cancelled(), stop_at_third).unwrap().truncated);
    assert_eq!(count, 3);

    let cancelled = Cancel::new();
    cancelled.cancel();
    let no_visit = &mut |_: WalkItem<'_>| panic!("nothing is visited");
    let error = walk(FileRoot::host(), "/none".as_ref(), &ALL, &cancelled, no_visit).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted, "the walk is cancelled before the root is examined");
}

#[test]
fn deep_and_wide_trees_need_few_descriptors() {
    run_with_few_descriptors("walking::role_walk_deep_and_wide_tree");
}

#[test]
#[ignore = "run by the test above in a process of its own"]
fn role_walk_deep_and_wide_tree() {
    if !is_role_process() {
        return;
    }
    let test_dir = TestDirectory::in_memory();
    create_deep_tree(&test_dir.at("deep"), 300);
    for number in 0..1000 {
        test_dir.file(&format!("wide/{number}/below/a"), "");
    }
    let record = record_walk(test_dir.root(), &ALL).unwrap();
    assert!(record.errors.is_empty(), "{:?}", record.errors);
    // `deep` and `wide`, two entries in each of the 64 deep directories that the depth limit lets the walk enter, and
    // three entries for each number.
    assert_eq!(record.entries.len(), 2 + 64 * 2 + 3000);
    report_done();
}

#[test]
fn a_walk_is_not_much_slower_than_find() {
    let test_dir = TestDirectory::in_memory();
    for directory in 0..500 {
        let path = test_dir.directory(&format!("{}/{directory}", directory % 10));
        for file in 0..98 {
            fs::write(path.join(format!("a file with a name {file}")), "").unwrap();
        }
    }
    let fastest_of_five = |work: &mut dyn FnMut()| {
        let times = (0..5).map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        });
        times.min().unwrap()
    };
    let ours = fastest_of_five(&mut || {
        let mut count = 0;
        let visit = &mut |_: WalkItem<'_>| {
            count += 1;
            ControlFlow::Continue(())
        };
        assert!(!walk(FileRoot::host(), test_dir.root(), &ALL, &not_cancelled(), visit).unwrap().truncated);
        assert_eq!(count, 49_510);
    });
    let find = fastest_of_five(&mut || {
        let found = Command::new("find").arg(test_dir.root()).output().unwrap();
        // In addition to the entries, `find` prints the root, and an empty piece follows the last line feed.
        assert_eq!(found.stdout.split(|byte| *byte == b'\n').count(), 49_512);
    });
    println!("ours {ours:?}, find {find:?}");
    // Leaves room for a machine that is busy with other tests.
    assert!(ours < find * 2 + Duration::from_millis(100), "ours {ours:?}, find {find:?}");
}
