//! `wss://` with a self-signed certificate, and the errors for certificate and key files that cannot be used.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use crate::support::{TestSurface, accept_one, address, echo, listen, send, send_close};
use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, ServerName};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use transport::{
    AcceptError, BindError, CloseReason, ConnectOptions, Listener, PeerLabel, ReadEvent, tls_acceptor, upgrade_client,
};

/// A self-signed certificate for `localhost` and its key, in files.
struct CertificateFiles {
    _directory: TempDir,
    certificate: PathBuf,
    key: PathBuf,
    der: CertificateDer<'static>,
}

fn certificate_files() -> CertificateFiles {
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    CertificateFiles { certificate, key, der: made.cert.der().clone(), _directory: directory }
}

/// A TLS client that trusts only this certificate.
fn connector(trusted: CertificateDer<'static>) -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// The message of the error for files that cannot be used.
fn refusal(certificate: &std::path::Path, key: &std::path::Path) -> String {
    tls_acceptor(certificate, key).err().unwrap().to_string()
}

#[tokio::test]
async fn a_client_without_tls_gets_an_error_that_names_wss() {
    let files = certificate_files();
    let listener = listen(Some(tls_acceptor(&files.certificate, &files.key).unwrap())).await;
    let url = format!("ws://{}", address(&listener));
    let _accepted = accept_one(listener, TestSurface { token: None });
    let refused = transport::connect(&url, ConnectOptions::default()).await.err().unwrap();
    let expected =
        "the server's answer is not a WebSocket upgrade: it is TLS; a server with TLS is reached with wss://";
    assert_eq!(refused.to_string(), expected);
}

#[tokio::test]
async fn messages_are_exchanged_over_tls() {
    let files = certificate_files();
    let listener = listen(Some(tls_acceptor(&files.certificate, &files.key).unwrap())).await;
    assert!(listener.url().starts_with("wss://127.0.0.1:"));
    let address = address(&listener);
    let accepted = accept_one(listener, TestSurface { token: Some("secret") });
    let tcp = TcpStream::connect(&address).await.unwrap();
    let peer = PeerLabel::new(tcp.peer_addr().unwrap());
    let tls = connector(files.der).connect(ServerName::try_from("localhost").unwrap(), tcp).await.unwrap();
    let options = ConnectOptions { bearer_token: Some("secret".into()), ..ConnectOptions::default() };
    let mut client = upgrade_client(tls, "localhost", peer, options).await.unwrap();
    let server = tokio::spawn(echo(accepted.await.unwrap().unwrap().unwrap().stream));
    for size in [0, 10, 100_000, 1 << 20] {
        let payload = vec![b'x'; size];
        send(&mut client, &payload).await;
        assert_eq!(client.reader.next().await.unwrap(), ReadEvent::Message(payload.into()));
    }
    send_close(&mut client, 1000, "bye").await;
    assert_eq!(server.await.unwrap(), ReadEvent::Closed(Some(CloseReason { code: 1000, reason: "bye".into() })));
}

#[tokio::test]
async fn a_client_without_tls_fails_the_handshake_of_the_server() {
    let files = certificate_files();
    let listener = listen(Some(tls_acceptor(&files.certificate, &files.key).unwrap())).await;
    let url = listener.url().replace("wss://", "ws://");
    let accepted = accept_one(listener, TestSurface::default());
    assert!(transport::connect(&url, ConnectOptions::default()).await.is_err());
    assert!(matches!(accepted.await.unwrap(), Err(AcceptError::Tls(_))));
}

#[tokio::test]
async fn wss_needs_a_certificate_and_ws_refuses_one() {
    let files = certificate_files();
    let acceptor = tls_acceptor(&files.certificate, &files.key).unwrap();
    let plain = Listener::bind(&"ws://127.0.0.1:0".parse().unwrap(), Some(acceptor)).await;
    assert!(matches!(plain, Err(BindError::UnusedCertificate(_))));
    let secure = Listener::bind(&"wss://127.0.0.1:0".parse().unwrap(), None).await.unwrap_err();
    assert_eq!(secure.to_string(), "cannot listen on wss://127.0.0.1:0: wss:// needs a certificate and a key");
}

#[test]
fn each_error_about_a_certificate_or_key_file_names_the_file() {
    let (files, others) = (certificate_files(), certificate_files());
    let missing = files.certificate.with_file_name("missing.pem");
    assert_eq!(
        refusal(&missing, &files.key),
        format!("cannot read {}: No such file or directory (os error 2)", missing.display())
    );
    let no_certificate = refusal(&files.key, &files.key);
    assert_eq!(
        no_certificate,
        format!("{} has no certificate in it; expected a section `BEGIN CERTIFICATE`", files.key.display())
    );
    let no_key = refusal(&files.certificate, &files.certificate);
    assert!(no_key.starts_with(&format!("{} has no private key in it", files.certificate.display())), "{no_key}");
    let mismatch = refusal(&files.certificate, &others.key);
    assert!(
        mismatch.starts_with(&format!(
            "the certificate in {} and the key in {} cannot",
            files.certificate.display(),
            others.key.display()
        )),
        "{mismatch}"
    );
    let invalid = missing;
    fs::write(&invalid, "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n").unwrap();
    assert!(refusal(&invalid, &files.key).starts_with(&format!("{} is not a valid PEM file: ", invalid.display())));
    fs::write(&invalid, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    assert!(refusal(&invalid, &files.key).contains(&invalid.display().to_string()));
}
