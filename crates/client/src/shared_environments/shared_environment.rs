//! One environment with one client that all callers share. Connects when a caller first needs the client.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use protocol::CapabilityRoot;
use tokio::sync::watch;

use super::provisioning::ProvisioningVerdict;
use crate::client::ExecServerClient;
use crate::client_core::ConnectionState;
use crate::connector::ServerConnector;
use crate::error::ExecServerError;
use crate::options::ExecServerClientConnectOptions;

/// How a client connects to an environment.
#[derive(Clone)]
pub(super) struct EnvironmentRoute {
    pub(super) connector: Arc<dyn ServerConnector>,
    pub(super) options: ExecServerClientConnectOptions,
}

/// Whether an environment can be used only after a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProvisioningMode {
    /// The first use connects. Reports are ignored.
    Ordinary,
    /// Callers wait for a report that the environment is ready.
    Deferred,
}

/// The two things that must be known before a client can connect.
pub(super) struct EnvironmentSetup {
    /// `None` if a report has arrived before the environment was added.
    pub(super) route: Option<EnvironmentRoute>,
    pub(super) verdict: ProvisioningVerdict,
}

/// The state of an environment, as far as it is known without a new connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedEnvironmentStatus {
    /// The server of the environment answers.
    Ready,
    /// The environment was not used yet, or is not ready yet.
    Pending,
    /// The environment cannot be used at present, for this reason. A later use may succeed, unless it was reported as
    /// failed.
    Disconnected(String),
}

/// An environment that callers share. Reports change this object and never replace it.
pub struct SharedEnvironment {
    id: String,
    pub(super) mode: ProvisioningMode,
    pub(super) setup: watch::Sender<EnvironmentSetup>,
    /// Locked by the caller that connects. The others wait for its result.
    connecting: tokio::sync::Mutex<()>,
    attempts: Mutex<FinishedAttempts>,
}

/// The number of attempts to connect that have ended, and the result of the last one.
#[derive(Default)]
struct FinishedAttempts {
    count: u64,
    last: Option<Result<ExecServerClient, ExecServerError>>,
}

impl SharedEnvironment {
    pub(super) fn new(id: &str, mode: ProvisioningMode, setup: EnvironmentSetup) -> Arc<Self> {
        Arc::new(Self {
            id: id.to_owned(),
            mode,
            setup: watch::Sender::new(setup),
            connecting: tokio::sync::Mutex::default(),
            attempts: Mutex::default(),
        })
    }

    /// The id by which the environment is found.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The capability roots of the last valid report. Empty before the first one, and for an ordinary environment.
    pub fn capability_roots(&self) -> Vec<CapabilityRoot> {
        match &self.setup.borrow().verdict {
            ProvisioningVerdict::Ready(roots) => roots.clone(),
            ProvisioningVerdict::Pending | ProvisioningVerdict::Failed(_) => Vec::new(),
        }
    }

    /// The client of this environment. Waits until a deferred environment is ready. Connects if there is no client yet,
    /// or if the last client has given up and the connector can connect again. Callers that wait at the same time share
    /// one attempt and its error. After an error that a retry cannot fix, later calls return the same error without a
    /// new attempt.
    pub async fn client(&self) -> Result<ExecServerClient, ExecServerError> {
        let route = self.wait_for_route().await?;
        let began_after = self.attempts.lock().count;
        let _connecting = self.connecting.lock().await;
        if let Some(result) = self.usable_result(began_after, &route) {
            return result;
        }
        let connector = Box::new(route.connector) as Box<dyn ServerConnector>;
        let result = ExecServerClient::connect_boxed(connector, route.options).await;
        let mut attempts = self.attempts.lock();
        attempts.count += 1;
        attempts.last = Some(result.clone());
        result
    }

    /// The result of the last attempt, if the caller must not start another one. `began_after` is the number of
    /// attempts that had ended when the caller began to wait.
    fn usable_result(
        &self,
        began_after: u64,
        route: &EnvironmentRoute,
    ) -> Option<Result<ExecServerClient, ExecServerError>> {
        let attempts = self.attempts.lock();
        let last = attempts.last.as_ref()?;
        let is_usable = match last {
            Ok(client) => !has_failed(client) || !route.connector.can_reconnect(),
            Err(error) => attempts.count > began_after || !error.is_retryable(),
        };
        is_usable.then(|| last.clone())
    }

    async fn wait_for_route(&self) -> Result<EnvironmentRoute, ExecServerError> {
        let mut setup = self.setup.subscribe();
        let decided = setup.wait_for(|setup| match setup.verdict {
            ProvisioningVerdict::Pending => false,
            ProvisioningVerdict::Ready(_) => setup.route.is_some(),
            ProvisioningVerdict::Failed(_) => true,
        });
        let decided = decided.await.map_err(|_| ExecServerError::Closed)?;
        match (&decided.verdict, &decided.route) {
            (ProvisioningVerdict::Failed(reason), _) => Err(ExecServerError::ProvisioningFailed(reason.clone())),
            (_, Some(route)) => Ok(route.clone()),
            (_, None) => Err(ExecServerError::Closed),
        }
    }

    /// The state of the environment. If there is a connection, asks the server, for at most 10 s. Never connects.
    pub async fn status(&self) -> SharedEnvironmentStatus {
        if let ProvisioningVerdict::Failed(reason) = &self.setup.borrow().verdict {
            return SharedEnvironmentStatus::Disconnected(reason.clone());
        }
        let last = self.attempts.lock().last.clone();
        let client = match last {
            None => return SharedEnvironmentStatus::Pending,
            Some(Err(error)) => return SharedEnvironmentStatus::Disconnected(error.to_string()),
            Some(Ok(client)) => client,
        };
        let state = client.connection_state().borrow().clone();
        match state {
            ConnectionState::Connected => match client.environment_status().await {
                Ok(_) => SharedEnvironmentStatus::Ready,
                Err(error) => SharedEnvironmentStatus::Disconnected(error.to_string()),
            },
            ConnectionState::Recovering(reason) | ConnectionState::Failed(reason) => {
                SharedEnvironmentStatus::Disconnected(reason)
            }
        }
    }

    /// Closes the client, if there is one, and waits until its tasks have ended.
    pub(super) async fn close(&self) {
        let last = self.attempts.lock().last.take();
        if let Some(Ok(client)) = last {
            client.close().await;
        }
    }
}

fn has_failed(client: &ExecServerClient) -> bool {
    matches!(&*client.connection_state().borrow(), ConnectionState::Failed(_))
}

/// Leaves out the connector and its options, which may hold secrets.
impl fmt::Debug for SharedEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = &self.setup.borrow().verdict;
        f.debug_struct("SharedEnvironment").field("id", &self.id).field("verdict", verdict).finish_non_exhaustive()
    }
}
