//! Remote mode for programs that embed the server: the configuration of an environment behind a relay, and a function
//! that serves it. Start with [`run_remote_environment`].

use std::path::PathBuf;
use std::sync::Arc;

use credentials::{Credential, CredentialSettings, SurveyedCredential};
use remote::{
    DirectListeners, DirectPolicy, ExecutorSettings, Registry, RelayIdentity, ServiceAccess, load_or_create_identity,
};
use server::Config;
use spawn::HostProcess;
use transport::MessageLimits;

use crate::paths::ExecServerRuntimePaths;
use crate::run::{ServeError, ServeOptions, serve_with};

/// An environment that this machine serves through a service.
#[derive(Clone, Debug)]
pub struct RemoteEnvironmentConfig {
    /// `https://HOST…` of the service, to which the paths of the registry's calls are appended.
    pub base_url: String,
    /// The id of the environment in the service.
    pub environment_id: String,
    /// A name that the service shows to people. `None`: it shows only the id.
    pub name: Option<String>,
    /// Who this program is to the service.
    pub credential: RemoteCredentialSource,
    /// A file that keeps the keys of the executor, made if it is missing. `None`: each start has new keys, and clients
    /// cannot pin them.
    pub identity_file: Option<PathBuf>,
    /// Whether the end of stdin ends the server.
    pub exit_on_stdin_close: bool,
    /// Which of the addresses on which the server listens are offered to clients for a direct path.
    pub direct: DirectPolicy,
}

/// Where the credential for a service comes from.
#[derive(Clone, Debug)]
pub enum RemoteCredentialSource {
    /// The variables of this process and the files of its user, as `exec-server whoami` lists them.
    Found,
    /// Only the agent identity in `CODEX_ACCESS_TOKEN`.
    AgentIdentity,
    /// A credential that the embedding program provides.
    Given(Arc<dyn Credential>),
}

/// The older name of [`RemoteEnvironmentConfig`].
#[deprecated(note = "use RemoteEnvironmentConfig")]
pub type RemoteExecutorConfig = RemoteEnvironmentConfig;

impl RemoteEnvironmentConfig {
    /// An environment without a name, with new keys, and with the credential that is found.
    pub fn new(base_url: impl Into<String>, environment_id: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            environment_id: environment_id.into(),
            name: None,
            credential: RemoteCredentialSource::Found,
            identity_file: None,
            exit_on_stdin_close: false,
            direct: DirectPolicy::default(),
        }
    }

    /// Reads what the configuration names. Sends nothing.
    pub(crate) fn executor_settings(&self) -> Result<ExecutorSettings, RemoteEnvironmentError> {
        let environment = variables_of_this_process();
        let access = ServiceAccess::new(environment.clone(), None)?;
        let found = |use_agent_identity| {
            credentials::choose(settings(environment.clone(), use_agent_identity, &access), &self.base_url)
        };
        let credential = match &self.credential {
            RemoteCredentialSource::Found => found(false)?,
            RemoteCredentialSource::AgentIdentity => found(true)?,
            RemoteCredentialSource::Given(credential) => Arc::clone(credential),
        };
        let identity = match &self.identity_file {
            Some(path) => load_or_create_identity(path)?,
            None => RelayIdentity::generate()?,
        };
        Ok(ExecutorSettings {
            registry: Registry::new(&self.base_url, &self.environment_id, credential, access.fetcher)?,
            identity: Arc::new(identity),
            name: self.name.clone(),
            tls_roots: access.tls_roots,
            limits: MessageLimits::default(),
            direct: DirectListeners { policy: self.direct, addresses: Vec::new() },
        })
    }
}

fn settings(
    environment: Vec<(String, String)>,
    use_agent_identity: bool,
    access: &ServiceAccess,
) -> CredentialSettings {
    let fetcher = access.fetcher.clone();
    CredentialSettings { environment, exec_server_home: None, codex_home: None, use_agent_identity, fetcher }
}

/// The credentials in the variables of this process and in the files of its user, in the order in which they are looked
/// for. The first one is used for `service`. Without a service, the stored keys of all services are listed. Sends
/// nothing.
pub fn survey_credentials(
    service: Option<&str>,
    use_agent_identity: bool,
) -> Result<Vec<SurveyedCredential>, RemoteEnvironmentError> {
    let environment = variables_of_this_process();
    let access = ServiceAccess::new(environment.clone(), None)?;
    Ok(credentials::survey(&settings(environment, use_agent_identity, &access), service)?)
}

/// Why the configuration of a remote environment cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RemoteEnvironmentError {
    /// There is no usable credential for the service.
    #[error(transparent)]
    Credential(#[from] credentials::CredentialError),
    /// The URL of the service or the id of the environment cannot be used.
    #[error(transparent)]
    Registry(#[from] remote::RegistrySettingsError),
    /// The certificates for the service cannot be used.
    #[error(transparent)]
    Access(#[from] remote::ServiceAccessError),
    /// The keys of the executor cannot be used.
    #[error(transparent)]
    Identity(#[from] remote::IdentityFileError),
    /// The system has no randomness for keys.
    #[error("cannot make keys: {0}")]
    Keys(#[from] remote::HandshakeFailure),
}

/// Names and values of the environment variables of this process. Those that are not UTF-8 are left out.
pub fn variables_of_this_process() -> Vec<(String, String)> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}

/// Serves an environment through its service, and listens on no address, until SIGTERM or SIGINT. The process is
/// dedicated to the server, as in [`run_main`](crate::run_main).
pub async fn run_remote_environment(
    config: RemoteEnvironmentConfig,
    paths: ExecServerRuntimePaths,
) -> Result<(), ServeError> {
    let server = Config { guard: paths.guard(), sandbox_launcher: paths.sandbox_launcher(), ..Config::default() };
    serve_with(ServeOptions { remote: Some(config), ..ServeOptions::new(server, HostProcess::dedicate()?) }).await
}

/// The older name of [`run_remote_environment`].
#[deprecated(note = "use run_remote_environment")]
pub async fn run_remote_executor(
    config: RemoteEnvironmentConfig,
    paths: ExecServerRuntimePaths,
) -> Result<(), ServeError> {
    run_remote_environment(config, paths).await
}
