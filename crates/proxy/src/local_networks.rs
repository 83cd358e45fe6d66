//! The networks that this machine is in, as a value: for each address of its interfaces, the address and the length of
//! the network prefix. [`crate::interfaces`] reads them from the kernel.

use std::net::IpAddr;

/// The networks of this machine. The default is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LocalNetworks(Vec<LocalNetwork>);

/// An address of an interface, and every address with the same prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalNetwork {
    pub(crate) address: IpAddr,
    /// The number of leading bits that all addresses of the network share.
    pub(crate) prefix_bits: u8,
}

impl LocalNetworks {
    /// Whether the address belongs to this machine, or to a network that the machine is in.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }
}

impl FromIterator<LocalNetwork> for LocalNetworks {
    fn from_iter<I: IntoIterator<Item = LocalNetwork>>(networks: I) -> Self {
        Self(networks.into_iter().collect())
    }
}

impl LocalNetwork {
    fn contains(&self, other: IpAddr) -> bool {
        match (self.address, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = u32::from(own) ^ u32::from(other);
                differing.leading_zeros() >= u32::from(self.prefix_bits).min(u32::BITS)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = u128::from(own) ^ u128::from(other);
                differing.leading_zeros() >= u32::from(self.prefix_bits).min(u128::BITS)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Networks that are written as `address/prefix`.
    pub(crate) fn networks(texts: &[&str]) -> LocalNetworks {
        let parse = |text: &&str| {
            let (address, prefix_bits) = text.split_once('/').unwrap();
            LocalNetwork { address: address.parse().unwrap(), prefix_bits: prefix_bits.parse().unwrap() }
        };
        texts.iter().map(parse).collect()
    }

    #[test]
    fn a_network_has_the_addresses_with_its_prefix() {
        let networks = networks(&["1.2.3.4/32", "5.6.7.8/22", "2a00:1::5/64", "9.9.9.9/31"]);
        let inside = ["1.2.3.4", "5.6.4.0", "5.6.7.255", "2a00:1::", "2a00:1::ffff:ffff:ffff:ffff", "9.9.9.8"];
        for address in inside {
            assert!(networks.contains(address.parse().unwrap()), "{address}");
        }
        for address in ["1.2.3.5", "5.6.3.255", "5.6.8.0", "2a00:1:0:1::", "9.9.9.10", "::ffff:1.2.3.4"] {
            assert!(!networks.contains(address.parse().unwrap()), "{address}");
        }
        assert!(!LocalNetworks::default().contains("1.2.3.4".parse().unwrap()));
    }
}
