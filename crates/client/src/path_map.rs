//! Maps paths between two machines that have the same files below different directories. This module changes only texts and never reads the
//! file system. Its callers decide which paths are mapped.

mod pattern;
mod sandbox;

use std::path::{Component, Path, PathBuf};

use protocol::{PathUri, SandboxContext};
use serde_json::value::RawValue;

/// Pairs of directories, one on this machine (local) and one on the machine of the server (remote), that have the same contents.
///
/// A path at or below a directory of a pair is moved to the other directory of the pair. Paths are compared by whole components, after `.`,
/// `..` and superfluous slashes were removed, so a mapped URI has no slash at its end. If several directories match, the longest one is
/// used. All other paths stay as they are. If no directory of a pair lies in a directory of another pair, mapping a path to the other
/// machine and back gives the same path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathMap {
    pairs: Vec<Pair>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pair {
    local: PathBuf,
    remote: PathBuf,
}

/// Why paths cannot be mapped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathMapError {
    /// A directory of a pair is not absolute.
    #[error("the root `{}` of a path map must be absolute", .0.display())]
    RelativeRoot(PathBuf),
    /// A sandbox object does not have the form that the protocol publishes.
    #[error("the paths of the sandbox object cannot be mapped: {0}")]
    Sandbox(String),
    /// A pattern has a wildcard in the part that would have to be mapped. The mapped pattern could deny less than the original.
    #[error("the pattern `{pattern}` cannot be mapped: it has a wildcard above or in the root `{}`", root.display())]
    Wildcard {
        /// The pattern as the sandbox has it.
        pattern: String,
        /// The local directory that the wildcard may match.
        root: PathBuf,
    },
    /// A mapped path is not UTF-8, so JSON cannot hold it.
    #[error("`{path}` cannot be mapped: the root `{}` is not UTF-8", root.display())]
    NotText {
        /// The path before it was mapped.
        path: String,
        /// The remote directory, which is not UTF-8.
        root: PathBuf,
    },
}

impl PathMap {
    /// Maps between these two directories, which must be absolute.
    pub fn new(local_root: &Path, remote_root: &Path) -> Result<Self, PathMapError> {
        Self::of([(local_root.to_owned(), remote_root.to_owned())])
    }

    /// Maps between the directories of each pair, which is the local directory and then the remote directory. All directories must be
    /// absolute.
    pub fn of(pairs: impl IntoIterator<Item = (PathBuf, PathBuf)>) -> Result<Self, PathMapError> {
        let pairs = pairs.into_iter().map(|(local, remote)| Pair::new(local, remote));
        Ok(Self { pairs: pairs.collect::<Result<_, _>>()? })
    }

    /// The remote path for this local path.
    pub fn to_remote(&self, local: &PathUri) -> PathUri {
        self.moved(local, Pair::outward)
    }

    /// Whether this local path lies in a directory of a pair.
    pub fn covers(&self, local: &PathUri) -> bool {
        local.to_native().is_ok_and(|native| self.moved_native(&native, Pair::outward).is_some())
    }

    /// The local path for this remote path.
    pub fn to_local(&self, remote: &PathUri) -> PathUri {
        self.moved(remote, Pair::inward)
    }

    /// Maps all paths in a sandbox object for the server: `cwd`, `workspaceRoots`, and the paths and patterns of the entries. All other
    /// bytes of the text stay as they are.
    pub fn map_sandbox(&self, sandbox: &RawValue) -> Result<Box<RawValue>, PathMapError> {
        sandbox::map(self, sandbox)
    }

    /// As [`map_sandbox`](Self::map_sandbox), for a sandbox that was decoded.
    pub(crate) fn map_sandbox_context(&self, sandbox: &SandboxContext) -> Result<SandboxContext, String> {
        let raw = serde_json::value::to_raw_value(sandbox).map_err(|error| error.to_string())?;
        let mapped = self.map_sandbox(&raw).map_err(|error| error.to_string())?;
        serde_json::from_str(mapped.get()).map_err(|error| error.to_string())
    }

    fn moved(&self, uri: &PathUri, direction: fn(&Pair) -> (&Path, &Path)) -> PathUri {
        // A path that this machine cannot have, for example a Windows path, is in no directory of a pair.
        let Ok(native) = uri.to_native() else { return uri.clone() };
        let moved = self.moved_native(&native, direction).and_then(|path| PathUri::from_native(&path));
        moved.unwrap_or_else(|| uri.clone())
    }

    fn moved_native(&self, path: &Path, direction: fn(&Pair) -> (&Path, &Path)) -> Option<PathBuf> {
        let path = normal(path);
        let matching = self.pairs.iter().map(direction).filter(|(from, _)| path.starts_with(from));
        let (from, to) = matching.max_by_key(|(from, _)| from.components().count())?;
        // Joined by components, because `join` with an empty path would add a slash.
        path.strip_prefix(from).ok().map(|rest| to.components().chain(rest.components()).collect())
    }
}

impl Pair {
    fn new(local: PathBuf, remote: PathBuf) -> Result<Self, PathMapError> {
        let root = |path: PathBuf| {
            if path.is_absolute() { Ok(normal(&path)) } else { Err(PathMapError::RelativeRoot(path)) }
        };
        Ok(Self { local: root(local)?, remote: root(remote)? })
    }

    /// The directory to map from and the directory to map to, for a path that goes to the server.
    fn outward(&self) -> (&Path, &Path) {
        (&self.local, &self.remote)
    }

    /// As [`outward`](Self::outward), for a path that comes from the server.
    fn inward(&self) -> (&Path, &Path) {
        (&self.remote, &self.local)
    }
}

/// Removes `.`, `..` and superfluous slashes. Symbolic links are not resolved, because the file system is not read.
fn normal(path: &Path) -> PathBuf {
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
