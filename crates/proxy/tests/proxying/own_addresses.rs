//! Targets at addresses of this machine that are in no range of local addresses. The role runs in a network namespace
//! of its own, in which it gives such addresses to the loopback interface. No packet leaves the namespace.

use std::env;
use std::net::Ipv4Addr;
use std::process::Command;

use proxy::{LocalTargets, NetworkRules, ProxyVerdict, reason};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use testkit::{HttpPeer, http_ok};

use crate::support::{Allow, Setup, TestProxy, patterns};

/// Set in the process of the role, so that a run of all ignored tests does nothing.
const ROLE_VARIABLE: &str = "PROXY_TEST_ROLE";
/// The line that the role prints when it has finished.
const DONE: &str = "the role has finished";

/// An address of the interface, and another address in its network.
const OF_INTERFACE: Ipv4Addr = Ipv4Addr::new(1, 2, 3, 4);
const IN_NETWORK: Ipv4Addr = Ipv4Addr::new(1, 2, 3, 200);
/// An address that leads to this machine because of a route. No interface has it.
const ROUTED: Ipv4Addr = Ipv4Addr::new(5, 6, 7, 8);

#[test]
fn addresses_of_this_machine_are_local_targets() {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net"]).arg(env::current_exe().unwrap());
    command.args(["own_addresses::role_own_addresses", "--exact", "--ignored", "--nocapture"]);
    let run = command.env(ROLE_VARIABLE, "yes").output().unwrap();
    let output = String::from_utf8_lossy(&run.stdout);
    assert!(output.contains(DONE), "{output}{}", String::from_utf8_lossy(&run.stderr));
}

#[tokio::test]
#[ignore = "run by the test above in a process of its own"]
async fn role_own_addresses() {
    if env::var_os(ROLE_VARIABLE).is_none() {
        return;
    }
    switch_loopback_on();
    let peer = HttpPeer::closing(|_| http_ok("served")).await;
    let forward = |address: Ipv4Addr| forward_to(address, peer.port);
    let rules = NetworkRules { local_targets: LocalTargets::Refused, ..Setup::default().rules };
    let proxy = TestProxy::start(Setup { rules, ..Setup::default() }).await;

    // The proxy looks at the interfaces when it needs them: it runs already, and the addresses are new.
    add_address(OF_INTERFACE, 24);
    forward(OF_INTERFACE).await;
    proxy.names.set("own.test", &[&["1.2.3.4"]]);
    for host in ["1.2.3.4", "own.test", "[::ffff:1.2.3.4]", "1.2.3.200"] {
        let answer = proxy.request(&format!("GET http://{host}:{}/", peer.port), "").await;
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("not_allowed_local"), "{host}: {answer}");
        let [decision] = proxy.decisions().try_into().unwrap();
        assert_eq!((decision.verdict, decision.reason.as_str()), (ProxyVerdict::Deny, reason::NOT_ALLOWED_LOCAL));
    }

    // No list of interfaces has this address. The connection itself shows that it leads to this machine.
    add_local_route(ROUTED);
    forward(ROUTED).await;
    let answer = proxy.request(&format!("GET http://{ROUTED}:{}/", peer.port), "").await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("not_allowed_local"), "{answer}");
    let verdicts: Vec<_> = proxy.decisions().into_iter().map(|decision| decision.verdict).collect();
    assert_eq!(verdicts, [ProxyVerdict::Allow, ProxyVerdict::Deny]);
    assert_eq!(peer.connections_accepted(), 0);

    // An exact pattern, or a policy that allows local targets, reaches them.
    let named = NetworkRules {
        local_targets: LocalTargets::Refused,
        domains: patterns(&[("1.2.3.4", Allow), ("5.6.7.8", Allow), ("1.2.3.200", Allow)]),
        ..Setup::default().rules
    };
    forward(IN_NETWORK).await;
    for setup in [Setup { rules: named, ..Setup::default() }, Setup::default()] {
        let proxy = TestProxy::start(setup).await;
        for address in [OF_INTERFACE, ROUTED, IN_NETWORK] {
            let answer = proxy.request(&format!("GET http://{address}:{}/", peer.port), "").await;
            assert!(answer.ends_with("served"), "{address}: {answer}");
        }
    }
    println!("{DONE}");
}

/// Makes `address` lead to the service on loopback.
async fn forward_to(address: Ipv4Addr, port: u16) {
    let listener = tokio::net::TcpListener::bind((address, port)).await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut served = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
            let _copied = tokio::io::copy_bidirectional(&mut stream, &mut served).await;
        }
    });
}

/// The number of the loopback interface in every network namespace.
const LOOPBACK: u32 = 1;

fn switch_loopback_on() {
    const RTM_NEWLINK: u16 = 16;
    const IFF_UP: u32 = 1;
    let fields = [0, LOOPBACK, IFF_UP, IFF_UP];
    change_network(RTM_NEWLINK, &fields.map(u32::to_ne_bytes).concat());
}

fn add_address(address: Ipv4Addr, prefix_bits: u8) {
    const RTM_NEWADDR: u16 = 20;
    const AF_INET: u8 = 2;
    const IFA_LOCAL: u16 = 2;
    let body = [&[AF_INET, prefix_bits, 0, 0][..], &LOOPBACK.to_ne_bytes(), &attribute(IFA_LOCAL, address.octets())];
    change_network(RTM_NEWADDR, &body.concat());
}

fn add_local_route(address: Ipv4Addr) {
    const RTM_NEWROUTE: u16 = 24;
    const RTA_DST: u16 = 1;
    const RTA_OIF: u16 = 4;
    // IPv4, the length of the prefix, the table of local addresses, set by hand, for this machine, of type local.
    let route = [2, 32, 0, 0, 255, 4, 254, 2, 0, 0, 0, 0];
    let body = [&route[..], &attribute(RTA_DST, address.octets()), &attribute(RTA_OIF, LOOPBACK.to_ne_bytes())];
    change_network(RTM_NEWROUTE, &body.concat());
}

fn attribute(kind: u16, value: [u8; 4]) -> Vec<u8> {
    [&8_u16.to_ne_bytes()[..], &kind.to_ne_bytes(), &value].concat()
}

/// Sends a request of `rtnetlink(7)`, and waits until the kernel has done it.
#[track_caller]
fn change_network(kind: u16, body: &[u8]) {
    const NLM_F_REQUEST_ACK_CREATE: u16 = 0x405;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None).unwrap();
    let length = u32::try_from(16 + body.len()).unwrap();
    let header =
        [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &NLM_F_REQUEST_ACK_CREATE.to_ne_bytes(), &[0; 8], body];
    send(&socket, &header.concat(), SendFlags::empty()).unwrap();
    let mut answer = [0; 4096];
    recv(&socket, &mut answer[..], RecvFlags::empty()).unwrap();
    let code = i32::from_ne_bytes(answer[16..20].try_into().unwrap());
    assert_eq!(code, 0, "request {kind} failed with the errno {}", -code);
}
