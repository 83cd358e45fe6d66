//! A server behind the relay of a service, reached over an encrypted stream. The stream survives lost sockets by itself; a
//! lost stream is replaced as any other connection.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use credentials::{Credential, CredentialError, CredentialSettings};
use parking_lot::Mutex;
use remote::{
    ConnectionPath, DirectPolicy, Harness, HarnessError, HarnessLink, HarnessSettings, Registry,
    RegistrySettingsError, RelayIdentity, ServiceAccess, ServiceAccessError,
};
use tokio::sync::watch;
use transport::MessageLimits;

use super::{Companion, Connecting, ServerConnection, ServerConnector};
use crate::environments::{RemoteCredential, RemoteLocation};
use crate::error::ExecServerError;

/// Connects to an executor through a service.
#[derive(Clone, Debug)]
pub struct RelayConnector {
    harness: Harness,
    /// The path of the newest connection. `None` before the first connection.
    path: Arc<Mutex<Option<watch::Receiver<Option<ConnectionPath>>>>>,
}

/// Why the configuration of a remote environment cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RelayConnectorError {
    /// There is no usable credential for the service.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The file with the token cannot be read, or has none.
    #[error("cannot use the token file {}: {problem}", path.display())]
    TokenFile {
        /// The path of the file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The URL of the service or the id of the environment cannot be used.
    #[error(transparent)]
    Registry(#[from] RegistrySettingsError),
    /// The certificates for the service cannot be used.
    #[error(transparent)]
    Access(#[from] ServiceAccessError),
}

impl RelayConnector {
    /// Makes connections as `harness` does.
    pub fn new(harness: Harness) -> Self {
        Self { harness, path: Arc::default() }
    }

    /// Prepares connections to a configured environment. `identity` has the keys of this program, to which its sessions
    /// belong. `variables` are the environment variables of this process: credentials, proxies and certificates are
    /// looked for there. `direct` says which addresses of the executor may be tried for a direct path. Reads files, and
    /// sends nothing.
    pub fn to_environment(
        location: &RemoteLocation,
        identity: Arc<RelayIdentity>,
        variables: Vec<(String, String)>,
        direct: DirectPolicy,
    ) -> Result<Self, RelayConnectorError> {
        let access = ServiceAccess::new(variables.clone(), location.ca_file.as_deref())?;
        let credential = credential(location, variables, &access)?;
        let registry = Registry::new(&location.service, &location.environment_id, credential, access.fetcher)?;
        Ok(Self::new(Harness::new(HarnessSettings {
            registry,
            identity,
            pinned_fingerprint: location.pinned_key.clone(),
            tls_roots: access.tls_roots,
            limits: MessageLimits::default(),
            direct,
        })))
    }

    /// The environment and its service.
    pub fn harness(&self) -> &Harness {
        &self.harness
    }
}

fn credential(
    location: &RemoteLocation,
    environment: Vec<(String, String)>,
    access: &ServiceAccess,
) -> Result<Arc<dyn Credential>, RelayConnectorError> {
    Ok(match &location.credential {
        RemoteCredential::Found => {
            let settings = CredentialSettings {
                environment,
                exec_server_home: None,
                codex_home: None,
                use_agent_identity: false,
                fetcher: access.fetcher.clone(),
            };
            credentials::choose(settings, &location.service)?
        }
        RemoteCredential::Token { token, account } => credentials::bearer(token.clone(), account.clone())?,
        RemoteCredential::TokenFile(path) => credentials::bearer(first_token(path)?, None)?,
    })
}

/// The first line of the file that is neither blank nor a comment.
fn first_token(path: &Path) -> Result<String, RelayConnectorError> {
    let failed = |problem: String| RelayConnectorError::TokenFile { path: path.to_owned(), problem };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let line = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    line.map(str::to_owned).ok_or_else(|| failed("it holds no token".to_owned()))
}

impl ServerConnector for RelayConnector {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            let connection = self.harness.connect().await?;
            *self.path.lock() = Some(connection.link.path());
            Ok(ServerConnection { stream: connection.stream, companion: Some(Box::new(connection.link)) })
        })
    }

    fn can_reconnect(&self) -> bool {
        true
    }

    fn connection_path(&self) -> Option<watch::Receiver<Option<ConnectionPath>>> {
        self.path.lock().clone()
    }

    fn address(&self) -> String {
        let registry = self.harness.registry();
        format!("{} at {}", registry.environment_id(), registry.service())
    }
}

/// Dropping the link ends the connection.
impl Companion for HarnessLink {
    fn exit_report(&mut self) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
        Box::pin(self.ended())
    }
}

impl From<HarnessError> for ExecServerError {
    fn from(error: HarnessError) -> Self {
        Self::RemoteConnect(Arc::new(error))
    }
}
