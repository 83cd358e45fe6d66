//! Decisions: rules, questions to the decider, and reports to the observer.

use std::sync::Arc;

use proxy::{
    BoxFuture, Decider, DeciderAnswer, DecisionSource, NetworkRules, PolicyQuestion, ProxyDecision, ProxyMode,
    ProxyProtocol, ProxyVerdict, reason,
};
use testkit::{HttpPeer, http_ok};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;

use crate::support::{Allow, Always, Deny, PATIENCE, Setup, TestProxy, echo_target, patterns, read_to_end};

fn with_domains(rules: &[(&str, proxy::DomainRule)]) -> Setup {
    let mut setup = Setup::default();
    setup.rules.domains = patterns(rules);
    setup
}

#[tokio::test]
async fn a_decision_reports_verdict_source_target_method_and_client() {
    let target = echo_target().await;
    let proxy = TestProxy::start(with_domains(&[("127.0.0.1", Allow), ("*.bad.test", Deny)])).await;
    proxy.tunnel_to(&target.to_string()).await;
    let answer = proxy.request("POST http://Sub.BAD.test./x", "").await;
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
    assert!(answer.ends_with("the network policy refuses access to sub.bad.test: denied\n"), "{answer}");
    let allowed = ProxyDecision {
        verdict: ProxyVerdict::Allow,
        source: DecisionSource::BaselinePolicy,
        reason: reason::ALLOWED.to_owned(),
        protocol: ProxyProtocol::HttpsConnect,
        host: "127.0.0.1".to_owned(),
        port: target.port(),
        method: Some("CONNECT".to_owned()),
        client: "127.0.0.1".to_owned(),
        overrides_baseline: false,
    };
    let denied = ProxyDecision {
        verdict: ProxyVerdict::Deny,
        reason: reason::DENIED.to_owned(),
        protocol: ProxyProtocol::Http,
        host: "sub.bad.test".to_owned(),
        port: 80,
        method: Some("POST".to_owned()),
        ..allowed.clone()
    };
    assert_eq!(proxy.decisions(), [allowed, denied]);
}

#[tokio::test]
async fn an_unknown_host_is_refused_without_a_decider() {
    let proxy = TestProxy::start(with_domains(&[])).await;
    let answer = proxy.request("CONNECT site.test:443", "").await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    let [decision] = proxy.decisions().try_into().unwrap();
    assert_eq!(decision.reason, reason::NOT_ALLOWED);
    assert_eq!(proxy.names.asked(), [""; 0], "the name of a refused host is not resolved");
}

#[tokio::test]
async fn a_decider_is_asked_about_unknown_hosts_only() {
    let peer = HttpPeer::closing(|_| http_ok("reached")).await;
    let (asked, mut questions) = mpsc::unbounded_channel();
    let decider = Arc::new(Asking(asked));
    let setup = Setup { decider: Some(decider), ..with_domains(&[("known.test", Allow), ("denied.test", Deny)]) };
    let proxy = TestProxy::start(setup).await;
    for name in ["known.test", "unknown.test"] {
        proxy.names.set(name, &[&["127.0.0.1"]]);
        let answer = proxy.request(&format!("GET http://{name}:{}/", peer.port), "").await;
        assert!(answer.ends_with("reached"), "{answer}");
    }
    assert!(proxy.request("GET http://denied.test/", "").await.starts_with("HTTP/1.1 403 "));
    let question = PolicyQuestion { protocol: ProxyProtocol::Http, host: "unknown.test".to_owned(), port: peer.port };
    assert_eq!((questions.try_recv(), questions.try_recv().is_err()), (Ok(question), true));
    let decisions: Vec<_> =
        proxy.decisions().into_iter().map(|it| (it.source, it.verdict, it.overrides_baseline)).collect();
    use DecisionSource::{BaselinePolicy, Decider};
    assert_eq!(
        decisions,
        [
            (BaselinePolicy, ProxyVerdict::Allow, false),
            (Decider, ProxyVerdict::Allow, true),
            (BaselinePolicy, ProxyVerdict::Deny, false)
        ]
    );
}

#[tokio::test]
async fn deny_and_ask_refuse_with_the_reason_of_the_decider() {
    for (answer, verdict) in [
        (DeciderAnswer::Deny("not today".to_owned()), ProxyVerdict::Deny),
        (DeciderAnswer::Ask("not today".to_owned()), ProxyVerdict::Ask),
    ] {
        let proxy = TestProxy::start(Setup { decider: Some(Arc::new(Always(answer))), ..with_domains(&[]) }).await;
        let answer = proxy.request("GET http://site.test/", "").await;
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("not today"), "{answer}");
        let [decision] = proxy.decisions().try_into().unwrap();
        assert_eq!((decision.verdict, decision.source), (verdict, DecisionSource::Decider));
    }
}

#[tokio::test]
async fn limited_mode_allows_only_get_head_and_options() {
    let peer = HttpPeer::closing(|_| http_ok("")).await;
    let rules = NetworkRules { mode: ProxyMode::Limited, ..Setup::default().rules };
    let proxy = TestProxy::start(Setup { rules, ..Setup::default() }).await;
    for method in ["GET", "HEAD", "OPTIONS"] {
        let answer = proxy.request(&format!("{method} {}", peer.url("/")), "").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{method}: {answer}");
    }
    proxy.decisions();
    for line in [format!("POST {}", peer.url("/")), format!("CONNECT 127.0.0.1:{}", peer.port)] {
        let answer = proxy.request(&line, "").await;
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("method_not_allowed"), "{line}: {answer}");
    }
    assert!(proxy.decisions().iter().all(|decision| decision.source == DecisionSource::ModeGuard));
    assert_eq!(peer.requests().len(), 3);
}

#[tokio::test]
async fn the_question_is_withdrawn_when_the_program_leaves() {
    // The proxy does not read the body before the decision.
    let head = "POST http://site.test/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n";
    let with_body = [head.as_bytes(), &[b'x'; 100 << 10]].concat();
    let requests = [b"CONNECT site.test:443 HTTP/1.1\r\nHost: x\r\n\r\n".as_slice(), SOCKS_REQUEST, &with_body];
    for request in requests {
        let (events, mut happened) = mpsc::unbounded_channel();
        let proxy = TestProxy::start(Setup { decider: Some(Arc::new(Undecided(events))), ..with_domains(&[]) }).await;
        let mut stream = proxy.connect().await;
        stream.write_all(request).await.unwrap();
        assert_eq!(happened.recv().await, Some("asked"));
        drop(stream);
        let withdrawn = tokio::time::timeout(PATIENCE, happened.recv()).await.expect("the question stays open");
        assert_eq!(withdrawn, Some("withdrawn"));
        assert_eq!(proxy.decisions(), []);
    }
}

#[tokio::test]
async fn the_question_is_withdrawn_when_a_program_that_has_sent_early_bytes_resets_the_connection() {
    for request in [b"CONNECT site.test:443 HTTP/1.1\r\nHost: x\r\n\r\n".as_slice(), SOCKS_REQUEST] {
        let (events, mut happened) = mpsc::unbounded_channel();
        let proxy = TestProxy::start(Setup { decider: Some(Arc::new(Undecided(events))), ..with_domains(&[]) }).await;
        let mut stream = proxy.connect().await;
        stream.write_all(&[request, b"early"].concat()).await.unwrap();
        assert_eq!(happened.recv().await, Some("asked"));
        stream.set_zero_linger().unwrap();
        drop(stream);
        let withdrawn = tokio::time::timeout(PATIENCE, happened.recv()).await.expect("the question stays open");
        assert_eq!(withdrawn, Some("withdrawn"));
        assert_eq!(proxy.decisions(), []);
    }
}

#[tokio::test]
async fn waiting_for_a_decision_is_not_idle_time() {
    let (events, mut happened) = mpsc::unbounded_channel();
    let mut setup = Setup { decider: Some(Arc::new(Undecided(events))), ..with_domains(&[]) };
    setup.limits.idle_timeout = std::time::Duration::from_millis(20);
    let proxy = TestProxy::start(setup).await;
    let mut waiting = proxy.connect().await;
    waiting.write_all(b"CONNECT site.test:443 HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    assert_eq!(happened.recv().await, Some("asked"));
    // A connection that sends nothing is closed, and begins later than the one that waits.
    assert_eq!(read_to_end(&mut proxy.connect().await).await, "");
    assert!(happened.try_recv().is_err(), "the question was withdrawn");
}

const SOCKS_REQUEST: &[u8] = b"\x05\x01\x00\x05\x01\x00\x03\x09site.test\x01\xbb";

struct Asking(mpsc::UnboundedSender<PolicyQuestion>);

impl Decider for Asking {
    fn decide(&self, question: PolicyQuestion) -> BoxFuture<'_, DeciderAnswer> {
        self.0.send(question).unwrap();
        Box::pin(async { DeciderAnswer::Allow })
    }
}

/// Never answers, and reports when it is asked and when the question is withdrawn.
struct Undecided(mpsc::UnboundedSender<&'static str>);

struct Withdrawn(mpsc::UnboundedSender<&'static str>);

impl Drop for Withdrawn {
    fn drop(&mut self) {
        let _test_driver_has_ended = self.0.send("withdrawn");
    }
}

impl Decider for Undecided {
    fn decide(&self, _: PolicyQuestion) -> BoxFuture<'_, DeciderAnswer> {
        self.0.send("asked").unwrap();
        let withdrawn = Withdrawn(self.0.clone());
        Box::pin(async move {
            let _withdrawn = withdrawn;
            std::future::pending().await
        })
    }
}
