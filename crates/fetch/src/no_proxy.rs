//! `NO_PROXY`: for whom no proxy is asked.

use std::net::IpAddr;

/// A parsed list.
pub(crate) struct NoProxy(Vec<Rule>);

enum Rule {
    Everybody,
    Network {
        address: IpAddr,
        prefix: u32,
    },
    /// The name itself and all below it, on one port or on all.
    Domain {
        name: String,
        port: Option<u16>,
    },
}

impl NoProxy {
    pub(crate) fn parse(list: &str) -> Self {
        Self(list.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(Rule::parse).collect())
    }

    pub(crate) fn covers(&self, host: &str, port: u16) -> bool {
        self.0.iter().any(|rule| rule.covers(host, port))
    }
}

impl Rule {
    fn parse(entry: &str) -> Self {
        if entry == "*" {
            return Self::Everybody;
        }
        if let Some(network) = parse_network(entry) {
            return network;
        }
        let (name, port) = match entry.rsplit_once(':').map(|(name, port)| (name, port.parse())) {
            Some((name, Ok(port))) => (name, Some(port)),
            _ => (entry, None),
        };
        let name = name.trim_start_matches('[').trim_end_matches(']');
        let name = name.trim_start_matches('*').trim_start_matches('.').trim_end_matches('.');
        Self::Domain { name: name.to_ascii_lowercase(), port }
    }

    fn covers(&self, host: &str, port: u16) -> bool {
        match self {
            Self::Everybody => true,
            Self::Network { address, prefix } => {
                host.parse().is_ok_and(|given| share_prefix(given, *address, *prefix))
            }
            Self::Domain { name, port: only } => only.is_none_or(|only| only == port) && is_at_or_below(host, name),
        }
    }
}

fn is_at_or_below(host: &str, name: &str) -> bool {
    let host = host.trim_end_matches('.');
    match host.strip_suffix(name) {
        Some(rest) => !name.is_empty() && (rest.is_empty() || rest.ends_with('.')),
        None => false,
    }
}

fn parse_network(entry: &str) -> Option<Rule> {
    let (address, prefix) = match entry.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix.parse().ok()?)),
        None => (entry, None),
    };
    let address: IpAddr = address.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let prefix = prefix.unwrap_or(width);
    (prefix <= width).then_some(Rule::Network { address, prefix })
}

/// Addresses of different families have nothing in common.
fn share_prefix(one: IpAddr, other: IpAddr, prefix: u32) -> bool {
    let common_bits = match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (u32::from(one) ^ u32::from(other)).leading_zeros(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (u128::from(one) ^ u128::from(other)).leading_zeros(),
        _ => return false,
    };
    common_bits >= prefix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cover_what_is_below_them_and_addresses_cover_networks() {
        let list = NoProxy::parse(
            "example.com, .dotted.org,*.star.net,10.0.0.0/8,192.168.1.7,fd00::/8,[::1],only.port:8080,127.0.0.1:99",
        );
        for (host, port) in [
            ("example.com", 1),
            ("a.b.example.com", 1),
            ("example.com.", 1),
            ("dotted.org", 1),
            ("a.dotted.org", 1),
            ("a.star.net", 1),
            ("10.200.3.4", 1),
            ("192.168.1.7", 1),
            ("fd12::3", 1),
            ("::1", 1),
            ("only.port", 8080),
            ("127.0.0.1", 99),
        ] {
            assert!(list.covers(host, port), "{host}");
        }
        for (host, port) in [
            ("badexample.com", 1),
            ("example.org", 1),
            ("11.0.0.1", 1),
            ("192.168.1.8", 1),
            ("fe80::1", 1),
            ("only.port", 80),
            ("127.0.0.1", 98),
        ] {
            assert!(!list.covers(host, port), "{host}");
        }
    }

    #[test]
    fn a_star_is_everybody_and_nothing_is_nobody() {
        assert!(NoProxy::parse(" * ").covers("anything", 1));
        assert!(NoProxy::parse("0.0.0.0/0").covers("1.2.3.4", 1));
        for nobody in ["", ",,", " , .,", "10.0.0.0/33"] {
            assert!(!NoProxy::parse(nobody).covers("1.2.3.4", 1), "{nobody}");
            assert!(!NoProxy::parse(nobody).covers("h", 1), "{nobody}");
        }
    }
}
