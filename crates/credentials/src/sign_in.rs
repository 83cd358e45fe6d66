//! The sign-in that `codex login` has stored in `auth.json`: tokens, or an API key. The file is read for each request,
//! because another program may have renewed the tokens. If the user has named an endpoint for it, tokens that are
//! about to expire are renewed here, by one process at a time. Start with [`StoredSignIn::find`].

mod auth_file;
mod renewal_lock;
mod token_renewal;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fetch::Fetcher;

use crate::account::Account;
use crate::auth_headers::AuthHeaders;
use crate::clock::WallClock;
use crate::credential::{Credential, CredentialDescription, CredentialKind, DestinationBound, HeadersFuture};
use crate::destination::{AllowedHosts, PermittedServices, ServiceOrigin};
use crate::error::CredentialError;
use crate::file_reading::{FileTrust, read, read_in_time};
use crate::renewed::{Earlier, Renewable, Renewed};
use crate::secret::Secret;
use crate::variables::CredentialVariables;
use auth_file::{AuthFile, MAX_AUTH_FILE_BYTES, SignInSecret};
use renewal_lock::RenewalLock;
use token_renewal::TokenRenewal;

/// Tokens are renewed this long before they expire. A request with a token that expires on its way fails.
const RENEWED_BEFORE_EXPIRY: Duration = Duration::from_secs(300);

/// The program whose directory holds the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignInOwner {
    /// The file is in the directory of this program, where the user has put it. Its tokens may be from any issuer.
    ThisProgram,
    /// The file is in the directory of codex. Its tokens are from OpenAI.
    Codex,
}

/// A sign-in that a file holds.
#[derive(Debug)]
pub(crate) struct StoredSignIn {
    source: Arc<SignInSource>,
    clock: Arc<dyn WallClock>,
    current: Renewed<CurrentSignIn>,
    reach: PermittedServices,
}

/// Where the sign-in comes from.
#[derive(Debug)]
struct SignInSource {
    path: PathBuf,
    /// `None` if the user has named no endpoint.
    renewal: Option<TokenRenewal>,
}

/// The sign-in that is used now.
#[derive(Clone, Debug)]
struct CurrentSignIn {
    secret: SignInSecret,
    /// The token in the file at the time. It differs from `secret` if a renewed token could not be written.
    token_in_file: Secret,
}

impl CurrentSignIn {
    /// Whether the token expires soon.
    fn is_due_at(&self, now: SystemTime) -> bool {
        self.secret.expires.is_some_and(|expires| now + RENEWED_BEFORE_EXPIRY >= expires)
    }
}

impl Renewable for CurrentSignIn {
    fn identity(&self) -> &str {
        self.secret.token.expose()
    }

    /// The file is read for each request.
    fn is_due(&self, _now: SystemTime) -> bool {
        true
    }

    fn is_valid(&self, now: SystemTime) -> bool {
        self.secret.expires.is_none_or(|expires| now < expires)
    }
}

impl StoredSignIn {
    /// The sign-in in this file. If `service` is given, the sign-in is sent to no other service. `None` if the file
    /// does not exist or holds no sign-in. Blocks while it reads the file.
    pub(crate) fn find(
        path: PathBuf,
        owner: SignInOwner,
        variables: CredentialVariables<'_>,
        fetcher: &Fetcher,
        clock: &Arc<dyn WallClock>,
        service: Option<ServiceOrigin>,
    ) -> Option<Result<Self, CredentialError>> {
        let found = read(&path, MAX_AUTH_FILE_BYTES, FileTrust::Foreign).and_then(|bytes| match bytes {
            Some(bytes) => AuthFile::parse(&bytes, &path).map(AuthFile::secret),
            None => Ok(None),
        });
        let secret = found.transpose()?;
        Some(secret.and_then(|secret| {
            let renewal = TokenRenewal::from_variables(variables, fetcher)?;
            let hosts = match (&renewal, owner) {
                (Some(renewal), SignInOwner::ThisProgram) => renewal.hosts_for_tokens(),
                _ => AllowedHosts::ChatGpt,
            };
            // The refresh token must not be sent to an issuer that has not issued it, such as another issuer for OpenAI
            // tokens.
            let renewal = renewal.filter(|renewal| hosts.allow(renewal.url()));
            let reach = PermittedServices { service, hosts };
            let current = CurrentSignIn { token_in_file: secret.token.clone(), secret };
            let (clock, current) = (Arc::clone(clock), Renewed::new(Arc::clone(clock), Some(current)));
            Ok(Self { source: Arc::new(SignInSource { path, renewal }), clock, current, reach })
        }))
    }

    fn name(&self) -> String {
        format!("the sign-in in {}", self.source.path.display())
    }

    /// The rule about destinations for what the file holds.
    fn reach_of(&self, secret: &SignInSecret) -> PermittedServices {
        let hosts = if secret.is_api_key { AllowedHosts::OpenAi } else { self.reach.hosts };
        PermittedServices { hosts, ..self.reach.clone() }
    }
}

impl SignInSource {
    /// The sign-in to use now.
    async fn current(
        &self,
        earlier: Earlier<CurrentSignIn>,
        clock: &dyn WallClock,
    ) -> Result<CurrentSignIn, CredentialError> {
        let current = self.in_file(earlier.value.as_ref(), clock.now()).await?;
        let refused = earlier.value.filter(|_| earlier.is_refused);
        let is_refused = refused.is_some_and(|refused| refused.identity() == current.identity());
        let now = clock.now();
        if !is_refused && !current.is_due_at(now) {
            return Ok(current);
        }
        let renewed = match (&self.renewal, &current.secret.refresh_token) {
            (Some(renewal), Some(_)) => self.renew(current.clone(), renewal, clock).await,
            // Nothing can be renewed here, but the service may still take the token.
            _ if current.is_valid(now) => return Ok(current),
            _ => return Err(self.expired()),
        };
        match renewed {
            // A token that is only about to expire serves as long as it can.
            Err(error) if !is_refused && current.is_valid(now) => {
                tracing::warn!(%error, "cannot renew the tokens of the sign-in; the old one is used while it is valid");
                Ok(current)
            }
            renewed => renewed,
        }
    }

    /// What the file holds now. A program that writes the file in place leaves it damaged for a moment; then the
    /// earlier sign-in is still used.
    async fn in_file(
        &self,
        earlier: Option<&CurrentSignIn>,
        now: SystemTime,
    ) -> Result<CurrentSignIn, CredentialError> {
        let signed_out = || CredentialError::file(&self.path, "holds no sign-in any more; sign in again");
        let bytes = read_in_time(self.path.clone(), MAX_AUTH_FILE_BYTES).await?.ok_or_else(signed_out)?;
        let secret = match AuthFile::parse(&bytes, &self.path) {
            Ok(file) => file.secret().ok_or_else(signed_out)?,
            Err(error) => {
                return earlier.filter(|earlier| earlier.is_valid(now)).cloned().ok_or(error);
            }
        };
        match earlier {
            // The file is unchanged, so a renewed token that could not be written is newer.
            Some(earlier) if earlier.token_in_file == secret.token => Ok(earlier.clone()),
            _ => Ok(CurrentSignIn { token_in_file: secret.token.clone(), secret }),
        }
    }

    /// Renews the tokens, unless another process has done so meanwhile. A refresh token can often be used once only, so
    /// one process at a time does this.
    async fn renew(
        &self,
        current: CurrentSignIn,
        renewal: &TokenRenewal,
        clock: &dyn WallClock,
    ) -> Result<CurrentSignIn, CredentialError> {
        let _lock = RenewalLock::acquire(&self.path).await;
        let now = clock.now();
        let in_file = self.in_file(Some(&current), now).await?;
        if in_file.identity() != current.identity() && !in_file.is_due_at(now) {
            return Ok(in_file);
        }
        let current = &in_file;
        let Some(refresh_token) = &current.secret.refresh_token else { return Err(self.expired()) };
        let tokens = match renewal.tokens(refresh_token).await {
            Ok(tokens) => tokens,
            // Another program may have used up the refresh token, and written new tokens.
            Err(error) => {
                let in_file = self.in_file(Some(current), now).await?;
                let is_newer = in_file.identity() != current.identity() && in_file.is_valid(now);
                return if is_newer { Ok(in_file) } else { Err(error) };
            }
        };
        let secret = current.secret.renewed(&tokens);
        if !is_same_account(&secret.account, &current.secret.account) {
            return Err(CredentialError::AccountChanged {
                credential: format!("the sign-in in {}", self.path.display()),
            });
        }
        let written = auth_file::write(&self.path, &current.token_in_file, &tokens).await;
        let token_in_file = match written {
            Ok(true) => secret.token.clone(),
            // Another program has changed the file meanwhile.
            Ok(false) => current.token_in_file.clone(),
            Err(error) => {
                tracing::warn!(%error, "renewed tokens cannot be stored, so other programs may have to sign in again");
                current.token_in_file.clone()
            }
        };
        Ok(CurrentSignIn { secret, token_in_file })
    }

    fn expired(&self) -> CredentialError {
        CredentialError::Expired {
            credential: format!("the sign-in in {}", self.path.display()),
            advice: "sign in again, for example with `codex login`".to_owned(),
        }
    }
}

fn is_same_account(new: &Account, old: &Account) -> bool {
    new.id == old.id && (new.user == old.user || new.user.is_none() || old.user.is_none())
}

impl Credential for StoredSignIn {
    fn headers<'a>(&'a self, url: &'a str) -> HeadersFuture<'a> {
        Box::pin(async move {
            // Nothing is renewed for a service that must not get the sign-in at all.
            self.check_destination(url)?;
            let (source, clock) = (Arc::clone(&self.source), Arc::clone(&self.clock));
            let current = self.current.get(|earlier| async move { source.current(earlier, &*clock).await }).await?;
            // The file may hold something else by now.
            self.reach_of(&current.secret).check(&self.name(), url)?;
            Ok(AuthHeaders::new(format!("Bearer {}", current.secret.token.expose()), &current.secret.account))
        })
    }

    fn refused(&self, headers: &AuthHeaders) -> bool {
        headers.credentials_of("Bearer").is_some_and(|token| self.current.refuse(token))
    }

    fn description(&self) -> CredentialDescription {
        let current = self.current.latest();
        let is_api_key = current.as_ref().is_some_and(|current| current.secret.is_api_key);
        CredentialDescription {
            kind: if is_api_key { CredentialKind::ApiKey } else { CredentialKind::SignIn },
            source: self.source.path.display().to_string(),
            destination: current
                .as_ref()
                .map_or(self.reach.clone(), |current| self.reach_of(&current.secret))
                .in_words(),
            account: current.and_then(|current| current.secret.account.id),
        }
    }
}

impl DestinationBound for StoredSignIn {
    fn check_destination(&self, url: &str) -> Result<(), CredentialError> {
        let current = self.current.latest();
        let reach = current.map_or(self.reach.clone(), |current| self.reach_of(&current.secret));
        reach.check(&self.name(), url)
    }
}
