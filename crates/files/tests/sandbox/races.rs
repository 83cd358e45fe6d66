//! Another process replaces a directory by a link that leads out of the sandbox, again and again, while operations use
//! the directory.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use files::{CommitOptions, FileRoot, Follow, Upload};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::support::{INSIDE, OUTSIDE, TestSandbox, not_cancelled};

/// Rounds of all operations. Each round meets the directory in several states.
const ROUNDS: usize = 300;

/// The limit for the run without a sandbox, which usually leads out in its first rounds.
const DEADLINE: Duration = Duration::from_secs(60);

/// Exchanges a directory and a link to the outside, again and again, while `operate` runs.
fn while_directory_turns_into_link(sandbox: &TestSandbox, operate: impl FnOnce()) {
    std::fs::create_dir(sandbox.at("ws/changing")).unwrap();
    let over = AtomicBool::new(false);
    /// Ends the exchange also if an assertion fails. Otherwise the scope would wait for its thread.
    struct SetAtEnd<'a>(&'a AtomicBool);
    impl Drop for SetAtEnd<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            let (one, other) = (sandbox.at("ws/changing"), sandbox.at("ws/absolute-directory"));
            while !over.load(Ordering::Relaxed) {
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let _set_at_end = SetAtEnd(&over);
        operate();
    });
}

/// Does every operation once in the directory that changes, and returns what it has read. `ws` is the path of the
/// writable directory in `root`. Most operations fail in some rounds.
fn operate_once(root: &FileRoot, ws: &Path) -> Vec<Vec<u8>> {
    let directory = &ws.join("changing");
    let mut read = Vec::new();
    for follow in [Follow::Yes, Follow::No] {
        read.push(files::read_file(root, &directory.join("secret"), follow, 99).unwrap_or_default());
        let _ = files::write_file(root, &directory.join("secret"), b"x", follow);
        let _ = files::create_directory(root, &directory.join("new/newer"), true, follow);
        let _ = files::set_metadata(root, &directory.join("secret"), Some(0o640), Some((1, 1)), follow);
        if let Ok(upload) = Upload::create(root, &directory.join("uploaded"), true, follow) {
            let _ = upload.write_block(0, b"x");
            let _ = upload.commit(&CommitOptions::default());
        }
        let _ = files::remove(root, &directory.join("secret"), false, true, follow, &not_cancelled());
    }
    let _ = files::copy(root, directory, &ws.join("copied"), true, &not_cancelled());
    read.push(files::read_file(root, &ws.join("copied/secret"), Follow::Yes, 99).unwrap_or_default());
    let _ = files::copy(root, &ws.join("plain"), &directory.join("tree"), true, &not_cancelled());
    let _ = files::rename(root, &directory.join("uploaded"), &directory.join("renamed"), true);
    let _ = files::remove(root, &directory.join("new"), true, true, Follow::Yes, &not_cancelled());
    read
}

#[test]
fn a_directory_that_turns_into_a_link_leads_no_operation_out() {
    let sandbox = TestSandbox::start();
    let before = sandbox.outside_files();
    let root = sandbox.small_root();
    while_directory_turns_into_link(&sandbox, || {
        for _ in 0..ROUNDS {
            for read in operate_once(&root, Path::new("/ws")) {
                assert!(read.is_empty() || read == INSIDE.as_bytes() || read == b"x", "{read:?}");
            }
        }
    });
    assert_eq!(sandbox.outside_files(), before);
}

/// Shows that the test above can fail: without a sandbox, the same operations read, change and remove files outside.
#[test]
fn without_a_sandbox_a_directory_that_turns_into_a_link_leads_out() {
    let sandbox = TestSandbox::without_mounts();
    let secret = sandbox.outside().join("secret");
    let deadline = Instant::now() + DEADLINE;
    while_directory_turns_into_link(&sandbox, || {
        let (mut is_read, mut is_changed) = (false, false);
        while !(is_read && is_changed) {
            assert!(Instant::now() < deadline, "read: {is_read}, changed: {is_changed}");
            std::fs::write(&secret, OUTSIDE).unwrap();
            let read = operate_once(FileRoot::host(), &sandbox.at("ws"));
            is_read |= read.contains(&OUTSIDE.as_bytes().to_vec());
            is_changed |= std::fs::read(&secret).ok().as_deref() != Some(OUTSIDE.as_bytes());
        }
    });
}
