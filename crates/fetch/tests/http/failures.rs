//! The kinds of failures, that their texts contain no secret, and that a request that its caller drops closes its
//! connection.

use crate::support::{failure, fetcher, get, reply, request, with_timeout_ms};
use fetch::{FailureKind, FetchRequest};
use testkit::{HttpPeer, PeerReply};
use tokio::net::TcpListener;

#[tokio::test]
async fn the_failure_for_a_name_without_an_address_has_kind_dns() {
    // The first label has 64 bytes, and DNS allows 63. So no name server has to be asked.
    let host = format!("{}.test", "a".repeat(64));
    let (kind, text) = failure(fetcher(&[]).send(get(format!("http://{host}/secret"))).await);
    assert_eq!((kind, kind.as_str()), (FailureKind::Dns, "dns"));
    assert!(text.starts_with(&format!("http/request failed: cannot find the address of {host}: ")), "{text}");
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test]
async fn the_failure_for_a_closed_port_has_kind_connect() {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let (kind, text) = failure(fetcher(&[]).send(get(format!("http://127.0.0.1:{port}/secret?secret"))).await);
    let expected =
        format!("http/request failed: cannot connect to 127.0.0.1:{port}: Connection refused (os error 111)");
    assert_eq!((kind, text), (FailureKind::Connect, expected));
}

#[tokio::test]
async fn the_deadline_ends_a_request_to_a_server_that_sends_nothing() {
    let server = HttpPeer::answering(|_| reply("")).await;
    let outcome = fetcher(&[]).send(with_timeout_ms(300, get(server.url("/secret")))).await;
    let text = "http/request failed: the time given for the request is over".to_owned();
    assert_eq!(failure(outcome), (FailureKind::Timeout, text));
    server.wait_until_closed(1).await;
}

#[tokio::test]
async fn the_deadline_ends_a_request_whose_response_stops_in_its_headers() {
    let server = HttpPeer::answering(|_| reply(b"HTTP/1.1 200 OK\r\nX-Half")).await;
    assert_eq!(failure(fetcher(&[]).send(with_timeout_ms(300, get(server.url("/")))).await).0, FailureKind::Timeout);
}

#[tokio::test]
async fn the_deadline_ends_an_upload_that_the_server_does_not_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let upload = FetchRequest { body: Some(vec![b'x'; 64 << 20].into()), ..request("POST", url) };
    assert_eq!(failure(fetcher(&[]).send(with_timeout_ms(200, upload)).await).0, FailureKind::Timeout);
}

#[tokio::test]
async fn the_longest_timeout_is_accepted_and_a_timeout_of_zero_fails_at_once() {
    let server = HttpPeer::answering(|_| reply("HTTP/1.1 204 No\r\n\r\n")).await;
    assert_eq!(fetcher(&[]).send(with_timeout_ms(u64::MAX, get(server.url("/")))).await.unwrap().status, 204);
    assert_eq!(failure(fetcher(&[]).send(with_timeout_ms(0, get(server.url("/")))).await).0, FailureKind::Timeout);
}

#[tokio::test]
async fn the_failure_for_an_invalid_or_incomplete_answer_has_kind_protocol() {
    for answer in [
        "secret\r\n\r\n",
        "HTTP/1.1 9x9 secret\r\n\r\n",
        "HTTP/1.1 200 OK\r\nse cret: x\r\n\r\n",
        "HTTP/1.1 200 O",
        "",
    ] {
        let server = HttpPeer::answering(move |_| PeerReply::Close(answer.into())).await;
        let (kind, text) = failure(fetcher(&[]).send(get(server.url("/secret"))).await);
        assert_eq!(kind, FailureKind::Protocol, "{answer}: {text}");
        assert!(text.starts_with("http/request failed: ") && !text.contains("cret"), "{text}");
    }
}

#[tokio::test]
async fn dropping_the_future_of_a_request_closes_the_connection() {
    let (note_request, mut requests_arrived) = tokio::sync::mpsc::unbounded_channel();
    let server = HttpPeer::answering(move |_| {
        note_request.send(()).unwrap();
        reply("")
    })
    .await;
    let (fetcher, url) = (fetcher(&[]), server.url("/"));
    let sending = tokio::spawn(async move { fetcher.send(get(url)).await });
    requests_arrived.recv().await.unwrap();
    sending.abort();
    server.wait_until_closed(1).await;
}

#[tokio::test]
async fn dropping_the_response_or_its_body_closes_the_connection() {
    let server = HttpPeer::answering(|_| reply(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")).await;
    let fetcher = fetcher(&[]);
    drop(fetcher.send(get(server.url("/"))).await.unwrap());
    server.wait_until_closed(1).await;
    let mut body = fetcher.send(get(server.url("/"))).await.unwrap().body;
    body.next().await.unwrap().unwrap();
    drop(body);
    server.wait_until_closed(2).await;
}
