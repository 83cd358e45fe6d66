//! The places in which credentials are looked for, and their order. Start with [`choose`].

use std::fmt;
use std::iter::once_with;
use std::path::PathBuf;
use std::sync::Arc;

use fetch::Fetcher;

use crate::agent_identity::{ACCESS_TOKEN, AgentIdentity};
use crate::clock::{SystemClock, WallClock};
use crate::credential::{Credential, CredentialDescription, CredentialKind, DestinationBound};
use crate::destination::{AllowedHosts, PermittedServices, ServiceOrigin};
use crate::error::CredentialError;
use crate::fixed_token::FixedToken;
use crate::key_store::KeyStore;
use crate::secret::Secret;
use crate::sign_in::StoredSignIn;
use crate::variables::CredentialVariables;
use crate::workload_identity::WorkloadIdentity;

const OWN_KEY: &str = "EXEC_SERVER_API_KEY";
const CODEX_KEY: &str = "CODEX_API_KEY";
/// The beginning of a personal access token.
const PERSONAL_TOKEN_PREFIX: &str = "at-";

/// Where credentials are looked for, and what they need.
#[derive(Clone)]
pub struct CredentialSettings {
    /// Names and values of environment variables, usually those of this process.
    pub environment: Vec<(String, String)>,
    /// The directory with `credentials.json` and, perhaps, `auth.json`. `None`: the variables `EXEC_SERVER_HOME`,
    /// `XDG_CONFIG_HOME` and `HOME` name it.
    pub exec_server_home: Option<PathBuf>,
    /// The directory with the `auth.json` of codex. `None`: the variables `CODEX_HOME` and `HOME` name it.
    pub codex_home: Option<PathBuf>,
    /// Only the identity of an agent is used.
    pub use_agent_identity: bool,
    /// Makes the requests to services that issue tokens.
    pub fetcher: Fetcher,
}

impl fmt::Debug for CredentialSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialSettings")
            .field("exec_server_home", &self.exec_server_home)
            .field("codex_home", &self.codex_home)
            .field("use_agent_identity", &self.use_agent_identity)
            .finish_non_exhaustive()
    }
}

/// The credential for the service at `service_url`: the first one that is found. Sends nothing. The credential goes
/// to the origin of this URL only. Fails if none is found, or if the first one cannot be used or must not go there: a
/// later one would be another identity than the user expects.
///
/// This function reads small files, and so may block for a moment.
pub fn choose(settings: CredentialSettings, service_url: &str) -> Result<Arc<dyn Credential>, CredentialError> {
    choose_at(settings, service_url, Arc::new(SystemClock))
}

/// As [`choose`], with another clock.
pub fn choose_at(
    settings: CredentialSettings,
    service_url: &str,
    clock: Arc<dyn WallClock>,
) -> Result<Arc<dyn Credential>, CredentialError> {
    let service = ServiceOrigin::of(service_url)?;
    let found = CredentialSearch { settings: &settings, service: Some(&service), clock }.all().next();
    match found {
        Some(found) => Ok(found?),
        None => Err(CredentialError::NotFound { service: service.to_string() }),
    }
}

/// All credentials that are found, in the order in which they are looked for. [`choose`] uses the first one and looks
/// for no other. Without the URL of a service, the stored keys of all services are listed.
pub fn survey(
    settings: &CredentialSettings,
    service_url: Option<&str>,
) -> Result<Vec<Result<CredentialDescription, CredentialError>>, CredentialError> {
    let service = service_url.map(ServiceOrigin::of).transpose()?;
    let search = CredentialSearch { settings, service: service.as_ref(), clock: Arc::new(SystemClock) };
    Ok(search.all().map(|found| found.map(|credential| credential.description())).collect())
}

/// A credential that was found, or the reason why it cannot be used.
type Found = Result<Arc<dyn DestinationBound>, CredentialError>;

/// One look through all places.
struct CredentialSearch<'a> {
    settings: &'a CredentialSettings,
    /// `None` if all services are meant.
    service: Option<&'a ServiceOrigin>,
    clock: Arc<dyn WallClock>,
}

impl CredentialSearch<'_> {
    /// What is found, in the order of the places. A place is looked into only when the iterator reaches it.
    fn all(&self) -> Box<dyn Iterator<Item = Found> + '_> {
        if self.settings.use_agent_identity {
            return Box::new(once_with(|| self.checked(self.asked_agent_identity())));
        }
        let found = once_with(|| self.own_key())
            .flatten()
            .chain(once_with(|| self.stored_keys()).flatten())
            .chain(once_with(|| self.workload_identity()).flatten())
            .chain(once_with(|| self.codex_key()).flatten())
            .chain(once_with(|| self.access_token()).flatten())
            .chain(once_with(|| self.stored_sign_ins()).flatten());
        Box::new(found.map(|found| self.checked(found)))
    }

    /// Refuses a credential that must not go to the service.
    fn checked(&self, found: Found) -> Found {
        let credential = found?;
        if let Some(service) = self.service {
            credential.check_destination(service.as_str())?;
        }
        Ok(credential)
    }

    fn variables(&self) -> CredentialVariables<'_> {
        CredentialVariables(&self.settings.environment)
    }

    fn reach(&self, hosts: AllowedHosts) -> PermittedServices {
        PermittedServices { service: self.service.cloned(), hosts }
    }

    fn own_key(&self) -> Option<Found> {
        self.fixed(CredentialKind::ApiKey, OWN_KEY, AllowedHosts::Any)
    }

    fn codex_key(&self) -> Option<Found> {
        self.fixed(CredentialKind::ApiKey, CODEX_KEY, AllowedHosts::OpenAi)
    }

    fn fixed(&self, kind: CredentialKind, variable: &str, hosts: AllowedHosts) -> Option<Found> {
        let token = Secret::new(self.variables().non_blank(variable)?);
        Some(FixedToken::new(kind, variable, token, self.reach(hosts)).map(shared))
    }

    fn stored_keys(&self) -> Vec<Found> {
        let home = self.settings.exec_server_home.as_deref();
        let Some(store) = KeyStore::locate(&self.settings.environment, home) else { return Vec::new() };
        let services = match self.service {
            Some(service) => Ok(vec![service.clone()]),
            None => store.services().map(|all| all.iter().filter_map(|url| ServiceOrigin::of(url).ok()).collect()),
        };
        let source = store.path().display().to_string();
        let key = |service: ServiceOrigin| {
            let reach = PermittedServices { service: Some(service.clone()), hosts: AllowedHosts::Any };
            let found = store.key(&service).transpose()?;
            let kind = CredentialKind::ApiKey;
            Some(found.and_then(|key| FixedToken::new(kind, &source, key, reach).map(shared)))
        };
        match services {
            Ok(services) => services.into_iter().filter_map(key).collect(),
            Err(error) => vec![Err(error)],
        }
    }

    fn workload_identity(&self) -> Option<Found> {
        let (variables, fetcher) = (self.variables(), &self.settings.fetcher);
        let found = WorkloadIdentity::from_variables(variables, fetcher, &self.clock, self.reach(AllowedHosts::Any))?;
        Some(found.map(shared))
    }

    fn access_token(&self) -> Option<Found> {
        let token = self.variables().non_blank(ACCESS_TOKEN)?;
        if token.starts_with(PERSONAL_TOKEN_PREFIX) {
            return self.fixed(CredentialKind::PersonalToken, ACCESS_TOKEN, AllowedHosts::Any);
        }
        Some(Err(CredentialError::AgentIdentityNotAsked { source_name: ACCESS_TOKEN.to_owned() }))
    }

    fn asked_agent_identity(&self) -> Found {
        let token = self.variables().non_blank(ACCESS_TOKEN);
        let token = token.filter(|token| !token.starts_with(PERSONAL_TOKEN_PREFIX)).ok_or_else(|| {
            let problem =
                "holds no agent identity, which --use-agent-identity-auth requires; set it, or leave out the flag";
            CredentialError::variable(ACCESS_TOKEN, problem)
        })?;
        let reach = self.reach(AllowedHosts::Any);
        let (variables, fetcher) = (self.variables(), &self.settings.fetcher);
        AgentIdentity::from_variables(Secret::new(token), variables, fetcher, &self.clock, reach).map(shared)
    }

    fn stored_sign_ins(&self) -> Vec<Found> {
        let (variables, settings) = (self.variables(), self.settings);
        let own = settings.exec_server_home.clone().or_else(|| variables.exec_server_home());
        let codex = settings
            .codex_home
            .clone()
            .or_else(|| variables.codex_home())
            .filter(|codex| Some(codex) != own.as_ref());
        let files = own.into_iter().chain(codex).map(|home| home.join("auth.json"));
        let sign_in = |file| {
            let reach = self.reach(AllowedHosts::Any);
            Some(StoredSignIn::find(file, variables, &settings.fetcher, &self.clock, reach)?.map(shared))
        };
        files.filter_map(sign_in).collect()
    }
}

fn shared(credential: impl DestinationBound + 'static) -> Arc<dyn DestinationBound> {
    Arc::new(credential)
}
