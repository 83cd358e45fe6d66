//! The HTTP surface of a listener: its endpoints, with and without a token, and the requests that it refuses.

use std::sync::Arc;

use crate::support::{TICKET_LIMITS, TestSurface, accept_one, address, exchange, listen};
use transport::{
    Accepted, ConnectOptions, DIRECT_PATH, Framing, MessageLimits, Principal, ReadEvent, accept_messages, connect,
};

/// The headers of an upgrade to a WebSocket. If the upgrade is to be refused, a test replaces `keep-alive` by
/// `close`, so that the server closes the connection after its answer.
const UPGRADE: &str = "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// Sends one request on a new connection and returns the whole response. Checks that the server accepts the
/// connection as a message stream exactly if it answers with status 101.
async fn ask(surface: TestSurface, request_line: &str, headers: &str) -> String {
    let listener = listen(None).await;
    let address = address(&listener);
    let close = if headers.contains("Upgrade") { "" } else { "Connection: close\r\n" };
    let request = format!("{request_line} HTTP/1.1\r\nHost: localhost\r\n{headers}{close}\r\n");
    let principal = surface.token.map_or(Principal::Anybody, |token| Principal::Token(token.into()));
    let accepted = accept_one(listener, surface);
    let (response, accepted) =
        tokio::join!(exchange(&address, &request), async { accepted.await.unwrap().unwrap().map(|it| it.principal) });
    assert_eq!(accepted, response.starts_with("HTTP/1.1 101 ").then_some(principal), "{response}");
    response
}

async fn status(surface: TestSurface, request_line: &str, headers: &str) -> u16 {
    ask(surface, request_line, headers).await[9..12].parse().unwrap()
}

fn surface_with_token() -> TestSurface {
    TestSurface { token: Some("secret") }
}

#[tokio::test]
async fn healthz_needs_no_token() {
    let response = ask(surface_with_token(), "GET /healthz", "").await;
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("\r\n\r\nok"), "{response}");
}

#[tokio::test]
async fn readyz_needs_no_token_and_has_an_empty_body() {
    let response = ask(surface_with_token(), "GET /readyz", "").await;
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("\r\n\r\n"), "{response}");
}

#[tokio::test]
async fn metrics_need_the_token() {
    let response = ask(surface_with_token(), "GET /metrics", "Authorization: Bearer secret\r\n").await;
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert_eq!(body, "sessions 3\n".repeat(20_000));
    assert_eq!(status(surface_with_token(), "GET /metrics", "").await, 401);
}

#[tokio::test]
async fn a_request_with_an_origin_is_refused_on_every_path() {
    for path in ["/", "/readyz", "/healthz", "/metrics", "/nothing"] {
        assert_eq!(
            status(TestSurface::default(), &format!("GET {path}"), "Origin: http://127.0.0.1\r\n").await,
            403,
            "{path}"
        );
    }
    let listener = listen(None).await;
    let address = address(&listener);
    let accepted = accept_one(listener, TestSurface::default());
    let request = format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\n{}\r\n",
        UPGRADE.replace("keep-alive", "close")
    );
    assert!(exchange(&address, &request).await.starts_with("HTTP/1.1 403 "));
    assert!(accepted.await.unwrap().unwrap().is_none());
}

#[tokio::test]
async fn an_upgrade_needs_the_token_and_gets_the_accept_key() {
    let response = ask(surface_with_token(), "GET /", &format!("{UPGRADE}Authorization: Bearer secret\r\n")).await;
    assert!(response.starts_with("HTTP/1.1 101 ") && response.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{response}");
    let response = ask(surface_with_token(), "GET /", &UPGRADE.replace("keep-alive", "close")).await;
    assert!(response.starts_with("HTTP/1.1 401 ") && response.contains("www-authenticate: Bearer\r\n"), "{response}");
}

#[tokio::test]
async fn the_root_without_a_valid_upgrade_requires_one() {
    let response = ask(TestSurface::default(), "GET /", "").await;
    assert!(
        response.starts_with("HTTP/1.1 426 ") && response.contains("connect with a WebSocket client"),
        "{response}"
    );
    let old = UPGRADE.replace("Version: 13", "Version: 8").replace("keep-alive", "close");
    assert_eq!(status(TestSurface::default(), "GET /", &old).await, 426);
    assert_eq!(status(TestSurface::default(), "POST /", &UPGRADE.replace("keep-alive", "close")).await, 426);
}

#[tokio::test]
async fn an_unknown_path_is_not_found() {
    assert_eq!(status(TestSurface::default(), "GET /nothing", "").await, 404);
}

#[tokio::test]
async fn a_connection_serves_several_requests() {
    let listener = listen(None).await;
    let address = address(&listener);
    let accepted = accept_one(listener, TestSurface::default());
    let two_requests = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(exchange(&address, two_requests).await.matches("HTTP/1.1 200 ").count(), 2);
    assert!(accepted.await.unwrap().unwrap().is_none());
}

#[tokio::test]
async fn headers_over_the_limit_are_refused() {
    let listener = listen(None).await;
    let address = address(&listener);
    let accepted = accept_one(listener, TestSurface::default());
    // The request is exactly as long as the buffer of the server. The server would close the connection before it has
    // read all bytes of a longer request, and the kernel would then reset the connection before the answer is read.
    let mut request = "GET /healthz HTTP/1.1\r\nX: ".to_owned();
    request.push_str(&"x".repeat(16 * 1024 - request.len()));
    let response = exchange(&address, &request).await;
    assert!(response.starts_with("HTTP/1.1 431 "), "{response}");
    assert!(accepted.await.unwrap().is_err());
}

#[tokio::test]
async fn the_direct_path_needs_a_ticket_which_is_no_token_elsewhere() {
    let ticket = format!("{UPGRADE}Authorization: Bearer the-ticket\r\n");
    let closing = |headers: &str| headers.replace("keep-alive", "close");
    for headers in
        [UPGRADE.to_owned(), format!("{UPGRADE}Authorization: Bearer secret\r\n"), ticket.replace("13", "8")]
    {
        assert_eq!(status(surface_with_token(), "GET /direct", &closing(&headers)).await, 404, "{headers}");
    }
    assert_eq!(status(surface_with_token(), "GET /direct", "Authorization: Bearer the-ticket\r\n").await, 404);
    assert_eq!(status(surface_with_token(), "POST /direct", &closing(&ticket)).await, 404);
    assert_eq!(status(surface_with_token(), "GET /", &closing(&ticket)).await, 401);
    let from_a_page = closing(&format!("{ticket}Origin: http://127.0.0.1\r\n"));
    assert_eq!(status(surface_with_token(), "GET /direct", &from_a_page).await, 403);
    let listener = listen(None).await;
    let rebound = format!("GET /direct HTTP/1.1\r\nHost: evil.example\r\n{}\r\n", closing(&ticket));
    let address = address(&listener);
    let accepted = accept_one(listener, surface_with_token());
    assert!(exchange(&address, &rebound).await.starts_with("HTTP/1.1 403 "));
    assert!(accepted.await.unwrap().unwrap().is_none());
}

#[tokio::test]
async fn a_ticket_opens_a_socket_with_binary_messages_and_its_own_limits() {
    let listener = listen(None).await;
    let url = format!("ws://{}{DIRECT_PATH}", address(&listener));
    let accepting = tokio::spawn(async move {
        let socket = listener.accept(|_| {}).await.unwrap();
        accept_messages(socket, Arc::new(surface_with_token()), MessageLimits::default()).await
    });
    let bearer_token = Some("the-ticket".to_owned());
    let options = ConnectOptions { bearer_token, is_binary: true, ..ConnectOptions::default() };
    let mut client = connect(&url, options).await.unwrap();
    let Some(Accepted::TicketHolder(mut server)) = accepting.await.unwrap().unwrap() else {
        panic!("not the socket of a ticket holder")
    };
    assert_eq!(server.framing, Framing::BinaryWebSocketServer);
    for length in [TICKET_LIMITS.message_bytes, TICKET_LIMITS.message_bytes + 1] {
        let mut message = Vec::new();
        client.framing.frame(&mut message, length, |out| out.resize(out.len() + length, 7));
        client.writer.write_all(&message).await.unwrap();
        let event = server.reader.next().await.unwrap();
        assert_eq!(matches!(event, ReadEvent::Message(_)), length <= TICKET_LIMITS.message_bytes, "{length}");
    }
}
