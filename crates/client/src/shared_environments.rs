//! Environments by id, each with one client that all callers share, for programs with many users of the same machines.
//! The client of an *ordinary* environment connects at the first use. A *deferred* environment is prepared outside this
//! program, for example by a service that starts a machine: callers can hold it before it can be reached, and wait
//! until a report says that it is ready. Start with [`SharedEnvironments`]; the rules about reports are in
//! `provisioning`.

mod provisioning;
mod shared_environment;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::connector::ServerConnector;
use crate::error::ExecServerError;
use crate::options::ExecServerClientConnectOptions;
use provisioning::ProvisioningVerdict;
pub use provisioning::{InvalidReport, ProvisioningReport, ReportEffect};
use shared_environment::{EnvironmentRoute, EnvironmentSetup, ProvisioningMode};
pub use shared_environment::{SharedEnvironment, SharedEnvironmentStatus};

/// The environments of a program, by id.
#[derive(Debug, Default)]
pub struct SharedEnvironments {
    by_id: Mutex<BTreeMap<String, Arc<SharedEnvironment>>>,
}

impl SharedEnvironments {
    /// The environment with this id.
    pub fn find(&self, id: &str) -> Option<Arc<SharedEnvironment>> {
        self.by_id.lock().get(id).cloned()
    }

    /// Adds an ordinary environment, or replaces the ordinary one with this id. Callers that hold the replaced
    /// environment keep its client. Does not connect. Fails if the id belongs to a deferred environment.
    pub fn add(
        &self,
        id: &str,
        connector: impl ServerConnector,
        options: ExecServerClientConnectOptions,
    ) -> Result<Arc<SharedEnvironment>, ExecServerError> {
        let mut by_id = self.by_id.lock();
        refuse_other_mode(by_id.get(id), ProvisioningMode::Ordinary)?;
        let route = Some(EnvironmentRoute { connector: Arc::new(connector), options });
        let setup = EnvironmentSetup { route, verdict: ProvisioningVerdict::Ready(Vec::new()) };
        let environment = SharedEnvironment::new(id, ProvisioningMode::Ordinary, setup);
        by_id.insert(id.to_owned(), Arc::clone(&environment));
        Ok(environment)
    }

    /// Adds a deferred environment. It is connected at its first use, after a report that it is ready. If there already
    /// is a deferred environment with this id, that one is returned, and it gets the connector only if it has none yet.
    /// Fails if the id belongs to an ordinary environment.
    pub fn add_deferred(
        &self,
        id: &str,
        connector: impl ServerConnector,
        options: ExecServerClientConnectOptions,
    ) -> Result<Arc<SharedEnvironment>, ExecServerError> {
        let mut by_id = self.by_id.lock();
        refuse_other_mode(by_id.get(id), ProvisioningMode::Deferred)?;
        let environment = deferred(&mut by_id, id);
        let route = EnvironmentRoute { connector: Arc::new(connector), options };
        environment.setup.send_if_modified(|setup| {
            let is_missing = setup.route.is_none();
            setup.route.get_or_insert(route);
            is_missing
        });
        Ok(environment)
    }

    /// Reports whether a deferred environment can be used. The report may come before the environment is added. The
    /// first report decides whether the environment is ready or has failed. Later reports can only change the
    /// capability roots of a ready environment. If the first report is invalid, the environment has failed.
    pub fn report(&self, id: &str, report: ProvisioningReport) -> Result<ReportEffect, InvalidReport> {
        let mut by_id = self.by_id.lock();
        if by_id.get(id).is_some_and(|environment| environment.mode == ProvisioningMode::Ordinary) {
            return Ok(ReportEffect::Ignored);
        }
        let mut effect = Ok(ReportEffect::Ignored);
        deferred(&mut by_id, id).setup.send_modify(|setup| effect = setup.verdict.handle_report(report));
        effect
    }

    /// Closes the clients of all environments, and waits until their tasks have ended.
    pub async fn close(self) {
        for environment in self.by_id.into_inner().into_values() {
            environment.close().await;
        }
    }
}

/// The deferred environment with this id. Adds one without a connector if there is none.
fn deferred(by_id: &mut BTreeMap<String, Arc<SharedEnvironment>>, id: &str) -> Arc<SharedEnvironment> {
    let make = || {
        let setup = EnvironmentSetup { route: None, verdict: ProvisioningVerdict::Pending };
        SharedEnvironment::new(id, ProvisioningMode::Deferred, setup)
    };
    Arc::clone(by_id.entry(id.to_owned()).or_insert_with(make))
}

fn refuse_other_mode(
    existing: Option<&Arc<SharedEnvironment>>,
    mode: ProvisioningMode,
) -> Result<(), ExecServerError> {
    match existing {
        Some(environment) if environment.mode != mode => {
            Err(ExecServerError::ProvisioningModeConflict { id: environment.id().to_owned() })
        }
        _ => Ok(()),
    }
}
