//! The root in which the paths of a request about files are resolved. A request that asks for a sandbox that restricts
//! files is refused, because this server cannot enforce it.

use files::FileRoot;
use protocol::{SandboxContext, WireError};

/// The root of a request. It may have to be made first, so a handler waits for it in the task in which it answers, and
/// before it takes a permit for its operation.
pub(super) struct RequestRoot {
    root: FileRoot,
}

impl RequestRoot {
    /// The root for a request with this sandbox. Does not wait.
    pub(super) fn of(sandbox: Option<&SandboxContext>) -> Result<Self, WireError> {
        if sandbox.is_some_and(SandboxContext::restricts_files) {
            return Err(WireError::invalid_request("filesystem sandbox cannot be enforced on this executor"));
        }
        Ok(Self { root: FileRoot::host().clone() })
    }

    /// A root that exists already.
    pub(super) fn existing(root: FileRoot) -> Self {
        Self { root }
    }

    /// The root, if it exists already. For answers from the cache of the kernel, which do not wait.
    pub(super) fn at_once(&self) -> Option<&FileRoot> {
        Some(&self.root)
    }

    /// Waits until the root exists. The root of this machine exists always, so a request without a sandbox does not
    /// wait.
    pub(super) async fn ready(self) -> Result<FileRoot, WireError> {
        Ok(self.root)
    }
}
