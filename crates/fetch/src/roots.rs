//! The root certificates that TLS trusts: those of the system, and those in a file that the environment names. Start with
//! [`Roots::client_config`].

use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use tokio::sync::OnceCell;

use crate::environment::Environment;
use crate::error::{FailureKind, FetchError, RequestFailure};
use crate::own_thread::on_own_thread;

/// The variables that can name a file with certificates. The first one that is set is used.
const VARIABLES: [&str; 2] = ["CODEX_CA_CERTIFICATE", "SSL_CERT_FILE"];

/// The root certificates that are trusted. Those of the system are read when the first connection needs them, because
/// they can be hundreds of files.
pub(crate) struct Roots {
    /// The roots in the file that an environment variable names. Empty if no variable names one.
    from_file: RootCertStore,
    /// The settings with all roots. Empty until the roots of the system have been read.
    config: OnceCell<Arc<ClientConfig>>,
}

impl Roots {
    pub(crate) fn from_environment(environment: &Environment) -> Result<Self, FetchError> {
        let named = VARIABLES.iter().find_map(|variable| Some((variable, environment.non_empty(variable)?)));
        let from_file = match named {
            Some((variable, path)) => read_roots(path).map_err(|reason| FetchError::Failed {
                kind: FailureKind::Tls,
                message: format!("cannot use the file that {variable} names: {reason}"),
            })?,
            None => RootCertStore::empty(),
        };
        Ok(Self { from_file, config: OnceCell::new() })
    }

    /// The settings of TLS connections, without ALPN. Every call returns the same value, so that TLS sessions are resumed.
    pub(crate) async fn client_config(&self) -> Result<Arc<ClientConfig>, RequestFailure> {
        // A failure is not stored, because the certificates may be installed later.
        self.config.get_or_try_init(|| self.load()).await.cloned()
    }

    async fn load(&self) -> Result<Arc<ClientConfig>, RequestFailure> {
        let tls_failure = |text: String| RequestFailure::new(FailureKind::Tls, text);
        let system = on_own_thread("roots", certificates::system_roots).await;
        let system = system.map_err(|error| tls_failure(format!("cannot read the roots of the system: {error}")))?;
        let mut roots = self.from_file.clone();
        // A system without roots is no failure if the file has roots.
        roots.extend(system.into_iter().flat_map(|system| system.roots));
        if roots.is_empty() {
            let text =
                "this system has no root certificates; install the package `ca-certificates` or name a file with";
            return Err(tls_failure(format!("{text} {}", VARIABLES[0])));
        }
        certificates::client_config(roots).map(Arc::new).map_err(|error| tls_failure(error.to_string()))
    }
}

/// The certificates in a PEM file that can be trusted as roots, at least one. The error names the file.
fn read_roots(path: &str) -> Result<RootCertStore, String> {
    let certificates = certificates::read_certificates(Path::new(path)).map_err(|error| error.to_string())?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates);
    if roots.is_empty() { Err(format!("no certificate in {path} can be trusted as a root")) } else { Ok(roots) }
}
