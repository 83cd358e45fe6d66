//! Watches in a sandbox, of directories and of links that lead out.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use files::{FileRoot, PathWatch, WatchOptions, WatchedDirectoryCount};

use crate::support::TestSandbox;

/// Long enough for a busy machine, so only a bug makes a test wait this long.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A watch that sends the changed paths.
fn watch(root: &FileRoot, path: &Path) -> (PathWatch, Receiver<PathBuf>) {
    let (sender, receiver) = channel();
    let options = WatchOptions { collect_time: Duration::from_millis(5), ..WatchOptions::default() };
    let sink = Box::new(move |batch: files::ChangeBatch| {
        for change in batch.changes {
            if sender.send(change.path).is_err() {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    });
    let count = WatchedDirectoryCount::default();
    (PathWatch::start(root, path, true, options, &count, sink).unwrap(), receiver)
}

/// Waits for a path, and returns all paths that came before it.
fn paths_until(receiver: &Receiver<PathBuf>, last: &Path) -> Vec<PathBuf> {
    let mut before = Vec::new();
    loop {
        let path = receiver.recv_timeout(TIMEOUT).expect("the change is reported");
        if path == last {
            return before;
        }
        before.push(path);
    }
}

#[test]
fn changes_in_the_sandbox_are_reported_also_in_new_directories() {
    let sandbox = TestSandbox::start();
    let (_watch, changes) = watch(&sandbox.small_root(), Path::new("/ws"));
    fs::create_dir_all(sandbox.at("ws/new/deep")).unwrap();
    fs::write(sandbox.at("ws/new/deep/a"), "").unwrap();
    paths_until(&changes, Path::new("/ws/new/deep/a"));
    // A new file in the deepest directory shows that it is watched and not only listed.
    fs::write(sandbox.at("ws/new/deep/b"), "").unwrap();
    paths_until(&changes, Path::new("/ws/new/deep/b"));

    let (_watch, changes) = watch(&sandbox.small_root(), Path::new("/ws/file"));
    fs::write(sandbox.at("ws/file"), "changed").unwrap();
    paths_until(&changes, Path::new("/ws/file"));
}

#[test]
fn a_watch_of_a_link_that_leads_out_watches_the_directory_inside() {
    let sandbox = TestSandbox::start();
    for style in ["absolute", "relative"] {
        let name = format!("{style}-directory");
        let link = Path::new("/ws").join(&name);
        let (_watch, changes) = watch(&sandbox.small_root(), &link);
        fs::write(sandbox.outside().join("tree/changed"), style).unwrap();
        fs::write(sandbox.outside_in_top().join("inside"), style).unwrap();
        assert_eq!(paths_until(&changes, &link.join("inside")), Vec::<PathBuf>::new());

        let host_link = sandbox.at(&format!("ws/{name}"));
        let (_watch, changes) = watch(FileRoot::host(), &host_link);
        fs::write(sandbox.outside().join("tree/changed"), format!("{style} again")).unwrap();
        paths_until(&changes, &host_link.join("tree/changed"));
    }
}

#[test]
fn a_directory_that_is_replaced_by_a_link_leads_no_watch_out() {
    let sandbox = TestSandbox::start();
    let (_watch, changes) = watch(&sandbox.small_root(), Path::new("/ws"));
    fs::remove_dir(sandbox.at("ws/plain")).unwrap();
    std::os::unix::fs::symlink(sandbox.outside(), sandbox.at("ws/plain")).unwrap();
    fs::write(sandbox.at("ws/between"), "").unwrap();
    paths_until(&changes, Path::new("/ws/between"));
    fs::write(sandbox.outside().join("tree/changed"), "").unwrap();
    fs::write(sandbox.at("ws/last"), "").unwrap();
    let before = paths_until(&changes, Path::new("/ws/last"));
    assert!(!before.iter().any(|path| path.starts_with("/ws/plain/")), "{before:?}");
}
