//! The privileges of this process do not help in a sandbox. Only root has privileges, so most of this says something
//! only if root runs the tests.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Mutex;

use files::{FileRoot, Follow, PathWatch, Pattern, SearchHit, SearchQuery, WatchOptions, WatchedDirectoryCount};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities};

use crate::support::{TestSandbox, errno, is_root, not_cancelled};

fn effective() -> CapabilitySet {
    capabilities(None).unwrap().effective
}

#[test]
fn privileges_do_not_open_a_mask_and_are_back_after_the_operation() {
    let sandbox = TestSandbox::start();
    let before = effective();
    let root = sandbox.small_root();
    let masked = PathBuf::from("/masked");
    // What the kernel would allow this process with its privileges.
    let top = sandbox.open_in_sandbox(&sandbox.at(""));
    let opened = openat(&top, "masked", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    assert_eq!(opened.is_ok(), is_root());

    let listed = files::read_directory(&root, &masked, 9, files::DanglingLinks::Listed);
    assert_eq!((errno(&listed), effective()), (Some(Errno::ACCESS), before));
    let created = files::write_file(&root, &masked.join("new"), b"", Follow::Yes);
    assert_eq!((errno(&created), effective()), (Some(Errno::ACCESS), before));
    assert!(files::metadata_if_cached(&root, &masked.join("file")).is_none());
    assert!(files::read_file_if_cached(&root, &PathBuf::from("/ws/hidden"), 99).is_none());
    assert_eq!(effective(), before);
    let count = WatchedDirectoryCount::default();
    let sink = Box::new(|_| ControlFlow::Continue(()));
    let watched = PathWatch::start(&root, &masked, true, WatchOptions::default(), &count, sink);
    assert_eq!((errno(&watched), effective()), (Some(Errno::ACCESS), before));
    files::read_file(FileRoot::host(), &sandbox.at("masked/file"), Follow::Yes, 99).unwrap();
    assert_eq!(effective(), before);
}

#[test]
fn no_thread_of_a_search_has_privileges() {
    let sandbox = TestSandbox::start();
    for number in 0..200 {
        std::fs::create_dir(sandbox.at(&format!("ws/{number}"))).unwrap();
        std::fs::write(sandbox.at(&format!("ws/{number}/a")), "needle").unwrap();
    }
    let query = SearchQuery {
        pattern: Some(Pattern { text: "needle|from outside".into(), ..Pattern::default() }),
        hidden: true,
        threads: Some(4),
        ..SearchQuery::below("/")
    };
    let (before, seen) = (effective(), Mutex::new(Vec::new()));
    let prepared = query.prepare(&sandbox.small_root()).unwrap();
    assert_eq!(effective(), before);
    let summary = prepared.run(&not_cancelled(), &|hit| {
        let SearchHit::Lines { path, .. } = hit else { panic!("{hit:?}") };
        seen.lock().unwrap().push((path, std::thread::current().id(), effective()));
        ControlFlow::Continue(())
    });
    assert_eq!(effective(), before);
    let seen = seen.into_inner().unwrap();
    assert!(seen.iter().all(|(_, _, effective)| effective.is_empty()));
    assert!(!seen.iter().any(|(path, ..)| path.starts_with("/masked") || path.ends_with("hidden")));
    let refused: Vec<_> = summary.errors.iter().map(|error| error.path.clone()).collect();
    assert!(refused.contains(&"/masked".into()) && refused.contains(&"/ws/hidden".into()), "{refused:?}");
}
