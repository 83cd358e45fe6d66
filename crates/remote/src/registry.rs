//! The HTTP interface of a registry, the service that knows environments and who may use them: [`Registry::register`] and
//! [`Registry::validate`] for an executor, [`Registry::connect`] for a harness. Each call is one request; the callers
//! decide about retries with [`RegistryError::is_retryable`].
//!
//! No URL, header or body is logged, because each may hold a secret.

mod error;
mod messages;
mod repeated_secrets;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use credentials::{AuthHeaders, Credential};
use fetch::{FetchRequest, FetchResponse, Fetcher, Header, Redirects};
use relay::RelayPublicKey;
use serde::Serialize;
use serde::de::DeserializeOwned;
use transport::retry_after;

pub use error::RegistryError;
pub use messages::{ConnectBundle, Registration};
use messages::{ConnectRequest, RegisterRequest, SECURITY_PROFILE, ValidateAnswer, ValidateRequest};
use repeated_secrets::without_secrets;

/// Longest answer that is read.
const MAX_ANSWER_BYTES: u64 = 256 << 10;

/// How long a registry may take to register an executor.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(90);

/// How long a registry may take to answer whether a harness may use an executor.
const VALIDATE_TIMEOUT: Duration = Duration::from_secs(10);

/// One environment in a registry, and who this program is there.
#[derive(Clone)]
pub struct Registry {
    base_url: String,
    environment_id: String,
    credential: Arc<dyn Credential>,
    fetcher: Fetcher,
}

/// Why the settings of a registry cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistrySettingsError {
    /// The URL is blank or has another scheme than http or https.
    #[error("the URL of the service must begin with https:// or http://")]
    Url,
    /// The id of the environment is blank, has a line break or another control character, or would change the path of a
    /// call.
    #[error("the environment id must not be blank, `.` or `..`, and must have no control characters")]
    EnvironmentId,
}

impl Registry {
    /// `base_url` is a prefix to which the paths of the calls are appended.
    pub fn new(
        base_url: &str,
        environment_id: &str,
        credential: Arc<dyn Credential>,
        fetcher: Fetcher,
    ) -> Result<Self, RegistrySettingsError> {
        let base_url = base_url.trim().trim_end_matches('/');
        let is_http = ["https://", "http://"].iter().any(|scheme| {
            base_url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
                && base_url.len() > scheme.len()
        });
        if !is_http || base_url.chars().any(char::is_control) {
            return Err(RegistrySettingsError::Url);
        }
        let environment_id = environment_id.trim();
        if matches!(environment_id, "" | "." | "..") || environment_id.chars().any(char::is_control) {
            return Err(RegistrySettingsError::EnvironmentId);
        }
        let (base_url, environment_id) = (base_url.to_owned(), environment_id.to_owned());
        Ok(Self { base_url, environment_id, credential, fetcher })
    }

    /// The environment of all calls.
    pub fn environment_id(&self) -> &str {
        &self.environment_id
    }

    /// The service for people: scheme, host and port of the URL.
    pub fn service(&self) -> String {
        let (scheme, rest) = self.base_url.split_once("://").unwrap_or_default();
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        format!("{scheme}://{host}")
    }

    /// Announces the executor with this key. `name` is shown to people; registries that do not know it ignore it.
    pub async fn register(&self, key: &RelayPublicKey, name: Option<&str>) -> Result<Registration, RegistryError> {
        let request = RegisterRequest { security_profile: SECURITY_PROFILE, executor_public_key: key, name };
        let registration: Registration = self.call("register", &request, REGISTER_TIMEOUT).await?;
        self.check(&registration.environment_id, &registration.security_profile)?;
        check_not_blank([
            ("url", &registration.url),
            ("executor_registration_id", &registration.executor_registration_id),
        ])?;
        Ok(registration)
    }

    /// Asks for a way to the executor, for the harness with this key. The answer must come within `timeout`.
    pub async fn connect(&self, key: &RelayPublicKey, timeout: Duration) -> Result<ConnectBundle, RegistryError> {
        let request = ConnectRequest { harness_public_key: key };
        let bundle: ConnectBundle = self.call("connect", &request, timeout).await?;
        self.check(&bundle.environment_id, &bundle.security_profile)?;
        check_not_blank([
            ("url", &bundle.url),
            ("executor_registration_id", &bundle.executor_registration_id),
            ("harness_key_authorization", &bundle.harness_key_authorization),
        ])?;
        Ok(bundle)
    }

    /// Asks whether the harness with this key, which has shown this authorization, may use the executor.
    pub async fn validate(
        &self,
        registration_id: &str,
        key: &RelayPublicKey,
        authorization: &str,
    ) -> Result<bool, RegistryError> {
        let request = ValidateRequest {
            executor_registration_id: registration_id,
            harness_public_key: key,
            harness_key_authorization: authorization,
        };
        let answer: ValidateAnswer = self.call("validate", &request, VALIDATE_TIMEOUT).await?;
        Ok(answer.valid)
    }

    /// Sends one request, and a second one if the service refuses the credential and another one can be had.
    async fn call<A: DeserializeOwned>(
        &self,
        operation: &'static str,
        request: &impl Serialize,
        timeout: Duration,
    ) -> Result<A, RegistryError> {
        let url =
            format!("{}/cloud/environment/{}/{operation}", self.base_url, percent_encoded(&self.environment_id));
        let body = Bytes::from(serde_json::to_vec(request).map_err(|_| RegistryError::Malformed { operation })?);
        let exchange = async {
            let headers = self.credential.headers(&url).await?;
            let response = self.send(&url, &headers, body.clone(), timeout).await?;
            let is_refused = matches!(response.status, 401 | 403);
            if !is_refused || !self.credential.refused(&headers) {
                return answer(operation, response).await.map_err(|error| without_secrets(error, &headers));
            }
            let headers = self.credential.headers(&url).await?;
            let response = self.send(&url, &headers, body, timeout).await?;
            answer(operation, response).await.map_err(|error| without_secrets(error, &headers))
        };
        match tokio::time::timeout(timeout, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(RegistryError::TimedOut { operation }),
        }
    }

    async fn send(
        &self,
        url: &str,
        headers: &AuthHeaders,
        body: Bytes,
        timeout: Duration,
    ) -> Result<FetchResponse, RegistryError> {
        let header = |(name, value): (&str, &str)| Header {
            name: name.to_owned(),
            value: value.to_owned(),
            value_env_var: None,
        };
        let json = header(("content-type", "application/json"));
        let request = FetchRequest {
            method: "POST".to_owned(),
            url: url.to_owned(),
            headers: headers.iter().map(header).chain([json]).collect(),
            body: Some(body),
            timeout: Some(timeout),
            redirects: Redirects::Stop,
            max_body_bytes: Some(MAX_ANSWER_BYTES),
        };
        Ok(self.fetcher.send(request).await?)
    }

    fn check(&self, environment_id: &str, security_profile: &str) -> Result<(), RegistryError> {
        if environment_id != self.environment_id {
            return Err(RegistryError::OtherEnvironment);
        }
        if security_profile != SECURITY_PROFILE {
            return Err(RegistryError::OtherProfile);
        }
        Ok(())
    }
}

async fn answer<A: DeserializeOwned>(operation: &'static str, response: FetchResponse) -> Result<A, RegistryError> {
    let status = response.status;
    let wait = response.headers.iter().find(|(name, _)| name == "retry-after");
    let wait = wait.and_then(|(_, value)| retry_after(value));
    let body = response.body.collect(MAX_ANSWER_BYTES).await;
    if !(200..300).contains(&status) {
        return Err(RegistryError::from_answer(operation, status, wait, &body.unwrap_or_default()));
    }
    let body = body?;
    // `serde` also accepts a JSON array, and fills the members by their position. Only an object is valid here.
    let is_object = body.trim_ascii_start().starts_with(b"{");
    let answer = is_object.then(|| serde_json::from_slice(&body).ok()).flatten();
    answer.ok_or(RegistryError::Malformed { operation })
}

fn check_not_blank<const N: usize>(members: [(&'static str, &String); N]) -> Result<(), RegistryError> {
    match members.into_iter().find(|(_, text)| text.trim().is_empty()) {
        Some((member, _)) => Err(RegistryError::Blank { member }),
        None => Ok(()),
    }
}

/// Characters that a path segment must not have are encoded. Usual ids have none.
fn percent_encoded(id: &str) -> String {
    let mut encoded = String::with_capacity(id.len());
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Without path, query and user of the URL, which may be secret.
impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("service", &self.service())
            .field("environment_id", &self.environment_id)
            .field("credential", &self.credential)
            .finish_non_exhaustive()
    }
}
