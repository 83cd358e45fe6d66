//! Certificate and key files for `wss://`. Each error names the file and what is wrong with it, because whoever reads it is
//! looking at two file names.

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
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is not well-formed PEM.
    #[error("{} is not a valid PEM file: {source}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        source: pem::Error,
    },
    /// The certificate file has no certificate.
    #[error("{} has no certificate in it; expected a section `BEGIN CERTIFICATE`", .0.display())]
    NoCertificate(PathBuf),
    /// The key file has no usable key.
    #[error("{} has no private key in it; expected an unencrypted section `BEGIN PRIVATE KEY`", .0.display())]
    NoKey(PathBuf),
    /// A certificate that cannot be a root of trust.
    #[error("a certificate in {} cannot be trusted as a root: {source}", path.display())]
    UnusableRoot {
        /// The file.
        path: PathBuf,
        /// What the TLS library said.
        source: rustls::Error,
    },
    /// Both were read but cannot serve together.
    #[error("the certificate in {} and the key in {} cannot be used together: {source}", certificate.display(), key.display())]
    Unusable {
        /// The certificate file.
        certificate: PathBuf,
        /// The key file.
        key: PathBuf,
        /// What the TLS library said.
        source: rustls::Error,
    },
}

/// Reads a certificate chain and its private key for a `wss://` listener.
pub fn tls_acceptor(cert_pem: &Path, key_pem: &Path) -> Result<TlsAcceptor, TlsError> {
    let certificates = read_certificates(cert_pem)?;
    let key = read_key(key_pem)?;
    // The provider is passed along: a default for the whole process would be a surprise for whoever embeds us.
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, key))
        .map_err(|source| TlsError::Unusable { certificate: cert_pem.into(), key: key_pem.into(), source })?;
    // Clients that also know HTTP/2 would otherwise be free to assume it.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// All certificates of a PEM file, at least one.
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
