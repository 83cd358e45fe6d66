//! HTTPS with certificate authorities that are made for the tests, and the errors if a file with root certificates
//! cannot be used.

use std::fs;
use std::sync::Arc;

use crate::support::{failure, fetcher, get, load, ok, with_timeout_ms};
use fetch::{FailureKind, FetchError, Fetcher, FetcherConfig};
use tempfile::TempDir;
use testkit::{PeerReply, RecordedRequests, read_http_request, serve_http, tls_acceptor};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// An HTTP/1.1 server with TLS on loopback, which keeps every request as text. Dropping it closes its listener.
pub(crate) struct SecureServer {
    pub(crate) port: u16,
    /// The authority of the server's certificate, as PEM.
    pub(crate) authority: String,
    requests: RecordedRequests,
    task: JoinHandle<()>,
}

impl SecureServer {
    /// Starts a server with a certificate for the host `name`, and without ALPN.
    pub(crate) async fn start(name: &str, answer: impl Fn(&str) -> PeerReply + Send + Sync + 'static) -> Self {
        Self::start_with_alpn(name, &[], answer).await
    }

    pub(crate) async fn start_with_alpn(
        name: &str,
        protocols: &[&str],
        answer: impl Fn(&str) -> PeerReply + Send + Sync + 'static,
    ) -> Self {
        let (authority, acceptor) = tls_acceptor(name, protocols);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = RecordedRequests::default();
        let (answer, noted) = (Arc::new(answer), requests.clone());
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (answer, noted, acceptor) = (answer.clone(), noted.clone(), acceptor.clone());
                tokio::spawn(async move {
                    // A client that does not trust the server ends the handshake.
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve_http(stream, &*answer, &noted).await;
                    }
                });
            }
        });
        Self { port, authority, requests, task }
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.all()
    }

    /// A URL with the path `/secret`, which no error may contain.
    fn url(&self) -> String {
        format!("https://localhost:{}/secret", self.port)
    }
}

impl Drop for SecureServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Writes a file into a new directory. Returns the directory, which is deleted when the `TempDir` is dropped, and the
/// path of the file.
pub(crate) fn write_temporary_file(content: &str) -> (TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("roots.pem");
    fs::write(&path, content).unwrap();
    (directory, path.to_str().unwrap().to_owned())
}

pub(crate) fn fetcher_that_trusts(server: &SecureServer, variables: &[(&str, &str)]) -> Fetcher {
    fetcher_with_authorities(&server.authority, variables)
}

/// A fetcher with these environment variables that trusts one or more authorities, given as PEM.
pub(crate) fn fetcher_with_authorities(authorities: &str, variables: &[(&str, &str)]) -> Fetcher {
    let (_directory, path) = write_temporary_file(authorities);
    let mut variables = variables.to_vec();
    variables.push(("CODEX_CA_CERTIFICATE", &path));
    fetcher(&variables)
}

#[tokio::test]
async fn roots_come_from_the_file_that_codex_ca_certificate_or_else_ssl_cert_file_names() {
    let server = SecureServer::start("localhost", |_| ok("safe")).await;
    let other = SecureServer::start("localhost", |_| ok("other")).await;
    // A file may also contain comments and other authorities.
    let (_first, both_roots) = write_temporary_file(&format!("comment\n{}\n{}", other.authority, server.authority));
    let (_second, other_root) = write_temporary_file(&other.authority);
    for variables in [
        vec![("CODEX_CA_CERTIFICATE", both_roots.as_str()), ("SSL_CERT_FILE", other_root.as_str())],
        vec![("SSL_CERT_FILE", &both_roots)],
    ] {
        assert_eq!(load(&fetcher(&variables), get(server.url())).await.unwrap(), (200, "safe".into()));
    }
    let fetcher = fetcher(&[("CODEX_CA_CERTIFICATE", &other_root), ("SSL_CERT_FILE", &both_roots)]);
    assert_eq!(failure(fetcher.send(get(server.url())).await).0, FailureKind::Tls);
}

#[tokio::test]
async fn a_server_that_is_not_trusted_gets_no_request() {
    let server = SecureServer::start("localhost", |_| ok("")).await;
    let other = SecureServer::start("other.test", |_| ok("")).await;
    let (kind, text) = failure(fetcher_that_trusts(&other, &[]).send(get(server.url())).await);
    assert_eq!(kind, FailureKind::Tls);
    assert!(text.starts_with(&format!("http/request failed: no TLS with localhost:{}: ", server.port)), "{text}");
    assert!(!text.contains("secret"), "{text}");
    // This certificate is of a trusted authority, but for another host name.
    assert_eq!(failure(fetcher_that_trusts(&other, &[]).send(get(other.url())).await).0, FailureKind::Tls);
    assert_eq!((server.requests().len(), other.requests().len()), (0, 0));
}

#[tokio::test]
async fn the_deadline_ends_a_request_to_a_server_that_sends_nothing_in_the_handshake() {
    let trusted = SecureServer::start("localhost", |_| ok("")).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/", listener.local_addr().unwrap().port());
    let outcome = fetcher_that_trusts(&trusted, &[]).send(with_timeout_ms(1000, get(url))).await;
    assert_eq!(failure(outcome).0, FailureKind::Timeout);
}

#[tokio::test]
async fn a_body_whose_connection_ends_without_close_notify_is_an_error() {
    let (authority, acceptor) = tls_acceptor("localhost", &[]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/", listener.local_addr().unwrap().port());
    let server = tokio::spawn(async move {
        let mut stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
        read_http_request(&mut stream).await.unwrap();
        // The body has no length. Only the `close_notify` of TLS would show that the body is complete, and that no
        // attacker has cut the connection.
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf").await.unwrap();
        stream.flush().await.unwrap();
    });
    let (_directory, path) = write_temporary_file(&authority);
    let outcome = load(&fetcher(&[("CODEX_CA_CERTIFICATE", &path)]), get(url)).await;
    assert_eq!(failure(outcome).0, FailureKind::Protocol);
    server.await.unwrap();
}

#[test]
fn a_file_with_roots_that_cannot_be_used_is_an_error_that_names_the_variable() {
    let refusal = |variable: &str, path: &str| {
        let environment = vec![(variable.to_owned(), path.to_owned())];
        match Fetcher::new(FetcherConfig { environment, ..FetcherConfig::default() }).unwrap_err() {
            FetchError::Failed { kind: FailureKind::Tls, message } => message,
            other => panic!("{other}"),
        }
    };
    let (_directory, path) = write_temporary_file("nothing");
    let missing = format!("{path}.missing");
    assert_eq!(
        refusal("CODEX_CA_CERTIFICATE", &missing),
        format!(
            "cannot use the file that CODEX_CA_CERTIFICATE names: cannot read {missing}: No such file or directory (os error 2)"
        )
    );
    assert_eq!(
        refusal("SSL_CERT_FILE", &path),
        format!(
            "cannot use the file that SSL_CERT_FILE names: {path} has no certificate in it; expected a section `BEGIN CERTIFICATE`"
        )
    );
    let (_directory, path) = write_temporary_file("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    assert!(refusal("SSL_CERT_FILE", &path).ends_with(&format!("no certificate in {path} can be trusted as a root")));
    let (_directory, path) = write_temporary_file("-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n");
    assert!(refusal("SSL_CERT_FILE", &path).contains(&format!("{path} is not a valid PEM file: ")));
}
