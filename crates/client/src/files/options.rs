//! The options of operations on files.

use protocol::SandboxContext;
use protocol::fs::FileTime;

/// Options for reading or writing a file, and for its metadata. The default follows symbolic links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// If false, the operation fails if a part of the path is a symbolic link.
    pub follow_symlinks: bool,
    /// The sandbox that the operation must respect. `None` means no restriction.
    pub sandbox: Option<SandboxContext>,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self { follow_symlinks: true, sandbox: None }
    }
}

impl FileOptions {
    /// The operation fails if a part of the path is a symbolic link.
    pub fn no_follow() -> Self {
        Self { follow_symlinks: false, sandbox: None }
    }
}

/// Options for a file that is written in pieces. The default replaces an existing file and keeps its permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteStreamOptions {
    /// Whether an existing file is replaced. If false, an existing file is an error.
    pub replace: bool,
    /// The permission bits of the file. `None` keeps those of the file that is replaced; a new file gets
    /// `mode_if_new`.
    pub mode: Option<u32>,
    /// The permission bits of a file that replaces none. The bits in the umask of the server are removed from them;
    /// for a file of this machine, the bits in the umask of this process. Not used if `mode` is set.
    pub mode_if_new: Option<u32>,
    /// The modification time of the file. `None` means the time of the last write.
    pub mtime: Option<FileTime>,
    /// Whether the file must be on the disk before `commit` returns. Ignored if the server cannot take a file in
    /// blocks.
    pub sync: bool,
    /// The size of the file in bytes. `None` means the largest offset that was written or skipped to.
    pub size: Option<u64>,
    /// If false, the operation fails if a part of the path is a symbolic link.
    pub follow_symlinks: bool,
    /// The sandbox that the operation must respect. `None` means no restriction.
    pub sandbox: Option<SandboxContext>,
}

impl Default for WriteStreamOptions {
    fn default() -> Self {
        Self {
            replace: true,
            mode: None,
            mode_if_new: None,
            mtime: None,
            sync: false,
            size: None,
            follow_symlinks: true,
            sandbox: None,
        }
    }
}

/// Options for creating a directory. The default creates missing parents and accepts an existing directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateDirectoryOptions {
    /// Whether missing parents are created, and an existing directory is accepted.
    pub recursive: bool,
    /// If false, the operation fails if a part of the path is a symbolic link.
    pub follow_symlinks: bool,
    /// The sandbox that the operation must respect. `None` means no restriction.
    pub sandbox: Option<SandboxContext>,
}

impl Default for CreateDirectoryOptions {
    fn default() -> Self {
        Self { recursive: true, follow_symlinks: true, sandbox: None }
    }
}

/// A change of the metadata of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMetadata {
    /// The new permission bits. `None` leaves them as they are.
    pub mode: Option<u32>,
    /// The new modification time. `None` leaves it as it is.
    pub mtime: Option<FileTime>,
    /// If false, a symbolic link at the end of the path is changed itself, and no other part of the path may be a
    /// link. Only the time of a link can be changed, not its permissions.
    pub follow_symlinks: bool,
    /// The sandbox that the operation must respect. `None` means no restriction.
    pub sandbox: Option<SandboxContext>,
}

impl Default for NewMetadata {
    fn default() -> Self {
        Self { mode: None, mtime: None, follow_symlinks: true, sandbox: None }
    }
}

/// Options for a removal. The default removes an existing file or an empty directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoveOptions {
    /// Whether a directory is removed with everything in it. If false, it must be empty.
    pub recursive: bool,
    /// Whether a path that does not exist is accepted.
    pub force: bool,
    /// If false, the operation fails if a part of the path is a symbolic link. Must be true if `recursive` is.
    pub follow_symlinks: bool,
    /// The sandbox that the operation must respect. `None` means no restriction.
    pub sandbox: Option<SandboxContext>,
}

impl Default for RemoveOptions {
    fn default() -> Self {
        Self { recursive: false, force: false, follow_symlinks: true, sandbox: None }
    }
}

/// Options for copying a file or a directory within the same machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyOptions {
    /// Whether a directory is copied with everything in it. If false, a directory is an error.
    pub recursive: bool,
    /// The sandbox that the operation must respect. `None` means no restriction.
    pub sandbox: Option<SandboxContext>,
}

/// Options for moving a file or a directory. The default replaces an existing file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenameOptions {
    /// Whether an existing file at the new path is replaced. If false, an existing file is an error.
    pub replace: bool,
    /// The sandbox that the operation must respect. `None` means no restriction.
    pub sandbox: Option<SandboxContext>,
}

impl Default for RenameOptions {
    fn default() -> Self {
        Self { replace: true, sandbox: None }
    }
}
