//! Maps paths between two machines that have the same files below different directories. This module changes only the
//! texts of paths and never reads the file system. The callers decide which paths they map.

mod pattern;
mod sandbox;

use std::path::{Component, Path, PathBuf};

use protocol::{PathUri, SandboxContext};
use serde_json::value::RawValue;

/// Pairs of directories that have the same contents, one on this machine (local) and one on the machine of the server
/// (remote). These directories are called roots.
///
/// A path at or below one root of a pair is mapped to the same place below the other root of the pair. All other
/// paths stay as they are. Paths are compared by whole components, after `.`, `..` and superfluous slashes were
/// removed, so a mapped URI has no superfluous slash at its end. If several roots match, the longest root is used.
///
/// Mapping a path at or below a root to the other machine and back gives the same path, unless a root of one pair
/// lies at or below a root of another pair on the same machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathMap {
    pairs: Vec<Pair>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pair {
    local: PathBuf,
    remote: PathBuf,
}

/// The reason why paths cannot be mapped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathMapError {
    /// A root is not absolute.
    #[error("the root `{}` of a path map must be absolute", .0.display())]
    RelativeRoot(PathBuf),
    /// A sandbox object is nested too deeply, or has a string that is not valid Unicode.
    #[error("the paths of the sandbox object cannot be mapped: {0}")]
    Sandbox(String),
    /// A wildcard or `..` in a pattern leaves open whether the pattern matches in a root. A mapped pattern could deny
    /// less than the original.
    #[error("the pattern `{pattern}` cannot be mapped: it may also match outside the root `{}`", root.display())]
    Wildcard {
        /// The pattern as the sandbox has it.
        pattern: String,
        /// The local root in which the pattern may match.
        root: PathBuf,
    },
    /// A mapped path is not UTF-8, so JSON cannot hold it.
    #[error("`{path}` cannot be mapped: the root `{}` is not UTF-8", root.display())]
    NotText {
        /// The path before it was mapped.
        path: String,
        /// The remote root, or the mapped path below it, which is not UTF-8.
        root: PathBuf,
    },
}

impl PathMap {
    /// Maps between these two directories, which must be absolute.
    pub fn new(local_root: &Path, remote_root: &Path) -> Result<Self, PathMapError> {
        Self::of([(local_root.to_owned(), remote_root.to_owned())])
    }

    /// Maps between the two directories of each pair. The first is local, the second is remote, and both must be
    /// absolute.
    pub fn of(pairs: impl IntoIterator<Item = (PathBuf, PathBuf)>) -> Result<Self, PathMapError> {
        let pairs = pairs.into_iter().map(|(local, remote)| Pair::new(local, remote));
        Ok(Self { pairs: pairs.collect::<Result<_, _>>()? })
    }

    /// The remote path for this local path.
    pub fn to_remote(&self, local: &PathUri) -> PathUri {
        self.map_uri(local, Pair::outward)
    }

    /// Whether this local path lies at or below a local root, so that [`to_remote`](Self::to_remote) maps it.
    pub fn covers(&self, local: &PathUri) -> bool {
        local.to_native().is_ok_and(|native| self.map_native(&native, Pair::outward).is_some())
    }

    /// The local path for this remote path.
    pub fn to_local(&self, remote: &PathUri) -> PathUri {
        self.map_uri(remote, Pair::inward)
    }

    /// Maps all local paths in a sandbox object to remote paths: `cwd`, `workspaceRoots`, and the paths and patterns
    /// of the entries. All other bytes of the text stay as they are.
    pub fn map_sandbox(&self, sandbox: &RawValue) -> Result<Box<RawValue>, PathMapError> {
        sandbox::map(self, sandbox)
    }

    /// As [`map_sandbox`](Self::map_sandbox), for a sandbox that was decoded.
    pub(crate) fn map_sandbox_context(&self, sandbox: &SandboxContext) -> Result<SandboxContext, String> {
        let raw = serde_json::value::to_raw_value(sandbox).map_err(|error| error.to_string())?;
        let mapped = self.map_sandbox(&raw).map_err(|error| error.to_string())?;
        serde_json::from_str(mapped.get()).map_err(|error| error.to_string())
    }

    fn map_uri(&self, uri: &PathUri, direction: fn(&Pair) -> (&Path, &Path)) -> PathUri {
        // A path that this machine cannot have, for example a Windows path, is below no root.
        let Ok(native) = uri.to_native() else { return uri.clone() };
        let moved = self.map_native(&native, direction).and_then(|path| PathUri::from_native(&path));
        moved.unwrap_or_else(|| uri.clone())
    }

    /// The path on the other machine. `None` if the path is neither a root nor below a root.
    fn map_native(&self, path: &Path, direction: fn(&Pair) -> (&Path, &Path)) -> Option<PathBuf> {
        let path = normalized(path);
        let matching = self.pairs.iter().map(direction).filter(|(from, _)| path.starts_with(from));
        let (from, to) = matching.max_by_key(|(from, _)| from.components().count())?;
        // Joined by components, because `join` with an empty path would add a slash.
        path.strip_prefix(from).ok().map(|rest| to.components().chain(rest.components()).collect())
    }
}

impl Pair {
    fn new(local: PathBuf, remote: PathBuf) -> Result<Self, PathMapError> {
        let root = |path: PathBuf| {
            if path.is_absolute() { Ok(normalized(&path)) } else { Err(PathMapError::RelativeRoot(path)) }
        };
        Ok(Self { local: root(local)?, remote: root(remote)? })
    }

    /// The root to map from and the root to map to, for a path that goes to the server.
    fn outward(&self) -> (&Path, &Path) {
        (&self.local, &self.remote)
    }

    /// As [`outward`](Self::outward), for a path that comes from the server.
    fn inward(&self) -> (&Path, &Path) {
        (&self.remote, &self.local)
    }
}

/// Removes `.`, `..` and superfluous slashes. Symbolic links are not resolved, because the file system is not read.
fn normalized(path: &Path) -> PathBuf {
    let mut out = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => {
                out.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    out
}

#[cfg(test)]
mod tests;
