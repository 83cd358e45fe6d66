//! Asks the client about a host that the rules of a proxy do not know. Whenever there is no valid answer, the answer is
//! no.

use std::sync::Weak;
use std::time::Duration;

use protocol::{
    NetworkPolicyParams, NetworkPolicyRequest, NetworkPolicyResult, NetworkPolicyVerdict, ProcessId, server_request,
};
use proxy::{BoxFuture, Decider, DeciderVerdict, PolicyQuestion};
use tokio_util::sync::CancellationToken;

use super::wire_protocol;
use crate::session::Session;

/// The decider of one process: the client that is attached to its session.
pub(super) struct ClientDecider {
    /// Weak, so that a proxy does not keep a session alive that has ended.
    pub(super) session: Weak<Session>,
    pub(super) process_id: ProcessId,
    /// How long the client may take.
    pub(super) patience: Duration,
    /// Cancelled when the process has exited or is being terminated.
    pub(super) questions_over: CancellationToken,
}

impl Decider for ClientDecider {
    fn decide(&self, question: PolicyQuestion) -> BoxFuture<'_, DeciderVerdict> {
        Box::pin(async move {
            let answer = self.questions_over.run_until_cancelled(self.ask(question)).await.flatten();
            match answer.unwrap_or_else(NetworkPolicyVerdict::not_allowed) {
                NetworkPolicyVerdict::Allow => DeciderVerdict::Allow,
                NetworkPolicyVerdict::Deny { reason } => DeciderVerdict::Deny(reason),
                NetworkPolicyVerdict::Ask { reason } => DeciderVerdict::Ask(reason),
            }
        })
    }
}

impl ClientDecider {
    /// None: no client is attached, or the client has given no valid answer in time.
    async fn ask(&self, question: PolicyQuestion) -> Option<NetworkPolicyVerdict> {
        let PolicyQuestion { protocol, host, port } = question;
        let request = NetworkPolicyRequest { protocol: wire_protocol(protocol), host, port };
        if !request.is_within_limits() {
            return None;
        }
        let outbound = self.session.upgrade()?.outbound()?;
        let params = NetworkPolicyParams { process_id: self.process_id.clone(), request };
        let answer: NetworkPolicyResult =
            outbound.ask(server_request::NETWORK_POLICY_REQUEST, &params, self.patience).await?;
        Some(answer.decision).filter(NetworkPolicyVerdict::is_within_limits)
    }
}
