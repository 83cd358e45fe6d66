//! The JSON bodies of the calls to a registry.

use std::fmt;

use relay::RelayPublicKey;
use serde::{Deserialize, Serialize};

/// The name of the handshake and the records that both ends use.
pub(super) const SECURITY_PROFILE: &str = "noise_hybrid_ik_v1";

#[derive(Serialize)]
pub(super) struct RegisterRequest<'a> {
    pub(super) security_profile: &'static str,
    pub(super) executor_public_key: &'a RelayPublicKey,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<&'a str>,
}

/// An executor that a registry knows.
#[derive(Clone, Deserialize)]
pub struct Registration {
    pub(super) environment_id: String,
    /// The WebSocket of the relay for the executor. It authorizes whoever has it.
    pub url: String,
    pub(super) security_profile: String,
    /// Names this registration. A harness that uses another one cannot make a handshake.
    pub executor_registration_id: String,
}

#[derive(Serialize)]
pub(super) struct ConnectRequest<'a> {
    pub(super) harness_public_key: &'a RelayPublicKey,
}

/// What a harness needs for one connection to an executor.
#[derive(Clone, Deserialize)]
pub struct ConnectBundle {
    pub(super) environment_id: String,
    /// The WebSocket of the relay for the harness. It authorizes whoever has it.
    pub url: String,
    pub(super) security_profile: String,
    /// The registration of the executor that is connected.
    pub executor_registration_id: String,
    /// The key with which the executor proves who it is.
    pub executor_public_key: RelayPublicKey,
    /// What the executor shows to the registry to learn that the harness may use it.
    pub harness_key_authorization: String,
}

#[derive(Serialize)]
pub(super) struct ValidateRequest<'a> {
    pub(super) executor_registration_id: &'a str,
    pub(super) harness_public_key: &'a RelayPublicKey,
    pub(super) harness_key_authorization: &'a str,
}

#[derive(Deserialize)]
pub(super) struct ValidateAnswer {
    pub(super) valid: bool,
}

/// The URL is secret.
impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("environment_id", &self.environment_id)
            .field("executor_registration_id", &self.executor_registration_id)
            .finish_non_exhaustive()
    }
}

/// The URL and the authorization are secret.
impl fmt::Debug for ConnectBundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectBundle")
            .field("environment_id", &self.environment_id)
            .field("executor_registration_id", &self.executor_registration_id)
            .field("executor_public_key", &self.executor_public_key)
            .finish_non_exhaustive()
    }
}
