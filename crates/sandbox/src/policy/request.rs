//! What a client asks for, with native paths, before anything is known about the machine.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use super::Access;

/// The directories that a `minimal` entry stands for, as far as they exist: what programs need to run.
pub const MINIMAL_ROOTS: [&str; 8] =
    ["/bin", "/sbin", "/usr", "/etc", "/lib", "/lib64", "/nix/store", "/run/current-system/sw"];

/// A policy for files as the client asks for it.
#[derive(Clone, Debug)]
pub struct PolicyRequest {
    /// Which files may be read and written.
    pub files: RequestedFiles,
    /// The absolute directory to which globs are relative. Required if an entry is for the workspace roots or a
    /// relative glob.
    pub cwd: Option<PathBuf>,
    /// The absolute directories that `project_roots` entries stand for.
    pub workspace_roots: Vec<PathBuf>,
}

/// Which files may be read and written.
#[derive(Clone, Debug)]
pub enum RequestedFiles {
    /// Every path may be read and written.
    Unrestricted,
    /// Only what the entries allow.
    Restricted {
        /// The entries, whose order has no meaning.
        entries: Vec<RequestedEntry>,
        /// How many levels of directories are searched for matches of globs. None: all.
        glob_scan_max_depth: Option<NonZeroUsize>,
    },
}

/// One rule of the client.
#[derive(Clone, Debug)]
pub struct RequestedEntry {
    /// The paths that the rule applies to.
    pub target: RequestedTarget,
    /// What the rule allows.
    pub access: Access,
}

/// The paths that a rule of the client applies to.
#[derive(Clone, Debug)]
pub enum RequestedTarget {
    /// An absolute path and everything below it.
    Path(PathBuf),
    /// Every path that matches the pattern, and everything below. Only with [`Access::Deny`].
    Glob(String),
    /// The root directory.
    Root,
    /// The [`MINIMAL_ROOTS`]. They become readable at most, even if the rule allows writing.
    Minimal,
    /// Each workspace root, or a path below each of them.
    ProjectRoots {
        /// A relative path below each root. None: the roots themselves.
        subpath: Option<PathBuf>,
    },
    /// The directory that `TMPDIR` names.
    Tmpdir,
    /// The directory `/tmp`.
    SlashTmp,
    /// A location that this version does not know. The rule has no effect.
    Unknown,
}

/// Finds the git directories of a `.git`.
pub type GitDirectories<'a> = dyn FnMut(&Path) -> Result<Vec<PathBuf>, String> + 'a;

/// What resolving a policy needs to know about the machine.
pub struct MachineFacts<'a> {
    /// The value of `TMPDIR`. None, or a path that is not absolute: entries for it have no effect.
    pub tmpdir: Option<PathBuf>,
    /// Whether `/tmp` is a directory. If not, entries for it have no effect.
    pub slash_tmp_is_directory: bool,
    /// Those of [`MINIMAL_ROOTS`] that exist.
    pub minimal_roots: Vec<PathBuf>,
    /// Is given the path of a `.git`. Returns the directories elsewhere in which git keeps hooks and settings of the workspace, as absolute
    /// paths. The error says why they are not known.
    pub git_directories_of: &'a mut GitDirectories<'a>,
}
