//! The identity of an agent: a signed token holds the private key of the agent. The agent registers a task once, and
//! then signs each request with its key. Start with [`AgentIdentity::from_variables`].

mod agent;
mod task_registration;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use fetch::Fetcher;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::auth_headers::AuthHeaders;
use crate::clock::{WallClock, rfc3339};
use crate::credential::{Credential, CredentialDescription, CredentialKind, DestinationBound, HeadersFuture};
use crate::destination::{PermittedServices, check_issuer};
use crate::error::CredentialError;
use crate::json_web_token::PublishedKeys;
use crate::renewed::{Earlier, Renewable, Renewed};
use crate::secret::Secret;
use crate::token_request::IssuerRequest;
use crate::variables::CredentialVariables;
use agent::Agent;

/// The variable that holds the token.
pub(crate) const ACCESS_TOKEN: &str = "CODEX_ACCESS_TOKEN";

const REGISTRATION_BASE: &str = "CODEX_AGENT_IDENTITY_AUTHAPI_BASE_URL";
const DEFAULT_REGISTRATION_BASE: &str = "https://auth.openai.com/api/accounts";

const KEYS_BASE: &str = "CODEX_AGENT_IDENTITY_JWKS_BASE_URL";
const DEFAULT_KEYS_BASE: &str = "https://chatgpt.com/backend-api";

/// Time for getting the keys that verify tokens.
const KEYS_TIMEOUT: Duration = Duration::from_secs(10);

const SCHEME: &str = "AgentAssertion";

/// The credential of an agent.
#[derive(Debug)]
pub(crate) struct AgentIdentity {
    issuers: Arc<AgentIssuers>,
    clock: Arc<dyn WallClock>,
    task: Renewed<AgentTask>,
    reach: PermittedServices,
}

/// The token, and the services that belong to it.
#[derive(Debug)]
struct AgentIssuers {
    fetcher: Fetcher,
    token: Secret,
    keys_url: Url,
    registration_base: Url,
}

/// A task that is registered for a verified agent.
#[derive(Clone)]
struct AgentTask {
    id: String,
    agent: Arc<Agent>,
}

/// The value of the header, with its members in the order in which they are sent.
#[derive(Deserialize, Serialize)]
struct Assertion {
    agent_runtime_id: String,
    signature: String,
    task_id: String,
    timestamp: String,
}

impl Renewable for AgentTask {
    fn identity(&self) -> &str {
        &self.id
    }

    // A task has no end of its own. A token that has expired is noticed by the attempt to renew.
    fn is_due(&self, now: SystemTime) -> bool {
        self.agent.has_expired(now)
    }

    fn is_valid(&self, now: SystemTime) -> bool {
        !self.agent.has_expired(now)
    }
}

impl AgentIdentity {
    /// The identity whose token is `token`. The other variables say which services belong to it.
    pub(crate) fn from_variables(
        token: Secret,
        variables: CredentialVariables<'_>,
        fetcher: &Fetcher,
        clock: &Arc<dyn WallClock>,
        reach: PermittedServices,
    ) -> Result<Self, CredentialError> {
        let base = |name: &'static str, default: &str| {
            let base = variables.non_blank(name).unwrap_or(default);
            check_issuer(name, base.trim_end_matches('/'))
        };
        let keys_base = base(KEYS_BASE, DEFAULT_KEYS_BASE)?;
        let keys_path = if keys_base.as_str().contains("/backend-api") {
            &["wham", "agent-identities", "jwks"][..]
        } else {
            &["agent-identities", "jwks"]
        };
        let issuers = AgentIssuers {
            fetcher: fetcher.clone(),
            token,
            keys_url: below(&keys_base, keys_path),
            registration_base: base(REGISTRATION_BASE, DEFAULT_REGISTRATION_BASE)?,
        };
        let (clock, task) = (Arc::clone(clock), Renewed::new(Arc::clone(clock), None));
        Ok(Self { issuers: Arc::new(issuers), clock, task, reach })
    }
}

impl AgentIssuers {
    /// Verifies the token, unless that was done before, and registers a task.
    async fn task(&self, earlier: Earlier<AgentTask>, clock: &dyn WallClock) -> Result<AgentTask, CredentialError> {
        let agent = match earlier.value {
            Some(task) => task.agent,
            None => Arc::new(Agent::verified(&self.token, &self.published_keys().await?)?),
        };
        if agent.has_expired(clock.now()) {
            return Err(CredentialError::Expired {
                credential: format!("the agent identity in {ACCESS_TOKEN}"),
                advice: "set the variable to a new one and start again".to_owned(),
            });
        }
        let id = task_registration::register(&agent, &self.registration_base, &self.fetcher, clock).await?;
        Ok(AgentTask { id, agent })
    }

    async fn published_keys(&self) -> Result<PublishedKeys, CredentialError> {
        let request = IssuerRequest {
            issuer: "the issuer of agent identities",
            url: self.keys_url.clone(),
            timeout: KEYS_TIMEOUT,
        };
        request.get(&self.fetcher).await
    }
}

/// The URL of a path below a base. Each part of the path is encoded.
fn below(base: &Url, path: &[&str]) -> Url {
    let mut url = base.clone();
    // A URL with the scheme http or https always has a path.
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(path);
    }
    url
}

impl Credential for AgentIdentity {
    fn headers<'a>(&'a self, url: &'a str) -> HeadersFuture<'a> {
        Box::pin(async move {
            self.check_destination(url)?;
            let (issuers, clock) = (Arc::clone(&self.issuers), Arc::clone(&self.clock));
            let task = self.task.get(|earlier| async move { issuers.task(earlier, &*clock).await }).await?;
            let timestamp = rfc3339(self.clock.now());
            let signature = task.agent.sign(&format!("{}:{}:{timestamp}", task.agent.runtime_id(), task.id));
            let agent_runtime_id = task.agent.runtime_id().to_owned();
            let assertion = Assertion { agent_runtime_id, signature, task_id: task.id, timestamp };
            let json = serde_json::to_vec(&assertion)
                .map_err(|error| CredentialError::Machine { reason: error.to_string() })?;
            let value = format!("{SCHEME} {}", BASE64_URL_SAFE_NO_PAD.encode(json));
            Ok(AuthHeaders::new(value, task.agent.account()))
        })
    }

    fn refused(&self, headers: &AuthHeaders) -> bool {
        let assertion = headers.credentials_of(SCHEME).and_then(|value| BASE64_URL_SAFE_NO_PAD.decode(value).ok());
        let assertion: Option<Assertion> = assertion.and_then(|json| serde_json::from_slice(&json).ok());
        // The service may have forgotten the task.
        assertion.is_some_and(|assertion| self.task.refuse(&assertion.task_id))
    }

    fn description(&self) -> CredentialDescription {
        let task = self.task.latest();
        CredentialDescription {
            kind: CredentialKind::AgentIdentity,
            source: ACCESS_TOKEN.to_owned(),
            account: task.and_then(|task| task.agent.account().id.clone()),
            destination: self.reach.in_words(),
        }
    }
}

impl DestinationBound for AgentIdentity {
    fn check_destination(&self, url: &str) -> Result<(), CredentialError> {
        self.reach.check("the agent identity", url)
    }
}

/// Standard base64 with padding.
fn base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}
