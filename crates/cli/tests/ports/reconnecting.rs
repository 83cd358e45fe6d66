//! A lost connection to the server: its streams end, the ports stay, and new connections work when the server can be reached.

use testkit::scripted::{ClientMessage, ScriptedListener, ScriptedReply, ScriptedServer};
use testkit::{CuttingProxy, TestServer, eventually, json, open_fds};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Forwarding, echo_server, in_time};

/// A server that has lost the session of `forwarding`, and lets new sessions wait for an answer.
struct ReplacedServer {
    server: ScriptedServer,
    forwarding: Forwarding,
    /// Descriptors of `forwarding` without visitors.
    idle_fds: usize,
    _listener: ScriptedListener,
    _folder: tempfile::TempDir,
}

impl ReplacedServer {
    async fn start() -> Self {
        let (server, folder) = (ScriptedServer::new(), tempfile::tempdir().unwrap());
        server.on("environment/info", |_| {
            let shell = json!({"name": "sh", "path": "/bin/sh"});
            ScriptedReply::Result(json!({"shell": shell, "capabilities": {"portForward": true}}))
        });
        let listener = server.listen(folder.path());
        let forwarding = Forwarding::one(listener.url(), 80).await;
        server.on("initialize", |request| match request.params["resumeSessionId"].as_str() {
            Some(_) => ScriptedReply::Error(-32600, "unknown session".to_owned()),
            None => ScriptedReply::Silence,
        });
        let idle_fds = open_fds(forwarding.pid());
        server.cut();
        // The attempt to resume the session.
        server.wait_for("initialize", 2).await.connection.wait_for_end().await;
        Self { server, forwarding, idle_fds, _listener: listener, _folder: folder }
    }

    /// Starts this many visitors, and waits until they wait for a new session. Returns the request for that session.
    async fn visitors(&self, count: usize) -> (Vec<TcpStream>, ClientMessage) {
        let mut visitors = vec![self.forwarding.connect().await];
        let request = self.server.wait_for("initialize", 3).await;
        for _ in 1..count {
            visitors.push(self.forwarding.connect().await);
        }
        self.wait_for_visitors(count).await;
        (visitors, request)
    }

    /// Waits until `forwarding` has this many sockets of visitors.
    async fn wait_for_visitors(&self, count: usize) {
        let is_reached = || open_fds(self.forwarding.pid()) == self.idle_fds + count;
        eventually("the number of visitors is reached", || is_reached().then_some(())).await;
    }
}

async fn expect_echo(visitor: &mut TcpStream, byte: u8) {
    visitor.write_u8(byte).await.unwrap();
    assert_eq!(in_time(visitor.read_u8()).await.unwrap(), byte);
}

#[tokio::test]
async fn streams_end_with_their_connection_and_new_ones_work_over_the_next() {
    let (server, echo) = (TestServer::start().await, echo_server().await);
    let proxy = CuttingProxy::start(server.address()).await;
    let mut forwarding = Forwarding::one(&proxy.url(), echo).await;
    for round in 0..3 {
        let mut visitor = forwarding.connect().await;
        expect_echo(&mut visitor, round).await;
        proxy.cut();
        assert!(in_time(visitor.read_u8()).await.is_err(), "a stream that was cut must not look complete");
        let line = forwarding.line().await;
        assert!(line.contains("exec-server transport disconnected"), "{line}");
    }
    expect_echo(&mut forwarding.connect().await, 9).await;
}

#[tokio::test]
async fn a_visitor_that_comes_while_the_server_cannot_be_reached_is_served_when_it_can() {
    let (server, echo) = (TestServer::start().await, echo_server().await);
    let proxy = CuttingProxy::start(server.address()).await;
    let mut forwarding = Forwarding::one(&proxy.url(), echo).await;
    let mut before = forwarding.connect().await;
    expect_echo(&mut before, 1).await;
    proxy.refuse(true);
    proxy.cut();
    assert!(in_time(before.read_u8()).await.is_err());
    forwarding.line().await;
    let mut visitor = forwarding.connect().await;
    visitor.write_u8(2).await.unwrap();
    proxy.refuse(false);
    assert_eq!(in_time(visitor.read_u8()).await.unwrap(), 2);
}

#[tokio::test]
async fn a_server_that_was_replaced_is_used_with_a_new_session() {
    let echo = echo_server().await;
    let directory = tempfile::tempdir().unwrap();
    let url = format!("unix://{}", directory.path().join("socket").display());
    let first = TestServer::with_args(&["--listen", &url]).await;
    let forwarding = Forwarding::one(first.url(), echo).await;
    let mut before = forwarding.connect().await;
    expect_echo(&mut before, 1).await;
    first.kill().await;
    assert!(in_time(before.read_u8()).await.is_err());
    let _second = TestServer::with_args(&["--listen", &url]).await;
    expect_echo(&mut forwarding.connect().await, 2).await;
}

#[tokio::test]
async fn sockets_to_the_target_are_closed_with_the_connection_of_the_client() {
    let (server, echo) = (TestServer::start().await, echo_server().await);
    let idle = open_fds(server.pid());
    let mut forwarding = Forwarding::one(server.url(), echo).await;
    let mut visitors = Vec::new();
    for byte in 0..50 {
        let mut visitor = forwarding.connect().await;
        expect_echo(&mut visitor, byte).await;
        visitors.push(visitor);
    }
    assert!(open_fds(server.pid()) >= idle + 50);
    forwarding.child.kill().await.unwrap();
    // The server opens a few descriptors for itself when it is first used.
    eventually("the server has closed the sockets", || (open_fds(server.pid()) < idle + 10).then_some(())).await;
}

#[tokio::test]
async fn one_failed_attempt_to_connect_answers_all_visitors_that_wait() {
    let mut replaced = ReplacedServer::start().await;
    let (visitors, request) = replaced.visitors(6).await;
    request.answer(ScriptedReply::Error(-32600, "not today".to_owned()));
    for mut visitor in visitors {
        assert!(in_time(visitor.read_u8()).await.is_err());
        let line = replaced.forwarding.line().await;
        assert!(line.contains("not today"), "{line}");
    }
    assert_eq!(replaced.server.count("initialize"), 3);
    // A visitor that comes afterwards starts another attempt.
    let _next = replaced.forwarding.connect().await;
    replaced.server.wait_for("initialize", 4).await.answer(ScriptedReply::Result(json!({"sessionId": "session-2"})));
    replaced.server.wait_for("tcp/connect", 1).await;
}

#[tokio::test]
async fn a_visitor_that_resets_its_connection_does_not_wait_and_the_others_do() {
    let replaced = ReplacedServer::start().await;
    let (mut visitors, request) = replaced.visitors(3).await;
    // This visitor has caused the attempt to connect.
    let first = visitors.remove(0);
    first.set_zero_linger().unwrap();
    drop(first);
    replaced.wait_for_visitors(visitors.len()).await;
    request.answer(ScriptedReply::Result(json!({"sessionId": "session-2"})));
    replaced.server.wait_for("tcp/connect", visitors.len()).await;
    assert_eq!(replaced.server.count("initialize"), 3);
}

#[tokio::test]
async fn a_long_error_of_the_server_is_shortened() {
    let mut replaced = ReplacedServer::start().await;
    let text = "x\u{1b}".repeat(100_000);
    replaced.server.on("tcp/connect", move |_| ScriptedReply::Error(-32603, text.clone()));
    let (_visitors, request) = replaced.visitors(1).await;
    request.answer(ScriptedReply::Result(json!({"sessionId": "session-2"})));
    let line = replaced.forwarding.line().await;
    assert!(line.contains("x\\u{1b}") && line.ends_with('…'), "{line}");
    assert!(line.len() < 1000, "{} bytes", line.len());
}
