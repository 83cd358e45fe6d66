//! The rules of a proxy, as a value without I/O: which protocols and methods are allowed, which hosts, and whether
//! targets on the machine itself and in its local networks may be reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::host::TargetHost;
use crate::local_address::{is_local_address, reached_address};
use crate::local_networks::LocalNetworks;
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
    /// Refused, except an address, `localhost` or a name below `.localhost` that is written out in an `allow` pattern.
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

/// The rules of a proxy. The default allows no host: without a decider every request is refused.
#[derive(Clone, Debug, Default)]
pub struct NetworkRules {
    /// The allowed methods and protocols.
    pub mode: ProxyMode,
    /// Whether local addresses may be reached.
    pub local_targets: LocalTargets,
    /// Whether SOCKS5 is served.
    pub socks5: Socks5Support,
    /// The allowed and denied hosts. A host that no pattern matches goes to the decider; without a
    /// decider it is refused.
    pub domains: DomainPatterns,
}

/// What the rules say about a host, before its name is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostRule {
    Allowed,
    Denied(&'static str),
    /// The rules do not know the host.
    Unlisted,
}

/// A refusal that does not depend on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProtocolRefusal {
    pub(crate) source: DecisionSource,
    pub(crate) reason: &'static str,
}

impl NetworkRules {
    /// Checks protocol and method. `method` is the method of a plain HTTP request, and None for tunnels.
    pub(crate) fn check_protocol(
        &self,
        protocol: ProxyProtocol,
        method: Option<&str>,
    ) -> Result<(), ProtocolRefusal> {
        let refusal = |source, reason| Err(ProtocolRefusal { source, reason });
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

    /// Decides by the text of the host. An address in a local range, or `localhost`, is refused here, before the decider
    /// is asked. `networks` are those of this machine.
    pub(crate) fn rule_for_host(&self, host: &TargetHost, networks: &LocalNetworks) -> HostRule {
        let rule = self.domains.rule_for(host);
        let is_denied_address = matches!(host, TargetHost::Address(address) if self.denies_address(*address));
        if rule == Some(DomainRule::Deny) || is_denied_address {
            return HostRule::Denied(reason::DENIED);
        }
        let is_local = match host {
            TargetHost::Address(address) => is_local_address(*address, networks),
            TargetHost::Name(name) => is_localhost(name),
        };
        if is_local && !self.may_be_local(host) {
            return HostRule::Denied(reason::NOT_ALLOWED_LOCAL);
        }
        if rule.is_some() { HostRule::Allowed } else { HostRule::Unlisted }
    }

    /// Why no connection may be made to these addresses, to which the host resolves. None if it may. One local address is
    /// enough to refuse them all: a name with both kinds of addresses is likely a rebinding attack. One address that a
    /// pattern denies is enough too. `networks` are those of this machine.
    pub(crate) fn refusal_of_addresses(
        &self,
        host: &TargetHost,
        addresses: &[IpAddr],
        networks: &LocalNetworks,
    ) -> Option<&'static str> {
        if addresses.iter().any(|address| self.denies_address(*address)) {
            return Some(reason::DENIED);
        }
        if self.local_targets == LocalTargets::Allowed {
            return None;
        }
        let may_be_local = self.may_be_local(host);
        let is_refused = addresses.iter().any(|address| match host {
            // `rule_for_host` has decided about this address already.
            TargetHost::Address(known) if known == address => false,
            // An allowed `localhost` may lead to loopback only, not to other local networks.
            _ if may_be_local && address.is_loopback() => false,
            _ => is_local_address(*address, networks),
        });
        is_refused.then_some(reason::NOT_ALLOWED_LOCAL)
    }

    /// Why a connection must not be used that was made to an allowed address. None if it may. A connection whose two
    /// ends have the same address leads to this machine, also if the address is not in the list of its interfaces.
    pub(crate) fn refusal_of_connection(&self, host: &TargetHost, own: IpAddr, peer: IpAddr) -> Option<&'static str> {
        let leads_here = own.to_canonical() == peer.to_canonical();
        let may_lead_here = match host {
            TargetHost::Address(_) => self.may_be_local(host),
            TargetHost::Name(_) if self.local_targets == LocalTargets::Allowed => true,
            TargetHost::Name(_) => self.may_be_local(host) && peer.to_canonical().is_loopback(),
        };
        (leads_here && !may_lead_here).then_some(reason::NOT_ALLOWED_LOCAL)
    }

    /// Whether a pattern denies this address, by whatever name the program asks for it.
    fn denies_address(&self, address: IpAddr) -> bool {
        // A connection to the address 0.0.0.0 or :: reaches loopback.
        let reached = match reached_address(address) {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
            other => other,
        };
        [address, reached]
            .map(|address| self.domains.rule_for(&TargetHost::Address(address)))
            .contains(&Some(DomainRule::Deny))
    }

    /// Whether a pattern without wildcards allows this local host. Only addresses and `localhost` qualify: the owner of
    /// any other name chooses its address.
    fn may_be_local(&self, host: &TargetHost) -> bool {
        let is_local_by_text = match host {
            TargetHost::Address(_) => true,
            TargetHost::Name(name) => is_localhost(name),
        };
        self.local_targets == LocalTargets::Allowed || (is_local_by_text && self.domains.allows_exactly(host))
    }
}

fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local_networks::tests::networks;

    fn rules(local_targets: LocalTargets, patterns: &[(&str, DomainRule)]) -> NetworkRules {
        let domains = DomainPatterns::new(patterns.iter().copied()).unwrap();
        NetworkRules { mode: ProxyMode::Full, local_targets, socks5: Socks5Support::Enabled, domains }
    }

    /// The networks of the machine on which the tests seem to run.
    fn own_networks() -> LocalNetworks {
        networks(&["1.2.3.4/24", "2a00:1::1/64"])
    }

    fn host_rule(rules: &NetworkRules, host: &str) -> HostRule {
        rules.rule_for_host(&TargetHost::parse(host).unwrap(), &own_networks())
    }

    fn refusal(rules: &NetworkRules, host: &str, addresses: &[&str]) -> Option<&'static str> {
        let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        rules.refusal_of_addresses(&TargetHost::parse(host).unwrap(), &addresses, &own_networks())
    }

    fn allows(rules: &NetworkRules, host: &str, addresses: &[&str]) -> bool {
        refusal(rules, host, addresses).is_none()
    }

    const EVERY_HOST: &[(&str, DomainRule)] = &[("*", DomainRule::Allow)];

    #[test]
    fn the_default_allows_no_host_and_no_tunnel() {
        let rules = NetworkRules::default();
        assert_eq!(host_rule(&rules, "example.com"), HostRule::Unlisted);
        assert!(rules.check_protocol(ProxyProtocol::Http, Some("POST")).is_err());
        assert!(rules.check_protocol(ProxyProtocol::Socks5Tcp, None).is_err());
    }

    #[test]
    fn limited_mode_allows_three_methods_and_no_tunnels() {
        let limited = NetworkRules { mode: ProxyMode::Limited, ..rules(LocalTargets::Refused, EVERY_HOST) };
        for method in ["GET", "HEAD", "OPTIONS"] {
            assert_eq!(limited.check_protocol(ProxyProtocol::Http, Some(method)), Ok(()), "{method}");
        }
        let refused = Err(ProtocolRefusal { source: DecisionSource::ModeGuard, reason: reason::METHOD_NOT_ALLOWED });
        for method in ["POST", "PUT", "DELETE", "TRACE", "get", "CONNECT"] {
            assert_eq!(limited.check_protocol(ProxyProtocol::Http, Some(method)), refused, "{method}");
        }
        for tunnel in [ProxyProtocol::HttpsConnect, ProxyProtocol::Socks5Tcp] {
            assert_eq!(limited.check_protocol(tunnel, None), refused, "{tunnel:?}");
        }
    }

    #[test]
    fn full_mode_allows_everything_but_udp_and_disabled_socks5() {
        let full = rules(LocalTargets::Refused, EVERY_HOST);
        assert_eq!(full.check_protocol(ProxyProtocol::Http, Some("POST")), Ok(()));
        assert_eq!(full.check_protocol(ProxyProtocol::HttpsConnect, None), Ok(()));
        assert_eq!(full.check_protocol(ProxyProtocol::Socks5Tcp, None), Ok(()));
        let udp = full.check_protocol(ProxyProtocol::Socks5Udp, None).unwrap_err();
        assert_eq!((udp.source, udp.reason), (DecisionSource::ProxyState, reason::UNSUPPORTED));
        let without = NetworkRules { socks5: Socks5Support::Disabled, ..full };
        let refused = without.check_protocol(ProxyProtocol::Socks5Tcp, None).unwrap_err();
        assert_eq!((refused.source, refused.reason), (DecisionSource::ProxyState, reason::SOCKS5_DISABLED));
    }

    #[test]
    fn a_wildcard_does_not_allow_local_targets() {
        let refused = rules(LocalTargets::Refused, EVERY_HOST);
        for host in ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "localhost", "a.localhost", "[fe80::1]"] {
            assert_eq!(host_rule(&refused, host), HostRule::Denied(reason::NOT_ALLOWED_LOCAL), "{host}");
            assert_eq!(host_rule(&rules(LocalTargets::Allowed, EVERY_HOST), host), HostRule::Allowed, "{host}");
        }
        assert_eq!(host_rule(&refused, "example.com"), HostRule::Allowed);
    }

    #[test]
    fn a_local_address_or_localhost_is_refused_without_a_question() {
        let refused = rules(LocalTargets::Refused, &[]);
        assert_eq!(host_rule(&refused, "localhost"), HostRule::Denied(reason::NOT_ALLOWED_LOCAL));
        assert_eq!(host_rule(&rules(LocalTargets::Allowed, &[]), "localhost"), HostRule::Unlisted);
    }

    #[test]
    fn an_exact_pattern_allows_a_local_address_and_localhost() {
        let exact = rules(
            LocalTargets::Refused,
            &[("127.0.0.1", DomainRule::Allow), ("localhost", DomainRule::Allow), ("db.test", DomainRule::Allow)],
        );
        assert_eq!(host_rule(&exact, "127.1"), HostRule::Allowed);
        assert!(allows(&exact, "127.0.0.1", &["127.0.0.1"]));
        assert_eq!(host_rule(&exact, "127.0.0.2"), HostRule::Denied(reason::NOT_ALLOWED_LOCAL));
        assert!(allows(&exact, "localhost", &["127.0.0.1", "::1"]));
        assert!(!allows(&exact, "localhost", &["127.0.0.1", "10.0.0.1"]));
        assert!(!allows(&exact, "db.test", &["127.0.0.1"]), "a name does not allow the address that it leads to");
    }

    #[test]
    fn an_address_of_this_machine_is_a_local_target() {
        let refused = rules(LocalTargets::Refused, EVERY_HOST);
        for address in ["1.2.3.4", "1.2.3.5", "::ffff:1.2.3.4", "64:ff9b::1.2.3.4", "2002:102:304::", "2a00:1::1"] {
            assert_eq!(host_rule(&refused, address), HostRule::Denied(reason::NOT_ALLOWED_LOCAL), "{address}");
            assert!(!allows(&refused, "example.com", &["9.9.9.9", address]), "{address}");
        }
        let exact = rules(LocalTargets::Refused, &[("1.2.3.4", DomainRule::Allow), ("localhost", DomainRule::Allow)]);
        assert_eq!(host_rule(&exact, "1.2.3.4"), HostRule::Allowed);
        assert!(allows(&exact, "1.2.3.4", &["1.2.3.4"]));
        assert!(!allows(&exact, "localhost", &["1.2.3.4"]), "only loopback is meant");
        assert!(allows(&rules(LocalTargets::Allowed, EVERY_HOST), "example.com", &["1.2.3.4"]));
    }

    #[test]
    fn a_connection_from_an_address_to_itself_is_a_local_target() {
        let exact = [("*", DomainRule::Allow), ("9.9.9.9", DomainRule::Allow), ("localhost", DomainRule::Allow)];
        let refused = rules(LocalTargets::Refused, &exact);
        let refusal = |rules: &NetworkRules, host: &str, own: &str, peer: &str| {
            let host = TargetHost::parse(host).unwrap();
            rules.refusal_of_connection(&host, own.parse().unwrap(), peer.parse().unwrap())
        };
        for (own, peer) in [("8.8.8.8", "8.8.8.8"), ("::ffff:8.8.8.8", "8.8.8.8"), ("2a01::1", "2a01::1")] {
            for host in ["a.test", "8.8.8.8", "localhost"] {
                assert_eq!(refusal(&refused, host, own, peer), Some(reason::NOT_ALLOWED_LOCAL), "{host} {own}");
                assert_eq!(refusal(&rules(LocalTargets::Allowed, EVERY_HOST), host, own, peer), None);
            }
        }
        assert_eq!(refusal(&refused, "a.test", "1.2.3.4", "8.8.8.8"), None);
        assert_eq!(refusal(&refused, "9.9.9.9", "9.9.9.9", "9.9.9.9"), None);
        assert_eq!(refusal(&refused, "localhost", "127.0.0.1", "127.0.0.1"), None);
    }

    #[test]
    fn a_pattern_for_a_name_and_all_below_it_does_not_allow_localhost() {
        let wildcard = rules(LocalTargets::Refused, &[("**.localhost", DomainRule::Allow)]);
        for host in ["localhost", "a.localhost"] {
            assert_eq!(host_rule(&wildcard, host), HostRule::Denied(reason::NOT_ALLOWED_LOCAL), "{host}");
            assert!(!allows(&wildcard, host, &["127.0.0.1"]), "{host}");
        }
    }

    #[test]
    fn a_denied_address_is_refused_by_every_name_and_spelling() {
        let denied = [("*", DomainRule::Allow), ("127.0.0.1", DomainRule::Deny), ("::1", DomainRule::Deny)];
        let rules = rules(LocalTargets::Allowed, &denied);
        for host in ["127.0.0.1", "0.0.0.0", "::", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(host_rule(&rules, host), HostRule::Denied(reason::DENIED), "{host}");
        }
        for address in ["127.0.0.1", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1"] {
            assert_eq!(refusal(&rules, "localhost", &[address]), Some(reason::DENIED), "{address}");
            assert_eq!(refusal(&rules, "a.test", &["192.0.2.1", address]), Some(reason::DENIED), "{address}");
        }
        assert!(allows(&rules, "a.test", &["127.0.0.2"]));
    }

    #[test]
    fn a_denied_address_is_refused_inside_an_ipv6_address_that_leads_to_it() {
        let denied =
            [("*", DomainRule::Allow), ("9.9.9.9", DomainRule::Deny), ("64:ff9b::808:808", DomainRule::Deny)];
        for local in [LocalTargets::Refused, LocalTargets::Allowed] {
            let rules = rules(local, &denied);
            for address in
                ["::ffff:9.9.9.9", "64:ff9b::9.9.9.9", "2002:909:909::", "2002:909:909::1", "64:ff9b::8.8.8.8"]
            {
                assert_eq!(host_rule(&rules, address), HostRule::Denied(reason::DENIED), "{address}");
                assert_eq!(refusal(&rules, "a.test", &[address]), Some(reason::DENIED), "{address}");
            }
            for address in ["8.8.8.8", "64:ff9b::9.9.9.8", "2002:909:908::"] {
                assert_eq!(host_rule(&rules, address), HostRule::Allowed, "{address}");
            }
        }
    }

    #[test]
    fn a_name_that_leads_to_a_local_address_is_refused() {
        let refused = rules(LocalTargets::Refused, EVERY_HOST);
        assert!(allows(&refused, "example.com", &["1.1.1.1", "2606:4700::1"]));
        for addresses in [["127.0.0.1"].as_slice(), &["1.1.1.1", "10.0.0.1"], &["::ffff:169.254.169.254"]] {
            let reason = refusal(&refused, "example.com", addresses);
            assert_eq!(reason, Some(reason::NOT_ALLOWED_LOCAL), "{addresses:?}");
            assert!(allows(&rules(LocalTargets::Allowed, EVERY_HOST), "example.com", addresses));
        }
    }
}
