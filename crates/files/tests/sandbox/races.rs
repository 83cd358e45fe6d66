//! Another process replaces a directory by a link that leads out of the sandbox, again and again, while operations use
//! the directory.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use files::{CommitOptions, Follow, Upload};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::support::{INSIDE, OUTSIDE, TestSandbox, not_cancelled};

/// Rounds of all operations. Each round meets the directory in several states.
const ROUNDS: usize = 300;

#[test]
fn a_directory_that_turns_into_a_link_leads_no_operation_out() {
    let sandbox = TestSandbox::start();
    std::fs::create_dir(sandbox.at("ws/changing")).unwrap();
    let before = sandbox.outside_files();
    let root = sandbox.small_root();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (one, other) = (sandbox.at("ws/changing"), sandbox.at("ws/absolute-directory"));
            while !over.load(Ordering::Relaxed) {
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let directory = Path::new("/ws/changing");
        for _ in 0..ROUNDS {
            for follow in [Follow::Yes, Follow::No] {
                // Most of these fail in some rounds. They must only stay inside.
                let read = files::read_file(&root, &directory.join("secret"), follow, 99).unwrap_or_default();
                assert!(read.is_empty() || read == INSIDE.as_bytes() || read == b"x", "{read:?}");
                let _ = files::write_file(&root, &directory.join("secret"), b"x", follow);
                let _ = files::create_directory(&root, &directory.join("new/newer"), true, follow);
                let _ = files::set_metadata(&root, &directory.join("secret"), Some(0o640), Some((1, 1)), follow);
                if let Ok(upload) = Upload::create(&root, &directory.join("uploaded"), true, follow) {
                    let _ = upload.write_block(0, b"x");
                    let _ = upload.commit(&CommitOptions::default());
                }
                let _ = files::remove(&root, &directory.join("secret"), false, true, follow, &not_cancelled());
            }
            let _ = files::copy(&root, directory, Path::new("/ws/copied"), true, &not_cancelled());
            let copied = files::read_file(&root, Path::new("/ws/copied/secret"), Follow::Yes, 99).unwrap_or_default();
            assert_ne!(copied, OUTSIDE.as_bytes());
            let _ = files::copy(&root, Path::new("/ws/plain"), &directory.join("tree"), true, &not_cancelled());
            let _ = files::rename(&root, &directory.join("uploaded"), &directory.join("renamed"), true);
            let _ = files::remove(&root, &directory.join("new"), true, true, Follow::Yes, &not_cancelled());
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(sandbox.outside_files(), before);
}
