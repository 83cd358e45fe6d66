//! SOCKS5 requests: targets, reply codes, and handshakes that fail.

use std::net::{Ipv6Addr, SocketAddr};

use proxy::{NetworkRules, ProxyMode, ProxyProtocol, Socks5Support};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Deny, Setup, TestProxy, echo_target, patterns, read_to_end};

const GREETING: &[u8] = &[5, 1, 0];

fn name_request(command: u8, name: &[u8], port: u16) -> Vec<u8> {
    let length = u8::try_from(name.len()).unwrap();
    [&[5, command, 0, 3, length], name, port.to_be_bytes().as_slice()].concat()
}

/// Greets the proxy, sends a request, and returns the code of the reply.
async fn ask(proxy: &TestProxy, request: &[u8]) -> (u8, TcpStream) {
    let mut stream = proxy.connect().await;
    stream.write_all(&[GREETING, request].concat()).await.unwrap();
    let mut reply = [0; 12];
    stream.read_exact(&mut reply).await.unwrap();
    assert_eq!((&reply[..3], reply[4], reply[5]), (&[5, 0, 5][..], 0, 1), "{reply:?}");
    (reply[3], stream)
}

async fn assert_echoes(mut tunnel: TcpStream) {
    tunnel.write_all(b"over SOCKS5").await.unwrap();
    tunnel.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut tunnel).await, "over SOCKS5");
}

#[tokio::test]
async fn a_target_is_reached_by_name_and_by_address() {
    let target = echo_target().await;
    let proxy = TestProxy::start(Setup::default()).await;
    proxy.names.set("site.test", &[&["127.0.0.1"]]);
    let port = target.port().to_be_bytes();
    for request in [
        name_request(1, b"site.test", target.port()),
        name_request(1, b"127.0.0.1", target.port()),
        [&[5, 1, 0, 1, 127, 0, 0, 1], port.as_slice()].concat(),
        [&[5, 1, 0, 4], Ipv6Addr::from([0, 0, 0, 0, 0, 0xffff, 0x7f00, 1]).octets().as_slice(), &port].concat(),
    ] {
        let (reply, tunnel) = ask(&proxy, &request).await;
        assert_eq!(reply, 0, "{request:?}");
        assert_echoes(tunnel).await;
    }
    let decisions = proxy.decisions();
    assert_eq!(decisions.len(), 4);
    assert!(decisions.iter().all(|decision| decision.protocol == ProxyProtocol::Socks5Tcp
        && decision.method.is_none()
        && decision.port == target.port()));
    assert_eq!(proxy.names.asked(), ["site.test"]);
}

#[tokio::test]
async fn each_kind_of_refusal_has_its_reply_code() {
    let mut setup = Setup::default();
    setup.rules.domains = patterns(&[("denied.test", Deny), ("*", crate::support::Allow)]);
    let proxy = TestProxy::start(setup).await;
    let free: SocketAddr = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (request, expected) in [
        (name_request(1, b"denied.test", 80), 2),
        (name_request(1, b"unknown.test", 80), 4),
        (name_request(1, b"127.0.0.1", free.port()), 5),
        (name_request(2, b"site.test", 80), 7),
        (name_request(3, b"0.0.0.0", 0), 7),
        (name_request(9, b"site.test", 80), 7),
        (vec![5, 1, 0, 2], 8),
        (name_request(1, b"a b", 80), 1),
        (name_request(1, b"", 80), 1),
        (name_request(1, b"\xff", 80), 1),
        (name_request(1, b"site.test", 0), 1),
    ] {
        let (reply, mut stream) = ask(&proxy, &request).await;
        assert_eq!(reply, expected, "{request:?}");
        assert_eq!(read_to_end(&mut stream).await, "", "the proxy closes the connection");
    }
    let udp: Vec<_> = proxy.decisions().into_iter().filter(|it| it.protocol == ProxyProtocol::Socks5Udp).collect();
    assert_eq!(udp.len(), 1, "a refused UDP request is a decision");
}

#[tokio::test]
async fn limited_mode_and_switched_off_socks5_refuse_every_target() {
    let rules = [
        NetworkRules { mode: ProxyMode::Limited, ..Setup::default().rules },
        NetworkRules { socks5: Socks5Support::Disabled, ..Setup::default().rules },
    ];
    for rules in rules {
        let proxy = TestProxy::start(Setup { rules, ..Setup::default() }).await;
        assert_eq!(ask(&proxy, &name_request(1, b"site.test", 80)).await.0, 2);
    }
}

#[tokio::test]
async fn a_program_that_insists_on_a_password_is_told_that_there_is_none() {
    let proxy = TestProxy::start(Setup::default()).await;
    assert_eq!(proxy.exchange([5, 1, 2]).await.as_bytes(), "\u{5}\u{fffd}".as_bytes());
}

#[tokio::test]
async fn a_handshake_in_single_bytes_works() {
    let target = echo_target().await;
    let proxy = TestProxy::start(Setup::default()).await;
    let mut stream = proxy.connect().await;
    for byte in [GREETING, &name_request(1, b"127.0.0.1", target.port())].concat() {
        stream.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut reply = [0; 12];
    stream.read_exact(&mut reply).await.unwrap();
    assert_eq!(reply[3], 0);
    assert_echoes(stream).await;
}
