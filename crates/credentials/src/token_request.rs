//! Requests to services that issue tokens and keys. They have a timeout, a limit for the answer, and follow no
//! redirects. No error contains what was sent or received. Start with [`IssuerRequest`].

use std::time::Duration;

use fetch::{FailureKind, FetchError, FetchRequest, Fetcher, Header, Redirects};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;
use zeroize::Zeroizing;

use crate::error::CredentialError;

/// Largest answer of an issuer.
const MAX_ANSWER_BYTES: u64 = 1024 * 1024;

/// A request to a service that issues tokens or keys.
pub(crate) struct IssuerRequest {
    /// What is asked, for errors, for example `the token endpoint`.
    pub(crate) issuer: &'static str,
    pub(crate) url: Url,
    /// Time for everything together.
    pub(crate) timeout: Duration,
}

/// The error answer of OAuth 2 (RFC 6749, section 5.2).
#[derive(Deserialize)]
struct OAuthError {
    error: String,
}

impl IssuerRequest {
    /// Gets a document.
    pub(crate) async fn get<T: DeserializeOwned>(&self, fetcher: &Fetcher) -> Result<T, CredentialError> {
        self.send(fetcher, "GET", None).await
    }

    /// Posts a form.
    pub(crate) async fn post_form<T: DeserializeOwned>(
        &self,
        fetcher: &Fetcher,
        fields: &[(&str, &str)],
    ) -> Result<T, CredentialError> {
        let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        self.send(fetcher, "POST", Some(("application/x-www-form-urlencoded", form))).await
    }

    /// Posts a JSON value.
    pub(crate) async fn post_json<T: DeserializeOwned>(
        &self,
        fetcher: &Fetcher,
        value: &serde_json::Value,
    ) -> Result<T, CredentialError> {
        self.send(fetcher, "POST", Some(("application/json", value.to_string()))).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        fetcher: &Fetcher,
        method: &str,
        body: Option<(&str, String)>,
    ) -> Result<T, CredentialError> {
        let header =
            |name: &str, value: &str| Header { name: name.to_owned(), value: value.to_owned(), value_env_var: None };
        let mut headers = vec![header("accept", "application/json")];
        headers.extend(body.as_ref().map(|(content_type, _)| header("content-type", content_type)));
        let request = FetchRequest {
            method: method.to_owned(),
            url: self.url.to_string(),
            headers,
            body: body.map(|(_, text)| text.into()),
            timeout: Some(self.timeout),
            redirects: Redirects::Stop,
            max_body_bytes: Some(MAX_ANSWER_BYTES),
        };
        let response = fetcher.send(request).await.map_err(|error| self.failed(&error))?;
        let status = response.status;
        let answer = response.body.collect(MAX_ANSWER_BYTES).await;
        if !(200..300).contains(&status) {
            return Err(self.refused(status, answer.as_deref().unwrap_or_default()));
        }
        let answer = Zeroizing::new(Vec::from(answer.map_err(|error| self.failed(&error))?));
        serde_json::from_slice(&answer).map_err(|_| self.fault("has sent an answer that has not the expected form"))
    }

    /// The error for an answer that cannot be used and that no second try would change.
    pub(crate) fn fault(&self, problem: impl Into<String>) -> CredentialError {
        self.error(problem.into(), false)
    }

    fn error(&self, problem: String, is_retryable: bool) -> CredentialError {
        let issuer = format!("{} at {}", self.issuer, self.url.origin().ascii_serialization());
        CredentialError::Issuer { issuer, problem, is_retryable }
    }

    fn failed(&self, error: &FetchError) -> CredentialError {
        let is_retryable = match error {
            FetchError::Invalid(_) => false,
            FetchError::Failed { kind, .. } => !matches!(kind, FailureKind::Tls | FailureKind::BodyTooLarge),
        };
        self.error(format!("cannot be used: {error}"), is_retryable)
    }

    fn refused(&self, status: u16, answer: &[u8]) -> CredentialError {
        let is_retryable = status >= 500 || status == 429 || status == 408;
        let problem = match status {
            300..400 => format!("has answered with a redirect ({status}), which is not followed"),
            // The code of an OAuth error is a word from a list, and not a text that could repeat a secret.
            _ => match serde_json::from_slice::<OAuthError>(answer) {
                Ok(OAuthError { error }) if is_error_code(&error) => {
                    format!("has refused the request with status {status} ({error})")
                }
                _ => format!("has refused the request with status {status}"),
            },
        };
        self.error(problem, is_retryable)
    }
}

/// Whether a text looks like the code of an OAuth error, such as `invalid_grant`.
fn is_error_code(text: &str) -> bool {
    (1..=40).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}
