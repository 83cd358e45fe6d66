//! Reads certificate and key files: for a `wss://` listener with [`tls_acceptor`], and the root certificates of a client. Each error names
//! the file, because the user has given more than one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// Why TLS cannot be set up from the given files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// The file is not valid PEM.
    #[error("{} is not a valid PEM file: {source}", path.display())]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// The error of the PEM parser.
        source: pem::Error,
    },
    /// The certificate file contains no certificate. Holds its path.
    #[error("{} has no certificate in it; expected a section `BEGIN CERTIFICATE`", .0.display())]
    NoCertificate(PathBuf),
    /// The key file contains no unencrypted private key. Holds its path.
    #[error("{} has no private key in it; expected an unencrypted section `BEGIN PRIVATE KEY`", .0.display())]
    NoKey(PathBuf),
    /// A certificate of the file cannot be used as a root.
    #[error("a certificate in {} cannot be trusted as a root: {source}", path.display())]
    UnusableRoot {
        /// Path of the file.
        path: PathBuf,
        /// The error of the TLS library.
        source: rustls::Error,
    },
    /// The certificate and the key were read, but do not belong together or are not supported.
    #[error("the certificate in {} and the key in {} cannot be used together: {source}", certificate.display(), key.display())]
    Unusable {
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
        .map_err(|source| TlsError::Unusable { certificate: cert_pem.into(), key: key_pem.into(), source })?;
    // Without this, a client that supports HTTP/2 could use it.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Reads all certificates of a PEM file. Fails if there is none.
pub(crate) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_slice_iter(&read(path)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| TlsError::Malformed { path: path.into(), source })?;
    if certificates.is_empty() { Err(TlsError::NoCertificate(path.into())) } else { Ok(certificates) }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|source| match source {
        pem::Error::NoItemsFound => TlsError::NoKey(path.into()),
        source => TlsError::Malformed { path: path.into(), source },
    })
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Unreadable { path: path.into(), source })
}
