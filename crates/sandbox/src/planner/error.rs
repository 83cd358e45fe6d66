//! Why no plan can be made for a policy. The texts are shown to the client that sent the policy.

use std::io;
use std::path::PathBuf;

/// Why a policy cannot be enforced.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The command could replace this link, and so choose what the entry allows.
    #[error(
        "the policy allows access to {}, which is reached through the symbolic link {}, and the sandboxed command could change this link; name the target of the link in the policy instead",
        path.display(),
        link.display()
    )]
    WritableLink {
        /// The path of the entry.
        path: PathBuf,
        /// The symbolic link.
        link: PathBuf,
    },
    /// The command could replace this directory by a link, and so choose what the entry allows.
    #[error(
        "the policy allows access to {}, which is a symbolic link that leads through {} and `..`, and the sandboxed command could replace this directory; name the target of the link in the policy instead",
        path.display(),
        directory.display()
    )]
    WritableDetour {
        /// The path of the entry.
        path: PathBuf,
        /// The directory that the link leaves by `..`.
        directory: PathBuf,
    },
    /// Each command has its own `/proc`, so nothing in it can be covered.
    #[error("the policy denies {}, but paths in /proc cannot be denied; remove this entry from the policy", path.display())]
    DeniedProc {
        /// The path of the entry.
        path: PathBuf,
    },
    /// The root directory has an entry of its own, and two entries would contradict each other.
    #[error("the policy names {}, which is a symbolic link to the root directory; name the root directory instead", path.display())]
    LinkToRoot {
        /// The path of the entry.
        path: PathBuf,
    },
    /// A glob without a directory at its beginning would have to be searched for on the whole machine.
    #[error("the deny glob {pattern} begins with a wildcard; write a directory in front of it")]
    GlobWithoutDirectory {
        /// The pattern of the entry.
        pattern: String,
    },
    /// More files match than can be covered.
    #[error("deny globs match more than {limit} files; deny their directory instead")]
    TooManyMatches {
        /// The most files that can be covered.
        limit: usize,
    },
    /// The search for matches has looked at too many files.
    #[error(
        "the search for matches of deny globs would look at more than {limit} files; begin the globs with a longer path, or set glob_scan_max_depth"
    )]
    TooManyFiles {
        /// The most files that are looked at.
        limit: usize,
    },
    /// The search for matches has compared files with globs too often.
    #[error(
        "the deny globs would have to be compared with too many files; use fewer globs, begin them with a longer path, or set glob_scan_max_depth"
    )]
    TooManyComparisons,
    /// The owner has as many placeholders as it may have. If some of them belong to an unused sandbox of this owner, the caller can end that
    /// sandbox and plan again.
    #[error(
        "the policy needs too many placeholders (empty directories at protected paths that do not exist) beside those of other sandboxes in use; end processes, use fewer different policies, or name fewer paths"
    )]
    TooManyPlaceholders,
    /// All owners together have as many placeholders as this process may have. If some of them belong to unused sandboxes, the caller can end
    /// these and plan again.
    #[error(
        "the policy needs placeholders (empty directories at protected paths that do not exist), and the sandboxes that other clients use have as many as the server may have; try again later, or raise the limit of open files of the server (`ulimit -n`)"
    )]
    NoRoomForPlaceholders,
    /// Another process holds a lock on a placeholder.
    #[error(
        "the placeholder {path} is locked by another process; end that process (`lslocks` lists locks), or remove this empty directory",
        path = path.display()
    )]
    LockedPlaceholder {
        /// The path of the directory.
        path: PathBuf,
    },
    /// A file of the host could not be examined, or a placeholder could not be made.
    #[error("cannot prepare {} for the sandbox: {source}", path.display())]
    Host {
        /// The path that was examined.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}
