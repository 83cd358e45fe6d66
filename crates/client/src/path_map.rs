//! Paths between two machines that have the same files under different roots. It changes texts and looks at no file
//! system; which paths are sent through it is for others to say.

mod pattern;
mod sandbox;

use std::path::{Component, Path, PathBuf};

use protocol::{PathUri, SandboxContext};
use serde_json::value::RawValue;

/// Pairs of roots, here and there, that stand for each other.
///
/// A path at or below a root is moved to the other root, compared by whole components after `.`, `..` and superfluous
/// slashes were removed, so a mapped URI has no slash at its end. Of several roots that match, the longest counts. All
/// other paths stay as they are. With one pair, or with roots that do not lie in each other, mapping there and back
/// gives the same path again.
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
    /// A root is relative.
    #[error("the root `{}` of a path map must be absolute", .0.display())]
    RelativeRoot(PathBuf),
    /// A sandbox object is not of the published form.
    #[error("the paths of the sandbox object cannot be mapped: {0}")]
    Sandbox(String),
    /// A wildcard stands where the pattern would have to be mapped, so it may deny less there than here.
    #[error("the pattern `{pattern}` cannot be mapped: it has a wildcard above or in the root `{}`", root.display())]
    Wildcard {
        /// The pattern.
        pattern: String,
        /// The root it may match.
        root: PathBuf,
    },
    /// A native path in JSON has to be text.
    #[error("`{path}` cannot be mapped: the root `{}` is not UTF-8", root.display())]
    NotText {
        /// The path to map.
        path: String,
        /// The root over there.
        root: PathBuf,
    },
}

impl PathMap {
    /// Maps between these two directories.
    pub fn new(local_root: &Path, remote_root: &Path) -> Result<Self, PathMapError> {
        Self::of([(local_root.to_owned(), remote_root.to_owned())])
    }

    /// Maps between the directories of each pair, local and remote.
    pub fn of(pairs: impl IntoIterator<Item = (PathBuf, PathBuf)>) -> Result<Self, PathMapError> {
        let pairs = pairs.into_iter().map(|(local, remote)| Pair::new(local, remote));
        Ok(Self { pairs: pairs.collect::<Result<_, _>>()? })
    }

    /// The path over there that stands for this one.
    pub fn to_remote(&self, local: &PathUri) -> PathUri {
        self.moved(local, Pair::outward)
    }

    /// Whether this path here stands for one over there.
    pub fn covers(&self, local: &PathUri) -> bool {
        local.to_native().is_ok_and(|native| self.moved_native(&native, Pair::outward).is_some())
    }

    /// The path here that stands for this one.
    pub fn to_local(&self, remote: &PathUri) -> PathUri {
        self.moved(remote, Pair::inward)
    }

    /// A sandbox object with every path in it mapped for the server: `cwd`, `workspaceRoots`, and the paths and
    /// patterns of the entries. The rest of the text stays as it is, byte for byte.
    pub fn map_sandbox(&self, sandbox: &RawValue) -> Result<Box<RawValue>, PathMapError> {
        sandbox::map(self, sandbox)
    }

    /// The same of a sandbox that was decoded.
    pub(crate) fn map_sandbox_context(&self, sandbox: &SandboxContext) -> Result<SandboxContext, String> {
        let raw = serde_json::value::to_raw_value(sandbox).map_err(|error| error.to_string())?;
        let mapped = self.map_sandbox(&raw).map_err(|error| error.to_string())?;
        serde_json::from_str(mapped.get()).map_err(|error| error.to_string())
    }

    fn moved(&self, uri: &PathUri, direction: fn(&Pair) -> (&Path, &Path)) -> PathUri {
        // A path of another kind of machine is below none of the roots.
        let Ok(native) = uri.to_native() else { return uri.clone() };
        let moved = self.moved_native(&native, direction).and_then(|path| PathUri::from_native(&path));
        moved.unwrap_or_else(|| uri.clone())
    }

    fn moved_native(&self, path: &Path, direction: fn(&Pair) -> (&Path, &Path)) -> Option<PathBuf> {
        let path = normal(path);
        let matching = self.pairs.iter().map(direction).filter(|(from, _)| path.starts_with(from));
        let (from, to) = matching.max_by_key(|(from, _)| from.components().count())?;
        // Joining nothing would leave a slash at the end.
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

    fn outward(&self) -> (&Path, &Path) {
        (&self.local, &self.remote)
    }

    fn inward(&self) -> (&Path, &Path) {
        (&self.remote, &self.local)
    }
}

/// Without `.`, `..` and superfluous slashes, as paths on the wire are understood: the file system is not asked.
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
