//! Stopping a proxy, and starting one from a descriptor.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use proxy::limits::ProxyLimits;
use proxy::{BoxFuture, DecisionObserver, NameResolver, NetworkProxy, NetworkRules, ProxyConfig, ProxyDecision};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::support::{PATIENCE, ScriptedNames, Setup, TestProxy, echo_target, read_to_end};

#[tokio::test]
async fn stopping_ends_open_tunnels_and_half_sent_requests() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = TestProxy::start(Setup::default()).await;
    let address = listener.local_addr().unwrap().to_string();
    let (mut tunnel, accepted) = tokio::join!(proxy.tunnel_to(&address), listener.accept());
    let mut half_sent = proxy.connect().await;
    half_sent.write_all(b"GET http://a").await.unwrap();
    proxy.stop.cancel();
    tokio::time::timeout(PATIENCE, proxy.running).await.expect("the proxy does not end").unwrap();
    // The tasks have ended, so all their sockets are closed.
    assert_eq!(read_to_end(&mut tunnel).await, "");
    assert_eq!(read_to_end(&mut accepted.unwrap().0).await, "");
    assert_eq!(read_to_end(&mut half_sent).await, "");
    assert!(TcpStream::connect(proxy.address).await.is_err(), "the socket is closed");
}

#[tokio::test]
async fn dropping_the_future_ends_everything_too() {
    let target = echo_target().await;
    let proxy = TestProxy::start(Setup::default()).await;
    let mut tunnel = proxy.tunnel_to(&target.to_string()).await;
    proxy.running.abort();
    assert_eq!(read_to_end(&mut tunnel).await, "");
}

#[tokio::test]
async fn a_descriptor_of_a_listening_socket_is_enough() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let resolver: Arc<dyn NameResolver> = Arc::new(ScriptedNames::default());
    let config = ProxyConfig {
        rules: NetworkRules::default(),
        decider: None,
        observer: Arc::new(Nobody),
        resolver,
        connection_permits: vec![Arc::new(Semaphore::new(1))],
        limits: ProxyLimits::default(),
    };
    let proxy = NetworkProxy::from_descriptor(OwnedFd::from(listener), config).unwrap();
    assert_eq!(proxy.local_addr().unwrap(), address);
    let stop = CancellationToken::new();
    let running = tokio::spawn(proxy.run(stop.clone()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET http://a.test/ HTTP/1.0\r\n\r\n").await.unwrap();
    let answer = read_to_end(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.0 403 "), "{answer}");
    stop.cancel();
    running.await.unwrap();
}

struct Nobody;

impl DecisionObserver for Nobody {
    fn observe(&self, _: ProxyDecision) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
