//! Connecting as a client: the upgrade request, the certificates that a client trusts, and the error for each kind of
//! failure.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::support::{TestSurface, accept_one, echo, listen, send};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use transport::{
    CertificateFault, ConnectError, ConnectOptions, Listener, ReadEvent, TlsAcceptor, TlsRoots, connect, tls_acceptor,
};

/// A certificate authority whose certificate is in a file.
struct Authority {
    directory: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { directory, issuer }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// A TLS acceptor with a certificate that this authority has issued.
    fn acceptor(&self, params: CertificateParams) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let (certificate_file, key_file) =
            (self.directory.path().join("cert.pem"), self.directory.path().join("key.pem"));
        fs::write(&certificate_file, certificate.pem()).unwrap();
        fs::write(&key_file, key.serialize_pem()).unwrap();
        tls_acceptor(&certificate_file, &key_file).unwrap()
    }
}

fn certificate_for(name: &str) -> CertificateParams {
    CertificateParams::new([name.to_owned()]).unwrap()
}

/// The options of a client that trusts the certificates in `ca_file`, and no others.
fn trust_ca(ca_file: &Path) -> ConnectOptions {
    ConnectOptions { tls_roots: TlsRoots::from_ca_file(ca_file).unwrap(), ..ConnectOptions::default() }
}

/// The URL with `localhost` instead of the address, so that the name is resolved and compared with the certificate.
fn url_with_name(listener: &Listener) -> String {
    listener.url().replace("127.0.0.1", "localhost")
}

/// Connects to a server whose certificate is refused. Returns the reason and the message of the error.
async fn fault(acceptor: TlsAcceptor, options: ConnectOptions) -> (CertificateFault, String) {
    let listener = listen(Some(acceptor)).await;
    let url = url_with_name(&listener);
    let _accepted = accept_one(listener, TestSurface::default());
    let error = connect(&format!("{url}/?token=secret"), options).await.unwrap_err();
    assert!(!error.is_retryable());
    let message = error.to_string();
    assert!(message.contains(&format!("the certificate of {url}/ ")) && !message.contains("secret"), "{message}");
    match error {
        ConnectError::Certificate { fault, .. } => (fault, message),
        other => panic!("{other:?}"),
    }
}

/// Starts a server that answers one connection with `answer`. Returns its URL and its task, which returns the
/// request.
async fn server_that_answers(answer: &'static str) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            assert!(stream.read_buf(&mut request).await.unwrap() > 0);
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(request).unwrap()
    });
    (url, server)
}

#[tokio::test]
async fn an_authority_from_a_file_is_trusted_for_every_connection() {
    let authority = Authority::new();
    let acceptor = authority.acceptor(certificate_for("localhost"));
    let options = trust_ca(&authority.file());
    // The file is not read again for later connections.
    fs::remove_file(authority.file()).unwrap();
    for _ in 0..3 {
        let listener = listen(Some(acceptor.clone())).await;
        let url = url_with_name(&listener);
        let accepted = accept_one(listener, TestSurface::default());
        let mut client = connect(&url, options.clone()).await.unwrap();
        tokio::spawn(echo(accepted.await.unwrap().unwrap().unwrap().stream));
        send(&mut client, b"{}").await;
        assert_eq!(client.reader.next().await.unwrap(), ReadEvent::Message(b"{}"[..].into()));
    }
}

#[tokio::test]
async fn a_certificate_for_an_ip_address_is_accepted() {
    let authority = Authority::new();
    let listener = listen(Some(authority.acceptor(certificate_for("127.0.0.1")))).await;
    let url = listener.url();
    let accepted = accept_one(listener, TestSurface::default());
    connect(&url, trust_ca(&authority.file())).await.unwrap();
    accepted.await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn an_authority_that_is_not_in_the_file_is_not_trusted() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (untrusted, message) = fault(authority.acceptor(certificate_for("localhost")), trust_ca(&other.file())).await;
    assert_eq!(untrusted, CertificateFault::Untrusted);
    assert!(message.contains("--ca-file"), "{message}");
}

#[tokio::test]
async fn an_authority_that_the_system_does_not_know_is_not_trusted() {
    let listener = listen(Some(Authority::new().acceptor(certificate_for("localhost")))).await;
    let url = url_with_name(&listener);
    let _accepted = accept_one(listener, TestSurface::default());
    let error = connect(&url, ConnectOptions::default()).await.unwrap_err();
    assert!(!error.is_retryable() && error.to_string().contains("--ca-file"), "{error}");
}

#[tokio::test]
async fn a_certificate_for_another_host_is_refused() {
    let authority = Authority::new();
    let acceptor = authority.acceptor(certificate_for("elsewhere.example"));
    let (refused, message) = fault(acceptor, trust_ca(&authority.file())).await;
    assert_eq!(refused, CertificateFault::WrongName);
    assert!(message.contains("is for another host"), "{message}");
}

#[tokio::test]
async fn an_expired_or_not_yet_valid_certificate_is_refused() {
    let authority = Authority::new();
    let mut old = certificate_for("localhost");
    (old.not_before, old.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
    assert_eq!(fault(authority.acceptor(old), trust_ca(&authority.file())).await.0, CertificateFault::Expired);
    let mut early = certificate_for("localhost");
    early.not_before = date_time_ymd(4000, 1, 1);
    assert_eq!(fault(authority.acceptor(early), trust_ca(&authority.file())).await.0, CertificateFault::NotYetValid);
}

/// By default, `openssl req -x509` marks the certificate that it makes as that of a certificate authority.
#[tokio::test]
async fn a_certificate_of_an_authority_is_refused_with_an_explanation() {
    let authority = Authority::new();
    let mut authority_params = certificate_for("localhost");
    authority_params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let (refused, message) = fault(authority.acceptor(authority_params), trust_ca(&authority.file())).await;
    assert_eq!(refused, CertificateFault::IsAuthority);
    assert!(message.contains("is that of a certificate authority"), "{message}");
    assert!(message.ends_with("`basicConstraints=CA:FALSE`"), "{message}");
}

#[tokio::test]
async fn a_certificate_for_clients_is_refused_with_an_explanation() {
    let authority = Authority::new();
    let mut for_clients = certificate_for("localhost");
    for_clients.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let (refused, message) = fault(authority.acceptor(for_clients), trust_ca(&authority.file())).await;
    assert_eq!(refused, CertificateFault::NotForServers);
    assert!(message.contains("is not for servers"), "{message}");
}

#[tokio::test]
async fn the_error_for_a_server_without_tls_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("wss://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        stream
    });
    let authority = Authority::new();
    let error = connect(&url, trust_ca(&authority.file())).await.unwrap_err();
    assert!(matches!(error, ConnectError::Tls { .. }) && !error.is_retryable(), "{error}");
    let expected =
        format!("cannot speak TLS with {url}: its answer is not TLS; a server without TLS is reached with ws://");
    assert_eq!(error.to_string(), expected);
    server.await.unwrap();
}

#[test]
fn an_error_about_a_ca_file_names_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ca.pem");
    let refusal = || TlsRoots::from_ca_file(&path).unwrap_err().to_string();
    assert!(refusal().starts_with(&format!("cannot read {}: ", path.display())));
    fs::write(&path, "").unwrap();
    assert!(refusal().starts_with(&format!("{} has no certificate in it", path.display())));
    fs::write(&path, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    assert!(refusal().starts_with(&format!("a certificate in {} cannot be trusted as a root: ", path.display())));
}

#[tokio::test]
async fn path_and_query_reach_the_server_and_status_503_is_retryable() {
    let (url, server) = server_that_answers("HTTP/1.1 503 Service Unavailable\r\n\r\n").await;
    let error = connect(&format!("{url}/a/b?c=d"), ConnectOptions::default()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Refused { status: 503, .. }) && error.is_retryable(), "{error}");
    let request = server.await.unwrap();
    let host = url.strip_prefix("ws://").unwrap();
    assert!(request.starts_with(&format!("GET /a/b?c=d HTTP/1.1\r\nHost: {host}\r\n")), "{request}");
}

#[tokio::test]
async fn the_error_for_a_refused_upgrade_says_what_to_do_or_is_retryable() {
    for (answer, message) in [
        (
            "HTTP/1.1 301 Moved\r\nLocation: https://elsewhere.example/\r\n\r\n",
            "301; it redirects to another address",
        ),
        ("HTTP/1.1 401 Unauthorized\r\n\r\n", "401; check the token"),
        ("HTTP/1.1 404 Not Found\r\n\r\n", "404; check the path"),
    ] {
        let (url, _server) = server_that_answers(answer).await;
        let error = connect(&url, ConnectOptions::default()).await.unwrap_err();
        assert!(error.to_string().contains(message) && !error.is_retryable(), "{error}");
    }
    let (url, _server) = server_that_answers("HTTP/1.0 503 Service Unavailable\r\n\r\n").await;
    assert!(connect(&url, ConnectOptions::default()).await.unwrap_err().is_retryable());
}

#[tokio::test]
async fn the_error_for_a_server_that_is_not_ready_yet_is_retryable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let refused = connect(&format!("ws://{address}/x?token=secret"), ConnectOptions::default()).await.unwrap_err();
    assert!(
        refused.is_retryable() && refused.to_string().starts_with(&format!("cannot connect to ws://{address}/x: "))
    );

    let (url, _server) = server_that_answers("").await;
    let silent = connect(&url, ConnectOptions::default()).await.unwrap_err();
    assert!(silent.is_retryable(), "{silent}");

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let url = format!("unix://{}", path.display());
    let error_kind = async || match connect(&url, ConnectOptions::default()).await.unwrap_err() {
        error @ ConnectError::Io { .. } if !error.is_retryable() => panic!("{error}"),
        ConnectError::Io { source, .. } => source.kind(),
        other => panic!("{other}"),
    };
    assert_eq!(error_kind().await, io::ErrorKind::NotFound);
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert_eq!(error_kind().await, io::ErrorKind::ConnectionRefused);
}

#[test]
fn the_debug_text_of_options_contains_no_secrets() {
    let options = ConnectOptions {
        bearer_token: Some("secret".into()),
        headers: vec![("X-Key".into(), "secret".into())],
        ..ConnectOptions::default()
    };
    let shown = format!("{options:?}");
    assert!(shown.contains("X-Key") && !shown.contains("secret"), "{shown}");
}
