//! A proxy with scripted names, a scripted decider and recorded decisions, and the requests of the tests.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proxy::limits::ProxyLimits;
use proxy::{
    BoxFuture, Decider, DeciderAnswer, DecisionObserver, DomainPatterns, DomainRule, LocalTargets, NameResolver,
    NetworkProxy, NetworkRules, PolicyQuestion, ProxyConfig, ProxyDecision, ProxyMode, Socks5Support,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longer than any wait takes on a loaded machine. Reached only by a failing test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) use DomainRule::{Allow, Deny};

/// The settings of a proxy. The default allows every host, local ones too.
pub(crate) struct Setup {
    pub(crate) rules: NetworkRules,
    pub(crate) limits: ProxyLimits,
    pub(crate) decider: Option<Arc<dyn Decider>>,
    pub(crate) connection_permits: Vec<Arc<Semaphore>>,
}

impl Default for Setup {
    fn default() -> Self {
        let rules = NetworkRules {
            mode: ProxyMode::Full,
            local_targets: LocalTargets::Allowed,
            socks5: Socks5Support::Enabled,
            domains: patterns(&[("*", Allow)]),
        };
        Self { rules, limits: ProxyLimits::default(), decider: None, connection_permits: Vec::new() }
    }
}

pub(crate) fn patterns(rules: &[(&str, DomainRule)]) -> DomainPatterns {
    DomainPatterns::new(rules.iter().copied()).unwrap()
}

/// A running proxy.
pub(crate) struct TestProxy {
    pub(crate) address: SocketAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) running: JoinHandle<()>,
    pub(crate) names: Arc<ScriptedNames>,
    decisions: Mutex<mpsc::UnboundedReceiver<ProxyDecision>>,
}

impl TestProxy {
    pub(crate) async fn start(setup: Setup) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (told, decisions) = mpsc::unbounded_channel();
        let names = Arc::new(ScriptedNames::default());
        let resolver: Arc<dyn NameResolver> = names.clone();
        let config = ProxyConfig {
            rules: setup.rules,
            decider: setup.decider,
            observer: Arc::new(Recorder(told)),
            resolver,
            connection_permits: setup.connection_permits,
            limits: setup.limits,
        };
        let stop = CancellationToken::new();
        let running = tokio::spawn(NetworkProxy::new(listener, config).run(stop.clone()));
        Self { address, stop, running, names, decisions: Mutex::new(decisions) }
    }

    /// The decisions since the last call.
    pub(crate) fn decisions(&self) -> Vec<ProxyDecision> {
        let mut decisions = self.decisions.lock().unwrap();
        std::iter::from_fn(|| decisions.try_recv().ok()).collect()
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes over a new connection, and returns all that comes back until the proxy closes it.
    pub(crate) async fn exchange(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes.as_ref()).await.unwrap();
        read_to_end(&mut stream).await
    }

    /// Sends a request with the header `Connection: close`, and returns the response.
    pub(crate) async fn request(&self, line: &str, headers: &str) -> String {
        self.exchange(format!("{line} HTTP/1.1\r\nHost: proxy.test\r\nConnection: close\r\n{headers}\r\n")).await
    }

    /// Opens a CONNECT tunnel.
    pub(crate) async fn tunnel_to(&self, target: &str) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes()).await.unwrap();
        let head = read_head(&mut stream).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        stream
    }
}

/// Reads to the end of a response head.
pub(crate) async fn read_head(stream: &mut TcpStream) -> String {
    let reading = async {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("the connection ended in the headers"));
        }
        String::from_utf8(head).unwrap()
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("no response came for too long")
}

/// Reads until the peer closes the connection. A reset counts as the end.
pub(crate) async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let reading = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
    let _reset = reading.expect("the connection stays open");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A target that sends every byte back, and closes after the last one.
pub(crate) async fn echo_target() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _lost = tokio::io::copy(&mut from, &mut to).await;
                let _lost = to.shutdown().await;
            });
        }
    });
    address
}

/// Names and their addresses. A name with several answers gives one after the other, and repeats the last.
#[derive(Default)]
pub(crate) struct ScriptedNames {
    answers: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
    asked: Mutex<Vec<String>>,
}

impl ScriptedNames {
    pub(crate) fn set(&self, name: &str, answers: &[&[&str]]) {
        let addresses = |answer: &&[&str]| answer.iter().map(|address| address.parse().unwrap()).collect();
        self.answers.lock().unwrap().insert(name.to_owned(), answers.iter().map(addresses).collect());
    }

    /// Every look-up so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl NameResolver for ScriptedNames {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        self.asked.lock().unwrap().push(name.to_owned());
        let mut answers = self.answers.lock().unwrap();
        let answer = match answers.get_mut(name) {
            Some(answers) if answers.len() > 1 => Ok(answers.remove(0)),
            Some(answers) => Ok(answers[0].clone()),
            None => Err(io::Error::other("no such name")),
        };
        Box::pin(async move { answer })
    }
}

struct Recorder(mpsc::UnboundedSender<ProxyDecision>);

impl DecisionObserver for Recorder {
    fn observe(&self, decision: ProxyDecision) -> BoxFuture<'_, ()> {
        let _gone = self.0.send(decision);
        Box::pin(async {})
    }
}

/// A decider that always gives the same answer.
pub(crate) struct Always(pub(crate) DeciderAnswer);

impl Decider for Always {
    fn decide(&self, _: PolicyQuestion) -> BoxFuture<'_, DeciderAnswer> {
        let verdict = self.0.clone();
        Box::pin(async move { verdict })
    }
}
