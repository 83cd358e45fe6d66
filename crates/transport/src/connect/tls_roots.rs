//! The root certificates that a client trusts. Reading them takes milliseconds, so they are not read for each
//! connection. Those of the system are read at their first use in the process, those of a file when
//! [`TlsRoots::from_ca_file`] is called. Clones share them.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use certificates::{NoSystemRoots, read_certificates};
use rustls::{ClientConfig, RootCertStore};

use super::error::ConnectError;
use crate::tls::TlsError;

/// The TLS configuration with the roots of the system, after their first use.
static SYSTEM_CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();

/// The root certificates that a client trusts. The default are those of the system; the environment variables `SSL_CERT_FILE` and
/// `SSL_CERT_DIR` can point to others.
#[derive(Clone, Default)]
pub struct TlsRoots {
    /// The TLS configuration with the roots of the file; `None` for the roots of the system.
    from_file: Option<Arc<ClientConfig>>,
}

impl TlsRoots {
    /// Trusts the certificates of a PEM file, and no others.
    pub fn from_ca_file(path: &Path) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in read_certificates(path)? {
            roots.add(certificate).map_err(|source| TlsError::UnusableRoot { path: path.into(), source })?;
        }
        let config = config(roots).map_err(|source| TlsError::UnusableRoot { path: path.into(), source })?;
        Ok(Self { from_file: Some(config) })
    }

    /// The TLS configuration with these roots. Each call returns the same configuration, because it also holds the
    /// TLS sessions that a reconnecting client resumes.
    pub(super) async fn client_config(&self) -> Result<Arc<ClientConfig>, ConnectError> {
        if let Some(ready) = self.from_file.as_ref().or_else(|| SYSTEM_CONFIG.get()) {
            return Ok(ready.clone());
        }
        // A failure is not stored: the user may install root certificates before the next attempt.
        let loaded = tokio::task::spawn_blocking(load_system_config).await;
        let config = loaded.map_err(|error| ConnectError::NoSystemRoots(error.to_string()))??;
        Ok(SYSTEM_CONFIG.get_or_init(|| config).clone())
    }
}

fn load_system_config() -> Result<Arc<ClientConfig>, ConnectError> {
    let roots = certificates::system_roots().map_err(|NoSystemRoots(reason)| ConnectError::NoSystemRoots(reason))?;
    config(roots).map_err(|error| ConnectError::NoSystemRoots(error.to_string()))
}

fn config(roots: RootCertStore) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut config = certificates::client_config(roots)?;
    // Only HTTP/1.1 has the upgrade to a WebSocket that this crate uses.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

impl fmt::Debug for TlsRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.from_file.is_some() { "TlsRoots(file)" } else { "TlsRoots(system)" })
    }
}
