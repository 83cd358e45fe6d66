//! The root in which the paths of a request about files are resolved: that of this machine, or that of the sandbox whose
//! policy the request has.

use std::sync::Arc;

use files::FileRoot;
use protocol::{SandboxContext, WireError};

use crate::sandbox_policy::check_entries;
use crate::session::Session;

/// The root of a request, which may have to be made first. Call [`Self::ready`] in the task that answers the request,
/// before taking an operation permit.
pub(super) struct RequestRoot {
    state: RootState,
}

enum RootState {
    Ready(FileRoot),
    /// The policy is not valid.
    Refused(WireError),
    /// The sandbox has to be looked for, and perhaps made.
    Wanted {
        context: Box<SandboxContext>,
        session: Arc<Session>,
    },
}

impl RequestRoot {
    /// The root for a request with this sandbox. Does not wait.
    pub(super) fn of(sandbox: Option<&SandboxContext>, session: &Arc<Session>) -> Self {
        let state = match sandbox {
            None => RootState::Ready(FileRoot::host().clone()),
            // There is nothing to enforce, but an entry that is not valid is refused in every policy.
            Some(context) if !context.restricts_files() => match check_entries(context) {
                Ok(()) => RootState::Ready(FileRoot::host().clone()),
                Err(error) => RootState::Refused(error),
            },
            Some(context) => match session.sandboxes.recent_file_root(context) {
                Some(root) => RootState::Ready(root),
                None => RootState::Wanted { context: Box::new(context.clone()), session: Arc::clone(session) },
            },
        };
        Self { state }
    }

    /// A root that exists already.
    pub(super) fn existing(root: FileRoot) -> Self {
        Self { state: RootState::Ready(root) }
    }

    /// The root if no sandbox has to be found first. For answers from the cache of the kernel, which do not wait.
    pub(super) fn if_ready(&self) -> Option<&FileRoot> {
        match &self.state {
            RootState::Ready(root) => Some(root),
            RootState::Refused(_) | RootState::Wanted { .. } => None,
        }
    }

    /// Waits until the root exists. The root of this machine exists always, so a request without a sandbox does not
    /// wait.
    pub(super) async fn ready(self) -> Result<FileRoot, WireError> {
        let (context, session) = match self.state {
            RootState::Ready(root) => return Ok(root),
            RootState::Refused(error) => return Err(error),
            RootState::Wanted { context, session } => (context, session),
        };
        let owner = Arc::clone(&session);
        let found = session.files.operations.run(move || owner.sandboxes.file_root(&context, &owner.tags)).await;
        found.unwrap_or_else(|| {
            Err(WireError::internal("the server has failed to make the sandbox; its log says why"))
        })
    }
}
