//! An environment that is reached through a service: which service, which environment, and who the client is there.

use std::fmt;
use std::path::PathBuf;

use super::error::{EntryProblem, EnvironmentsError};
use super::home_and_variables::{HomeAndVariables, RELAY_ACCOUNT, RELAY_VARIABLES};

/// An environment behind the relay of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteLocation {
    /// `https://HOST…`, to which the paths of the registry's calls are appended.
    pub service: String,
    /// The id of the environment in the service.
    pub environment_id: String,
    /// The fingerprint that the key of the executor must have. `None` trusts the key that the service names.
    pub pinned_key: Option<String>,
    /// A file with the certificates to trust for the service.
    pub ca_file: Option<PathBuf>,
    /// Who the client is to the service.
    pub credential: RemoteCredential,
}

/// Who a client is to a service.
#[derive(Clone, PartialEq, Eq)]
pub enum RemoteCredential {
    /// A credential is looked for in the variables and files for it.
    Found,
    /// A file with a token.
    TokenFile(PathBuf),
    /// A token that a variable holds.
    Token {
        /// The token itself.
        token: String,
        /// The account that the token belongs to.
        account: Option<String>,
    },
}

/// Without the token.
impl fmt::Debug for RemoteCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found => f.write_str("Found"),
            Self::TokenFile(path) => f.debug_tuple("TokenFile").field(path).finish(),
            Self::Token { account, .. } => f.debug_struct("Token").field("account", account).finish_non_exhaustive(),
        }
    }
}

/// The URL of a service, without white space around it and without `/` at its end.
pub(super) fn checked_service(text: &str) -> Result<String, EntryProblem> {
    let text = text.trim().trim_end_matches('/');
    let is_service =
        url::Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let fits = is_service && !text.chars().any(|c| c.is_whitespace() || c.is_control());
    if fits { Ok(text.to_owned()) } else { Err(EntryProblem::Service) }
}

/// The id of an environment in a service. The service decides which ids there are.
pub(super) fn checked_environment_id(text: &str) -> Result<String, EntryProblem> {
    let text = text.trim();
    let fits = !text.is_empty() && !text.chars().any(char::is_control);
    if fits { Ok(text.to_owned()) } else { Err(EntryProblem::EnvironmentId) }
}

/// The fingerprint of a key as `exec-server env show` prints it.
pub(super) fn checked_fingerprint(text: &str) -> Result<String, EntryProblem> {
    /// Length of 32 bytes in base64 without padding.
    const ENCODED_HASH_CHARS: usize = 43;
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/';
    let text = text.trim();
    let hash =
        text.strip_prefix("SHA256:").filter(|hash| hash.len() == ENCODED_HASH_CHARS && hash.chars().all(is_base64));
    hash.map(|_| text.to_owned()).ok_or(EntryProblem::PinnedKey)
}

/// The environment that the variables `CODEX_EXEC_SERVER_NOISE_…` name. `None` if none of them is set.
pub(super) fn from_variables(variables: &HomeAndVariables) -> Result<Option<RemoteLocation>, EnvironmentsError> {
    let missing: Vec<_> = RELAY_VARIABLES.into_iter().filter(|name| !variables.is_set(name)).collect();
    match missing.len() {
        0 => {}
        all if all == RELAY_VARIABLES.len() => return Ok(None),
        _ => return Err(EnvironmentsError::NoiseIncomplete { missing }),
    }
    let [service, environment_id, token] = RELAY_VARIABLES;
    let checked = |name: &'static str, check: fn(&str) -> Result<String, EntryProblem>| {
        let text = variables.text(name).and_then(|text| check(text.unwrap_or_default()));
        text.map_err(|problem| EnvironmentsError::Variable { name, problem })
    };
    let account =
        if variables.is_set(RELAY_ACCOUNT) { Some(checked(RELAY_ACCOUNT, checked_header_word)?) } else { None };
    Ok(Some(RemoteLocation {
        service: checked(service, checked_service)?,
        environment_id: checked(environment_id, checked_environment_id)?,
        pinned_key: None,
        ca_file: None,
        credential: RemoteCredential::Token { token: checked(token, checked_header_word)?, account },
    }))
}

/// A text that fits into an HTTP header.
fn checked_header_word(text: &str) -> Result<String, EntryProblem> {
    let text = text.trim();
    let fits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    if fits { Ok(text.to_owned()) } else { Err(EntryProblem::HeaderWord) }
}
