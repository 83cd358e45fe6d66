//! A lost connection to the server: its streams end, the ports stay, and new connections work when the server can be reached.

use testkit::{CuttingProxy, TestServer, eventually, open_fds};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Forwarding, echo_server, in_time};

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
