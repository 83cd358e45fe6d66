//! The TLS settings of a `wss://` listener, and the errors when a listener or a client reads its TLS settings from
//! files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use certificates::{PemFileError, read_certificates, read_key};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use tokio_rustls::TlsAcceptor;

/// Why TLS cannot be set up from the given files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file of a certificate or of a key cannot be used.
    #[error(transparent)]
    File(#[from] PemFileError),
    /// A certificate in the file with the trusted roots of a client cannot be used.
    #[error("a certificate in {} cannot be trusted as a root: {source}", path.display())]
    UnusableRoot {
        /// Path of the file.
        path: PathBuf,
        /// The error of the TLS library.
        source: rustls::Error,
    },
    /// The certificate and the key were read, but do not belong together or are not supported.
    #[error("the certificate in {} and the key in {} cannot be used together: {source}", certificate.display(), key.display())]
    UnusableCertificateAndKey {
        /// Path of the certificate file.
        certificate: PathBuf,
        /// Path of the key file.
        key: PathBuf,
        /// The error of the TLS library.
        source: rustls::Error,
    },
}

/// Reads a certificate chain and its private key, both in PEM format, for a `wss://` listener.
pub fn tls_acceptor(cert_pem: &Path, key_pem: &Path) -> Result<TlsAcceptor, TlsError> {
    let certificates = read_certificates(cert_pem)?;
    let key = read_key(key_pem)?;
    // The crypto provider is passed explicitly. Setting a default for the whole process would affect a program that embeds this crate.
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, key))
        .map_err(|source| {
            let (certificate, key) = (cert_pem.into(), key_pem.into());
            TlsError::UnusableCertificateAndKey { certificate, key, source }
        })?;
    // The listener speaks only HTTP/1.1. With this setting, the handshake fails for a client that offers only HTTP/2.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
