//! Which addresses are not on the public internet: the machine itself, its local networks, and reserved
//! ranges. A target at such an address is reached only if the rules allow local targets or name this address. Some
//! ranges are local on every machine; the networks of this machine are an argument.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::local_networks::LocalNetworks;

/// Whether the address is reserved for a special use, or local: in a range that is local everywhere, or in a network of
/// this machine. An IPv6 address that leads to an IPv4 address counts as that IPv4 address.
pub(crate) fn is_local_address(address: IpAddr, networks: &LocalNetworks) -> bool {
    let reached = reached_address(address);
    let is_in_local_range = match reached {
        IpAddr::V4(reached) => is_local_v4(reached),
        IpAddr::V6(reached) => is_local_v6(reached),
    };
    is_in_local_range || networks.contains(reached) || networks.contains(address)
}

/// The address to which a connection to `address` leads: the IPv4 address in a mapped, translated or tunnelled IPv6
/// address, and any other address itself.
pub(crate) fn reached_address(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(address) => carried_v4(address).map_or(IpAddr::V6(address), IpAddr::V4),
        v4 @ IpAddr::V4(_) => v4,
    }
}

fn is_local_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    // 0.0.0.0 connects to this machine.
    a == 0
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        // Shared by the customers of a provider.
        || (a == 100 && (64..128).contains(&b))
        // Protocol assignments, tests of devices, and examples in documents.
        || (a, b, c) == (192, 0, 0)
        || (a == 198 && (18..20).contains(&b))
        || address.is_documentation()
        // Reserved, and broadcast.
        || a >= 240
}

fn is_local_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    // The public internet uses 2000::/3 only. The other ranges are the machine itself (::1), its networks (fc00::/7,
    // fe80::/10, fec0::/10), groups (ff00::/8), and ranges without an owner.
    let is_public = (0x2000..0x4000).contains(&first);
    // 2001::/23 is for protocols such as Teredo, and 2001:db8::/32 and 3fff::/20 are for examples.
    !is_public || (first == 0x2001 && (second < 0x200 || second == 0xdb8)) || (first == 0x3fff && second < 0x1000)
}

/// The IPv4 address embedded in a mapped, NAT64 or 6to4 address.
fn carried_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let from = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match (a, b) {
        // Mapped (::ffff:a.b.c.d).
        (0, 0) if (c, d, e, f) == (0, 0, 0, 0xffff) => Some(from(g, h)),
        // Translated by NAT64 (64:ff9b::a.b.c.d).
        (0x64, 0xff9b) if (c, d, e, f) == (0, 0, 0, 0) => Some(from(g, h)),
        // Tunnelled by 6to4 (2002:a.b.c.d::).
        (0x2002, high) => Some(from(high, c)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local_networks::tests::networks;

    #[test]
    fn local_and_special_addresses_are_local() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "127.255.255.254",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.127.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "2001::1",
            "2001:db8::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "3fff::1",
        ] {
            assert!(is_local_address(text.parse().unwrap(), &LocalNetworks::default()), "{text}");
        }
    }

    #[test]
    fn public_addresses_are_not_local() {
        for text in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "128.0.0.1",
            "169.253.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "192.167.1.1",
            "192.169.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450::1",
            "2001:4860:4860::8888",
            "2002:101:101::",
            "64:ff9b::101:101",
            "::ffff:1.1.1.1",
        ] {
            assert!(!is_local_address(text.parse().unwrap(), &LocalNetworks::default()), "{text}");
        }
    }

    #[test]
    fn addresses_in_networks_of_this_machine_are_local() {
        let networks = networks(&["1.2.3.4/24", "2a00:1::1/64"]);
        for text in ["1.2.3.4", "1.2.3.200", "::ffff:1.2.3.4", "64:ff9b::1.2.3.4", "2002:102:304::1", "2a00:1::2"] {
            assert!(is_local_address(text.parse().unwrap(), &networks), "{text}");
        }
        for text in ["1.2.4.4", "::ffff:1.2.4.4", "2002:102:404::1", "2a00:1:0:1::1"] {
            assert!(!is_local_address(text.parse().unwrap(), &networks), "{text}");
        }
    }
}
