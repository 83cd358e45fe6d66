//! Targets on this machine, and names that lead there.

use proxy::{DecisionSource, LocalTargets, NetworkRules, ProxyVerdict, reason};
use testkit::{HttpPeer, http_ok};

use crate::support::{Allow, Setup, TestProxy, echo_target, patterns};

fn public_only() -> Setup {
    let rules = NetworkRules { local_targets: LocalTargets::Refused, ..Setup::default().rules };
    Setup { rules, ..Setup::default() }
}

#[tokio::test]
async fn every_spelling_of_a_local_target_is_refused() {
    let peer = HttpPeer::closing(|_| http_ok("secret")).await;
    let proxy = TestProxy::start(public_only()).await;
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "[::]",
        "127.0.0.1.",
    ] {
        let answer = proxy.request(&format!("GET http://{host}:{}/", peer.port), "").await;
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("not_allowed_local"), "{host}: {answer}");
        let answer = proxy.request(&format!("CONNECT {host}:{}", peer.port), "").await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{host}: {answer}");
    }
    assert_eq!(peer.connections_accepted(), 0);
    assert_eq!(proxy.names.asked(), [""; 0], "nothing is resolved for a target that is local by its text");
}

#[tokio::test]
async fn a_name_that_leads_to_this_machine_is_refused() {
    let peer = HttpPeer::closing(|_| http_ok("secret")).await;
    let proxy = TestProxy::start(public_only()).await;
    proxy.names.set("rebind.test", &[&["127.0.0.1"]]);
    proxy.names.set("mixed.test", &[&["1.1.1.1", "127.0.0.1"]]);
    for host in ["rebind.test", "mixed.test"] {
        let answer = proxy.request(&format!("GET http://{host}:{}/", peer.port), "").await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{host}: {answer}");
        let [decision] = proxy.decisions().try_into().unwrap();
        assert_eq!((decision.verdict, decision.source), (ProxyVerdict::Deny, DecisionSource::BaselinePolicy));
        assert_eq!((decision.reason.as_str(), decision.host.as_str()), (reason::NOT_ALLOWED_LOCAL, host));
    }
    assert_eq!(peer.connections_accepted(), 0);
}

#[tokio::test]
async fn a_name_is_resolved_once_and_the_checked_address_is_used() {
    let target = echo_target().await;
    let proxy = TestProxy::start(Setup::default()).await;
    // A second look-up would lead to an address on which nothing listens.
    proxy.names.set("rebind.test", &[&["127.0.0.1"], &["127.0.0.2"]]);
    proxy.tunnel_to(&format!("rebind.test:{}", target.port())).await;
    assert_eq!(proxy.names.asked(), ["rebind.test"]);
}

#[tokio::test]
async fn a_local_address_that_is_allowed_by_its_own_pattern_is_reached() {
    let peer = HttpPeer::closing(|_| http_ok("local")).await;
    let mut setup = public_only();
    setup.rules.domains = patterns(&[("127.0.0.1", Allow)]);
    let proxy = TestProxy::start(setup).await;
    let answer = proxy.request(&format!("GET {}", peer.url("/")), "").await;
    assert!(answer.ends_with("local"), "{answer}");
    let answer = proxy.request(&format!("GET http://127.0.0.2:{}/", peer.port), "").await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
}
