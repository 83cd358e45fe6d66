//! Decides about one request: asks the rules, then the decider if the rules do not list the host, then checks the
//! addresses of the host. The name is resolved once, and the connection is made to the addresses that were checked, so a name that
//! changes its address in between gains nothing.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::activity::Activity;
use crate::connect_failure::ConnectFailure;
use crate::host::TargetHost;
use crate::interfaces::Interfaces;
use crate::limits::MAX_ADDRESSES;
use crate::policy::{
    Decider, DeciderAnswer, DecisionObserver, DecisionSource, NameResolver, PolicyQuestion, ProxyDecision,
    ProxyProtocol, ProxyVerdict, reason,
};
use crate::rules::{HostRule, NetworkRules};

/// Applies the rules, asks the decider, resolves the name and tells the observer.
pub(crate) struct RequestGate {
    pub(crate) rules: NetworkRules,
    pub(crate) decider: Option<Arc<dyn Decider>>,
    pub(crate) observer: Arc<dyn DecisionObserver>,
    pub(crate) resolver: Arc<dyn NameResolver>,
    /// The interfaces of this machine, whose networks are local targets.
    pub(crate) interfaces: Interfaces,
    pub(crate) lookup_timeout: Duration,
}

/// A request of a program.
#[derive(Clone, Debug)]
pub(crate) struct TargetRequest {
    pub(crate) protocol: ProxyProtocol,
    pub(crate) host: TargetHost,
    pub(crate) port: u16,
    /// The method of an HTTP request, `CONNECT` included.
    pub(crate) method: Option<String>,
    /// The address of the program's socket.
    pub(crate) client: IpAddr,
}

impl TargetRequest {
    fn allow(&self, source: DecisionSource) -> ProxyDecision {
        self.decision(ProxyVerdict::Allow, source, reason::ALLOWED)
    }

    fn deny(&self, source: DecisionSource, reason: impl Into<String>) -> ProxyDecision {
        self.decision(ProxyVerdict::Deny, source, reason)
    }

    fn decision(&self, verdict: ProxyVerdict, source: DecisionSource, reason: impl Into<String>) -> ProxyDecision {
        ProxyDecision {
            verdict,
            source,
            reason: reason.into(),
            protocol: self.protocol,
            host: self.host.to_string(),
            port: self.port,
            method: self.method.clone(),
            client: self.client.to_string(),
            overrides_baseline: verdict == ProxyVerdict::Allow && source == DecisionSource::Decider,
        }
    }
}

impl RequestGate {
    /// Decides about the request, and tells the observer. Returns at least one address that may be connected to. The connection of the
    /// program does not count as idle meanwhile.
    pub(crate) async fn admit(
        &self,
        request: &TargetRequest,
        activity: &Activity,
    ) -> Result<Vec<SocketAddr>, ConnectFailure> {
        let _waiting = activity.hold();
        let mut decision = self.decide_by_host(request).await;
        let mut found = Ok(Vec::new());
        if decision.verdict == ProxyVerdict::Allow {
            found = self.addresses(&request.host).await;
            let addresses = found.as_deref().unwrap_or_default();
            let networks = self.interfaces.networks();
            if let Some(reason) = self.rules.refusal_of_addresses(&request.host, addresses, &networks) {
                decision = request.deny(DecisionSource::BaselinePolicy, reason);
            }
        }
        let refused_for = (decision.verdict != ProxyVerdict::Allow).then(|| decision.reason.clone());
        self.observer.observe(decision).await;
        if let Some(reason) = refused_for {
            return Err(ConnectFailure::Policy { host: request.host.to_string(), reason });
        }
        Ok(found?.into_iter().map(|address| SocketAddr::new(address, request.port)).collect())
    }

    /// Checks a connection that was made to an address from [`Self::admit`]. A refusal is told to the observer, after the
    /// decision that the request is allowed.
    pub(crate) async fn check_connection(
        &self,
        request: &TargetRequest,
        own: IpAddr,
        peer: IpAddr,
    ) -> Result<(), ConnectFailure> {
        let Some(reason) = self.rules.refusal_of_connection(&request.host, own, peer) else { return Ok(()) };
        self.observer.observe(request.deny(DecisionSource::BaselinePolicy, reason)).await;
        Err(ConnectFailure::Policy { host: request.host.to_string(), reason: reason.to_owned() })
    }

    async fn decide_by_host(&self, request: &TargetRequest) -> ProxyDecision {
        // A tunnel hides its methods, so the rules see none.
        let method = request.method.as_deref().filter(|_| request.protocol == ProxyProtocol::Http);
        if let Err(refusal) = self.rules.check_protocol(request.protocol, method) {
            return request.deny(refusal.source, refusal.reason);
        }
        let decider = match self.rules.rule_for_host(&request.host, &self.interfaces.networks()) {
            HostRule::Allowed => return request.allow(DecisionSource::BaselinePolicy),
            HostRule::Denied(reason) => return request.deny(DecisionSource::BaselinePolicy, reason),
            HostRule::Unlisted => match &self.decider {
                Some(decider) => decider,
                None => return request.deny(DecisionSource::BaselinePolicy, reason::NOT_ALLOWED),
            },
        };
        let host = request.host.to_string();
        let question = PolicyQuestion { protocol: request.protocol, host, port: request.port };
        let source = DecisionSource::Decider;
        match decider.decide(question).await {
            DeciderAnswer::Allow => request.allow(source),
            DeciderAnswer::Deny(reason) => request.deny(source, reason),
            DeciderAnswer::Ask(reason) => request.decision(ProxyVerdict::Ask, source, reason),
        }
    }

    /// The addresses of a host, at least one.
    async fn addresses(&self, host: &TargetHost) -> Result<Vec<IpAddr>, ConnectFailure> {
        let name = match host {
            TargetHost::Address(address) => return Ok(vec![*address]),
            TargetHost::Name(name) => name,
        };
        let found = timeout(self.lookup_timeout, self.resolver.resolve(name)).await;
        let mut addresses = found.map_err(|_| ConnectFailure::TimedOut)?.map_err(|error| {
            tracing::debug!(%error, "the proxy cannot resolve a name");
            ConnectFailure::Unresolved
        })?;
        addresses.truncate(MAX_ADDRESSES);
        if addresses.is_empty() { Err(ConnectFailure::Unresolved) } else { Ok(addresses) }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tokio::time::Instant;

    use super::*;
    use crate::patterns::{DomainPatterns, DomainRule};
    use crate::policy::BoxFuture;
    use crate::rules::ProxyMode;

    struct HangingResolver;

    impl NameResolver for HangingResolver {
        fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
            Box::pin(std::future::pending())
        }
    }

    struct IgnoringObserver;

    impl DecisionObserver for IgnoringObserver {
        fn observe(&self, _: ProxyDecision) -> BoxFuture<'_, ()> {
            Box::pin(async {})
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_up_that_hangs_fails_after_its_time() {
        let domains = DomainPatterns::new([("*", DomainRule::Allow)]).unwrap();
        let lookup_timeout = Duration::from_secs(7);
        let gate = RequestGate {
            rules: NetworkRules { mode: ProxyMode::Full, domains, ..NetworkRules::default() },
            decider: None,
            observer: Arc::new(IgnoringObserver),
            resolver: Arc::new(HangingResolver),
            interfaces: Interfaces::default(),
            lookup_timeout,
        };
        let request = TargetRequest {
            protocol: ProxyProtocol::HttpsConnect,
            host: TargetHost::parse("site.test").unwrap(),
            port: 443,
            method: None,
            client: IpAddr::from([127, 0, 0, 1]),
        };
        let (started, activity) = (Instant::now(), Activity::new());
        let admitted = timeout(lookup_timeout * 100, gate.admit(&request, &activity)).await;
        assert!(matches!(admitted, Ok(Err(ConnectFailure::TimedOut))), "{admitted:?}");
        assert_eq!(started.elapsed().as_secs(), lookup_timeout.as_secs());
    }
}
