//! Renews the tokens of a sign-in with the OAuth 2 refresh grant (RFC 6749, section 6). The published documents do not
//! say which endpoint does this, so it is used only if a variable names the endpoint. Start with [`TokenRenewal`].

use std::time::Duration;

use fetch::Fetcher;
use serde::Deserialize;
use url::Url;

use crate::destination::{AllowedHosts, check_issuer};
use crate::error::CredentialError;
use crate::secret::Secret;
use crate::token_request::IssuerRequest;
use crate::variables::CredentialVariables;

/// The address of the endpoint.
const REFRESH_URL: &str = "EXEC_SERVER_REFRESH_TOKEN_URL";
/// The id of the client to which the tokens were issued, if the endpoint wants it.
const CLIENT_ID: &str = "EXEC_SERVER_REFRESH_CLIENT_ID";

const RENEWAL_TIMEOUT: Duration = Duration::from_secs(30);

/// How the tokens of a sign-in are renewed.
pub(super) struct TokenRenewal {
    fetcher: Fetcher,
    url: Url,
    client_id: Option<String>,
}

/// What the endpoint has answered.
#[derive(Clone, Deserialize)]
pub(super) struct RenewedTokens {
    pub(super) access_token: Secret,
    /// `None` if the old one stays valid.
    pub(super) refresh_token: Option<Secret>,
    pub(super) id_token: Option<Secret>,
}

impl TokenRenewal {
    /// `None` if no variable names an endpoint.
    pub(super) fn from_variables(
        variables: CredentialVariables<'_>,
        fetcher: &Fetcher,
    ) -> Result<Option<Self>, CredentialError> {
        let Some(url) = variables.non_blank(REFRESH_URL) else { return Ok(None) };
        let client_id = variables.non_blank(CLIENT_ID).map(str::to_owned);
        Ok(Some(Self { fetcher: fetcher.clone(), url: check_issuer(REFRESH_URL, url)?, client_id }))
    }

    /// The address of the endpoint.
    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// The hosts to which tokens of this endpoint may be sent.
    pub(super) fn hosts_for_tokens(&self) -> AllowedHosts {
        AllowedHosts::for_tokens_of(&self.url)
    }

    pub(super) async fn tokens(&self, refresh_token: &Secret) -> Result<RenewedTokens, CredentialError> {
        let request = IssuerRequest {
            issuer: "the endpoint that renews the sign-in",
            url: self.url.clone(),
            timeout: RENEWAL_TIMEOUT,
        };
        let mut fields = vec![("grant_type", "refresh_token"), ("refresh_token", refresh_token.expose())];
        fields.extend(self.client_id.as_deref().map(|id| ("client_id", id)));
        let tokens: RenewedTokens = request.post_form(&self.fetcher, &fields).await?;
        if !tokens.access_token.is_header_word() {
            return Err(request.fault("has issued a token that cannot be sent in a header"));
        }
        Ok(tokens)
    }
}

impl std::fmt::Debug for TokenRenewal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenRenewal").finish_non_exhaustive()
    }
}
