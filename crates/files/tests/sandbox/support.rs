//! A sandbox for tests: a mount namespace of a process that waits, with mounts that hide and protect files.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use files::{Cancel, FileRoot};
use rustix::fs::{Mode, OFlags};
use tempfile::TempDir;

/// The contents of every file outside of the sandbox. No operation in the sandbox may return them.
pub(crate) const OUTSIDE: &str = "from outside";
/// The contents of the file that has the same path inside of the sandbox.
pub(crate) const INSIDE: &str = "from inside";

/// The mounts of the sandbox, below `$1`. The last line waits until stdin is closed.
const MOUNTS: &str = r#"
set -e
mount --bind "$1/top" "$1/top"
mount --bind "$1/top/ro" "$1/top/ro"
mount -o remount,bind,ro "$1/top/ro"
mount -t tmpfs -o mode=000 none "$1/top/masked"
mount -o remount,bind,ro "$1/top/masked"
mount --bind "$1/mask" "$1/top/ws/hidden"
mount -o remount,bind,ro "$1/top/ws/hidden"
mount -t tmpfs -o mode=555 none "$1/top/ws/.git"
mount -o remount,bind,ro "$1/top/ws/.git"
mount --bind "$1/top/ws/other-mount" "$1/top/ws/other-mount"
mount -t tmpfs -o mode=000 none "$1/outside"
echo ready
read line || true
"#;

/// A sandbox and the files around it, in a temporary directory:
///
/// - `outside`: files that the sandbox must not reach. In the sandbox, an empty file system hides them.
/// - `top`: the root directory of [`TestSandbox::small_root`]. It contains `ws`, which is writable; `ro`, which is
///   read-only; `masked`, which is hidden; and, at the same path as on the host, an own `outside`.
/// - `ws/hidden`, `ws/.git`, `ws/other-mount`: mount points in the writable directory. The first hides a file, the
///   second a directory, and the third shows the same directory as below it.
pub(crate) struct TestSandbox {
    _directory: TempDir,
    base: PathBuf,
    /// `None` if the test uses only the files on the host.
    process: Option<Child>,
}

impl TestSandbox {
    pub(crate) fn start() -> Self {
        let mut sandbox = Self::without_mounts();
        sandbox.process = Some(start_mounts(&sandbox.base));
        sandbox
    }

    /// Only the files, for a test of the same operations on the host.
    pub(crate) fn without_mounts() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        let top = base.join("top");
        for name in ["ws/.git", "ws/other-mount", "ws/plain", "ro", "masked"] {
            fs::create_dir_all(top.join(name)).unwrap();
        }
        for name in ["ws/file", "ws/hidden", "ws/.git/config", "ws/other-mount/file", "ro/file", "masked/file"] {
            fs::write(top.join(name), OUTSIDE).unwrap();
        }
        fs::write(top.join("ws/file"), INSIDE).unwrap();
        fs::write(base.join("mask"), "").unwrap();
        fs::set_permissions(base.join("mask"), fs::Permissions::from_mode(0o000)).unwrap();
        let outside = base.join("outside");
        for (place, contents) in [(outside.clone(), OUTSIDE), (below(&top, &outside), INSIDE)] {
            fs::create_dir_all(place.join("tree/deep")).unwrap();
            for name in ["secret", "tree/a", "tree/deep/b", ".ignore"] {
                fs::write(place.join(name), contents).unwrap();
            }
        }
        let ws = top.join("ws");
        let many_up = "../".repeat(40);
        let outside_from_top = outside.strip_prefix("/").unwrap();
        for (style, target) in
            [("absolute", outside.clone()), ("relative", Path::new(&many_up).join(outside_from_top))]
        {
            symlink(&target, ws.join(format!("{style}-directory"))).unwrap();
            symlink(target.join("secret"), ws.join(format!("{style}-file"))).unwrap();
            symlink(target.join("new"), ws.join(format!("{style}-dangling"))).unwrap();
        }
        Self { _directory: directory, base, process: None }
    }

    /// A root whose `/` is the directory `top`.
    pub(crate) fn small_root(&self) -> FileRoot {
        self.root_at(&self.base.join("top"))
    }

    /// A root in which the files have the same paths as on the host.
    pub(crate) fn whole_root(&self) -> FileRoot {
        self.root_at(Path::new("/"))
    }

    fn root_at(&self, path: &Path) -> FileRoot {
        FileRoot::sandbox(self.open_in_sandbox(path), Arc::new(()))
    }

    /// Opens a directory in the mount namespace of the sandbox.
    pub(crate) fn open_in_sandbox(&self, path: &Path) -> std::os::fd::OwnedFd {
        let process = self.process.as_ref().unwrap().id();
        let path = below(&PathBuf::from(format!("/proc/{process}/root")), path);
        rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    /// The path on the host of a name in `top`, which is also its path in [`whole_root`](Self::whole_root).
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.base.join("top").join(name)
    }

    /// The directory that the sandbox must not reach.
    pub(crate) fn outside(&self) -> PathBuf {
        self.base.join("outside")
    }

    /// The directory inside of [`small_root`](Self::small_root) that has the same path as `outside` on the host.
    pub(crate) fn outside_in_top(&self) -> PathBuf {
        below(&self.base.join("top"), &self.outside())
    }

    /// All files outside of the sandbox.
    pub(crate) fn outside_files(&self) -> BTreeMap<PathBuf, String> {
        snapshot(&self.outside())
    }
}

impl Drop for TestSandbox {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // Closing its stdin ends the process.
            drop(process.stdin.take());
            let _ignored = process.wait();
        }
    }
}

fn start_mounts(base: &Path) -> Child {
    let mut process = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", MOUNTS, "sh"])
        .arg(base)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first_line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut first_line).unwrap();
    assert_eq!(first_line, "ready\n", "the sandbox cannot be made; the reason is in the output above");
    process
}

/// The absolute path `path` below another directory.
fn below(directory: &Path, path: &Path) -> PathBuf {
    directory.join(path.strip_prefix("/").unwrap())
}

/// Every path below a directory, with kind, permissions, time of change, and contents or target.
pub(crate) fn snapshot(directory: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(path) = pending.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let contents = if metadata.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            String::new()
        } else if metadata.is_symlink() {
            fs::read_link(&path).unwrap().display().to_string()
        } else {
            fs::read_to_string(&path).unwrap()
        };
        let described = format!(
            "{:o} {} {}.{} {contents}",
            metadata.mode(),
            metadata.nlink(),
            metadata.mtime(),
            metadata.mtime_nsec()
        );
        found.insert(path, described);
    }
    found
}

pub(crate) fn not_cancelled() -> Cancel {
    Cancel::new()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The error number of a result.
#[track_caller]
pub(crate) fn errno<T: std::fmt::Debug>(result: &Result<T, files::FileError>) -> Option<rustix::io::Errno> {
    rustix::io::Errno::from_io_error(result.as_ref().unwrap_err().io())
}
