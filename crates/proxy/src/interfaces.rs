//! Reads the addresses of this machine's network interfaces from the kernel, over a netlink socket (`rtnetlink(7)`). Start
//! with [`Interfaces::networks`]. What the addresses mean for a target is decided in [`crate::local_address`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

use crate::local_networks::{LocalNetwork, LocalNetworks};

/// Time for which a list is used. Reading takes microseconds with few interfaces, and milliseconds with thousands.
const LIST_KEPT: Duration = Duration::from_secs(1);

/// The kernel sends no larger part of a list.
const MAX_PART_BYTES: usize = 32 << 10;

/// How often a list is read that changes while the kernel sends it. The last list is used even if it has changed too.
const MAX_READS: u32 = 3;

/// Bytes of `nlmsghdr`, `ifaddrmsg` and `rtattr`, and what lengths are rounded up to.
const MESSAGE_HEADER: usize = 16;
const ADDRESS_HEADER: usize = 8;
const ATTRIBUTE_HEADER: usize = 4;
const ALIGNMENT: usize = 4;

/// Types of messages.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;

/// Flags of messages: a request for the whole list, and a list that has changed meanwhile.
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLM_F_DUMP_INTR: u16 = 0x10;

/// Attributes of an address. They differ if the interface leads to a single peer: `IFA_ADDRESS` is then the peer.
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// The interfaces of this machine. Keeps their list for a moment.
#[derive(Debug, Default)]
pub(crate) struct Interfaces {
    known: Mutex<Option<KnownNetworks>>,
}

#[derive(Debug)]
struct KnownNetworks {
    networks: Arc<LocalNetworks>,
    read: Instant,
}

impl Interfaces {
    /// The networks that this machine is in, at most [`LIST_KEPT`] old. If the list cannot be read, this is the last list
    /// that could be, or else no network.
    pub(crate) fn networks(&self) -> Arc<LocalNetworks> {
        let mut known = self.known.lock();
        if let Some(known) = known.as_ref().filter(|known| known.read.elapsed() < LIST_KEPT) {
            return Arc::clone(&known.networks);
        }
        let networks = match read_networks() {
            Ok(networks) => Arc::new(networks),
            Err(error) => {
                if known.is_none() {
                    tracing::warn!(%error, "a network proxy cannot read the addresses of this machine");
                }
                known.as_ref().map(|known| Arc::clone(&known.networks)).unwrap_or_default()
            }
        };
        *known = Some(KnownNetworks { networks: Arc::clone(&networks), read: Instant::now() });
        networks
    }
}

/// Whether a list has changed while the kernel sent it, so that entries may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListState {
    Whole,
    Changed,
}

fn read_networks() -> io::Result<LocalNetworks> {
    let mut tries = 1;
    loop {
        let (networks, state) = read_once()?;
        if state == ListState::Whole || tries == MAX_READS {
            return Ok(networks.into_iter().collect());
        }
        tries += 1;
    }
}

fn read_once() -> io::Result<(Vec<LocalNetwork>, ListState)> {
    // Protocol `None` is 0, which is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let length = MESSAGE_HEADER + ADDRESS_HEADER;
    let mut request = Vec::with_capacity(length);
    request.extend(u32::try_from(length).map_err(io::Error::other)?.to_ne_bytes());
    request.extend(RTM_GETADDR.to_ne_bytes());
    request.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    // The sequence number, the port, and an `ifaddrmsg` that asks for every family, are zero.
    request.resize(length, 0);
    send(&socket, &request, SendFlags::empty())?;
    let mut list = AddressList::default();
    let mut part = vec![0; MAX_PART_BYTES];
    while !list.is_complete {
        // The kernel makes each part of the list when the part before is taken, so this never has to wait.
        let (count, _) = recv(&socket, &mut part[..], RecvFlags::DONTWAIT)?;
        list.add_part(part.get(..count).unwrap_or_default())?;
    }
    Ok((list.networks, if list.has_changed { ListState::Changed } else { ListState::Whole }))
}

/// The list, as far as its parts have come.
#[derive(Debug, Default)]
struct AddressList {
    networks: Vec<LocalNetwork>,
    has_changed: bool,
    is_complete: bool,
}

impl AddressList {
    /// Reads the messages of one part.
    fn add_part(&mut self, mut part: &[u8]) -> io::Result<()> {
        if part.is_empty() {
            return Err(malformed());
        }
        while !part.is_empty() {
            let length = number(part, 0).map(u32::from_ne_bytes).ok_or_else(malformed)?;
            let kind = number(part, 4).map(u16::from_ne_bytes).ok_or_else(malformed)?;
            let flags = number(part, 6).map(u16::from_ne_bytes).ok_or_else(malformed)?;
            let length = usize::try_from(length).map_err(io::Error::other)?;
            let body = part.get(MESSAGE_HEADER..length).ok_or_else(malformed)?;
            self.has_changed |= flags & NLM_F_DUMP_INTR != 0;
            match kind {
                NLMSG_DONE => {
                    self.is_complete = true;
                    return Ok(());
                }
                NLMSG_ERROR => {
                    let code = number(body, 0).map(i32::from_ne_bytes).ok_or_else(malformed)?;
                    return Err(io::Error::from_raw_os_error(code.saturating_neg()));
                }
                RTM_NEWADDR => self.add_address(body)?,
                _ => {}
            }
            part = part.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        }
        Ok(())
    }

    fn add_address(&mut self, body: &[u8]) -> io::Result<()> {
        let [family, prefix_bits] = number(body, 0).ok_or_else(malformed)?;
        let mut attributes = body.get(ADDRESS_HEADER..).ok_or_else(malformed)?;
        while !attributes.is_empty() {
            let length = number(attributes, 0).map(u16::from_ne_bytes).ok_or_else(malformed)?;
            let kind = number(attributes, 2).map(u16::from_ne_bytes).ok_or_else(malformed)?;
            let length = usize::from(length);
            let value = attributes.get(ATTRIBUTE_HEADER..length).ok_or_else(malformed)?;
            let address = match family {
                AF_INET => number(value, 0).map(|octets: [u8; 4]| IpAddr::V4(Ipv4Addr::from(octets))),
                AF_INET6 => number(value, 0).map(|octets: [u8; 16]| IpAddr::V6(Ipv6Addr::from(octets))),
                _ => None,
            };
            match (kind, address) {
                (IFA_ADDRESS, Some(address)) => self.networks.push(LocalNetwork { address, prefix_bits }),
                // The prefix belongs to the network of the peer.
                (IFA_LOCAL, Some(address)) => self.networks.push(LocalNetwork { address, prefix_bits: u8::MAX }),
                _ => {}
            }
            attributes = attributes.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        }
        Ok(())
    }
}

/// The bytes of a number or an address at an offset.
fn number<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset + N)?.try_into().ok()
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the kernel has sent a list of addresses that cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local_networks::tests::networks;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(ATTRIBUTE_HEADER + value.len()).unwrap();
        [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat()
    }

    fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(MESSAGE_HEADER + body.len()).unwrap();
        [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 8], body].concat()
    }

    fn address(family: u8, prefix_bits: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
        let header = [family, prefix_bits, 0, 0, 1, 0, 0, 0];
        message(RTM_NEWADDR, 2, &[&header[..], &attributes.concat()].concat())
    }

    #[test]
    fn the_interfaces_of_this_machine_are_read() {
        read_networks().unwrap();
        let interfaces = Interfaces::default();
        let first = interfaces.networks();
        assert!(Arc::ptr_eq(&first, &interfaces.networks()), "the list is kept for a moment");
    }

    #[test]
    fn addresses_prefixes_and_peers_are_read_from_several_parts() {
        let mut list = AddressList::default();
        let name = attribute(3, b"eth\0\0\0");
        let v4 = address(AF_INET, 24, &[attribute(IFA_ADDRESS, &[1, 2, 3, 4]), name.clone(), vec![0, 0]]);
        let peer =
            address(AF_INET, 30, &[attribute(IFA_ADDRESS, &[5, 0, 0, 2]), attribute(IFA_LOCAL, &[6, 0, 0, 1])]);
        list.add_part(&[v4, message(1, 0, &[]), peer].concat()).unwrap();
        assert!(!list.is_complete && !list.has_changed);
        let v6 = "2a00::1".parse::<Ipv6Addr>().unwrap().octets();
        list.add_part(&address(AF_INET6, 64, &[attribute(IFA_ADDRESS, &v6)])).unwrap();
        list.add_part(&message(NLMSG_DONE, NLM_F_DUMP_INTR, &[0; 4])).unwrap();
        assert!(list.is_complete && list.has_changed);
        let expected = networks(&["1.2.3.4/24", "5.0.0.2/30", "6.0.0.1/255", "2a00::1/64"]);
        assert_eq!(list.networks.into_iter().collect::<LocalNetworks>(), expected);
    }

    #[test]
    fn a_list_that_cannot_be_read_is_an_error_and_no_panic() {
        let refused = AddressList::default().add_part(&message(NLMSG_ERROR, 0, &(-1_i32).to_ne_bytes()));
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(1));
        let whole = address(AF_INET, 24, &[attribute(IFA_ADDRESS, &[1, 2, 3, 4])]);
        for count in 0..whole.len() {
            assert!(AddressList::default().add_part(&whole[..count]).is_err(), "{count}");
        }
        for length in [0_u32, 1, 15, u32::MAX] {
            let mut wrong = whole.clone();
            wrong[..4].copy_from_slice(&length.to_ne_bytes());
            assert!(AddressList::default().add_part(&wrong).is_err(), "{length}");
        }
        for length in [0_u16, 3, u16::MAX] {
            let mut wrong = whole.clone();
            wrong[24..26].copy_from_slice(&length.to_ne_bytes());
            assert!(AddressList::default().add_part(&wrong).is_err(), "{length}");
        }
    }
}
