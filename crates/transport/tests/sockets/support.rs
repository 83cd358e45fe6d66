//! Helpers of the tests over real sockets: a listener that accepts in a task, an [`HttpSurface`] (what a listener
//! asks the server that owns it about HTTP requests) with an optional token, and an echo server.

use std::sync::Arc;

use http::HeaderMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use transport::{
    AcceptError, Accepted, AcceptedStream, HttpSurface, ListenUrl, Listener, MessageLimits, MessageStream, Principal,
    ReadEvent, TlsAcceptor, accept_messages,
};

/// Authorizes requests with the bearer token `token`, or all requests if it is `None`.
#[derive(Default)]
pub(crate) struct TestSurface {
    pub token: Option<&'static str>,
}

/// The limits of the socket of a peer with the ticket `the-ticket`.
pub(crate) const TICKET_LIMITS: MessageLimits = MessageLimits { message_bytes: 1000 };

impl HttpSurface for TestSurface {
    fn authorize(&self, headers: &HeaderMap) -> Option<Principal> {
        let given = headers.get("authorization").and_then(|value| value.to_str().ok());
        let Some(token) = self.token else { return Some(Principal::Anybody) };
        (given == Some(&format!("Bearer {token}"))).then(|| Principal::Token(token.into()))
    }

    fn take_ticket(&self, headers: &HeaderMap) -> Option<MessageLimits> {
        let is_valid = headers.get("authorization").is_some_and(|value| value == "Bearer the-ticket");
        is_valid.then_some(TICKET_LIMITS)
    }

    /// 220 KB, far more than the buffer of the server holds.
    fn metrics(&self) -> String {
        "sessions 3\n".repeat(20_000)
    }

    fn serves_host(&self, host: &str) -> bool {
        host == "build.example"
    }
}

/// `None` if the connection ended before it became the connection of a client.
pub(crate) type AcceptedClient = Result<Option<AcceptedStream>, AcceptError>;

/// Listens on a free loopback port.
pub(crate) async fn listen(tls: Option<TlsAcceptor>) -> Listener {
    let scheme = if tls.is_some() { "wss" } else { "ws" };
    let url: ListenUrl = format!("{scheme}://127.0.0.1:0").parse().unwrap();
    Listener::bind(&url, tls).await.unwrap()
}

pub(crate) fn address(listener: &Listener) -> String {
    listener.url().split_once("://").unwrap().1.to_owned()
}

/// Accepts one connection in a task and makes a message stream of it.
pub(crate) fn accept_one(listener: Listener, surface: TestSurface) -> JoinHandle<AcceptedClient> {
    accept_one_with_limits(listener, surface, MessageLimits::default())
}

pub(crate) fn accept_one_with_limits(
    listener: Listener,
    surface: TestSurface,
    limits: MessageLimits,
) -> JoinHandle<AcceptedClient> {
    tokio::spawn(async move {
        let socket = listener.accept(|_| {}).await.unwrap();
        let accepted = accept_messages(socket, Arc::new(surface), limits).await?;
        Ok(accepted.map(|accepted| match accepted {
            Accepted::Client(client) => client,
            Accepted::TicketHolder(_) => panic!("the surface has no tickets"),
        }))
    })
}

/// Answers pings and sends every message back, or the prefix of a message over the limit, until the peer closes.
/// Returns the close event.
pub(crate) async fn echo(mut stream: MessageStream) -> ReadEvent {
    loop {
        let mut out = Vec::new();
        match stream.reader.next().await.unwrap() {
            ReadEvent::Message(payload) | ReadEvent::TooLarge { prefix: payload } => {
                stream.framing.frame(&mut out, payload.len(), |out| out.extend_from_slice(&payload));
            }
            ReadEvent::Ping(payload) => assert!(stream.framing.pong(&mut out, &payload)),
            ReadEvent::Pong(_) => {}
            closed @ ReadEvent::Closed(_) => {
                stream.framing.close(&mut out, 1000, "");
                stream.writer.write_all(&out).await.unwrap();
                stream.writer.shutdown().await;
                return closed;
            }
        }
        stream.writer.write_all(&out).await.unwrap();
    }
}

pub(crate) async fn send(stream: &mut MessageStream, payload: &[u8]) {
    let mut out = Vec::new();
    stream.framing.frame(&mut out, payload.len(), |out| {
        out.extend_from_slice(payload);
    });
    stream.writer.write_all(&out).await.unwrap();
}

pub(crate) async fn send_close(stream: &mut MessageStream, code: u16, reason: &str) {
    let mut out = Vec::new();
    stream.framing.close(&mut out, code, reason);
    stream.writer.write_all(&out).await.unwrap();
}

/// Sends a request and returns everything that the server sends until it closes.
pub(crate) async fn exchange(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}
