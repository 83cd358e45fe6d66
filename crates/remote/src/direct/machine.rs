//! Facts about the own machine that the direct path needs: its IP addresses, and a text by which two processes can tell
//! whether they share a loopback interface.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// An id that the kernel makes anew at every boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The network namespace of this process. Containers on one machine have different ones, and each has a loopback interface
/// of its own.
const NETWORK_NAMESPACE: &str = "/proc/self/ns/net";

/// The IPv4 routes, which include a route to each address of this machine.
const IPV4_ROUTES: &str = "/proc/net/fib_trie";

/// The IPv6 addresses of this machine, one in each line.
const IPV6_ADDRESSES: &str = "/proc/net/if_inet6";

/// A text that is the same for all processes that share a loopback interface, and different for all others. It is a
/// hash, so that the other end does not learn the ids behind it. `None` if the system does not show these ids.
pub(crate) fn this_machine() -> Option<String> {
    let boot_id = std::fs::read_to_string(BOOT_ID).ok()?;
    let namespace = std::fs::read_link(NETWORK_NAMESPACE).ok()?;
    let text = format!("exec-server/direct/machine/v1 {} {}", boot_id.trim(), namespace.display());
    Some(URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes())))
}

/// The addresses of all interfaces, loopback included. Link-local IPv6 addresses are left out: they are of use only
/// with the number of an interface, which differs between machines.
pub(super) fn addresses() -> Vec<IpAddr> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let ipv4 = local_ipv4(&read(IPV4_ROUTES)).into_iter().map(IpAddr::V4);
    ipv4.chain(local_ipv6(&read(IPV6_ADDRESSES)).into_iter().map(IpAddr::V6)).collect()
}

/// Reads [`IPV4_ROUTES`]. The kernel lists an address as `|-- 192.168.1.7`, with `/32 host LOCAL` in the next line.
fn local_ipv4(routes: &str) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let mut last = None;
    for line in routes.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line == "/32 host LOCAL"
            && let Some(address) = last
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found
}

/// Reads [`IPV6_ADDRESSES`]. Each line has the address in hexadecimal, the number of the interface, the length of the
/// prefix, the scope (`20` is link-local), flags, and the name of the interface.
fn local_ipv6(addresses: &str) -> Vec<Ipv6Addr> {
    let address = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let bits = u128::from_str_radix(fields.next()?, 16).ok()?;
        (fields.nth(2)? != "20").then(|| Ipv6Addr::from_bits(bits))
    };
    addresses.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_the_tables_of_the_kernel() {
        let routes = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     |-- 127.0.0.0\n        /8 host LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\n        |-- 10.0.0.5\n           /32 host LOCAL\n        |-- 10.0.0.255\n           /32 link BROADCAST\nLocal:\n        |-- 10.0.0.5\n           /32 host LOCAL\n";
        assert_eq!(local_ipv4(routes), [Ipv4Addr::LOCALHOST, Ipv4Addr::new(10, 0, 0, 5)]);
        let addresses = "00000000000000000000000000000001 01 80 10 80       lo\nfe8000000000000000fc00fffe000001 04 40 20 80     eth0\nfd000000000000000000000000000002 04 40 00 82     eth0\nnonsense\n";
        let expected: [Ipv6Addr; 2] = ["::1".parse().unwrap(), "fd00::2".parse().unwrap()];
        assert_eq!(local_ipv6(addresses), expected);
        assert!(local_ipv4("").is_empty() && local_ipv6("").is_empty());
    }

    #[test]
    fn this_machine_has_loopback_and_one_name() {
        assert!(addresses().contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
        assert_eq!(this_machine().unwrap(), this_machine().unwrap());
    }
}
