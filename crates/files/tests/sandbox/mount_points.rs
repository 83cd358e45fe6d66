//! Attempts to remove or move the mount points of a sandbox. The kernel does not protect them from a process in another
//! mount namespace, such as this one, so the crate does.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use files::{CommitOptions, FileRoot, Follow, Upload};
use rustix::fs::{AtFlags, renameat, unlinkat};
use rustix::io::Errno;

use crate::support::{OUTSIDE, TestSandbox, errno, not_cancelled, snapshot};

const MOUNT_POINTS: [&str; 3] = ["hidden", ".git", "other-mount"];

/// The contents of the hidden files, as the sandbox shows them.
fn hidden_contents(root: &FileRoot, ws: &Path) -> Vec<Result<Vec<u8>, Option<Errno>>> {
    ["hidden", ".git/config", "moved", "moved/config"]
        .iter()
        .map(|name| {
            let read = files::read_file(root, &ws.join(name), Follow::Yes, 99);
            read.map_err(|error| Errno::from_io_error(error.io()))
        })
        .collect()
}

/// The files in `ws` on the host. The directory itself is left out, because an unfinished upload changes its time.
fn files_of(sandbox: &TestSandbox) -> BTreeMap<PathBuf, String> {
    let mut found = snapshot(&sandbox.at("ws"));
    found.remove(&sandbox.at("ws"));
    found
}

#[test]
fn the_kernel_alone_would_let_the_mounts_go() {
    let sandbox = TestSandbox::start();
    let ws = sandbox.open_in_sandbox(&sandbox.at("ws"));
    unlinkat(&ws, "hidden", AtFlags::empty()).unwrap();
    renameat(&ws, ".git", &ws, "moved").unwrap();
    let created = files::create_directory(&sandbox.small_root(), Path::new("/ws/.git"), false, Follow::Yes);
    assert!(created.is_ok(), "the protected name is free now: {created:?}");
}

#[test]
fn no_operation_removes_moves_or_replaces_a_mount_point() {
    for is_small in [true, false] {
        let sandbox = TestSandbox::start();
        let (root, ws) = if is_small {
            (sandbox.small_root(), Path::new("/ws").to_owned())
        } else {
            (sandbox.whole_root(), sandbox.at("ws"))
        };
        let (before, contents) = (files_of(&sandbox), hidden_contents(&root, &ws));
        for name in MOUNT_POINTS {
            let path = ws.join(name);
            for replace in [true, false] {
                let renamed = files::rename(&root, &path, &ws.join("moved"), replace);
                assert_eq!(errno(&renamed), Some(Errno::BUSY), "{name}");
                assert!(renamed.unwrap_err().is_sandbox_denial(), "{name}");
            }
            for source in ["file", "plain"] {
                let renamed = files::rename(&root, &ws.join(source), &path, true);
                assert_eq!(errno(&renamed), Some(Errno::BUSY), "{source} to {name}");
            }
            for recursive in [true, false] {
                let removed =
                    files::remove(&root, &path, recursive, true, Follow::Yes, &not_cancelled()).unwrap_err();
                assert_eq!(removed.kind(), ErrorKind::ResourceBusy, "{name}");
                assert!(removed.is_sandbox_denial(), "{name}");
            }
            assert!(files::remove(&root, &path, false, true, Follow::No, &not_cancelled()).is_err());
            if let Ok(upload) = Upload::create(&root, &path, true, Follow::Yes) {
                upload.write_block(0, b"x").unwrap();
                assert_eq!(errno(&upload.commit(&CommitOptions::default())), Some(Errno::BUSY), "{name}");
            }
            assert!(files::symlink(&root, "x".as_ref(), &path).is_err());
        }
        assert_eq!((files_of(&sandbox), hidden_contents(&root, &ws)), (before, contents));
    }
}

#[test]
fn the_removal_and_the_copy_of_a_tree_leave_the_mount_points_in_it() {
    let sandbox = TestSandbox::start();
    let root = sandbox.small_root();
    let removed = files::remove(&root, Path::new("/ws"), true, true, Follow::Yes, &not_cancelled());
    assert_eq!(removed.unwrap_err().kind(), ErrorKind::ResourceBusy);
    assert_eq!(std::fs::read_to_string(sandbox.at("ws/hidden")).unwrap(), OUTSIDE);
    assert_eq!(std::fs::read_to_string(sandbox.at("ws/.git/config")).unwrap(), OUTSIDE);
    assert_eq!(std::fs::read_to_string(sandbox.at("ws/other-mount/file")).unwrap(), OUTSIDE);

    // A copied file replaces a link below the destination, but not a mount point.
    let sandbox = TestSandbox::start();
    let root = sandbox.small_root();
    files::create_directory(&root, Path::new("/ws/source/.git"), true, Follow::Yes).unwrap();
    files::write_file(&root, Path::new("/ws/source/.git/config"), b"x", Follow::Yes).unwrap();
    let copied = files::copy(&root, Path::new("/ws/source"), Path::new("/ws"), true, &not_cancelled());
    assert_eq!(errno(&copied), Some(Errno::ROFS));
    assert_eq!(std::fs::read_to_string(sandbox.at("ws/.git/config")).unwrap(), OUTSIDE);
}
