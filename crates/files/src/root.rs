//! The root in which an operation resolves its paths: the root of this machine, or the root directory of a sandbox.
//! Start with [`FileRoot`].
//!
//! The modules below are the only ones of this crate that give a path to the kernel; `cargo xtask tidy` refuses that
//! everywhere else. `entered` resolves paths, `entry_at` works with one name in an open directory, and `kernel_paths`
//! uses fixed paths such as `/proc/self/fd`. `capabilities` takes the privileges of the thread away while it works in
//! a sandbox, and `sandbox_cause` finds out whether the sandbox has caused an error.

mod capabilities;
mod entered;
mod entry_at;
mod kernel_paths;
mod sandbox_cause;

use std::fmt;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use crate::FileError;
use capabilities::DroppedCapabilities;
pub(crate) use entered::{EnteredRoot, OpenTarget};
pub(crate) use entry_at::{EntryAt, open_parent, open_self, stat_open, stat_open_cached};
pub(crate) use kernel_paths::{
    WatchablePath, check_proc_fd, link_opened_file, read_kernel_setting, set_mode_of_opened,
};

/// The root in which paths are resolved. Every operation of this crate takes one. Clones are cheap and share the
/// descriptor of a sandbox.
#[derive(Clone, Debug)]
pub struct FileRoot {
    /// The root directory of a sandbox. `None` is the root of this machine.
    sandbox: Option<Arc<SandboxDirectory>>,
}

/// The root directory of a sandbox.
struct SandboxDirectory {
    directory: OwnedFd,
    /// Keeps the mounts of the sandbox. Without them the directory would show what they hide.
    sandbox: Arc<dyn FileSandbox>,
}

/// The sandbox whose root directory a [`FileRoot`] has.
pub trait FileSandbox: Send + Sync {
    /// Whether the directory at this path of the host is only a place for a mount of a sandbox, and will be removed. Blocks.
    fn is_placeholder(&self, path: &Path) -> bool;
}

/// A sandbox without placeholders.
impl FileSandbox for () {
    fn is_placeholder(&self, _: &Path) -> bool {
        false
    }
}

impl fmt::Debug for SandboxDirectory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.directory)
    }
}

static HOST: FileRoot = FileRoot { sandbox: None };

impl FileRoot {
    /// The root of this machine. The operating system resolves a path as it does for any other program.
    pub fn host() -> &'static Self {
        &HOST
    }

    /// The root directory of a sandbox, as a descriptor that was opened in the mount namespace of the sandbox, with
    /// `O_PATH` for example. No path and no symbolic link leads out of it. The mounts of the sandbox apply: an
    /// operation cannot write below a read-only mount, or read what another mount hides. While an operation works, its
    /// thread has no effective capabilities. Needs the system call `openat2` and `/proc`. The processes of the sandbox
    /// must not be able to make mount namespaces, because from another namespace they could remove mount points.
    ///
    /// `sandbox` is kept as long as this root or a clone exists. It must keep the mount namespace alive.
    pub fn sandbox(directory: OwnedFd, sandbox: Arc<dyn FileSandbox>) -> Self {
        Self { sandbox: Some(Arc::new(SandboxDirectory { directory, sandbox })) }
    }

    /// Whether the directory at this path only seems to exist, because the sandbox has made it as a place for a mount. Blocks.
    pub(crate) fn is_placeholder(&self, path: &Path) -> bool {
        self.sandbox.as_ref().is_some_and(|root| root.sandbox.is_placeholder(path))
    }

    /// Allows the calling thread to resolve paths. While the result exists, the thread has no effective capabilities,
    /// unless this is the root of this machine.
    pub(crate) fn enter(&self) -> Result<EnteredRoot<'_>, Errno> {
        match &self.sandbox {
            None => Ok(EnteredRoot::host()),
            Some(root) => Ok(EnteredRoot::sandbox(root.directory.as_fd(), DroppedCapabilities::drop_effective()?)),
        }
    }

    /// Runs one operation. `paths` are those that the caller has named, for the decision whether the sandbox has
    /// caused an error.
    pub(crate) fn run<T>(
        &self,
        paths: &[&Path],
        operation: impl FnOnce(&EnteredRoot<'_>) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        let about = paths.first().copied().unwrap_or(Path::new("/"));
        let result = operation(&self.enter().map_err(FileError::at(about))?);
        // The thread has its capabilities again, so a look at the host shows what the host would allow.
        match result {
            Err(error) if self.sandbox.is_some() => Err(self.explain(error, paths)),
            result => result,
        }
    }

    /// Adds to an error of an operation in a sandbox what the errno alone does not say.
    fn explain(&self, error: FileError, paths: &[&Path]) -> FileError {
        let may_lack_openat2 = |errno: &Errno| matches!(*errno, Errno::NOSYS | Errno::PERM) && self.lacks_openat2();
        let Some(errno) = Errno::from_io_error(error.io()).filter(may_lack_openat2) else {
            let is_denial = sandbox_cause::is_caused_by_sandbox(&error, self, paths);
            return error.with_sandbox_denial(is_denial);
        };
        let text = format!(
            "the kernel or the seccomp filter of a container does not allow the system call openat2 ({errno}), which file \
             operations in a sandbox need; use Linux 5.6 or later, or allow the system call"
        );
        FileError::failed_check(ErrorKind::Unsupported, text, error.path().unwrap_or(Path::new("/")))
    }

    /// Whether even the root directory itself cannot be opened. Old seccomp filters refuse unknown system calls with
    /// `EPERM`, newer ones with `ENOSYS`.
    fn lacks_openat2(&self) -> bool {
        self.enter().is_ok_and(|inside| matches!(inside.open_root(), Err(Errno::NOSYS | Errno::PERM)))
    }
}
