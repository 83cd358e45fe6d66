//! Tunnels that CONNECT opens: bytes in both directions, their ends, and slow targets.

use testkit::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::{Setup, TestProxy, echo_target, read_to_end};

#[tokio::test]
async fn a_tunnel_carries_bytes_both_ways() {
    let target = echo_target().await;
    let proxy = TestProxy::start(Setup::default()).await;
    let tunnel = proxy.tunnel_to(&target.to_string()).await;
    let (mut from, mut to) = tunnel.into_split();
    let sent: Vec<u8> = (0..=255_u8).cycle().take(5 << 20).collect();
    let expected = sent.clone();
    let sending = tokio::spawn(async move {
        to.write_all(&sent).await.unwrap();
        to.shutdown().await.unwrap();
    });
    let mut received = Vec::new();
    from.read_to_end(&mut received).await.unwrap();
    sending.await.unwrap();
    assert!(received == expected, "{} bytes", received.len());
}

#[tokio::test]
async fn bytes_that_follow_the_request_at_once_reach_the_target() {
    let target = echo_target().await;
    let proxy = TestProxy::start(Setup::default()).await;
    let mut stream = proxy.connect().await;
    stream.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\nearly").as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    assert!(read_to_end(&mut stream).await.ends_with("\r\n\r\nearly"));
}

#[tokio::test]
async fn a_connect_request_with_a_body_is_refused() {
    let target = echo_target().await;
    let proxy = TestProxy::start(Setup::default()).await;
    for header in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        let head = format!("CONNECT {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}\r\n\r\n");
        let answer = proxy.exchange(head + "5\r\nearly\r\n0\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{header}: {answer}");
    }
    assert_eq!(proxy.decisions(), []);
    let mut stream = proxy.connect().await;
    let head = format!("CONNECT {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    stream.write_all((head + "early").as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    assert!(read_to_end(&mut stream).await.ends_with("\r\n\r\nearly"));
}

#[tokio::test]
async fn the_end_of_one_direction_does_not_end_the_other() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = TestProxy::start(Setup::default()).await;
    let address = listener.local_addr().unwrap().to_string();
    let (mut program, accepted) = tokio::join!(proxy.tunnel_to(&address), listener.accept());
    let mut target = accepted.unwrap().0;
    program.write_all(b"question").await.unwrap();
    program.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut target).await, "question");
    target.write_all(b"answer after the end of the question").await.unwrap();
    drop(target);
    assert_eq!(read_to_end(&mut program).await, "answer after the end of the question");
}

#[tokio::test]
async fn the_target_learns_that_the_program_has_gone() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = TestProxy::start(Setup::default()).await;
    let address = listener.local_addr().unwrap().to_string();
    let (program, accepted) = tokio::join!(proxy.tunnel_to(&address), listener.accept());
    drop(program);
    assert_eq!(read_to_end(&mut accepted.unwrap().0).await, "");
}

#[tokio::test]
async fn a_target_that_does_not_read_makes_the_program_wait() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = TestProxy::start(Setup::default()).await;
    let address = listener.local_addr().unwrap().to_string();
    let (program, accepted) = tokio::join!(proxy.tunnel_to(&address), listener.accept());
    let _target = accepted.unwrap().0;
    let block = vec![0; 1 << 20];
    let mut written = 0;
    // The program is done when the buffers of the kernel and of the proxy are full.
    let mut last = usize::MAX;
    eventually("the program can write no more", || {
        while let Ok(count) = program.try_write(&block) {
            written += count;
        }
        let is_full = written == last;
        last = written;
        is_full.then_some(())
    })
    .await;
    assert!(written < 64 << 20, "{written} bytes were taken from the program");
}

#[tokio::test]
async fn a_host_name_is_resolved_by_the_proxy() {
    let target = echo_target().await;
    let proxy = TestProxy::start(Setup::default()).await;
    proxy.names.set("site.test", &[&["127.0.0.1"]]);
    let mut tunnel = proxy.tunnel_to(&format!("Site.TEST.:{}", target.port())).await;
    tunnel.write_all(b"hello").await.unwrap();
    tunnel.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut tunnel).await, "hello");
    assert_eq!(proxy.names.asked(), ["site.test"]);
}

#[tokio::test]
async fn the_next_address_is_tried_if_one_does_not_accept() {
    let target = echo_target().await;
    let proxy = TestProxy::start(Setup::default()).await;
    proxy.names.set("site.test", &[&["127.0.0.2", "127.0.0.1"]]);
    proxy.tunnel_to(&format!("site.test:{}", target.port())).await;
}
