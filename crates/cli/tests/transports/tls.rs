//! Listeners with TLS (`wss://`), with a certificate that is made for the test.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use testkit::{Client, TestServer, http_exchange, http_request, run_to_end};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_rustls::{TlsConnector, rustls};
use transport::{ConnectOptions, PeerLabel, upgrade_client};

/// Paths of the PEM files for the server, and the certificate that the client trusts.
struct TlsFiles {
    certificate: String,
    key: String,
    trusted: CertificateDer<'static>,
}

fn make_files(directory: &Path) -> TlsFiles {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let files = TlsFiles { certificate: path("cert.pem"), key: path("key.pem"), trusted: cert.der().clone() };
    std::fs::write(&files.certificate, cert.pem()).unwrap();
    std::fs::write(&files.key, signing_key.serialize_pem()).unwrap();
    files
}

async fn tls_stream(address: &str, trusted: &CertificateDer<'static>) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    TlsConnector::from(Arc::new(config)).connect("localhost".try_into().unwrap(), stream).await.unwrap()
}

#[tokio::test]
async fn processes_run_and_http_is_served_over_tls() {
    let directory = tempfile::tempdir().unwrap();
    let files = make_files(directory.path());
    let server = TestServer::with_args(&[
        "--listen",
        "wss://127.0.0.1:0",
        "--listen",
        "ws://127.0.0.1:0",
        "--tls-cert",
        &files.certificate,
        "--tls-key",
        &files.key,
    ])
    .await;
    assert!(server.url().starts_with("wss://127.0.0.1:"), "{}", server.url());
    let address: SocketAddr = server.address().parse().unwrap();
    let mut stream = tls_stream(server.address(), &files.trusted).await;
    assert_eq!(http_exchange(&mut stream, &http_request("/healthz", &[])).await.body, "ok");
    let stream =
        upgrade_client(stream, "localhost", PeerLabel::new(address), ConnectOptions::default()).await.unwrap();
    let mut client = Client::from_stream(stream);
    client.handshake(None).await;
    let outcome = client.run("p", &["head", "-c", "5000000", "/dev/zero"]).await;
    assert_eq!(outcome.stdout.len(), 5_000_000);

    // The second address has no TLS.
    let mut client = Client::connect(&server.urls()[1]).await;
    client.handshake(None).await;
}

#[tokio::test]
async fn plain_http_on_the_tls_port_is_not_served() {
    let directory = tempfile::tempdir().unwrap();
    let files = make_files(directory.path());
    let tls = ["--listen", "wss://127.0.0.1:0", "--tls-cert", &files.certificate, "--tls-key", &files.key];
    let server = TestServer::with_args(&tls).await;
    let refused = Client::connect_with(&format!("ws://{}", server.address()), ConnectOptions::default()).await;
    assert!(refused.is_err());
    let mut stream = tls_stream(server.address(), &files.trusted).await;
    assert_eq!(http_exchange(&mut stream, &http_request("/healthz", &[])).await.status, 200);
}

#[tokio::test]
async fn errors_say_which_certificate_or_key_is_missing_or_cannot_be_used() {
    let directory = tempfile::tempdir().unwrap();
    let files = make_files(directory.path());
    let empty = directory.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    let empty = empty.to_str().unwrap();
    let cases = [
        (["/no/cert.pem", files.key.as_str()], "cannot read /no/cert.pem: No such file or directory".to_owned()),
        (
            [files.certificate.as_str(), "/no/key.pem"],
            "cannot read /no/key.pem: No such file or directory".to_owned(),
        ),
        ([empty, files.key.as_str()], format!("{empty} has no certificate in it")),
        (
            [files.certificate.as_str(), files.certificate.as_str()],
            format!("{} has no private key in it", files.certificate),
        ),
    ];
    for ([certificate, key], expected) in cases {
        let output =
            run_to_end(&["--listen", "wss://127.0.0.1:0", "--tls-cert", certificate, "--tls-key", key]).await;
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{stderr}");
        assert!(stderr.starts_with(&format!("exec-server: {expected}")), "{stderr}");
    }
    let output = run_to_end(&["--listen", "wss://127.0.0.1:0"]).await;
    assert_eq!(output.status.code(), Some(125));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("wss:// needs a certificate and a key"), "{stderr}");
    let output = run_to_end(&["--listen", "wss://127.0.0.1:0", "--tls-cert", &files.certificate]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--tls-key"));
}
