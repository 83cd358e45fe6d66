//! What a policy allows, as a value: [`resolve_policy`] turns the entries that a client asks for into concrete paths
//! and globs, and [`FilePolicy::access`] says what is allowed for a path as it is written, and which entry decides.
//!
//! Everything here is lexical. Nothing is opened, no link is followed, and what depends on the machine is passed in as
//! [`MachineFacts`]. Paths are bytes, so names that are not UTF-8 work. How the kernel is made to enforce a policy is
//! not known here.
//!
//! The rules:
//!
//! 1. The entry that is a prefix of the path and has the most components decides. If two entries have the same path,
//!    deny wins over write, and write over read. A path without an entry is denied. Write includes read.
//! 2. A deny glob acts like a deny entry for each path that it matches. For a path, a glob counts as many components as the
//!    longest prefix of the path that it matches. So a glob wins over an entry for the matched path
//!    itself and over every shorter entry, and an entry for a path below the matched path wins over the glob.
//! 3. Directly below each writable entry, `.git`, `.agents` and `.codex` may be read but not written, whether they exist
//!    or not. The protection is left out if an entry allows writing to the protected path or to something below it.
//!    If `.git` is a file that names another directory, that directory is protected too, and so is the directory that the file
//!    `commondir` of a git directory names. A protection takes the right to write away, and never allows reading what is denied.
//! 4. A policy that allows writing everywhere, with no entry that allows less, has no protections at all.

mod error;
mod file_policy;
mod glob;
mod lexical;
pub mod limits;
mod protection;
mod request;
mod resolve;

pub use error::PolicyError;
pub use file_policy::{AccessDecision, EntrySource, EntryTarget, FilePolicy, PolicyEntry};
pub use glob::GlobPattern;
pub(crate) use glob::{GlobWalk, NameCharacters};
pub(crate) use lexical::path_order;
pub use limits as policy_limits;
pub use request::{
    GitDirectories, MINIMAL_ROOTS, MachineFacts, PolicyRequest, RequestedEntry, RequestedFiles, RequestedTarget,
};
pub use resolve::resolve_policy;

/// Names that are not writable directly below a writable entry: the data of git, and the settings of agents. A command that
/// could change them could make git or an agent outside the sandbox run its code.
pub const PROTECTED_NAMES: [&str; 3] = [".git", ".agents", ".codex"];

/// What may be done with a path. The order is by how much is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// Neither reading nor writing is allowed.
    Deny,
    /// Reading is allowed, writing is not.
    Read,
    /// Reading and writing are allowed.
    Write,
}

impl Access {
    /// Which of two entries for the same path decides, the lowest number first: deny, then write, then read.
    fn precedence(self) -> u8 {
        match self {
            Self::Deny => 0,
            Self::Write => 1,
            Self::Read => 2,
        }
    }
}
