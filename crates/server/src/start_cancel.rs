//! Cancels the start of a process while it is under way.

use std::sync::Arc;

use spawn::CancelFlag;
use tokio_util::sync::CancellationToken;

/// Cancels a start: its program is not executed any more, and [`cancelled`](Self::cancelled) wakes the task that
/// waits for the start. Clones cancel the same start. Several starts may share a value, and are then cancelled
/// together.
///
/// The kernel may be opening the program already, which can take long. So the caller of `cancel` must afterwards kill
/// all processes with the tag of the start, the number by which the child can be found. After that the program cannot
/// run any more.
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

    /// The flag that the starting thread and the child check before the program is executed.
    pub(crate) fn flag(&self) -> Arc<CancelFlag> {
        Arc::clone(&self.flag)
    }
}
