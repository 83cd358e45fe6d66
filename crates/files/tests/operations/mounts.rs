//! Tests of operations on trees with mount points and on a full disk. Each test runs an ignored test, its *role*, in
//! a process with a mount namespace of its own.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use files::{CommitOptions, FileRoot, Follow, Upload, copy, remove, write_file};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_bind};

use crate::roles::{is_role_process, report_done, run_in_own_mount_namespace};
use crate::support::{TestDirectory, assert_errno, error_text, names_in, not_cancelled};

fn mount_tmpfs(at: &Path, size: &str) {
    let options = std::ffi::CString::new(format!("size={size}")).unwrap();
    mount("none", at, "tmpfs", MountFlags::empty(), &*options).unwrap();
}

#[test]
fn mounts_are_not_removed() {
    run_in_own_mount_namespace("mounts::role_remove_mounts");
}

#[test]
#[ignore = "run by the test above in a process of its own"]
fn role_remove_mounts() {
    if !is_role_process() {
        return;
    }
    let test_dir = TestDirectory::new();
    let mounted = test_dir.directory("tree/b/mounted");
    mount_tmpfs(&mounted, "1m");
    fs::write(mounted.join("kept"), "").unwrap();
    let refusal = |path: &Path| format!("`{}` is a mount point and is not removed", path.display());

    for recursive in [true, false] {
        assert_eq!(
            error_text(remove(FileRoot::host(), &mounted, recursive, true, Follow::Yes, &not_cancelled())),
            refusal(&mounted)
        );
    }
    assert_eq!(
        error_text(remove(FileRoot::host(), &mounted, false, true, Follow::No, &not_cancelled())),
        refusal(&mounted)
    );
    let nested =
        remove(FileRoot::host(), &test_dir.at("tree"), true, true, Follow::Yes, &not_cancelled()).unwrap_err();
    assert_eq!((nested.to_string(), nested.path()), (refusal(&mounted), Some(mounted.as_path())));
    assert_eq!(names_in(&mounted), ["kept"]);

    // A bind mount of a directory on the same device, and one of a single file.
    let (origin, bound) =
        (test_dir.file("origin/kept", "").parent().unwrap().to_owned(), test_dir.directory("other/bound"));
    mount_bind(&origin, &bound).unwrap();
    assert_eq!(fs::metadata(&bound).unwrap().dev(), fs::metadata(test_dir.root()).unwrap().dev());
    assert_eq!(
        error_text(remove(FileRoot::host(), &test_dir.at("other"), true, true, Follow::Yes, &not_cancelled())),
        refusal(&bound)
    );
    assert_eq!(
        error_text(remove(FileRoot::host(), &bound, true, true, Follow::Yes, &not_cancelled())),
        refusal(&bound)
    );
    let file = test_dir.file("third/file", "");
    mount_bind(origin.join("kept"), &file).unwrap();
    assert_eq!(
        error_text(remove(FileRoot::host(), &test_dir.at("third"), true, true, Follow::Yes, &not_cancelled())),
        refusal(&file)
    );
    assert_eq!(names_in(&origin), ["kept"]);
    for mounted in [mounted, bound, file] {
        rustix::mount::unmount(&mounted, rustix::mount::UnmountFlags::empty()).unwrap();
    }
    remove(FileRoot::host(), &test_dir.at("tree"), true, true, Follow::Yes, &not_cancelled()).unwrap();
    report_done();
}

#[test]
fn a_tree_cannot_be_copied_into_a_mount_of_itself() {
    run_in_own_mount_namespace("mounts::role_copy_mounted_tree");
}

#[test]
#[ignore = "run by the test above in a process of its own"]
fn role_copy_mounted_tree() {
    if !is_role_process() {
        return;
    }
    let test_dir = TestDirectory::new();
    test_dir.file("tree/a", "a");
    let (inside, target) = (test_dir.directory("tree/d/target"), test_dir.directory("target"));
    mount_bind(&inside, &target).unwrap();
    let copied = copy(FileRoot::host(), &test_dir.at("tree"), &target, true, &not_cancelled());
    assert_eq!(error_text(copied), "fs/copy cannot copy a directory to itself or one of its descendants");
    rustix::mount::unmount(&target, rustix::mount::UnmountFlags::empty()).unwrap();
    report_done();
}

#[test]
fn a_full_disk_is_an_error_and_leaves_no_new_copy_and_no_unfinished_upload() {
    run_in_own_mount_namespace("mounts::role_fill_disk");
}

#[test]
#[ignore = "run by the test above in a process of its own"]
fn role_fill_disk() {
    if !is_role_process() {
        return;
    }
    let test_dir = TestDirectory::new();
    let small = test_dir.directory("small");
    mount_tmpfs(&small, "1m");
    let large = vec![1; 2_000_000];
    assert_errno(write_file(FileRoot::host(), &small.join("a"), &large, Follow::Yes), Errno::NOSPC);
    fs::remove_file(small.join("a")).unwrap();
    let source = test_dir.file("large", &large);
    assert_errno(copy(FileRoot::host(), &source, &small.join("a"), false, &not_cancelled()), Errno::NOSPC);
    assert_eq!(names_in(&small), Vec::<String>::new(), "a new file is not left unfinished");
    fs::create_dir(small.join("tree")).unwrap();
    fs::create_dir(test_dir.root().join("tree")).unwrap();
    fs::rename(&source, test_dir.root().join("tree/a")).unwrap();
    assert_errno(
        copy(FileRoot::host(), &test_dir.root().join("tree"), &small.join("tree"), true, &not_cancelled()),
        Errno::NOSPC,
    );
    assert_eq!(names_in(&small.join("tree")), Vec::<String>::new());
    fs::write(small.join("a"), "old").unwrap();
    assert_errno(
        copy(FileRoot::host(), &test_dir.root().join("tree/a"), &small.join("a"), false, &not_cancelled()),
        Errno::NOSPC,
    );
    assert_eq!(names_in(&small), ["a", "tree"], "a file that existed before stays");
    fs::remove_dir(small.join("tree")).unwrap();
    fs::write(small.join("a"), "old").unwrap();

    let upload = Upload::create(FileRoot::host(), &small.join("a"), true, Follow::Yes).unwrap();
    upload.write_block(0, b"begin").unwrap();
    assert_errno(upload.write_block(5, &large), Errno::NOSPC);
    // Every later call returns the error of the failed block too, because a client may ask for the commit before it
    // has read that error.
    let expected =
        "the upload has failed: 2000000 bytes at offset 5 were not written: No space left on device (os error 28)";
    assert_eq!(error_text(upload.write_block(0, b"x")), expected);
    assert_eq!(error_text(upload.commit(&CommitOptions::default())), expected);
    assert_eq!((fs::read(small.join("a")).unwrap(), names_in(&small)), (b"old".to_vec(), vec!["a".to_owned()]));
    drop(upload);
    let upload = Upload::create(FileRoot::host(), &small.join("a"), true, Follow::Yes).unwrap();
    upload.write_block(0, b"new").unwrap();
    upload.commit(&CommitOptions::default()).unwrap();
    assert_eq!((fs::read(small.join("a")).unwrap(), names_in(&small)), (b"new".to_vec(), vec!["a".to_owned()]));
    rustix::mount::unmount(&small, rustix::mount::UnmountFlags::empty()).unwrap();
    report_done();
}
