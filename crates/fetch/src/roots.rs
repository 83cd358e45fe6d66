//! The root certificates that the fetcher trusts for TLS: those of the system, and those in a file that an
//! environment variable names. Start with [`Roots::client_config`].

use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use tokio::sync::OnceCell;

use crate::environment::Environment;
use crate::error::{FailureKind, FetchError, RequestFailure};
use crate::own_thread::on_own_thread;

/// The environment variables that can name a file with certificates. The first one that is set and not empty is used.
const VARIABLES: [&str; 2] = ["CODEX_CA_CERTIFICATE", "SSL_CERT_FILE"];

/// The root certificates that are trusted. Those of the system can be hundreds of files, so they are read only when
/// the first TLS connection needs them.
pub(crate) struct Roots {
    /// The roots in the file that an environment variable names. Empty if no variable names a file.
    from_file: RootCertStore,
    /// The TLS settings with all roots. Empty until the roots of the system have been read.
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

    /// The settings of TLS connections. They offer no ALPN protocol. All calls that succeed return the same
    /// `ClientConfig`, because it holds the TLS sessions that later connections can resume.
    pub(crate) async fn client_config(&self) -> Result<Arc<ClientConfig>, RequestFailure> {
        // A failure is not stored, so the next call reads the roots again. They may have been installed meanwhile.
        self.config.get_or_try_init(|| self.load()).await.cloned()
    }

    async fn load(&self) -> Result<Arc<ClientConfig>, RequestFailure> {
        let tls_failure = |text: String| RequestFailure::new(FailureKind::Tls, text);
        let system_roots = on_own_thread("roots", certificates::system_roots).await;
        let system_roots =
            system_roots.map_err(|error| tls_failure(format!("cannot read the roots of the system: {error}")))?;
        let mut roots = self.from_file.clone();
        // `system_roots` is an error if the system has no roots. This is no failure if the file has roots.
        roots.extend(system_roots.into_iter().flat_map(|store| store.roots));
        if roots.is_empty() {
            let text =
                "this system has no root certificates; install the package `ca-certificates` or name a file with";
            return Err(tls_failure(format!("{text} {}", VARIABLES[0])));
        }
        certificates::client_config(roots).map(Arc::new).map_err(|error| tls_failure(error.to_string()))
    }
}

/// Reads the certificates of a PEM file that can be trusted as roots. Fails if there is none. The error names the
/// file.
fn read_roots(path: &str) -> Result<RootCertStore, String> {
    let certificates = certificates::read_certificates(Path::new(path)).map_err(|error| error.to_string())?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates);
    if roots.is_empty() { Err(format!("no certificate in {path} can be trusted as a root")) } else { Ok(roots) }
}
