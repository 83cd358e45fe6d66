//! What every credential can do, whatever its kind. Start with [`Credential`].

use std::fmt;
use std::pin::Pin;

use crate::auth_headers::AuthHeaders;
use crate::error::CredentialError;

/// The headers of a request, once they are ready.
pub type HeadersFuture<'a> = Pin<Box<dyn Future<Output = Result<AuthHeaders, CredentialError>> + Send + 'a>>;

/// Who this program is to a service. `Debug` never shows a secret.
pub trait Credential: Send + Sync + fmt::Debug {
    /// The headers of a request to `url`. Tokens are renewed and signatures made as needed. Fails if the credential
    /// must not go to this URL. Concurrent calls share one renewal, and dropping the future does not cancel it.
    fn headers<'a>(&'a self, url: &'a str) -> HeadersFuture<'a>;

    /// A service has answered 401 or 403 to a request with these headers. Returns true if the next call of
    /// [`headers`](Self::headers) may give other ones, so that one retry is worth it.
    fn refused(&self, headers: &AuthHeaders) -> bool;

    /// For people, without secrets.
    fn description(&self) -> CredentialDescription;
}

/// A credential that is meant for certain services only.
pub(crate) trait DestinationBound: Credential {
    /// Fails if the credential must not be sent to this URL.
    fn check_destination(&self, url: &str) -> Result<(), CredentialError>;
}

/// The kind of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CredentialKind {
    /// A key that does not expire.
    ApiKey,
    /// A token that was handed over as it is, without anything about its kind.
    BearerToken,
    /// A token that a person has made for programs. It begins with `at-`.
    PersonalToken,
    /// The tokens that a sign-in has stored.
    SignIn,
    /// A token that is issued for the identity of a workload.
    WorkloadIdentity,
    /// The key of an agent, which signs each request.
    AgentIdentity,
}

impl CredentialKind {
    /// The name in JSON, in camelCase.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ApiKey => "apiKey",
            Self::BearerToken => "bearerToken",
            Self::PersonalToken => "personalToken",
            Self::SignIn => "signIn",
            Self::WorkloadIdentity => "workloadIdentity",
            Self::AgentIdentity => "agentIdentity",
        }
    }
}

/// The name for people, such as `API key`.
impl fmt::Display for CredentialKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ApiKey => "API key",
            Self::BearerToken => "bearer token",
            Self::PersonalToken => "personal access token",
            Self::SignIn => "stored sign-in",
            Self::WorkloadIdentity => "workload identity",
            Self::AgentIdentity => "agent identity",
        })
    }
}

/// What a person may know about a credential. It has no secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialDescription {
    /// What the credential is.
    pub kind: CredentialKind,
    /// Where it was found: the name of a variable, or the path of a file.
    pub source: String,
    /// The id of the account, if it is known. Some credentials learn it only with their first token.
    pub account: Option<String>,
    /// Where it may be sent, in words.
    pub destination: String,
}

impl fmt::Display for CredentialDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {}", self.kind, self.source)?;
        if let Some(account) = &self.account {
            write!(f, ", account {account}")?;
        }
        Ok(())
    }
}
