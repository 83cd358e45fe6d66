//! Tells the client about each decision of a proxy. Decisions wait for a client that does not read, and for the time of
//! `--detached-hold` for a client that has lost its connection; the program that uses the proxy waits meanwhile. If
//! there is no client after that time, the decision goes to the log of the server.

use std::sync::Weak;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use protocol::{
    MAX_POLICY_CLIENT_BYTES, NetworkDecision, NetworkDecisionNotification, NetworkDecisionScope,
    NetworkDecisionSource, ProcessId, encode_notification, notification,
};
use proxy::{BoxFuture, DecisionObserver, DecisionSource, ProxyDecision, ProxyVerdict};
use session::LogRateLimit;

use super::timestamp::rfc3339;
use super::wire_protocol;
use crate::session::Session;

/// At most 20 lines in 10 s for each process, because a process makes as many requests as it likes.
const UNSENT_DECISION_LINES: LogRateLimit = LogRateLimit::new(20, Duration::from_secs(10));

/// The observer of one process: the client that is attached to its session.
pub(super) struct ClientObserver {
    /// Weak, so that a proxy does not keep a session alive that has ended.
    session: Weak<Session>,
    process_id: ProcessId,
    unsent_log: Mutex<LogRateLimit>,
}

impl ClientObserver {
    pub(super) fn new(session: Weak<Session>, process_id: ProcessId) -> Self {
        Self { session, process_id, unsent_log: Mutex::new(UNSENT_DECISION_LINES) }
    }

    /// Queues the message at the attached connection. None: there is no client to tell.
    async fn send(&self, message: Vec<u8>) -> Option<()> {
        loop {
            let outbound = self.session.upgrade()?.outbound_within_hold().await?;
            if outbound.send_in_room(message.clone()).await.is_some() {
                return Some(());
            }
            // The connection has ended while the message waited.
        }
    }
}

impl DecisionObserver for ClientObserver {
    fn observe(&self, decision: ProxyDecision) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let verdict = decision.verdict;
            let report = report(self.process_id.clone(), decision, SystemTime::now());
            let (host, port) = (report.host.clone(), report.port);
            let message = encode_notification(notification::NETWORK_POLICY_DECISION, &report);
            if self.send(message).await.is_none()
                && let Some(left_out) = self.unsent_log.lock().handle_event(Instant::now())
            {
                let process = self.process_id.as_str();
                tracing::warn!(
                    process,
                    host,
                    port,
                    ?verdict,
                    left_out,
                    "no client is connected; network decision not delivered"
                );
            }
        })
    }
}

fn report(process_id: ProcessId, decision: ProxyDecision, now: SystemTime) -> NetworkDecisionNotification {
    let source = match decision.source {
        DecisionSource::BaselinePolicy => NetworkDecisionSource::BaselinePolicy,
        DecisionSource::ModeGuard => NetworkDecisionSource::ModeGuard,
        DecisionSource::ProxyState => NetworkDecisionSource::ProxyState,
        DecisionSource::Decider => NetworkDecisionSource::Decider,
    };
    NetworkDecisionNotification {
        process_id,
        timestamp: rfc3339(now),
        scope: match source {
            NetworkDecisionSource::BaselinePolicy | NetworkDecisionSource::Decider => NetworkDecisionScope::Domain,
            NetworkDecisionSource::ModeGuard | NetworkDecisionSource::ProxyState => NetworkDecisionScope::NonDomain,
        },
        decision: match decision.verdict {
            ProxyVerdict::Allow => NetworkDecision::Allow,
            ProxyVerdict::Deny => NetworkDecision::Deny,
            ProxyVerdict::Ask => NetworkDecision::Ask,
        },
        source,
        reason: decision.reason,
        protocol: wire_protocol(decision.protocol),
        host: decision.host,
        port: decision.port,
        method: decision.method,
        client: Some(decision.client).filter(|client| client.len() <= MAX_POLICY_CLIENT_BYTES),
        policy_override: decision.overrides_baseline,
    }
}
