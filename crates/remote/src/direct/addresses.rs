//! The rule that says which addresses an executor may offer and a harness may try. Does no IO. An executor may offer an
//! address that is not its own. The program at that address then gets a request with a ticket that it cannot use.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// The metadata service of most clouds. It gives credentials to every program that asks, so it is never offered or
/// tried.
const CLOUD_METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

/// Which addresses an executor offers, or a harness tries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectPolicy {
    /// No address: all connections use the relay.
    Off,
    /// Private and link-local addresses, and loopback addresses if both ends share a loopback interface.
    #[default]
    Private,
    /// All that [`Self::Private`] permits, and public addresses.
    On,
}

impl DirectPolicy {
    /// Whether this address may be offered or tried. `is_same_machine`: the other end has the same loopback interface.
    pub fn permits(self, address: SocketAddr, is_same_machine: bool) -> bool {
        let ip = address.ip().to_canonical();
        let is_for_one_program = match ip {
            IpAddr::V4(ip) => !ip.is_broadcast() && ip != CLOUD_METADATA,
            IpAddr::V6(_) => true,
        };
        if !is_for_one_program || address.port() == 0 || ip.is_unspecified() || ip.is_multicast() {
            return false;
        }
        match self {
            Self::Off => false,
            Self::Private | Self::On if ip.is_loopback() => is_same_machine,
            Self::Private => is_private(ip),
            Self::On => true,
        }
    }
}

fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

/// The text is not the name of a [`DirectPolicy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected `on`, `off` or `private`")]
pub struct UnknownDirectPolicy;

impl FromStr for DirectPolicy {
    type Err = UnknownDirectPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownDirectPolicy> {
        match text {
            "off" => Ok(Self::Off),
            "private" => Ok(Self::Private),
            "on" => Ok(Self::On),
            _ => Err(UnknownDirectPolicy),
        }
    }
}

impl fmt::Display for DirectPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Private => "private",
            Self::On => "on",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIVATE: [&str; 9] = [
        "10.1.2.3:7000",
        "172.16.0.1:7000",
        "172.31.255.254:7000",
        "192.168.1.7:7000",
        "169.254.7.7:7000",
        "[fd00::7]:7000",
        "[fc00::1]:7000",
        "[fe80::1]:7000",
        "[::ffff:192.168.1.7]:7000",
    ];
    const PUBLIC: [&str; 11] = [
        "198.51.100.7:7000",
        "203.0.113.9:443",
        "172.15.255.255:7000",
        "172.32.0.1:7000",
        "192.167.255.255:7000",
        "100.64.0.1:7000",
        "11.0.0.1:7000",
        "[2001:db8::1]:7000",
        "[fec0::1]:7000",
        "[::ffff:198.51.100.7]:7000",
        "[64:ff9b::a00:1]:7000",
    ];
    const LOOPBACK: [&str; 4] = ["127.0.0.1:7000", "127.9.9.9:7000", "[::1]:7000", "[::ffff:127.0.0.1]:7000"];
    const NEVER: [&str; 9] = [
        "0.0.0.0:7000",
        "[::]:7000",
        "[::ffff:0.0.0.0]:7000",
        "192.168.1.7:0",
        "255.255.255.255:7000",
        "224.0.0.1:7000",
        "[ff02::1]:7000",
        "169.254.169.254:80",
        "[::ffff:169.254.169.254]:80",
    ];

    fn permitted(policy: DirectPolicy, addresses: &[&str], is_same_machine: bool) -> usize {
        addresses.iter().filter(|address| policy.permits(address.parse().unwrap(), is_same_machine)).count()
    }

    #[test]
    fn public_addresses_need_on_and_loopback_needs_the_same_machine() {
        use DirectPolicy::{Off, On, Private};
        for (policy, private, public) in [(Off, 0, 0), (Private, PRIVATE.len(), 0), (On, PRIVATE.len(), PUBLIC.len())]
        {
            for is_same_machine in [false, true] {
                assert_eq!(permitted(policy, &PRIVATE, is_same_machine), private, "{policy}");
                assert_eq!(permitted(policy, &PUBLIC, is_same_machine), public, "{policy}");
                assert_eq!(permitted(policy, &NEVER, is_same_machine), 0, "{policy}");
                let loopback = if policy != Off && is_same_machine { LOOPBACK.len() } else { 0 };
                assert_eq!(permitted(policy, &LOOPBACK, is_same_machine), loopback, "{policy}");
            }
        }
    }

    #[test]
    fn the_names_of_the_policies_are_read_as_they_are_shown() {
        for policy in [DirectPolicy::Off, DirectPolicy::Private, DirectPolicy::On] {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        assert_eq!("public".parse::<DirectPolicy>(), Err(UnknownDirectPolicy));
        assert_eq!(DirectPolicy::default(), DirectPolicy::Private);
    }
}
