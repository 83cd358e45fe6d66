//! Why a policy is refused. The texts are shown to the client that sent the policy.

use std::path::PathBuf;

use super::limits;

/// Why a policy was refused. Nothing of a refused policy is applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The policy has an entry for the workspace roots or a relative glob, and the request has no `cwd`. The text is that of the published
    /// protocol, so that clients that compare it understand it.
    #[error("file system sandbox context with dynamic permissions requires cwd")]
    MissingCwd,
    /// A path of the policy does not begin with `/`.
    #[error("sandbox path `{}` is not absolute", .0.display())]
    RelativePath(PathBuf),
    /// A path of the policy is longer than Linux allows.
    #[error("a sandbox path has {0} bytes; at most {max} are possible", max = limits::MAX_PATH_BYTES)]
    PathTooLong(usize),
    /// A path or pattern has a zero byte, which no file name has.
    #[error("sandbox path `{0}` contains a NUL byte")]
    NulByte(String),
    /// The subpath of a `project_roots` entry is absolute or leads out of the workspace root.
    #[error("sandbox subpath `{0}` does not stay below the workspace root; use a `path` entry for other directories")]
    SubpathLeavesRoot(String),
    /// A glob entry allows reading or writing.
    #[error(
        "sandbox glob pattern `{0}` must have access deny; to allow access, name the directory in a `path` entry"
    )]
    GlobAllows(String),
    /// A pattern cannot be understood.
    #[error("sandbox glob pattern `{pattern}` is invalid: {reason}")]
    BadPattern {
        /// The pattern as the client sent it.
        pattern: String,
        /// What is wrong with the pattern.
        reason: &'static str,
    },
    /// A pattern is too long.
    #[error("a sandbox glob pattern has {0} bytes; the limit is {max}", max = limits::MAX_PATTERN_BYTES)]
    PatternTooLong(usize),
    /// A pattern with `{a,b}` stands for too many patterns.
    #[error("sandbox glob pattern `{0}` stands for more than {max} patterns", max = limits::MAX_ALTERNATIVES)]
    TooManyAlternatives(String),
    /// All patterns together are too long.
    #[error("the sandbox glob patterns have more than {max} bytes together", max = limits::MAX_GLOB_BYTES)]
    PatternsTooLong,
    /// Comparing all patterns with all paths would take too long.
    #[error(
        "comparing {wildcards} bytes of sandbox glob patterns with {paths} bytes of paths takes too long; use fewer or shorter patterns"
    )]
    PatternsTooCostly {
        /// The bytes of the patterns up to the one that exceeds the limit.
        wildcards: usize,
        /// The bytes of the paths and patterns up to the one that exceeds the limit.
        paths: usize,
    },
    /// The directory to which a `.git` file leads cannot be protected.
    #[error("the git directory of {} cannot be protected: {reason}", path.display())]
    GitFile {
        /// The `.git` file.
        path: PathBuf,
        /// Why the file does not say reliably where the directory is.
        reason: String,
    },
    /// The policy has too many entries.
    #[error("the sandbox has {0} entries; the limit is {max}", max = limits::MAX_REQUESTED_ENTRIES)]
    TooManyEntries(usize),
    /// The policy has too many workspace roots.
    #[error("the sandbox has {0} workspace roots; the limit is {max}", max = limits::MAX_WORKSPACE_ROOTS)]
    TooManyWorkspaceRoots(usize),
    /// The entries stand for too many paths.
    #[error(
        "the sandbox entries stand for more than {max} paths; use fewer entries for workspace roots",
        max = limits::MAX_RESOLVED_ENTRIES
    )]
    TooManyPaths,
    /// All paths together are too long.
    #[error("the sandbox paths have more than {max} bytes together", max = limits::MAX_TOTAL_BYTES)]
    PathsTooLong,
}
