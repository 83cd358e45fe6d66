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
use crate::sign_in::{SignInOwner, StoredSignIn};
use crate::variables::CredentialVariables;
use crate::workload_identity::{self, WorkloadIdentity};

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
        Some(found) => Ok(found.credential?),
        None => Err(CredentialError::NotFound { service: service.to_string() }),
    }
}

/// A description of a credential that was found, to be shown to people. Contains no secrets.
#[derive(Clone, Debug)]
pub struct SurveyedCredential {
    /// The kind of the credential, as far as the place where it was found shows it.
    pub kind: CredentialKind,
    /// Where it was found: the name of a variable, or the path of a file.
    pub source: String,
    /// The description of the credential, or the reason why it cannot be used.
    pub outcome: Result<CredentialDescription, CredentialError>,
}

/// All credentials that are found, in the order in which they are looked for. [`choose`] uses the first one and looks
/// for no other. Without the URL of a service, the stored keys of all services are listed.
pub fn survey(
    settings: &CredentialSettings,
    service_url: Option<&str>,
) -> Result<Vec<SurveyedCredential>, CredentialError> {
    let service = service_url.map(ServiceOrigin::of).transpose()?;
    let search = CredentialSearch { settings, service: service.as_ref(), clock: Arc::new(SystemClock) };
    Ok(search.all().map(FoundCredential::surveyed).collect())
}

/// A credential that was found, or the reason why it cannot be used.
struct FoundCredential {
    kind: CredentialKind,
    source: String,
    credential: Result<Arc<dyn DestinationBound>, CredentialError>,
}

impl FoundCredential {
    fn new<C: DestinationBound + 'static>(
        kind: CredentialKind,
        source: impl Into<String>,
        credential: Result<C, CredentialError>,
    ) -> Self {
        let credential = credential.map(|credential| Arc::new(credential) as Arc<dyn DestinationBound>);
        Self { kind, source: source.into(), credential }
    }

    fn unusable(kind: CredentialKind, source: impl Into<String>, error: CredentialError) -> Self {
        Self { kind, source: source.into(), credential: Err(error) }
    }

    /// Turns the credential into an error if it must not be sent to this service.
    fn checked_for(mut self, service: Option<&ServiceOrigin>) -> Self {
        if let (Ok(credential), Some(service)) = (&self.credential, service)
            && let Err(error) = credential.check_destination(service.as_str())
        {
            self.credential = Err(error);
        }
        self
    }

    fn surveyed(self) -> SurveyedCredential {
        let outcome = self.credential.map(|credential| credential.description());
        SurveyedCredential { kind: self.kind, source: self.source, outcome }
    }
}

/// One look through all places.
struct CredentialSearch<'a> {
    settings: &'a CredentialSettings,
    /// `None` if all services are meant.
    service: Option<&'a ServiceOrigin>,
    clock: Arc<dyn WallClock>,
}

impl CredentialSearch<'_> {
    /// What is found, in the order of the places. A place is looked into only when the iterator reaches it.
    fn all(&self) -> Box<dyn Iterator<Item = FoundCredential> + '_> {
        if self.settings.use_agent_identity {
            return Box::new(once_with(|| self.asked_agent_identity().checked_for(self.service)));
        }
        let found = once_with(|| self.own_key())
            .flatten()
            .chain(once_with(|| self.stored_keys()).flatten())
            .chain(once_with(|| self.workload_identity()).flatten())
            .chain(once_with(|| self.codex_key()).flatten())
            .chain(once_with(|| self.access_token()).flatten())
            .chain(once_with(|| self.stored_sign_ins()).flatten());
        Box::new(found.map(|found| found.checked_for(self.service)))
    }

    fn variables(&self) -> CredentialVariables<'_> {
        CredentialVariables(&self.settings.environment)
    }

    fn reach(&self, hosts: AllowedHosts) -> PermittedServices {
        PermittedServices { service: self.service.cloned(), hosts }
    }

    fn own_key(&self) -> Option<FoundCredential> {
        self.fixed(CredentialKind::ApiKey, OWN_KEY, AllowedHosts::Any)
    }

    fn codex_key(&self) -> Option<FoundCredential> {
        self.fixed(CredentialKind::ApiKey, CODEX_KEY, AllowedHosts::OpenAi)
    }

    fn fixed(&self, kind: CredentialKind, variable: &str, hosts: AllowedHosts) -> Option<FoundCredential> {
        let token = Secret::new(self.variables().non_blank(variable)?);
        Some(FoundCredential::new(kind, variable, FixedToken::new(kind, variable, token, self.reach(hosts))))
    }

    fn stored_keys(&self) -> Vec<FoundCredential> {
        const KIND: CredentialKind = CredentialKind::ApiKey;
        let home = self.settings.exec_server_home.as_deref();
        let Some(store) = KeyStore::locate(&self.settings.environment, home) else { return Vec::new() };
        let services = match self.service {
            Some(service) => Ok(vec![service.clone()]),
            None => store.services().map(|all| all.iter().filter_map(|url| ServiceOrigin::of(url).ok()).collect()),
        };
        let source = store.path().display().to_string();
        let key = |service: ServiceOrigin| {
            let found = store.key(&service).transpose()?;
            let reach = PermittedServices { service: Some(service), hosts: AllowedHosts::Any };
            let credential = found.and_then(|key| FixedToken::new(KIND, &source, key, reach));
            Some(FoundCredential::new(KIND, &source, credential))
        };
        match services {
            Ok(services) => services.into_iter().filter_map(key).collect(),
            Err(error) => vec![FoundCredential::unusable(KIND, &source, error)],
        }
    }

    fn workload_identity(&self) -> Option<FoundCredential> {
        let (variables, service) = (self.variables(), self.service.cloned());
        let found = WorkloadIdentity::from_variables(variables, &self.settings.fetcher, &self.clock, service)?;
        Some(FoundCredential::new(CredentialKind::WorkloadIdentity, workload_identity::TOKEN_FILE, found))
    }

    fn access_token(&self) -> Option<FoundCredential> {
        let token = self.variables().non_blank(ACCESS_TOKEN)?;
        if token.starts_with(PERSONAL_TOKEN_PREFIX) {
            return self.fixed(CredentialKind::PersonalToken, ACCESS_TOKEN, AllowedHosts::ChatGpt);
        }
        let error = CredentialError::AgentIdentityNotAsked { source_name: ACCESS_TOKEN.to_owned() };
        Some(FoundCredential::unusable(CredentialKind::AgentIdentity, ACCESS_TOKEN, error))
    }

    fn asked_agent_identity(&self) -> FoundCredential {
        let token = self.variables().non_blank(ACCESS_TOKEN);
        let token = token.filter(|token| !token.starts_with(PERSONAL_TOKEN_PREFIX)).ok_or_else(|| {
            let problem =
                "holds no agent identity, which --use-agent-identity-auth requires; set it, or leave out the flag";
            CredentialError::variable(ACCESS_TOKEN, problem)
        });
        let reach = self.reach(AllowedHosts::ChatGpt);
        let (variables, fetcher) = (self.variables(), &self.settings.fetcher);
        let identity = token.and_then(|token| {
            AgentIdentity::from_variables(Secret::new(token), variables, fetcher, &self.clock, reach)
        });
        FoundCredential::new(CredentialKind::AgentIdentity, ACCESS_TOKEN, identity)
    }

    fn stored_sign_ins(&self) -> Vec<FoundCredential> {
        let (variables, settings) = (self.variables(), self.settings);
        let own = settings.exec_server_home.clone().or_else(|| variables.exec_server_home());
        let codex = settings.codex_home.clone().or_else(|| variables.codex_home());
        // If both programs use the same directory, it counts as that of codex: its tokens are from OpenAI.
        let own = own.filter(|own| Some(own) != codex.as_ref()).map(|own| (own, SignInOwner::ThisProgram));
        let homes = own.into_iter().chain(codex.map(|codex| (codex, SignInOwner::Codex)));
        let sign_in = |(home, owner): (PathBuf, SignInOwner)| {
            let path = home.join("auth.json");
            let source = path.display().to_string();
            let (fetcher, service) = (&settings.fetcher, self.service.cloned());
            let found = StoredSignIn::find(path, owner, variables, fetcher, &self.clock, service)?;
            Some(FoundCredential::new(CredentialKind::SignIn, source, found))
        };
        homes.filter_map(sign_in).collect()
    }
}
