//! The parts of TLS that several crates need: reading certificates and keys from PEM files, the root certificates of
//! the system, and the settings of a TLS client. The caller decides which roots it trusts and which protocols it
//! offers. This crate opens no connection.

#![forbid(unsafe_code)]

mod pem_file;

use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};

pub use pem_file::{PemFileError, read_certificates, read_key};

/// The system has no root certificate that can be used. Holds the reason as a text: the first error from reading the
/// root certificates, if there was one.
#[derive(Clone, Debug, thiserror::Error)]
#[error("this system has no root certificates: {0}")]
pub struct NoSystemRoots(pub String);

/// Reads the root certificates of the system. If the environment variable `SSL_CERT_FILE` or `SSL_CERT_DIR` is set,
/// only the certificates there are read. Blocks for milliseconds, because a system can have hundreds of files.
pub fn system_roots() -> Result<RootCertStore, NoSystemRoots> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Certificates that cannot be parsed are skipped: many systems have some old ones.
    roots.add_parsable_certificates(loaded.certs);
    if roots.is_empty() {
        let reason = loaded.errors.first().map_or("no certificate was found".to_owned(), ToString::to_string);
        return Err(NoSystemRoots(reason));
    }
    Ok(roots)
}

/// The settings of a TLS client that trusts `roots` and has no certificate of its own. It offers no application
/// protocol (ALPN).
pub fn client_config(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    // The crypto provider is passed explicitly. Setting a default for the whole process would affect a program that
    // embeds this crate.
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    Ok(builder.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth())
}
