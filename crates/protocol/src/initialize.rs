//! The handshake.

use serde::{Deserialize, Serialize};

use crate::SessionId;

/// Params of `initialize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeParams {
    /// Who connects, for the logs.
    pub client_name: String,
    /// The session to take up again; none starts a new one.
    #[serde(default)]
    pub resume_session_id: Option<SessionId>,
}

/// Result of `initialize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeResult {
    /// Present it as `resumeSessionId` after a lost connection.
    pub session_id: SessionId,
}
