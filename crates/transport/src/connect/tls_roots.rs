//! Whose certificates a client accepts. Reading them costs milliseconds, so it is done once: the system's at the first use
//! in a process, those of a file when it is named. Clones share them.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};

use super::error::ConnectError;
use crate::tls::{TlsError, read_certificates};

static SYSTEM: OnceLock<Arc<ClientConfig>> = OnceLock::new();

/// The roots of trust of a client; by default those of the system, where `SSL_CERT_FILE` and `SSL_CERT_DIR` count too.
#[derive(Clone, Default)]
pub struct TlsRoots {
    /// Without, the system's.
    own: Option<Arc<ClientConfig>>,
}

impl TlsRoots {
    /// Trusts the certificates of a PEM file and no others.
    pub fn from_ca_file(path: &Path) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in read_certificates(path)? {
            roots.add(certificate).map_err(|source| TlsError::UnusableRoot { path: path.into(), source })?;
        }
        let config = config(roots).map_err(|source| TlsError::UnusableRoot { path: path.into(), source })?;
        Ok(Self { own: Some(config) })
    }

    /// The same value at each call, so that TLS sessions are resumed when a client comes back.
    pub(super) async fn client_config(&self) -> Result<Arc<ClientConfig>, ConnectError> {
        if let Some(ready) = self.own.as_ref().or_else(|| SYSTEM.get()) {
            return Ok(ready.clone());
        }
        // A failure is not remembered: somebody may install the roots meanwhile.
        let loaded = tokio::task::spawn_blocking(load_system).await;
        let config = loaded.map_err(|error| ConnectError::NoSystemRoots(error.to_string()))??;
        Ok(SYSTEM.get_or_init(|| config).clone())
    }
}

fn load_system() -> Result<Arc<ClientConfig>, ConnectError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Stores have certificates that nobody can use any more, and one of them is no reason to trust nobody.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let words = found.errors.first().map(ToString::to_string).unwrap_or_default();
        return Err(ConnectError::NoSystemRoots(words));
    }
    config(roots).map_err(|error| ConnectError::NoSystemRoots(error.to_string()))
}

fn config(roots: RootCertStore) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // The upgrade exists in HTTP/1.1 only.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

impl fmt::Debug for TlsRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.own.is_some() { "TlsRoots(file)" } else { "TlsRoots(system)" })
    }
}
