//! The links in `/proc` that lead to an open file or to the root of a process, whatever their text says. The sandbox of
//! these tests shows the `/proc` of the host, which contains this process.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use files::{DanglingLinks, FileRoot, Follow, SearchQuery};
use rustix::io::Errno;

use crate::support::{OUTSIDE, TestSandbox, errno, not_cancelled};

#[test]
fn links_of_processes_are_not_followed() {
    let sandbox = TestSandbox::start();
    let root = sandbox.whole_root();
    let opened = std::fs::File::open(sandbox.outside()).unwrap();
    let secret = sandbox.outside().join("secret");
    let through_root = PathBuf::from(format!("/proc/self/root{}", secret.display()));
    let through_descriptor = PathBuf::from(format!("/proc/self/fd/{}/secret", opened.as_raw_fd()));
    let through_thread = PathBuf::from(format!("/proc/thread-self/root{}", secret.display()));
    for path in [through_root, through_descriptor, through_thread] {
        assert_eq!(files::read_file(FileRoot::host(), &path, Follow::Yes, 99).unwrap(), OUTSIDE.as_bytes());

        assert_eq!(errno(&files::read_file(&root, &path, Follow::Yes, 99)), Some(Errno::LOOP));
        assert_eq!(errno(&files::metadata(&root, &path, Follow::Yes)), Some(Errno::LOOP));
        assert_eq!(errno(&files::write_file(&root, &path, b"x", Follow::Yes)), Some(Errno::LOOP));
        assert_eq!(errno(&files::canonicalize(&root, &path)), Some(Errno::LOOP));
        assert_eq!(errno(&files::set_metadata(&root, &path, Some(0o600), None, Follow::Yes)), Some(Errno::LOOP));
        assert_eq!(errno(&files::rename(&root, &path, &sandbox.at("ws/x"), true)), Some(Errno::LOOP));
        let removed = files::remove(&root, &path, true, false, Follow::Yes, &not_cancelled());
        assert_eq!(errno(&removed), Some(Errno::LOOP));
        let parent = path.parent().unwrap();
        let listed = files::read_directory(&root, parent, 99, DanglingLinks::Listed);
        assert_eq!(errno(&listed), Some(Errno::LOOP));
        assert!(SearchQuery::below(parent).prepare(&root).is_err());
        assert!(files::metadata_if_cached(&root, &path).is_none());
        assert!(files::read_file_if_cached(&root, &path, 99).is_none());
    }
    // A link in the workspace that leads to such a link.
    std::os::unix::fs::symlink("/proc/self/root", sandbox.at("ws/to-root")).unwrap();
    let path = sandbox.at("ws/to-root").join(secret.strip_prefix("/").unwrap());
    assert_eq!(files::read_file(FileRoot::host(), &path, Follow::Yes, 99).unwrap(), OUTSIDE.as_bytes());
    assert_eq!(errno(&files::read_file(&root, &path, Follow::Yes, 99)), Some(Errno::LOOP));
    // The text of such a link can be read: it is only a text.
    assert_eq!(files::read_link(&root, Path::new("/proc/self/root")).unwrap(), "/");
}
