//! The rules of a proxy, as a value without I/O: which protocols and methods are allowed, which hosts, and whether
//! targets on the machine itself and in its local networks may be reached.

use std::net::IpAddr;

use crate::host::TargetHost;
use crate::local_address::is_local_address;
use crate::patterns::{DomainPatterns, DomainRule};
use crate::policy::{DecisionSource, ProxyProtocol, reason};

/// What programs may do at the hosts that they may reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyMode {
    /// Every method and every protocol.
    Full,
    /// Only the HTTP methods GET, HEAD and OPTIONS. The proxy cannot see the methods inside a tunnel, so CONNECT
    /// (and with it HTTPS) and SOCKS5 are refused.
    #[default]
    Limited,
}

/// Whether targets on this machine and in its local networks may be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalTargets {
    /// Only a local address that a pattern without wildcards allows, and `localhost` if such a pattern allows it.
    #[default]
    Refused,
    /// The lists of hosts decide about local targets as about all others.
    Allowed,
}

/// Whether programs may use SOCKS5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Socks5Support {
    /// Requests are refused.
    #[default]
    Disabled,
    /// TCP connections are served. UDP is always refused.
    Enabled,
}

/// The rules of a proxy. The default refuses everything.
#[derive(Clone, Debug, Default)]
pub struct NetworkRules {
    /// The allowed methods and protocols.
    pub mode: ProxyMode,
    /// Whether local addresses may be reached.
    pub local_targets: LocalTargets,
    /// Whether SOCKS5 is served.
    pub socks5: Socks5Support,
    /// The allowed and denied hosts. A host that is neither is decided by the decider, and refused without one.
    pub domains: DomainPatterns,
}

/// What the rules say about a host, before its name is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostJudgement {
    Allowed,
    Denied(&'static str),
    /// The rules do not know the host.
    Unlisted,
}

/// Why a request is refused whatever its host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GuardRefusal {
    pub(crate) source: DecisionSource,
    pub(crate) reason: &'static str,
}

impl NetworkRules {
    /// Checks protocol and method. `method` is the method of a plain HTTP request, and None for tunnels.
    pub(crate) fn guard(&self, protocol: ProxyProtocol, method: Option<&str>) -> Result<(), GuardRefusal> {
        let refusal = |source, reason| Err(GuardRefusal { source, reason });
        match protocol {
            ProxyProtocol::Socks5Udp => return refusal(DecisionSource::ProxyState, reason::UNSUPPORTED),
            ProxyProtocol::Socks5Tcp if self.socks5 == Socks5Support::Disabled => {
                return refusal(DecisionSource::ProxyState, reason::SOCKS5_DISABLED);
            }
            _ => {}
        }
        match (self.mode, method) {
            (ProxyMode::Full, _) | (ProxyMode::Limited, Some("GET" | "HEAD" | "OPTIONS")) => Ok(()),
            (ProxyMode::Limited, _) => refusal(DecisionSource::ModeGuard, reason::METHOD_NOT_ALLOWED),
        }
    }

    /// Judges a host by its text. A host that is local by its text is refused here, so that nobody is asked about it.
    pub(crate) fn judge_host(&self, host: &TargetHost) -> HostJudgement {
        let rule = self.domains.rule_for(host);
        if rule == Some(DomainRule::Deny) {
            return HostJudgement::Denied(reason::DENIED);
        }
        let is_local = match host {
            TargetHost::Address(address) => is_local_address(*address),
            TargetHost::Name(name) => is_localhost(name),
        };
        if is_local && !self.may_be_local(host) {
            return HostJudgement::Denied(reason::NOT_ALLOWED_LOCAL);
        }
        if rule.is_some() { HostJudgement::Allowed } else { HostJudgement::Unlisted }
    }

    /// Whether a connection may be made to these addresses, to which the host resolves. One local address is enough
    /// to refuse them all: an honest name does not mix public and local addresses.
    pub(crate) fn allows_addresses(&self, host: &TargetHost, addresses: &[IpAddr]) -> bool {
        if self.local_targets == LocalTargets::Allowed {
            return true;
        }
        let may_be_loopback = self.may_be_local(host);
        addresses.iter().all(|address| match host {
            // `judge_host` has decided about this address already.
            TargetHost::Address(known) if known == address => true,
            // `localhost` that leads elsewhere is not the host that the client has allowed.
            _ if may_be_loopback && address.is_loopback() => true,
            _ => !is_local_address(*address),
        })
    }

    /// Whether the client has said that this very host may be reached although it is local. A name other than
    /// `localhost` does not say so: whoever owns the name chooses its address.
    fn may_be_local(&self, host: &TargetHost) -> bool {
        let says_local = match host {
            TargetHost::Address(_) => true,
            TargetHost::Name(name) => is_localhost(name),
        };
        self.local_targets == LocalTargets::Allowed || (says_local && self.domains.allows_exactly(host))
    }
}

fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(local_targets: LocalTargets, patterns: &[(&str, DomainRule)]) -> NetworkRules {
        let domains = DomainPatterns::new(patterns.iter().copied()).unwrap();
        NetworkRules { mode: ProxyMode::Full, local_targets, socks5: Socks5Support::Enabled, domains }
    }

    fn judge(rules: &NetworkRules, host: &str) -> HostJudgement {
        rules.judge_host(&TargetHost::parse(host).unwrap())
    }

    fn allows(rules: &NetworkRules, host: &str, addresses: &[&str]) -> bool {
        let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        rules.allows_addresses(&TargetHost::parse(host).unwrap(), &addresses)
    }

    const EVERY_HOST: &[(&str, DomainRule)] = &[("*", DomainRule::Allow)];

    #[test]
    fn the_default_refuses_everything() {
        let rules = NetworkRules::default();
        assert_eq!(judge(&rules, "example.com"), HostJudgement::Unlisted);
        assert!(rules.guard(ProxyProtocol::Http, Some("POST")).is_err());
        assert!(rules.guard(ProxyProtocol::Socks5Tcp, None).is_err());
    }

    #[test]
    fn limited_mode_allows_three_methods_and_no_tunnels() {
        let limited = NetworkRules { mode: ProxyMode::Limited, ..rules(LocalTargets::Refused, EVERY_HOST) };
        for method in ["GET", "HEAD", "OPTIONS"] {
            assert_eq!(limited.guard(ProxyProtocol::Http, Some(method)), Ok(()), "{method}");
        }
        let refused = Err(GuardRefusal { source: DecisionSource::ModeGuard, reason: reason::METHOD_NOT_ALLOWED });
        for method in ["POST", "PUT", "DELETE", "TRACE", "get", "CONNECT"] {
            assert_eq!(limited.guard(ProxyProtocol::Http, Some(method)), refused, "{method}");
        }
        for tunnel in [ProxyProtocol::HttpsConnect, ProxyProtocol::Socks5Tcp] {
            assert_eq!(limited.guard(tunnel, None), refused, "{tunnel:?}");
        }
    }

    #[test]
    fn full_mode_allows_everything_but_udp_and_disabled_socks5() {
        let full = rules(LocalTargets::Refused, EVERY_HOST);
        assert_eq!(full.guard(ProxyProtocol::Http, Some("POST")), Ok(()));
        assert_eq!(full.guard(ProxyProtocol::HttpsConnect, None), Ok(()));
        assert_eq!(full.guard(ProxyProtocol::Socks5Tcp, None), Ok(()));
        let udp = full.guard(ProxyProtocol::Socks5Udp, None).unwrap_err();
        assert_eq!((udp.source, udp.reason), (DecisionSource::ProxyState, reason::UNSUPPORTED));
        let without = NetworkRules { socks5: Socks5Support::Disabled, ..full };
        let refused = without.guard(ProxyProtocol::Socks5Tcp, None).unwrap_err();
        assert_eq!((refused.source, refused.reason), (DecisionSource::ProxyState, reason::SOCKS5_DISABLED));
    }

    #[test]
    fn a_wildcard_does_not_allow_local_targets() {
        let refused = rules(LocalTargets::Refused, EVERY_HOST);
        for host in ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "localhost", "a.localhost", "[fe80::1]"] {
            assert_eq!(judge(&refused, host), HostJudgement::Denied(reason::NOT_ALLOWED_LOCAL), "{host}");
            assert_eq!(judge(&rules(LocalTargets::Allowed, EVERY_HOST), host), HostJudgement::Allowed, "{host}");
        }
        assert_eq!(judge(&refused, "example.com"), HostJudgement::Allowed);
    }

    #[test]
    fn a_host_that_is_local_by_its_text_is_refused_without_a_question() {
        let refused = rules(LocalTargets::Refused, &[]);
        assert_eq!(judge(&refused, "localhost"), HostJudgement::Denied(reason::NOT_ALLOWED_LOCAL));
        assert_eq!(judge(&rules(LocalTargets::Allowed, &[]), "localhost"), HostJudgement::Unlisted);
    }

    #[test]
    fn an_exact_pattern_allows_a_local_address_and_localhost() {
        let exact = rules(
            LocalTargets::Refused,
            &[("127.0.0.1", DomainRule::Allow), ("localhost", DomainRule::Allow), ("db.test", DomainRule::Allow)],
        );
        assert_eq!(judge(&exact, "127.1"), HostJudgement::Allowed);
        assert!(allows(&exact, "127.0.0.1", &["127.0.0.1"]));
        assert_eq!(judge(&exact, "127.0.0.2"), HostJudgement::Denied(reason::NOT_ALLOWED_LOCAL));
        assert!(allows(&exact, "localhost", &["127.0.0.1", "::1"]));
        assert!(!allows(&exact, "localhost", &["127.0.0.1", "10.0.0.1"]));
        assert!(!allows(&exact, "db.test", &["127.0.0.1"]), "a name does not allow the address that it leads to");
    }

    #[test]
    fn a_name_that_leads_to_a_local_address_is_refused() {
        let refused = rules(LocalTargets::Refused, EVERY_HOST);
        assert!(allows(&refused, "example.com", &["1.1.1.1", "2606:4700::1"]));
        for addresses in [["127.0.0.1"].as_slice(), &["1.1.1.1", "10.0.0.1"], &["::ffff:169.254.169.254"]] {
            assert!(!allows(&refused, "example.com", addresses), "{addresses:?}");
            assert!(allows(&rules(LocalTargets::Allowed, EVERY_HOST), "example.com", addresses));
        }
    }
}
