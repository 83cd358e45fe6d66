//! The identity of a workload: a file holds a token that the platform of the workload has issued, and an OAuth 2
//! endpoint exchanges it for a token of the service (RFC 7523). Start with [`WorkloadIdentity::from_variables`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fetch::Fetcher;
use parking_lot::Mutex;
use serde::Deserialize;
use url::Url;

use crate::account::Account;
use crate::auth_headers::AuthHeaders;
use crate::clock::WallClock;
use crate::credential::{Credential, CredentialDescription, CredentialKind, DestinationBound, HeadersFuture};
use crate::destination::{AllowedHosts, PermittedServices, ServiceOrigin, check_issuer};
use crate::error::CredentialError;
use crate::file_reading::read_in_time;
use crate::renewed::{Renewable, Renewed};
use crate::secret::Secret;
use crate::token_request::IssuerRequest;
use crate::variables::CredentialVariables;

const RULE_ID: &str = "OPENAI_FEDERATION_RULE_ID";
/// The variable that names the file with the token of the platform.
pub(crate) const TOKEN_FILE: &str = "OPENAI_IDENTITY_TOKEN_FILE";
const CONTEXT: &str = "OPENAI_WORKLOAD_IDENTITY_CONTEXT";
/// The published documents name no variable for the address of the endpoint, so this one is our own.
const TOKEN_URL: &str = "EXEC_SERVER_WORKLOAD_TOKEN_URL";

/// Largest file with the token of the platform.
const MAX_IDENTITY_BYTES: u64 = 16 * 1024;
/// Time for an exchange.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest life of a token that is accepted. An endpoint that gives a longer one is misconfigured.
const LONGEST_LIFE: Duration = Duration::from_secs(3600);
/// A token is renewed this long before it expires, or after half of its life if that is later.
const RENEWED_BEFORE_EXPIRY: Duration = Duration::from_secs(120);

/// What the workload is, for errors.
const NAME: &str = "the workload identity";

/// A credential of a workload.
#[derive(Debug)]
pub(crate) struct WorkloadIdentity {
    exchange: Arc<TokenExchange>,
    clock: Arc<dyn WallClock>,
    token: Renewed<ServiceToken>,
    reach: PermittedServices,
}

/// What is needed to exchange the token of the platform.
struct TokenExchange {
    fetcher: Fetcher,
    url: Url,
    rule_id: String,
    identity_file: PathBuf,
    context: Option<String>,
    /// The account of the first token. Tokens of another account are refused, because requests of one program
    /// must not change hands.
    account: Mutex<Option<Account>>,
}

/// A token of the service.
#[derive(Clone)]
struct ServiceToken {
    token: Secret,
    account: Account,
    obtained: SystemTime,
    life: Duration,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: Secret,
    token_type: Option<String>,
    expires_in: u64,
}

impl std::fmt::Debug for TokenExchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenExchange").field("identity_file", &self.identity_file).finish_non_exhaustive()
    }
}

impl Renewable for ServiceToken {
    fn identity(&self) -> &str {
        self.token.expose()
    }

    fn is_due(&self, now: SystemTime) -> bool {
        // An age is unknown if the clock was set back.
        let age = now.duration_since(self.obtained);
        age.map_or(true, |age| age >= self.life - RENEWED_BEFORE_EXPIRY.min(self.life / 2))
    }

    fn is_valid(&self, now: SystemTime) -> bool {
        now.duration_since(self.obtained).is_ok_and(|age| age < self.life)
    }
}

impl WorkloadIdentity {
    /// The identity that the variables describe. If `service` is given, the identity is sent to no other service.
    /// `None` if neither [`RULE_ID`] nor [`TOKEN_FILE`] is set. An error if one of them is set and another needed
    /// variable is not.
    pub(crate) fn from_variables(
        variables: CredentialVariables<'_>,
        fetcher: &Fetcher,
        clock: &Arc<dyn WallClock>,
        service: Option<ServiceOrigin>,
    ) -> Option<Result<Self, CredentialError>> {
        let is_meant = variables.get(RULE_ID).is_some() || variables.get(TOKEN_FILE).is_some();
        is_meant.then(|| {
            let needed = |name: &str, other: &str| {
                let missing = || {
                    CredentialError::variable(name, format!("is not set or empty, but {other}; set both, or neither"))
                };
                variables.non_blank(name).ok_or_else(missing)
            };
            let rule_id = needed(RULE_ID, "a workload identity needs it beside OPENAI_IDENTITY_TOKEN_FILE")?;
            let identity_file = needed(TOKEN_FILE, "a workload identity needs it beside OPENAI_FEDERATION_RULE_ID")?;
            let url = variables.non_blank(TOKEN_URL).ok_or_else(|| {
                CredentialError::variable(
                    TOKEN_URL,
                    "is not set; set it to the OAuth token endpoint that exchanges the workload identity",
                )
            })?;
            let url = check_issuer(TOKEN_URL, url)?;
            let reach = PermittedServices { service, hosts: AllowedHosts::for_tokens_of(&url) };
            let exchange = TokenExchange {
                fetcher: fetcher.clone(),
                url,
                rule_id: rule_id.to_owned(),
                identity_file: identity_file.into(),
                context: variables.non_blank(CONTEXT).map(str::to_owned),
                account: Mutex::new(None),
            };
            let (clock, token) = (Arc::clone(clock), Renewed::new(Arc::clone(clock), None));
            Ok(Self { exchange: Arc::new(exchange), clock, token, reach })
        })
    }
}

impl TokenExchange {
    async fn token(&self, clock: &dyn WallClock) -> Result<ServiceToken, CredentialError> {
        let file = &self.identity_file;
        let missing = || CredentialError::file(file, format!("does not exist; {TOKEN_FILE} names it"));
        let identity = read_in_time(file.clone(), MAX_IDENTITY_BYTES).await?.ok_or_else(missing)?;
        let assertion = std::str::from_utf8(&identity).ok().and_then(Secret::trimmed);
        let unusable = || CredentialError::file(file, format!("holds no token; {TOKEN_FILE} names it"));
        let assertion = assertion.ok_or_else(unusable)?;
        let mut fields = vec![
            ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
            ("assertion", assertion.expose()),
            ("federation_rule_id", &self.rule_id),
        ];
        fields.extend(self.context.as_deref().map(|context| ("workload_identity_context", context)));
        let request = IssuerRequest {
            issuer: "the token endpoint of the workload identity",
            url: self.url.clone(),
            timeout: EXCHANGE_TIMEOUT,
        };
        // The life of the token begins at some time after this one.
        let obtained = clock.now();
        let answer: TokenAnswer = request.post_form(&self.fetcher, &fields).await?;
        if answer.token_type.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
            return Err(request.fault("has issued a token that is no bearer token"));
        }
        if !answer.access_token.is_header_word() {
            return Err(request.fault("has issued a token that cannot be sent in a header"));
        }
        let life = Duration::from_secs(answer.expires_in);
        if life.is_zero() || life > LONGEST_LIFE {
            let problem = format!(
                "has issued a token for {} s; 1 s to {} s are accepted",
                life.as_secs(),
                LONGEST_LIFE.as_secs()
            );
            return Err(request.fault(problem));
        }
        let account = Account::named_by(answer.access_token.expose());
        if *self.account.lock().get_or_insert_with(|| account.clone()) != account {
            return Err(CredentialError::AccountChanged { credential: NAME.to_owned() });
        }
        Ok(ServiceToken { token: answer.access_token, account, obtained, life })
    }
}

impl Credential for WorkloadIdentity {
    fn headers<'a>(&'a self, url: &'a str) -> HeadersFuture<'a> {
        Box::pin(async move {
            self.check_destination(url)?;
            let (exchange, clock) = (Arc::clone(&self.exchange), Arc::clone(&self.clock));
            let token = self.token.get(|_| async move { exchange.token(&*clock).await }).await?;
            Ok(AuthHeaders::new(format!("Bearer {}", token.token.expose()), &token.account))
        })
    }

    fn refused(&self, headers: &AuthHeaders) -> bool {
        headers.credentials_of("Bearer").is_some_and(|token| self.token.refuse(token))
    }

    fn description(&self) -> CredentialDescription {
        CredentialDescription {
            kind: CredentialKind::WorkloadIdentity,
            source: format!("{TOKEN_FILE} ({})", self.exchange.identity_file.display()),
            account: self.token.latest().and_then(|token| token.account.id),
            destination: self.reach.in_words(),
        }
    }
}

impl DestinationBound for WorkloadIdentity {
    fn check_destination(&self, url: &str) -> Result<(), CredentialError> {
        self.reach.check(NAME, url)
    }
}
