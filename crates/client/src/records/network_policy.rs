//! The interface by which a program decides which hosts a process may reach, and hears about each decision. It is used
//! for processes that are started with `networkProxy`.

use std::pin::Pin;
use std::sync::Arc;

use protocol::{NetworkDecisionNotification, NetworkPolicyRequest, NetworkPolicyVerdict};
use tokio_util::sync::CancellationToken;

/// A future that a [`NetworkPolicyDecider`] returns.
pub type DecidingNetwork<'a> = Pin<Box<dyn Future<Output = NetworkPolicyVerdict> + Send + 'a>>;

/// Decides about hosts that the proxy of a process does not know. The server waits for the decision as long as
/// `policyDecisionTimeoutMs` of the start says, and five seconds more; the process waits meanwhile.
///
/// ```
/// use client::{DecidingNetwork, NetworkPolicyDecider, NetworkPolicyRequest, NetworkPolicyVerdict};
///
/// struct OnlyDocs;
///
/// impl NetworkPolicyDecider for OnlyDocs {
///     fn decide(&self, request: NetworkPolicyRequest) -> DecidingNetwork<'_> {
///         let is_docs = request.host == "docs.example.com" && request.port == 443;
///         Box::pin(async move { if is_docs { NetworkPolicyVerdict::Allow } else { NetworkPolicyVerdict::not_allowed() } })
///     }
/// }
/// ```
pub trait NetworkPolicyDecider: Send + Sync + 'static {
    /// Decides about one request of the process. The future is dropped when the process is no longer followed. A
    /// reason of more than 1024 bytes, or with control characters, makes the verdict a refusal.
    fn decide(&self, request: NetworkPolicyRequest) -> DecidingNetwork<'_>;

    /// Hears about a decision of the proxy, whoever made it. Must return at once: all messages of the server wait
    /// meanwhile. Does nothing by default.
    fn note_decision(&self, decision: NetworkDecisionNotification) {
        drop(decision);
    }
}

/// The decider of one process, until the process is no longer followed.
#[derive(Clone)]
pub(crate) struct ProcessDecider {
    decider: Arc<dyn NetworkPolicyDecider>,
    is_over: CancellationToken,
}

impl ProcessDecider {
    pub(crate) fn new(decider: Arc<dyn NetworkPolicyDecider>) -> Self {
        Self { decider, is_over: CancellationToken::new() }
    }

    /// Asks the decider. The answer is no if the process is no longer followed, or if the verdict is over a limit.
    pub(crate) async fn decide(self, request: NetworkPolicyRequest) -> NetworkPolicyVerdict {
        let verdict = self.is_over.run_until_cancelled(self.decider.decide(request)).await;
        verdict.filter(NetworkPolicyVerdict::is_within_limits).unwrap_or_else(NetworkPolicyVerdict::not_allowed)
    }

    pub(crate) fn note_decision(&self, decision: NetworkDecisionNotification) {
        self.decider.note_decision(decision);
    }

    /// Withdraws the questions that are not decided.
    pub(crate) fn end(&self) {
        self.is_over.cancel();
    }
}
