//! The temporary directory of a test, and functions by which many tests create files and check results.

use std::ffi::OsStr;
use std::fmt::Debug;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use files::{Cancel, FileError};
use rustix::fs::{CWD, Mode, mkfifoat};
use tempfile::TempDir;

/// Long enough for a busy machine, so only a bug makes a test wait this long.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A temporary directory for one test. Its path contains no symbolic links.
pub(crate) struct TestDirectory {
    _directory: TempDir,
    root: PathBuf,
}

impl TestDirectory {
    pub(crate) fn new() -> Self {
        Self::new_in(tempfile::tempdir().unwrap())
    }

    /// A directory in a file system in memory, if there is one. For trees that are too large for a slow disk.
    pub(crate) fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Self::new_in(directory.unwrap())
    }

    fn new_in(directory: TempDir) -> Self {
        let root = directory.path().canonicalize().unwrap();
        Self { _directory: directory, root }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The path of a name in this directory.
    pub(crate) fn at(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.root.join(name.as_ref())
    }

    /// Creates a file, and the directories above it.
    pub(crate) fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, contents).unwrap();
        path
    }

    /// Creates a directory, and the directories above it.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// Creates the symbolic link `name`, which leads to `target`.
    pub(crate) fn link(&self, target: impl AsRef<Path>, name: &str) -> PathBuf {
        let path = self.at(name);
        std::os::unix::fs::symlink(target, &path).unwrap();
        path
    }

    /// Creates a FIFO that no process has open.
    pub(crate) fn fifo(&self, name: &str) -> PathBuf {
        let path = self.at(name);
        mkfifoat(CWD, &path, Mode::from_raw_mode(0o600)).unwrap();
        path
    }

    /// Creates a Unix socket on which no process listens.
    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        let path = self.at(name);
        drop(UnixListener::bind(&path).unwrap());
        path
    }
}

pub(crate) fn names_in(directory: &Path) -> Vec<String> {
    let names =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

pub(crate) fn not_cancelled() -> Cancel {
    Cancel::new()
}

/// The text of an error. Fails the test if the result is no error.
pub(crate) fn error_text<T: Debug>(result: Result<T, FileError>) -> String {
    result.unwrap_err().to_string()
}

/// Checks that the operation was refused with this text. The crate `files` uses the kind `InvalidInput` for
/// operations that it refuses itself.
#[track_caller]
pub(crate) fn assert_refused<T: Debug>(result: Result<T, FileError>, expected: &str) {
    let error = result.unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::InvalidInput, expected));
}

#[track_caller]
pub(crate) fn assert_errno<T: Debug>(result: Result<T, FileError>, expected: rustix::io::Errno) {
    let error = result.unwrap_err();
    assert_eq!(error.io().raw_os_error(), Some(expected.raw_os_error()), "{error}");
}

/// Runs `work` on another thread. Fails the test if `work` panics or is not finished after [`TIMEOUT`].
pub(crate) fn run_with_timeout<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || send.send(work()));
    receive.recv_timeout(TIMEOUT).expect("the work panicked or blocks")
}

/// Creates the directory `top` and `depth` directories nested in it. Each directory except the deepest one contains a
/// file. Each directory is created relative to the one above, because the whole path would be too long.
pub(crate) fn create_deep_tree(top: &Path, depth: usize) {
    use rustix::fs::{OFlags, mkdirat, openat};
    fs::create_dir(top).unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut directory = openat(CWD, top, flags, Mode::empty()).unwrap();
    for _ in 0..depth {
        let file = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        openat(&directory, "file", file, Mode::from_raw_mode(0o600)).unwrap();
        mkdirat(&directory, "d", Mode::from_raw_mode(0o700)).unwrap();
        directory = openat(&directory, "d", flags, Mode::empty()).unwrap();
    }
}
