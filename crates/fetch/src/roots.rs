//! The root certificates that TLS trusts: those of the system, and those in a file that the environment names. Start with
//! [`Roots::client_config`].

use std::fs;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::OnceCell;

use crate::environment::Environment;
use crate::error::{FailureKind, FetchError, RequestFailure};
use crate::own_thread::on_own_thread;

/// The variables that can name a file with certificates. The first one that is set is used.
const VARIABLES: [&str; 2] = ["CODEX_CA_CERTIFICATE", "SSL_CERT_FILE"];

/// The root certificates that are trusted. Those of the system are read when the first connection needs them, because they are hundreds of
/// files.
pub(crate) struct Roots {
    /// From the file that the environment names.
    own: RootCertStore,
    config: OnceCell<Arc<ClientConfig>>,
}

impl Roots {
    pub(crate) fn from_environment(environment: &Environment) -> Result<Self, FetchError> {
        let named = VARIABLES.iter().find_map(|variable| Some((variable, environment.non_empty(variable)?)));
        let own = match named {
            Some((variable, path)) => read_roots(path).map_err(|reason| FetchError::Failed {
                kind: FailureKind::Tls,
                message: format!("cannot use {path}, which {variable} names: {reason}"),
            })?,
            None => RootCertStore::empty(),
        };
        Ok(Self { own, config: OnceCell::new() })
    }

    /// The settings of TLS connections, without ALPN. Every call returns the same value, so that TLS sessions are resumed.
    pub(crate) async fn client_config(&self) -> Result<Arc<ClientConfig>, RequestFailure> {
        // A failure is not kept, because the certificates may be installed later.
        self.config.get_or_try_init(|| self.load()).await.cloned()
    }

    async fn load(&self) -> Result<Arc<ClientConfig>, RequestFailure> {
        let unusable = |text: String| RequestFailure::new(FailureKind::Tls, text);
        let found = on_own_thread("roots", rustls_native_certs::load_native_certs).await;
        let found = found.map_err(|error| unusable(format!("cannot read the roots of the system: {error}")))?;
        let mut roots = self.own.clone();
        // Systems have certificates that cannot be parsed any more. They are left out.
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let text =
                "this system has no root certificates; install the package `ca-certificates` or name a file with";
            return Err(unusable(format!("{text} {}", VARIABLES[0])));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Arc::new(config))
    }
}

/// The certificates in a PEM file, at least one. The error says what is wrong with the file.
fn read_roots(path: &str) -> Result<RootCertStore, String> {
    let pem = fs::read(path).map_err(|error| error.to_string())?;
    let certificates = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| format!("it is not a valid PEM file: {error}"))?;
    if certificates.is_empty() {
        return Err("it has no certificate in it; expected a section `BEGIN CERTIFICATE`".to_owned());
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates);
    if roots.is_empty() { Err("no certificate in it can be trusted as a root".to_owned()) } else { Ok(roots) }
}
