//! The offer of a direct path: the control frames in the encrypted stream, and the addresses that are in an offer.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::DirectListeners;
use super::addresses::DirectPolicy;
use super::machine;

/// The kind of the control frame with which a harness asks for an offer. It has no payload.
pub(crate) const DIRECT_REQUEST: u8 = 16;

/// The kind of the control frame with an offer, as JSON.
pub(crate) const DIRECT_OFFER: u8 = 17;

/// The largest number of addresses in an offer, and the largest number that a harness tries.
const MAX_ADDRESSES: usize = 8;

/// Addresses of an executor, and the two secrets by which the ends recognise each other there.
#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct DirectOffer {
    /// The addresses of listeners of the executor.
    pub(super) addresses: Vec<SocketAddr>,
    /// [`machine::this_machine`] of the executor. Empty if it is not known.
    pub(super) machine: String,
    /// The secret that the harness sends to a listener. It is accepted once, and only for a few seconds.
    pub(crate) ticket: String,
    /// The secret that the executor sends as its first message over the direct path. Another program at this address
    /// does not know it.
    pub(crate) answer: String,
}

impl DirectListeners {
    /// Whether the policy and the listeners allow offers at all.
    pub(crate) fn can_offer(&self) -> bool {
        self.policy != DirectPolicy::Off && !self.addresses.is_empty()
    }

    /// An offer with this ticket and this answer. `None` if the machine has no address at present that the policy
    /// permits.
    pub(crate) fn offer(&self, ticket: String, answer: String) -> Option<DirectOffer> {
        let machine = machine::this_machine();
        let mut addresses = Vec::new();
        for listener in &self.addresses {
            if listener.ip().to_canonical().is_unspecified() {
                let is_ipv4 = listener.is_ipv4();
                let reachable = machine::addresses().into_iter().filter(|ip| ip.is_ipv4() || !is_ipv4);
                addresses.extend(reachable.map(|ip| SocketAddr::new(ip, listener.port())));
            } else {
                addresses.push(*listener);
            }
        }
        let addresses = permitted(self.policy, addresses, machine.is_some());
        let machine = machine.unwrap_or_default();
        (!addresses.is_empty()).then_some(DirectOffer { addresses, machine, ticket, answer })
    }
}

impl DirectOffer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        // Strings and addresses can always be written as JSON, so this never fails.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(crate) fn decode(payload: &[u8]) -> Option<Self> {
        serde_json::from_slice(payload).ok()
    }

    /// The addresses that a harness tries, in this order. `here` is [`machine::this_machine`] of the harness.
    pub(crate) fn addresses_to_try(&self, policy: DirectPolicy, here: Option<&str>) -> Vec<SocketAddr> {
        let is_same_machine = here.is_some_and(|here| here == self.machine);
        permitted(policy, self.addresses.iter().copied(), is_same_machine)
    }
}

/// At most [`MAX_ADDRESSES`] addresses that the policy permits. Loopback addresses come first, because they are the
/// fastest.
fn permitted(
    policy: DirectPolicy,
    addresses: impl IntoIterator<Item = SocketAddr>,
    is_same_machine: bool,
) -> Vec<SocketAddr> {
    let mut seen = BTreeSet::new();
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let mut permitted: Vec<_> = addresses
        .into_iter()
        .map(canonical)
        .filter(|address| policy.permits(*address, is_same_machine) && seen.insert(*address))
        .collect();
    let is_far = |ip: IpAddr| !ip.is_loopback();
    permitted.sort_by_key(|address| is_far(address.ip()));
    permitted.truncate(MAX_ADDRESSES);
    permitted
}

/// Leaves out the ticket and the answer, which are secret.
impl fmt::Debug for DirectOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectOffer").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(addresses: &[&str]) -> DirectOffer {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        DirectOffer { addresses, machine: "here".to_owned(), ticket: "t".to_owned(), answer: "a".to_owned() }
    }

    fn tried(offer: &DirectOffer, policy: DirectPolicy, here: &str) -> Vec<String> {
        offer.addresses_to_try(policy, Some(here)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_harness_tries_only_what_its_own_policy_permits() {
        let offer = offer(&["203.0.113.9:1", "10.0.0.1:2", "127.0.0.1:3", "[::ffff:10.0.0.1]:2", "0.0.0.0:4"]);
        let decoded = DirectOffer::decode(&offer.encode()).unwrap();
        assert_eq!(tried(&decoded, DirectPolicy::Private, "here"), ["127.0.0.1:3", "10.0.0.1:2"]);
        assert_eq!(tried(&decoded, DirectPolicy::Private, "elsewhere"), ["10.0.0.1:2"]);
        assert_eq!(tried(&decoded, DirectPolicy::On, "elsewhere"), ["203.0.113.9:1", "10.0.0.1:2"]);
        assert_eq!(tried(&decoded, DirectPolicy::Off, "here"), [""; 0]);
        assert!(
            offer.addresses_to_try(DirectPolicy::Private, None).iter().all(|address| !address.ip().is_loopback())
        );
    }

    #[test]
    fn an_offer_names_few_addresses_and_a_listener_of_all_interfaces_none_that_is_unspecified() {
        let many: Vec<_> = (1..200).map(|port| format!("10.0.0.1:{port}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(tried(&offer(&many), DirectPolicy::On, "here").len(), MAX_ADDRESSES);
        for listener in ["0.0.0.0:7000", "[::]:7000"] {
            let listeners =
                DirectListeners { policy: DirectPolicy::Private, addresses: vec![listener.parse().unwrap()] };
            let offered = listeners.offer("t".to_owned(), "a".to_owned()).unwrap().addresses;
            assert!(offered.contains(&"127.0.0.1:7000".parse().unwrap()), "{offered:?}");
            assert!(offered.iter().all(|address| !address.ip().is_unspecified()), "{offered:?}");
        }
    }

    #[test]
    fn nothing_is_offered_without_a_permitted_address_and_secrets_are_not_shown() {
        let public = vec!["203.0.113.9:7000".parse().unwrap()];
        let listeners = DirectListeners { policy: DirectPolicy::Private, addresses: public };
        assert!(listeners.offer("t".to_owned(), "a".to_owned()).is_none());
        let shown = format!("{:?}", offer(&["10.0.0.1:2"]));
        assert!(!shown.contains("\"t\"") && !shown.contains("\"a\""), "{shown}");
        assert!(DirectOffer::decode(b"{}").is_none() && DirectOffer::decode(b"").is_none());
    }
}
