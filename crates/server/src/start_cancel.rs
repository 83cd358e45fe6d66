//! The way to give up a start that is under way.

use std::sync::Arc;

use spawn::CancelFlag;
use tokio_util::sync::CancellationToken;

/// Gives up a start: its program is not executed any more, and the task that waits for the start goes on at once. Clones are of the same
/// start.
///
/// The kernel may be opening the program already, which can take long. So whoever cancels must kill the tag of the start afterwards; then
/// it is certain that the program does not run.
#[derive(Clone, Debug, Default)]
pub(crate) struct StartCancel {
    flag: Arc<CancelFlag>,
    token: CancellationToken,
}

impl StartCancel {
    pub(crate) fn cancel(&self) {
        self.flag.cancel();
        self.token.cancel();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.flag.is_cancelled()
    }

    pub(crate) async fn cancelled(&self) {
        self.token.cancelled().await;
    }

    /// For the thread that starts the process, and for the child.
    pub(crate) fn flag(&self) -> Arc<CancelFlag> {
        Arc::clone(&self.flag)
    }
}
