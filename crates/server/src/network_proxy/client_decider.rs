//! Asks the client about a host that the rules of a proxy do not know. Without a valid answer the host is refused.

use std::sync::Weak;
use std::time::Duration;

use protocol::{
    NetworkPolicyParams, NetworkPolicyRequest, NetworkPolicyResult, NetworkPolicyVerdict, ProcessId, server_request,
};
use proxy::{BoxFuture, Decider, DeciderAnswer, PolicyQuestion};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::wire_protocol;
use crate::session::Session;

/// The decider of one process: the client that is attached to its session.
pub(super) struct ClientDecider {
    /// Weak, so that a proxy does not keep a session alive that has ended.
    pub(super) session: Weak<Session>,
    pub(super) process_id: ProcessId,
    /// Time after which the client's answer is too late.
    pub(super) timeout: Duration,
    /// Cancelled when the process has exited or is being terminated.
    pub(super) questions_over: CancellationToken,
}

impl Decider for ClientDecider {
    fn decide(&self, question: PolicyQuestion) -> BoxFuture<'_, DeciderAnswer> {
        Box::pin(async move {
            let answer = self.questions_over.run_until_cancelled(self.ask(question)).await.flatten();
            match answer.unwrap_or_else(NetworkPolicyVerdict::not_allowed) {
                NetworkPolicyVerdict::Allow => DeciderAnswer::Allow,
                NetworkPolicyVerdict::Deny { reason } => DeciderAnswer::Deny(reason),
                NetworkPolicyVerdict::Ask { reason } => DeciderAnswer::Ask(reason),
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
        let answer = outbound.ask(server_request::NETWORK_POLICY_REQUEST, &params, self.timeout).await?;
        verdict_of(answer)
    }
}

/// The verdict in the result that a client has sent. None if the result does not have the published form.
fn verdict_of(answer: Value) -> Option<NetworkPolicyVerdict> {
    // serde also takes an array for an object, and the number of a variant for its name. Such an answer is a mistake of
    // the client, and must not open a connection.
    let decision = answer.as_object()?.get("decision")?.as_object()?;
    if !decision.get("type")?.is_string() {
        return None;
    }
    let answer: NetworkPolicyResult = serde_json::from_value(answer).ok()?;
    Some(answer.decision).filter(NetworkPolicyVerdict::is_within_limits)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_an_answer_of_the_published_form_allows() {
        assert_eq!(verdict_of(json!({"decision": {"type": "allow"}})), Some(NetworkPolicyVerdict::Allow));
        let reason = || "no".to_owned();
        let denied = json!({"decision": {"type": "deny", "reason": "no"}});
        assert_eq!(verdict_of(denied), Some(NetworkPolicyVerdict::Deny { reason: reason() }));
        let asked = json!({"decision": {"type": "ask", "reason": "no"}});
        assert_eq!(verdict_of(asked), Some(NetworkPolicyVerdict::Ask { reason: reason() }));
        for other in [
            json!(["allow"]),
            json!([["allow"]]),
            json!([{"type": "allow"}]),
            json!({"decision": "allow"}),
            json!({"decision": ["allow"]}),
            json!({"decision": [{"type": "allow"}]}),
            json!({"decision": {"type": 0}}),
            json!({"decision": {"type": ["allow"]}}),
            json!({"decision": {"type": {"allow": null}}}),
            json!({"decision": {"type": "Allow"}}),
            json!({"decision": {"allow": null}}),
            json!({"decision": null}),
            json!({"type": "allow"}),
            json!("allow"),
            json!(true),
            json!({}),
        ] {
            assert_eq!(verdict_of(other.clone()), None, "{other}");
        }
    }
}
