//! What callers may choose about an operation on files.

use protocol::SandboxContext;
use protocol::fs::FileTime;

/// About a file that is looked at or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// False: no part of the path may be a symbolic link.
    pub follow_symlinks: bool,
    /// What may be done on the way.
    pub sandbox: Option<SandboxContext>,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self { follow_symlinks: true, sandbox: None }
    }
}

impl FileOptions {
    /// No part of the path may be a symbolic link.
    pub fn no_follow() -> Self {
        Self { follow_symlinks: false, sandbox: None }
    }
}

/// About a file that is written piece by piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteStreamOptions {
    /// Whether a file that is there is replaced.
    pub replace: bool,
    /// The permission bits; without them, those of the file that is replaced.
    pub mode: Option<u32>,
    /// The permission bits of a file that replaces none, less those that the umask takes where the file is. `mode` wins.
    pub mode_if_new: Option<u32>,
    /// When its contents were changed, if not now.
    pub mtime: Option<FileTime>,
    /// Whether it must be on the disk before it counts as written.
    pub sync: bool,
    /// How long the file is, if not as long as what was written and skipped.
    pub size: Option<u64>,
    /// False: no part of the path may be a symbolic link.
    pub follow_symlinks: bool,
    /// What may be done on the way.
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

/// About a directory to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateDirectoryOptions {
    /// With its parents, and no matter whether it is there.
    pub recursive: bool,
    /// False: no part of the path may be a symbolic link.
    pub follow_symlinks: bool,
    /// What may be done on the way.
    pub sandbox: Option<SandboxContext>,
}

impl Default for CreateDirectoryOptions {
    fn default() -> Self {
        Self { recursive: true, follow_symlinks: true, sandbox: None }
    }
}

/// What becomes of the metadata of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMetadata {
    /// The permission bits, if they change.
    pub mode: Option<u32>,
    /// When its contents were changed, if that changes.
    pub mtime: Option<FileTime>,
    /// False: of the link itself, and no other part of the path may be one.
    pub follow_symlinks: bool,
    /// What may be done on the way.
    pub sandbox: Option<SandboxContext>,
}

impl Default for NewMetadata {
    fn default() -> Self {
        Self { mode: None, mtime: None, follow_symlinks: true, sandbox: None }
    }
}

/// About a removal. The default removes one thing that must be there, and no directory that holds something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoveOptions {
    /// A directory with everything in it.
    pub recursive: bool,
    /// It need not be there.
    pub force: bool,
    /// False: no part of the path may be a symbolic link.
    pub follow_symlinks: bool,
    /// What may be done on the way.
    pub sandbox: Option<SandboxContext>,
}

impl Default for RemoveOptions {
    fn default() -> Self {
        Self { recursive: false, force: false, follow_symlinks: true, sandbox: None }
    }
}

/// About a copy within one file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyOptions {
    /// Needed for directories.
    pub recursive: bool,
    /// What may be done on the way.
    pub sandbox: Option<SandboxContext>,
}

/// About a new name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenameOptions {
    /// Whether what has that name is replaced.
    pub replace: bool,
    /// What may be done on the way.
    pub sandbox: Option<SandboxContext>,
}

impl Default for RenameOptions {
    fn default() -> Self {
        Self { replace: true, sandbox: None }
    }
}
