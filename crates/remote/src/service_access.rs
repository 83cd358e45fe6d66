//! What both ends need to reach a service: a sender of HTTP requests for the registry, and the certificates that are
//! trusted, there and at the relay.

use std::path::Path;

use fetch::{FetchError, Fetcher, FetcherConfig};
use transport::{TlsError, TlsRoots};

/// The variable that names a file with root certificates, for requests and for sockets.
const CA_VARIABLE: &str = "CODEX_CA_CERTIFICATE";

/// The hosts that mean this machine, in the syntax of `NO_PROXY`.
const THIS_MACHINE: &str = "localhost,127.0.0.0/8,[::1]";

/// The way to a service.
#[derive(Clone, Debug)]
pub struct ServiceAccess {
    /// Sends the requests to the registry, and those that renew tokens.
    pub fetcher: Fetcher,
    /// The root certificates for the WebSocket to the relay.
    pub tls_roots: TlsRoots,
}

/// Why a service cannot be reached with these settings.
#[derive(Debug, thiserror::Error)]
pub enum ServiceAccessError {
    /// The certificates for requests cannot be used.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The certificates for sockets cannot be used.
    #[error(transparent)]
    Certificates(#[from] TlsError),
}

impl ServiceAccess {
    /// Takes proxies and certificates from the variables in `environment`. The certificates in `ca_file` are trusted
    /// instead of those that a variable names.
    pub fn new(mut environment: Vec<(String, String)>, ca_file: Option<&Path>) -> Result<Self, ServiceAccessError> {
        if let Some(path) = ca_file {
            environment.retain(|(name, _)| name != CA_VARIABLE);
            environment.push((CA_VARIABLE.to_owned(), path.to_string_lossy().into_owned()));
        }
        reach_this_machine_directly(&mut environment);
        let named = environment.iter().find(|(name, value)| name == CA_VARIABLE && !value.is_empty());
        let tls_roots = match named {
            Some((_, path)) => TlsRoots::from_ca_file(Path::new(path))?,
            None => TlsRoots::default(),
        };
        let fetcher = Fetcher::new(FetcherConfig { environment, ..FetcherConfig::default() })?;
        Ok(Self { fetcher, tls_roots })
    }
}

/// Makes requests to services on this machine go without a proxy. Such services may use plain http, because the
/// requests do not leave the machine. Through a proxy on another machine the credentials would cross the network
/// unencrypted.
fn reach_this_machine_directly(environment: &mut Vec<(String, String)>) {
    let is_set = |name: &str| environment.iter().find(|(known, value)| known == name && !value.is_empty());
    let no_proxy = is_set("NO_PROXY").or_else(|| is_set("no_proxy"));
    let list = no_proxy.map_or(THIS_MACHINE.to_owned(), |(_, list)| format!("{list},{THIS_MACHINE}"));
    environment.retain(|(name, _)| name != "NO_PROXY");
    environment.push(("NO_PROXY".to_owned(), list));
}
