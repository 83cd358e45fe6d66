//! Bytes of forwarded connections, and how the connections end.

use testkit::TestServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{ClosedPort, Forwarding, echo_server, expect_pattern, in_time, send_pattern, tcp_server};

#[tokio::test]
async fn bytes_come_back_from_the_target_one_by_one() {
    let (server, echo) = (TestServer::start().await, echo_server().await);
    let forwarding = Forwarding::one(server.url(), echo).await;
    let mut visitor = forwarding.connect().await;
    for byte in 0..100 {
        visitor.write_u8(byte).await.unwrap();
        assert_eq!(in_time(visitor.read_u8()).await.unwrap(), byte);
    }
}

#[tokio::test]
async fn a_visitor_that_ends_its_direction_still_reads_the_reply() {
    let server = TestServer::start().await;
    let target = tcp_server(|mut stream| async move {
        let mut request = String::new();
        stream.read_to_string(&mut request).await.unwrap();
        stream.write_all(format!("got {request}").as_bytes()).await.unwrap();
    })
    .await;
    let forwarding = Forwarding::one(server.url(), target).await;
    let mut visitor = forwarding.connect().await;
    visitor.write_all(b"question").await.unwrap();
    visitor.shutdown().await.unwrap();
    let mut reply = String::new();
    in_time(visitor.read_to_string(&mut reply)).await.unwrap();
    assert_eq!(reply, "got question");
}

#[tokio::test]
async fn a_target_that_ends_its_direction_still_reads_the_visitor() {
    let server = TestServer::start().await;
    let (sender, mut received) = tokio::sync::mpsc::channel(1);
    let target = tcp_server(move |mut stream| {
        let sender = sender.clone();
        async move {
            stream.write_all(b"greeting").await.unwrap();
            stream.shutdown().await.unwrap();
            let mut rest = String::new();
            stream.read_to_string(&mut rest).await.unwrap();
            sender.send(rest).await.unwrap();
        }
    })
    .await;
    let forwarding = Forwarding::one(server.url(), target).await;
    let mut visitor = forwarding.connect().await;
    let mut greeting = String::new();
    in_time(visitor.read_to_string(&mut greeting)).await.unwrap();
    assert_eq!(greeting, "greeting");
    visitor.write_all(b"after the end of the target").await.unwrap();
    visitor.shutdown().await.unwrap();
    assert_eq!(in_time(received.recv()).await.unwrap(), "after the end of the target");
}

#[tokio::test]
async fn many_mebibytes_pass_both_ways_at_once_unchanged() {
    const BYTES: usize = 64 << 20;
    let server = TestServer::start().await;
    let target = tcp_server(|mut stream| async move {
        let (read, write) = stream.split();
        tokio::join!(send_pattern(write, 1, BYTES), expect_pattern(read, 2, BYTES));
    })
    .await;
    let forwarding = Forwarding::one(server.url(), target).await;
    let mut visitor = forwarding.connect().await;
    let (read, write) = visitor.split();
    in_time(async { tokio::join!(send_pattern(write, 2, BYTES), expect_pattern(read, 1, BYTES)) }).await;
}

#[tokio::test]
async fn several_ports_and_many_visitors_do_not_mix() {
    let server = TestServer::start().await;
    let mut targets = Vec::new();
    for seed in 10..13 {
        let port = tcp_server(move |stream| send_pattern(stream, seed, 3_000_000)).await;
        targets.push(format!("127.0.0.1:{port}"));
    }
    let forwarding = Forwarding::start(server.url(), &targets).await;
    let mut visitors = tokio::task::JoinSet::new();
    for _ in 0..4 {
        for (address, seed) in forwarding.addresses.clone().into_iter().zip(10..) {
            visitors.spawn(async move {
                let visitor = tokio::net::TcpStream::connect(address).await.unwrap();
                expect_pattern(visitor, seed, 3_000_000).await;
            });
        }
    }
    in_time(visitors.join_all()).await;
}

#[tokio::test]
async fn a_port_on_which_nobody_listens_resets_the_visitor_and_says_why() {
    let server = TestServer::start().await;
    let closed = ClosedPort::reserve();
    let mut forwarding = Forwarding::start(server.url(), &[format!("127.0.0.1:{}", closed.number)]).await;
    for _ in 0..2 {
        assert_eq!(forwarding.connect_to_error().await, std::io::ErrorKind::ConnectionReset);
        let line = forwarding.line().await;
        assert!(line.starts_with("exec-server: connection from 127.0.0.1:"), "{line}");
        let why = format!(": cannot connect to 127.0.0.1:{}: nobody listens there", closed.number);
        assert!(line.ends_with(&why), "{line}");
    }
}

#[tokio::test]
async fn a_host_without_an_address_is_named_in_the_error() {
    let server = TestServer::start().await;
    // The name has a character that no resolver accepts, so that no other machine is asked.
    let mut forwarding = Forwarding::start(server.url(), &["no such host:80".to_owned()]).await;
    assert_eq!(forwarding.connect_to_error().await, std::io::ErrorKind::ConnectionReset);
    let line = forwarding.line().await;
    assert!(line.contains("cannot connect to no such host:80: the host is not known"), "{line}");
}

#[tokio::test]
async fn a_connection_that_the_target_breaks_is_broken_for_the_visitor_too() {
    let server = TestServer::start().await;
    let target = tcp_server(|mut stream| async move {
        stream.write_all(b"part").await.unwrap();
        stream.read_u8().await.unwrap();
        stream.set_zero_linger().unwrap();
    })
    .await;
    let mut forwarding = Forwarding::one(server.url(), target).await;
    let mut visitor = forwarding.connect().await;
    let mut part = [0; 4];
    in_time(visitor.read_exact(&mut part)).await.unwrap();
    visitor.write_u8(1).await.unwrap();
    let error = in_time(visitor.read_u8()).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "an incomplete answer must not look complete");
    let line = forwarding.line().await;
    assert!(line.contains("the port has broken the connection"), "{line}");
}

#[tokio::test]
async fn a_connection_that_the_visitor_breaks_is_broken_for_the_target_too() {
    let server = TestServer::start().await;
    let (sender, mut ended) = tokio::sync::mpsc::channel(1);
    let target = tcp_server(move |mut stream| {
        let sender = sender.clone();
        async move {
            stream.write_all(b"x").await.unwrap();
            let mut rest = Vec::new();
            sender.send(stream.read_to_end(&mut rest).await.map_err(|error| error.kind())).await.unwrap();
        }
    })
    .await;
    let forwarding = Forwarding::one(server.url(), target).await;
    let mut visitor = forwarding.connect().await;
    in_time(visitor.read_u8()).await.unwrap();
    visitor.set_zero_linger().unwrap();
    drop(visitor);
    assert_eq!(in_time(ended.recv()).await.unwrap(), Err(std::io::ErrorKind::ConnectionReset));
}
