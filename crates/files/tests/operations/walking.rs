//! Trees listed.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use files::{Cancel, EntryKind, FileError, TreeWalkOptions, WalkItem, walk};

use crate::roles::{is_played, play_with_few_descriptors, played};
use crate::support::{World, assert_refused, deep_tree, never};

const ALL: TreeWalkOptions = TreeWalkOptions {
    max_depth: 64,
    max_directories: 10_000,
    max_entries: 50_000,
    follow_directory_symlinks: false,
    prune_hidden_directories: false,
};
const FOLLOWING: TreeWalkOptions = TreeWalkOptions { follow_directory_symlinks: true, ..ALL };

struct Walked {
    entries: Vec<String>,
    errors: Vec<(PathBuf, String)>,
    truncated: bool,
}

/// Directories end with a slash here.
fn walked(root: &Path, options: &TreeWalkOptions) -> Result<Walked, FileError> {
    let (mut entries, mut errors) = (Vec::new(), Vec::new());
    let end = walk(root, options, &never(), &mut |item| {
        match item {
            WalkItem::Entry { path, kind } => {
                let slash = if kind == EntryKind::Directory { "/" } else { "" };
                entries.push(format!("{}{slash}", path.strip_prefix(root).unwrap().to_string_lossy()));
            }
            WalkItem::Error { path, error } => errors.push((path.to_owned(), error.to_string())),
        }
        ControlFlow::Continue(())
    })?;
    Ok(Walked { entries, errors, truncated: end.truncated })
}

fn entries(root: &Path, options: &TreeWalkOptions) -> Vec<String> {
    let walked = walked(root, options).unwrap();
    assert!(walked.errors.is_empty() && !walked.truncated);
    walked.entries
}

fn cut(root: &Path, options: &TreeWalkOptions) -> Vec<String> {
    let walked = walked(root, options).unwrap();
    assert!(walked.truncated);
    walked.entries
}

fn sample() -> World {
    let world = World::new();
    for file in ["b/2", "b/1", "a/x/deep", "c", "B", "a/y"] {
        world.file(file, "");
    }
    world
}

#[test]
fn level_by_level_and_in_order() {
    let world = sample();
    assert_eq!(entries(world.root(), &ALL), ["B", "a/", "b/", "c", "a/x/", "a/y", "b/1", "b/2", "a/x/deep"]);
}

#[test]
fn limits_cut_it_off() {
    let world = sample();
    let depth = |max_depth| TreeWalkOptions { max_depth, ..ALL };
    assert_eq!(entries(world.root(), &depth(0)), ["B", "a/", "b/", "c"]);
    assert_eq!(entries(world.root(), &depth(1)).len(), 8);
    let directories = |max_directories| TreeWalkOptions { max_directories, ..ALL };
    assert_eq!(cut(world.root(), &directories(1)), ["B", "a/", "b/", "c"]);
    assert_eq!(cut(world.root(), &directories(2)), ["B", "a/", "b/", "c", "a/x/", "a/y"]);
    assert_eq!(entries(world.root(), &directories(4)).len(), 9);
    let names = |max_entries| TreeWalkOptions { max_entries, ..ALL };
    assert_eq!(cut(world.root(), &names(3)), ["B", "a/", "b/"]);
    assert_eq!(cut(world.root(), &names(5)), ["B", "a/", "b/", "c", "a/x/"]);
    assert_eq!(entries(world.root(), &names(9)).len(), 9);
    world.fifo("A");
    assert_eq!(cut(world.root(), &names(9)).len(), 8, "what is skipped counts");
}

#[test]
fn limits_are_checked_before_anything_else() {
    let none = Path::new("/none/at/all");
    for options in [TreeWalkOptions { max_directories: 0, ..ALL }, TreeWalkOptions { max_entries: 0, ..ALL }] {
        assert_refused(walked(none, &options).map(|_| ()), "filesystem walk limits must be greater than zero");
    }
    for options in [
        TreeWalkOptions { max_depth: 65, ..ALL },
        TreeWalkOptions { max_directories: 10_001, ..ALL },
        TreeWalkOptions { max_entries: 50_001, ..ALL },
    ] {
        let text = "filesystem walk limits exceed maximums: depth=64, directories=10000, entries=50000";
        assert_refused(walked(none, &options).map(|_| ()), text);
    }
    assert_eq!(walked(none, &ALL).map(|_| ()).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_root_that_is_no_directory_has_nothing_below_it() {
    let world = sample();
    assert!(entries(&world.at("c"), &ALL).is_empty());
    let link = world.link("b", "link");
    assert!(entries(&link, &ALL).is_empty());
    assert_eq!(entries(&link, &FOLLOWING), ["1", "2"]);
    let dangling = world.link("none", "dangling");
    assert!(entries(&dangling, &ALL).is_empty());
    assert_eq!(walked(&dangling, &FOLLOWING).map(|_| ()).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn links_to_directories_are_followed_once_and_others_not_listed() {
    let world = World::new();
    world.file("d/a", "");
    world.link("..", "d/up");
    world.link("d", "way");
    world.link("d/a", "to-a");
    world.link("none", "to-none");
    world.fifo("fifo");
    assert_eq!(entries(world.root(), &ALL), ["d/", "d/a"]);
    assert_eq!(entries(world.root(), &FOLLOWING), ["d/", "way/", "d/a", "d/up/"]);
}

#[test]
fn a_link_that_leads_in_a_circle_is_an_error_of_its_own() {
    let world = sample();
    let link = world.link("loop", "loop");
    let walked = walked(world.root(), &FOLLOWING).unwrap();
    assert_eq!(walked.errors, [(link, "Too many levels of symbolic links (os error 40)".to_owned())]);
    assert_eq!(walked.entries.len(), 9);
}

#[test]
fn hidden_directories_are_listed_but_not_entered() {
    let world = World::new();
    world.file(".hidden/a", "");
    world.file("seen/b", "");
    world.file(".file", "");
    world.link(".hidden", "alias");
    let options = TreeWalkOptions { prune_hidden_directories: true, ..ALL };
    assert_eq!(entries(world.root(), &options), [".file", ".hidden/", "seen/", "seen/b"]);
    let options = TreeWalkOptions { follow_directory_symlinks: true, ..options };
    let expected = [".file", ".hidden/", "alias/", "seen/", "alias/a", "seen/b"];
    assert_eq!(entries(world.root(), &options), expected, "the alias is not hidden");
}

#[test]
fn names_of_any_bytes_are_ordinary() {
    let world = World::new();
    let name = OsStr::from_bytes(b"\xff\xfe");
    fs::create_dir(world.at(name)).unwrap();
    fs::write(world.at(name).join("a"), "").unwrap();
    let mut paths = Vec::new();
    let visit = &mut |item: WalkItem<'_>| {
        if let WalkItem::Entry { path, .. } = item {
            paths.push(path.to_owned());
        }
        ControlFlow::Continue(())
    };
    walk(world.root(), &ALL, &never(), visit).unwrap();
    assert_eq!(paths, [world.at(name), world.at(name).join("a")]);
}

#[test]
fn the_visitor_and_the_caller_can_end_it() {
    let world = sample();
    let mut count = 0;
    let enough = &mut |_: WalkItem<'_>| {
        count += 1;
        if count == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    assert!(walk(world.root(), &ALL, &never(), enough).unwrap().truncated);
    assert_eq!(count, 3);

    let cancelled = Cancel::new();
    cancelled.cancel();
    let nobody = &mut |_: WalkItem<'_>| panic!("nothing is visited");
    let error = walk("/none".as_ref(), &ALL, &cancelled, nobody).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted, "before anything is looked at");
}

#[test]
fn deep_and_wide_trees_need_few_descriptors() {
    play_with_few_descriptors("walking::role_of_one_who_goes_deep_and_wide");
}

#[test]
#[ignore = "a role for the scenario above"]
fn role_of_one_who_goes_deep_and_wide() {
    if !is_played() {
        return;
    }
    let world = World::in_memory();
    deep_tree(&world.at("deep"), 300);
    for number in 0..1000 {
        world.file(&format!("wide/{number}/below/a"), "");
    }
    let walked = walked(world.root(), &ALL).unwrap();
    assert!(walked.errors.is_empty(), "{:?}", walked.errors);
    assert_eq!(walked.entries.len(), 2 + 64 * 2 + 3000);
    played();
}

#[test]
fn it_is_not_much_slower_than_find() {
    let world = World::in_memory();
    for directory in 0..500 {
        let path = world.directory(&format!("{}/{directory}", directory % 10));
        for file in 0..98 {
            fs::write(path.join(format!("a file with a name {file}")), "").unwrap();
        }
    }
    let timed = |work: &mut dyn FnMut()| {
        let fastest = (0..5).map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        });
        fastest.min().unwrap()
    };
    let ours = timed(&mut || {
        let mut count = 0;
        let visit = &mut |_: WalkItem<'_>| {
            count += 1;
            ControlFlow::Continue(())
        };
        assert!(!walk(world.root(), &ALL, &never(), visit).unwrap().truncated);
        assert_eq!(count, 49_510);
    });
    let find = timed(&mut || {
        let found = Command::new("find").arg(world.root()).output().unwrap();
        assert_eq!(found.stdout.split(|byte| *byte == b'\n').count(), 49_512);
    });
    println!("ours {ours:?}, find {find:?}");
    // Room for a machine that does other things meanwhile.
    assert!(ours < find * 2 + Duration::from_millis(100), "ours {ours:?}, find {find:?}");
}
