//! A token that does not change: an API key, a personal token, or one that the caller has. Start with [`bearer`].

use std::sync::Arc;

use crate::account::Account;
use crate::auth_headers::AuthHeaders;
use crate::credential::{Credential, CredentialDescription, CredentialKind, DestinationBound, HeadersFuture};
use crate::destination::{AllowedHosts, PermittedServices};
use crate::error::CredentialError;
use crate::secret::{Secret, is_header_word};

/// A fixed bearer token, with the account that it belongs to. It is sent to the URL that the caller gives, over https
/// or to this machine. Fails if the token or the account cannot be sent in a header.
pub fn bearer(token: String, account: Option<String>) -> Result<Arc<dyn Credential>, CredentialError> {
    let source = "the caller";
    if let Some(account) = account.as_deref()
        && !is_header_word(account)
    {
        return Err(CredentialError::variable("the account", "must be visible ASCII without spaces"));
    }
    let account = Account { id: account, ..Account::default() };
    let reach = PermittedServices { service: None, hosts: AllowedHosts::Any };
    let token = FixedToken::new(CredentialKind::BearerToken, source, Secret::new(token), reach)?;
    Ok(Arc::new(FixedToken { account, ..token }))
}

/// A token that does not change.
#[derive(Debug)]
pub(crate) struct FixedToken {
    kind: CredentialKind,
    /// The variable or the file.
    source: String,
    token: Secret,
    account: Account,
    reach: PermittedServices,
}

impl FixedToken {
    /// Fails if the token cannot be sent in a header.
    pub(crate) fn new(
        kind: CredentialKind,
        source: &str,
        token: Secret,
        reach: PermittedServices,
    ) -> Result<Self, CredentialError> {
        if !token.is_header_word() {
            let problem = format!("holds no usable {kind}; it must be visible ASCII without spaces");
            return Err(CredentialError::variable(source, problem));
        }
        Ok(Self { kind, source: source.to_owned(), token, account: Account::default(), reach })
    }
}

impl Credential for FixedToken {
    fn headers<'a>(&'a self, url: &'a str) -> HeadersFuture<'a> {
        Box::pin(async move {
            self.check_destination(url)?;
            Ok(AuthHeaders::new(format!("Bearer {}", self.token.expose()), &self.account))
        })
    }

    fn refused(&self, _headers: &AuthHeaders) -> bool {
        false
    }

    fn description(&self) -> CredentialDescription {
        CredentialDescription {
            kind: self.kind,
            source: self.source.clone(),
            account: self.account.id.clone(),
            destination: self.reach.in_words(),
        }
    }
}

impl DestinationBound for FixedToken {
    fn check_destination(&self, url: &str) -> Result<(), CredentialError> {
        self.reach.check(&format!("the {} from {}", self.kind, self.source), url)
    }
}
