//! Which addresses are not on the public internet: the machine itself, its local networks, and reserved
//! ranges. A target at such an address is reached only if the rules allow local targets or name this address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether the address is local, or reserved for a special use. An IPv6 address that leads to an IPv4 address (mapped,
/// translated or tunnelled) counts as that IPv4 address.
pub(crate) fn is_local_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_local_v4(address),
        IpAddr::V6(address) => match carried_v4(address) {
            Some(carried) => is_local_v4(carried),
            None => is_local_v6(address),
        },
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
            assert!(is_local_address(text.parse().unwrap()), "{text}");
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
            assert!(!is_local_address(text.parse().unwrap()), "{text}");
        }
    }
}
