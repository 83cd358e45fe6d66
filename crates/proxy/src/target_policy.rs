//! Decides about one request: rules, then the decider if the rules do not know the host, then the addresses of the
//! host. The name is resolved once, and the connection is made to the addresses that were checked, so a name that
//! changes its address in between gains nothing.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::activity::Activity;
use crate::host::TargetHost;
use crate::limits::MAX_ADDRESSES;
use crate::policy::{
    Decider, DeciderVerdict, DecisionObserver, DecisionSource, NameResolver, PolicyQuestion, ProxyDecision,
    ProxyProtocol, ProxyVerdict, reason,
};
use crate::refusal::ProxyRefusal;
use crate::rules::{HostJudgement, NetworkRules};

/// What decides about requests.
pub(crate) struct TargetPolicy {
    pub(crate) rules: NetworkRules,
    pub(crate) decider: Option<Arc<dyn Decider>>,
    pub(crate) observer: Arc<dyn DecisionObserver>,
    pub(crate) resolver: Arc<dyn NameResolver>,
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

/// A verdict with the part of the policy that made it.
struct Ruling {
    verdict: ProxyVerdict,
    source: DecisionSource,
    reason: String,
}

impl Ruling {
    fn allow(source: DecisionSource) -> Self {
        Self { verdict: ProxyVerdict::Allow, source, reason: reason::ALLOWED.to_owned() }
    }

    fn deny(source: DecisionSource, reason: impl Into<String>) -> Self {
        Self { verdict: ProxyVerdict::Deny, source, reason: reason.into() }
    }
}

impl TargetPolicy {
    /// Decides, tells the observer, and returns the addresses to which a connection may be made, one or more. The
    /// connection of the program does not count as idle meanwhile.
    pub(crate) async fn admit(
        &self,
        request: &TargetRequest,
        activity: &Activity,
    ) -> Result<Vec<SocketAddr>, ProxyRefusal> {
        let _waiting = activity.hold();
        let mut ruling = self.rule_on_host(request).await;
        let mut addresses = Vec::new();
        if ruling.verdict == ProxyVerdict::Allow {
            addresses = self.addresses(&request.host).await;
            if !self.rules.allows_addresses(&request.host, &addresses) {
                ruling = Ruling::deny(DecisionSource::BaselinePolicy, reason::NOT_ALLOWED_LOCAL);
            }
        }
        let refused_for = (ruling.verdict != ProxyVerdict::Allow).then(|| ruling.reason.clone());
        self.tell(request, ruling).await;
        if let Some(reason) = refused_for {
            return Err(ProxyRefusal::Policy { host: request.host.to_string(), reason });
        }
        if addresses.is_empty() {
            return Err(ProxyRefusal::Unresolved);
        }
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, request.port)).collect())
    }

    async fn rule_on_host(&self, request: &TargetRequest) -> Ruling {
        // A tunnel hides its methods, so the rules see none.
        let method = request.method.as_deref().filter(|_| request.protocol == ProxyProtocol::Http);
        if let Err(refusal) = self.rules.guard(request.protocol, method) {
            return Ruling::deny(refusal.source, refusal.reason);
        }
        let decider = match self.rules.judge_host(&request.host) {
            HostJudgement::Allowed => return Ruling::allow(DecisionSource::BaselinePolicy),
            HostJudgement::Denied(reason) => return Ruling::deny(DecisionSource::BaselinePolicy, reason),
            HostJudgement::Unlisted => match &self.decider {
                Some(decider) => decider,
                None => return Ruling::deny(DecisionSource::BaselinePolicy, reason::NOT_ALLOWED),
            },
        };
        let host = request.host.to_string();
        let question = PolicyQuestion { protocol: request.protocol, host, port: request.port };
        let source = DecisionSource::Decider;
        match decider.decide(question).await {
            DeciderVerdict::Allow => Ruling::allow(source),
            DeciderVerdict::Deny(reason) => Ruling::deny(source, reason),
            DeciderVerdict::Ask(reason) => Ruling { verdict: ProxyVerdict::Ask, source, reason },
        }
    }

    /// The addresses of a host. Empty if the name cannot be resolved.
    async fn addresses(&self, host: &TargetHost) -> Vec<IpAddr> {
        match host {
            TargetHost::Address(address) => vec![*address],
            TargetHost::Name(name) => {
                let mut addresses = self.resolver.resolve(name).await.unwrap_or_else(|error| {
                    tracing::debug!(%error, "the proxy cannot resolve a name");
                    Vec::new()
                });
                addresses.truncate(MAX_ADDRESSES);
                addresses
            }
        }
    }

    async fn tell(&self, request: &TargetRequest, ruling: Ruling) {
        let Ruling { verdict, source, reason } = ruling;
        let decision = ProxyDecision {
            verdict,
            source,
            reason,
            protocol: request.protocol,
            host: request.host.to_string(),
            port: request.port,
            method: request.method.clone(),
            client: request.client.to_string(),
            overrides_baseline: verdict == ProxyVerdict::Allow && source == DecisionSource::Decider,
        };
        self.observer.observe(decision).await;
    }
}
