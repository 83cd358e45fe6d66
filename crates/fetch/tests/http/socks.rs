//! SOCKS5 proxies: names and addresses, credentials, TLS through them, and the errors when they refuse.

use std::sync::Arc;

use crate::support::{failure, fetcher, get, load, ok};
use crate::tls::{SecureServer, fetcher_that_trusts};
use fetch::FailureKind;
use parking_lot::Mutex;
use testkit::HttpPeer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The numbers of authentication methods in RFC 1928.
const NO_CREDENTIALS: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;

/// A SOCKS5 proxy on loopback that connects every client to one port and records the destinations that clients ask
/// for.
pub(crate) struct SocksPeer {
    port: u16,
    /// The destinations: `name HOST:PORT` or `address IP:PORT`, and ` as USER:PASSWORD` if credentials were sent.
    asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

/// The behaviour of a [`SocksPeer`].
#[derive(Clone, Copy)]
pub(crate) struct SocksRules {
    /// The port of 127.0.0.1 to which every client is connected.
    target: u16,
    /// `USER:PASSWORD` that a client must send. None: the proxy asks for no credentials.
    credentials: Option<&'static str>,
    /// The reply code of RFC 1928. Every code but 0 refuses the client.
    reply: u8,
}

impl SocksPeer {
    pub(crate) async fn start(rules: SocksRules) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&asked);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let record = Arc::clone(&record);
                tokio::spawn(async move { serve_socks(stream, rules, &record).await });
            }
        });
        Self { port, asked, task }
    }

    /// The URL of this proxy. `credentials` is empty or `USER:PASSWORD@`.
    pub(crate) fn url(&self, scheme: &str, credentials: &str) -> String {
        format!("{scheme}://{credentials}127.0.0.1:{}", self.port)
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

impl Drop for SocksPeer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves one client. Returns `None` if the connection to the client or to the target fails.
async fn serve_socks(mut stream: TcpStream, rules: SocksRules, asked: &Mutex<Vec<String>>) -> Option<()> {
    let sent_credentials = negotiate(&mut stream, rules).await?;
    let destination = read_destination(&mut stream).await?;
    asked.lock().push(format!("{destination}{sent_credentials}"));
    let bound_address = [1, 127, 0, 0, 1, 0, 0];
    stream.write_all(&[5, rules.reply, 0]).await.ok()?;
    stream.write_all(&bound_address).await.ok()?;
    if rules.reply == 0 {
        let mut target = TcpStream::connect(("127.0.0.1", rules.target)).await.ok()?;
        tokio::io::copy_bidirectional(&mut stream, &mut target).await.ok()?;
    }
    Some(())
}

/// Negotiates the authentication. Returns ` as USER:PASSWORD` if the client has sent credentials, else an empty
/// string.
async fn negotiate(stream: &mut TcpStream, rules: SocksRules) -> Option<String> {
    assert_eq!(stream.read_u8().await.ok()?, 5, "the version of the protocol");
    let methods = read_text(stream).await?;
    let wanted = if rules.credentials.is_some() { USER_AND_PASSWORD } else { NO_CREDENTIALS };
    let is_offered = methods.as_bytes().contains(&wanted);
    stream.write_all(&[5, if is_offered { wanted } else { NO_ACCEPTABLE_METHOD }]).await.ok()?;
    let Some(credentials) = rules.credentials.filter(|_| is_offered) else { return Some(String::new()) };
    assert_eq!(stream.read_u8().await.ok()?, 1, "the version of the negotiation");
    let (user, password) = (read_text(stream).await?, read_text(stream).await?);
    let sent = format!("{user}:{password}");
    stream.write_all(&[1, u8::from(sent != credentials)]).await.ok()?;
    Some(format!(" as {sent}"))
}

async fn read_destination(stream: &mut TcpStream) -> Option<String> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).await.ok()?;
    assert_eq!(head[..3], [5, 1, 0], "a request to connect");
    let host = match head[3] {
        1 => format!("address {}", std::net::Ipv4Addr::from(stream.read_u32().await.ok()?)),
        4 => format!("address [{}]", std::net::Ipv6Addr::from(stream.read_u128().await.ok()?)),
        3 => format!("name {}", read_text(stream).await?),
        other => panic!("address type {other}"),
    };
    Some(format!("{host}:{}", stream.read_u16().await.ok()?))
}

/// Reads a text whose length is in the byte before it.
async fn read_text(stream: &mut TcpStream) -> Option<String> {
    let mut text = vec![0; stream.read_u8().await.ok()?.into()];
    stream.read_exact(&mut text).await.ok()?;
    String::from_utf8(text).ok()
}

/// The rules of a proxy that asks for no credentials and connects every client to `target`.
pub(crate) fn allow_all(target: u16) -> SocksRules {
    SocksRules { target, credentials: None, reply: 0 }
}

#[tokio::test]
async fn socks5h_gives_the_name_to_the_proxy_and_one_connection_serves_many_requests() {
    let server = HttpPeer::answering(|_| ok("through socks")).await;
    let proxy = SocksPeer::start(allow_all(server.port)).await;
    for variable in ["ALL_PROXY", "HTTP_PROXY"] {
        let fetcher = fetcher(&[(variable, &proxy.url("socks5h", ""))]);
        for _ in 0..2 {
            let answer = load(&fetcher, get("http://no-such-name.test:81/path?q")).await.unwrap();
            assert_eq!(answer, (200, "through socks".into()));
        }
    }
    assert_eq!(proxy.asked(), ["name no-such-name.test:81", "name no-such-name.test:81"]);
    let request = "GET /path?q HTTP/1.1\r\naccept: */*\r\nhost: no-such-name.test:81\r\n\r\n";
    assert_eq!(server.requests()[0], request, "the server gets the request as without a proxy");
}

#[tokio::test]
async fn socks5_looks_up_the_name_and_gives_an_address_to_the_proxy() {
    let server = HttpPeer::answering(|_| ok("")).await;
    let proxy = SocksPeer::start(allow_all(server.port)).await;
    let fetcher = fetcher(&[("ALL_PROXY", &proxy.url("socks5", ""))]);
    load(&fetcher, get("http://localhost:81/")).await.unwrap();
    load(&fetcher, get("http://127.0.0.9:82/")).await.unwrap();
    load(&fetcher, get("http://[::1]:83/")).await.unwrap();
    let asked = proxy.asked();
    assert!(asked[0] == "address 127.0.0.1:81" || asked[0] == "address [::1]:81", "{asked:?}");
    assert_eq!(asked[1..], ["address 127.0.0.9:82", "address [::1]:83"]);
    // A label of 64 bytes is too long for DNS, so no name server has to be asked.
    let unknown = format!("http://{}.test/", "a".repeat(64));
    assert_eq!(failure(fetcher.send(get(unknown)).await).0, FailureKind::Dns);
}

#[tokio::test]
async fn tls_goes_through_socks_with_user_and_password() {
    let server = SecureServer::start("secure.test", |_| ok("secret")).await;
    let rules = SocksRules { credentials: Some("us@er:p:ss"), ..allow_all(server.port) };
    let proxy = SocksPeer::start(rules).await;
    let url = proxy.url("socks5h", "us%40er:p%3Ass@");
    let fetcher = fetcher_that_trusts(&server, &[("HTTPS_PROXY", &url)]);
    assert_eq!(load(&fetcher, get("https://secure.test/")).await.unwrap(), (200, "secret".into()));
    assert_eq!(proxy.asked(), ["name secure.test:443 as us@er:p:ss"]);
    assert_eq!(server.requests(), ["GET / HTTP/1.1\r\naccept: */*\r\nhost: secure.test\r\n\r\n"]);
}

#[tokio::test]
async fn hosts_in_no_proxy_are_reached_without_socks() {
    let server = HttpPeer::answering(|_| ok("direct")).await;
    let proxy = SocksPeer::start(allow_all(server.port)).await;
    let fetcher = fetcher(&[("ALL_PROXY", &proxy.url("socks5h", "")), ("NO_PROXY", "127.0.0.1")]);
    assert_eq!(load(&fetcher, get(server.url("/"))).await.unwrap().1, "direct");
    assert!(proxy.asked().is_empty());
}

#[tokio::test]
async fn the_error_for_a_socks_proxy_that_refuses_names_the_proxy_but_no_credentials() {
    let secret = Some("user:secret");
    let cases = [
        (SocksRules { credentials: secret, ..allow_all(1) }, "", "server does not support user/pass authentication"),
        (SocksRules { credentials: secret, ..allow_all(1) }, "user:wrong@", "credentials not accepted"),
        (SocksRules { reply: 2, ..allow_all(1) }, "", "connection not allowed"),
        (SocksRules { reply: 5, ..allow_all(1) }, "", "connection refused"),
    ];
    for (rules, credentials, reason) in cases {
        let proxy = SocksPeer::start(rules).await;
        let fetcher = fetcher(&[("ALL_PROXY", &proxy.url("socks5h", credentials))]);
        let (kind, text) = failure(fetcher.send(get("http://some.test/secret")).await);
        let expected = format!(
            "http/request failed: the proxy 127.0.0.1:{} opened no connection to some.test:80: SOCKS error: {reason}",
            proxy.port
        );
        assert_eq!((kind, text), (FailureKind::Connect, expected));
    }
}
