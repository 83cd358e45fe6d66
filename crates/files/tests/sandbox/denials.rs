//! Which errors say that the sandbox has caused them. These tests use the root that has the paths of the host, because
//! the crate compares with the host.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use files::{DanglingLinks, FileRoot, Follow, SearchQuery, Upload};
use rustix::io::Errno;

use crate::roles::{is_role_process, report_done, run_in_own_mount_namespace};
use crate::support::{TestSandbox, errno, is_root, not_cancelled};

#[track_caller]
fn assert_denied<T: std::fmt::Debug>(result: Result<T, files::FileError>, expected: Errno, is_denial: bool) {
    assert_eq!(errno(&result), Some(expected), "{result:?}");
    assert_eq!(result.unwrap_err().is_sandbox_denial(), is_denial);
}

#[test]
fn writing_below_a_read_only_mount_is_denied_by_the_sandbox() {
    let sandbox = TestSandbox::start();
    let root = sandbox.whole_root();
    let (file, new) = (sandbox.at("ro/file"), sandbox.at("ro/new"));
    assert_eq!(files::read_file(&root, &file, Follow::Yes, 99).unwrap(), b"from outside");
    for follow in [Follow::Yes, Follow::No] {
        assert_denied(files::write_file(&root, &file, b"x", follow), Errno::ROFS, true);
        assert_denied(files::write_file(&root, &new, b"x", follow), Errno::ROFS, true);
        assert_denied(files::create_directory(&root, &new, false, follow), Errno::ROFS, true);
        assert_denied(files::create_directory(&root, &new.join("a/b"), true, follow), Errno::ROFS, true);
        assert_denied(files::set_metadata(&root, &file, Some(0o600), None, follow), Errno::ROFS, true);
        assert_denied(files::set_metadata(&root, &file, None, Some((1, 1)), follow), Errno::ROFS, true);
        assert_denied(Upload::create(&root, &file, true, follow), Errno::ROFS, true);
        assert_denied(files::remove(&root, &file, false, false, follow, &not_cancelled()), Errno::ROFS, true);
    }
    assert_denied(files::symlink(&root, "x".as_ref(), &new), Errno::ROFS, true);
    assert_denied(files::rename(&root, &file, &new, true), Errno::ROFS, true);
    assert_denied(files::copy(&root, &sandbox.at("ws/file"), &new, false, &not_cancelled()), Errno::ROFS, true);
    files::write_file(FileRoot::host(), &new, b"x", Follow::Yes).unwrap();
}

#[test]
fn a_link_without_a_target_counts_as_what_it_would_create() {
    let sandbox = TestSandbox::start();
    let root = sandbox.whole_root();
    let (link, chain) = (sandbox.at("ws/to-new"), sandbox.at("ws/plain/to-link"));
    symlink("../ro/new", &link).unwrap();
    symlink(sandbox.at("ws/./plain/../to-new"), &chain).unwrap();
    for path in [&link, &chain] {
        assert_denied(files::write_file(&root, path, b"x", Follow::Yes), Errno::ROFS, true);
        assert_denied(Upload::create(&root, path, true, Follow::Yes), Errno::ROFS, true);
        assert_denied(files::copy(&root, &sandbox.at("ws/file"), path, false, &not_cancelled()), Errno::ROFS, true);
    }
    // A link in a read-only directory is not removed, wherever it leads.
    let in_read_only = sandbox.at("ro/to-writable");
    symlink("../ws/file", &in_read_only).unwrap();
    let removed = files::remove(&root, &in_read_only, false, false, Follow::Yes, &not_cancelled());
    assert_denied(removed, Errno::ROFS, true);
    assert_denied(files::rename(&root, &in_read_only, &sandbox.at("ro/other"), true), Errno::ROFS, true);
    files::write_file(&root, &in_read_only, b"x", Follow::Yes).unwrap();
    // A link that leads to itself leads nowhere.
    symlink("round", sandbox.at("ws/round")).unwrap();
    assert_denied(files::read_file(&root, &sandbox.at("ws/round"), Follow::Yes, 9), Errno::LOOP, false);
}

#[test]
fn an_error_does_not_reveal_what_a_mask_hides() {
    let sandbox = TestSandbox::start();
    let root = sandbox.whole_root();
    for name in ["locked", "locked/inner"] {
        std::fs::create_dir(sandbox.at("masked").join(name)).unwrap();
    }
    std::fs::write(sandbox.at("masked/private"), "").unwrap();
    for name in ["locked/inner", "locked", "private"] {
        let nothing = std::fs::Permissions::from_mode(0o000);
        std::fs::set_permissions(sandbox.at("masked").join(name), nothing).unwrap();
    }
    symlink("../masked/locked", sandbox.at("ws/to-locked")).unwrap();
    symlink("../masked/none", sandbox.at("ws/to-none")).unwrap();
    for name in
        ["locked", "locked/x", "locked/inner/x", "none", "none/x", "none/x/y", "private", "private/x", "file/x"]
    {
        let path = sandbox.at("masked").join(name);
        assert_denied(files::read_file(&root, &path, Follow::Yes, 99), Errno::ACCESS, true);
        assert_denied(files::write_file(&root, &path, b"x", Follow::Yes), Errno::ACCESS, true);
        assert_denied(files::read_directory(&root, &path, 99, DanglingLinks::Listed), Errno::ACCESS, true);
        assert_denied(files::create_directory(&root, &path, true, Follow::Yes), Errno::ACCESS, true);
    }
    // The kernel does not leave the hidden directory either, so it reaches no file that may be read.
    symlink("../masked/../ws/file", sandbox.at("ws/through-masked")).unwrap();
    for name in ["through-masked", "to-locked", "to-locked/x", "to-locked/inner/x", "to-none", "to-none/x"] {
        let path = sandbox.at("ws").join(name);
        assert_denied(files::read_file(&root, &path, Follow::Yes, 99), Errno::ACCESS, true);
        assert_denied(files::write_file(&root, &path, b"x", Follow::Yes), Errno::ACCESS, true);
    }
    // An ordinary user could not enter the directory on the host either.
    std::fs::set_permissions(sandbox.at("masked"), std::fs::Permissions::from_mode(0o000)).unwrap();
    for name in ["locked/x", "none/x", "file"] {
        let path = sandbox.at("masked").join(name);
        assert_denied(files::read_file(&root, &path, Follow::Yes, 99), Errno::ACCESS, is_root());
    }
    // The temporary directory is removed at the end.
    std::fs::set_permissions(sandbox.at("masked"), std::fs::Permissions::from_mode(0o700)).unwrap();
    for name in ["locked", "locked/inner"] {
        let all = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(sandbox.at("masked").join(name), all).unwrap();
    }
}

#[test]
fn a_mount_that_is_read_only_on_the_host_too_is_no_denial() {
    run_in_own_mount_namespace("denials::role_read_only_on_host");
}

#[test]
#[ignore = "run by the test above in a process of its own"]
fn role_read_only_on_host() {
    if !is_role_process() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let on_host = directory.path().canonicalize().unwrap();
    std::fs::write(on_host.join("file"), "").unwrap();
    rustix::mount::mount_bind(&on_host, &on_host).unwrap();
    let read_only = rustix::mount::MountFlags::BIND | rustix::mount::MountFlags::RDONLY;
    rustix::mount::mount_remount(&on_host, read_only, c"").unwrap();
    let sandbox = TestSandbox::start();
    let root = sandbox.whole_root();
    assert_denied(files::write_file(&root, &on_host.join("new"), b"x", Follow::Yes), Errno::ROFS, false);
    // Only the destination is written, so only the destination counts.
    let copy = |from: &Path, to: &Path| files::copy(&root, from, to, false, &not_cancelled());
    assert_denied(copy(&on_host.join("file"), &sandbox.at("ro/new")), Errno::ROFS, true);
    assert_denied(copy(&sandbox.at("ro/file"), &on_host.join("new")), Errno::ROFS, false);
    // The sandbox refuses this, whatever the permissions of the directory are.
    std::fs::set_permissions(sandbox.at("ro"), std::fs::Permissions::from_mode(0o555)).unwrap();
    let made = files::create_directory(&root, &sandbox.at("ro/new"), false, Follow::Yes);
    assert_denied(made, Errno::ROFS, true);
    report_done();
}

#[test]
fn reading_what_a_mask_hides_is_denied_by_the_sandbox() {
    let sandbox = TestSandbox::start();
    let root = sandbox.whole_root();
    let (masked, hidden) = (sandbox.at("masked"), sandbox.at("ws/hidden"));
    for follow in [Follow::Yes, Follow::No] {
        assert_denied(files::read_file(&root, &masked.join("file"), follow, 99), Errno::ACCESS, true);
        assert_denied(files::read_file(&root, &masked.join("none"), follow, 99), Errno::ACCESS, true);
        assert_denied(files::metadata(&root, &masked.join("file"), follow), Errno::ACCESS, true);
        assert_denied(files::read_file(&root, &hidden, follow, 99), Errno::ACCESS, true);
        assert_denied(files::open_file(&root, &hidden, follow), Errno::ACCESS, true);
    }
    assert_denied(files::read_directory(&root, &masked, 99, DanglingLinks::Listed), Errno::ACCESS, true);
    assert_denied(files::canonicalize(&root, &masked.join("file")).map(|_| ()), Errno::ACCESS, true);
    assert_denied(
        files::copy(&root, &hidden, &sandbox.at("ws/copied"), false, &not_cancelled()),
        Errno::ACCESS,
        true,
    );
    let prepared = SearchQuery::below(masked.join("file")).prepare(&root);
    let Err(files::PrepareSearchError::Root(error)) = prepared else { panic!("{prepared:?}") };
    assert!(error.is_sandbox_denial());
    assert_eq!(files::read_file(FileRoot::host(), &hidden, Follow::Yes, 99).unwrap(), b"from outside");
}

#[test]
fn a_rename_between_mounts_of_the_sandbox_is_denied_by_it() {
    let sandbox = TestSandbox::start();
    let root = sandbox.whole_root();
    for replace in [true, false] {
        let renamed = files::rename(&root, &sandbox.at("ws/file"), &sandbox.at("ws/other-mount/new"), replace);
        assert_denied(renamed, Errno::XDEV, true);
        let renamed = files::rename(&root, &sandbox.at("ws/other-mount/file"), &sandbox.at("ws/new"), replace);
        assert_denied(renamed, Errno::XDEV, true);
    }
    files::rename(FileRoot::host(), &sandbox.at("ws/file"), &sandbox.at("ws/other-mount/new"), true).unwrap();
}

#[test]
fn errors_that_the_host_would_have_too_are_not_denials() {
    let sandbox = TestSandbox::start();
    let root = sandbox.whole_root();
    let none = sandbox.at("ws/none/a");
    assert_denied(files::read_file(&root, &none, Follow::Yes, 99), Errno::NOENT, false);
    assert_denied(files::write_file(&root, &none, b"", Follow::Yes), Errno::NOENT, false);
    assert_denied(files::rename(&root, &none, &sandbox.at("ws/b"), true), Errno::NOENT, false);
    let between_devices = files::rename(&root, &sandbox.at("ws/file"), "/proc/none".as_ref(), true);
    assert_denied(between_devices, Errno::XDEV, false);

    let unreadable = sandbox.at("ws/unreadable");
    std::fs::write(&unreadable, "").unwrap();
    std::fs::set_permissions(&unreadable, std::fs::Permissions::from_mode(0o200)).unwrap();
    // Root could read the file without the sandbox, and other users could not.
    assert_denied(files::read_file(&root, &unreadable, Follow::Yes, 99), Errno::ACCESS, is_root());
    // On the host nothing is a denial.
    let in_the_way = files::create_directory(FileRoot::host(), &unreadable, false, Follow::Yes);
    assert!(!in_the_way.unwrap_err().is_sandbox_denial());
}
