//! The network proxy of a process, as the process and its task see it: something that runs and can be stopped. What
//! the proxy does is in `network_proxy`.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A running network proxy. Dropping the handle stops the proxy without waiting for its end.
pub(crate) struct ProxyHandle {
    questions_over: CancellationToken,
    stop: CancellationToken,
    /// The task of the proxy. A tracker of the server owns it too. None while [`Self::shut_down`] waits.
    task: Option<JoinHandle<()>>,
}

impl ProxyHandle {
    /// `questions_over` ends the questions to the client, and `stop` ends `task`.
    pub(crate) fn new(questions_over: CancellationToken, stop: CancellationToken, task: JoinHandle<()>) -> Self {
        Self { questions_over, stop, task: Some(task) }
    }

    /// Ends the questions to the client: those that wait, and later ones, count as answered with no.
    pub(crate) fn end_questions(&self) {
        self.questions_over.cancel();
    }

    /// Stops the proxy, and waits until all its connections are closed.
    pub(crate) async fn shut_down(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            // The task catches panics and is never aborted, so it always ends in order.
            let _ended = task.await;
        }
    }
}

impl Drop for ProxyHandle {
    fn drop(&mut self) {
        self.questions_over.cancel();
        self.stop.cancel();
    }
}
