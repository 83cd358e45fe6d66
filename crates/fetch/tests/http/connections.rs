//! HTTP/1.1 connections: when they are used again, and when they are closed.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{assert_closed_after_a_minute, failure, fetcher, get, load, ok, reply, request};
use fetch::{FailureKind, FetchRequest, Redirects, RequestOwner};
use testkit::{HttpPeer, PeerReply, read_http_request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

#[tokio::test]
async fn one_connection_serves_many_requests_one_after_another() {
    let server = HttpPeer::answering(|_| ok("x")).await;
    let fetcher = fetcher(&[]);
    for number in 0..20 {
        // Neither another redirect setting nor a clone of the fetcher needs a connection of its own.
        let redirects = if number % 2 == 0 { Redirects::Follow } else { Redirects::Stop };
        load(&fetcher.clone(), FetchRequest { redirects, ..get(server.url("/")) }).await.unwrap();
    }
    assert_eq!(server.connections_accepted(), 1);
}

#[tokio::test]
async fn a_connection_is_used_again_after_the_last_byte_of_a_body() {
    let server = HttpPeer::answering(|_| ok("x")).await;
    let fetcher = fetcher(&[]);
    for _ in 0..3 {
        let mut body = fetcher.send(get(server.url("/"))).await.unwrap().body;
        // The body is dropped without a call of `next` that returns `None`.
        assert_eq!(body.next().await.unwrap().unwrap(), "x");
    }
    assert_eq!(server.connections_accepted(), 1);
}

#[tokio::test]
async fn at_most_sixteen_idle_connections_are_kept_and_dropping_the_fetcher_closes_them() {
    let server = HttpPeer::answering(|_| ok("x")).await;
    let fetcher = fetcher(&[]);
    let mut answers = Vec::new();
    for _ in 0..20 {
        answers.push(fetcher.send(get(server.url("/"))).await.unwrap());
    }
    assert_eq!(server.connections_accepted(), 20);
    for answer in answers {
        answer.body.collect(1).await.unwrap();
    }
    server.wait_until_closed(4).await;
    drop(fetcher);
    server.wait_until_closed(20).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_after_a_minute() {
    let server = HttpPeer::answering(|_| ok("x")).await;
    let fetcher = fetcher(&[]);
    load(&fetcher, get(server.url("/"))).await.unwrap();
    assert_closed_after_a_minute(server.wait_until_closed(1)).await;
    drop(fetcher);
}

#[tokio::test]
async fn a_connection_that_the_server_closes_is_not_used_again() {
    let closing =
        |header: &str| PeerReply::Close(format!("HTTP/1.1 200 OK\r\n{header}Content-Length: 1\r\n\r\nx").into());
    for header in ["Connection: close\r\n", ""] {
        let server = HttpPeer::answering(move |_| closing(header)).await;
        let fetcher = fetcher(&[]);
        for accepted in 1..=3 {
            load(&fetcher, request("POST", server.url("/"))).await.unwrap();
            server.wait_until_closed(accepted).await;
            assert_eq!(server.connections_accepted(), accepted);
        }
    }
}

#[tokio::test]
async fn a_request_on_a_reused_connection_that_the_server_closes_is_sent_again_only_if_its_method_is_safe() {
    for (method, accepted) in [("GET", 2), ("POST", 1)] {
        let is_first = AtomicBool::new(true);
        let server = HttpPeer::answering(move |request| match () {
            () if request.contains("/warm") => ok("x"),
            // The server closes the connection without an answer. To the fetcher, this looks as if the server had
            // closed the idle connection before the request arrived.
            () if is_first.swap(false, Ordering::SeqCst) => PeerReply::Close(Vec::new()),
            () => ok("again"),
        })
        .await;
        let fetcher = fetcher(&[]);
        load(&fetcher, get(server.url("/warm"))).await.unwrap();
        let outcome = load(&fetcher, request(method, server.url("/"))).await;
        match method {
            "GET" => assert_eq!(outcome.unwrap().1, "again"),
            _ => assert_eq!(failure(outcome).0, FailureKind::Protocol),
        }
        assert_eq!(server.connections_accepted(), accepted, "{method}");
    }
}

#[tokio::test]
async fn a_response_before_the_end_of_an_upload_does_not_affect_the_next_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        first.read_u8().await.unwrap();
        first.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno").await.unwrap();
        let (mut second, _) = listener.accept().await.unwrap();
        read_http_request(&mut second).await.unwrap();
        second.write_all(b"HTTP/1.1 204 No\r\n\r\n").await.unwrap();
    });
    let fetcher = fetcher(&[]);
    let upload = FetchRequest { body: Some(vec![b'x'; 64 << 20].into()), ..request("POST", url.clone()) };
    assert_eq!(load(&fetcher, upload).await.unwrap(), (413, "no".into()));
    assert_eq!(load(&fetcher, get(url)).await.unwrap().0, 204);
    server.await.unwrap();
}

#[tokio::test]
async fn a_response_with_status_101_has_no_body_and_its_connection_is_closed() {
    let server =
        HttpPeer::answering(|_| reply("HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")).await;
    assert_eq!(load(&fetcher(&[]), get(server.url("/"))).await.unwrap(), (101, String::new()));
    server.wait_until_closed(1).await;
}

#[tokio::test]
async fn owners_share_no_connection() {
    let server = HttpPeer::answering(|_| ok("x")).await;
    let fetcher = fetcher(&[]);
    let (one, other) = (RequestOwner::default(), RequestOwner::default());
    for owner in [&one, &one.clone(), &other, &other] {
        load(&fetcher.for_owner(owner.clone()), get(server.url("/"))).await.unwrap();
    }
    assert_eq!(server.connections_accepted(), 2);
}
