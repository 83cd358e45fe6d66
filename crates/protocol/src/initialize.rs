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
    /// Extension `sessionKeep`: how long the session outlives its connection, instead of what the server does by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_for_ms: Option<u64>,
    /// Extension `sessionKeep`: take the session from whoever is attached to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takeover: bool,
    /// Extension `sessionObserve`: look at the session beside whoever is attached to it, without being sent its events.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub observe: bool,
}

/// Params of `session/keep`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionKeepParams {
    /// How long the session outlives its connection from now on; 0: it ends with it.
    pub keep_for_ms: u64,
}

/// Result of `initialize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeResult {
    /// Present it as `resumeSessionId` after a lost connection; an old server does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_server_that_names_no_session_is_understood() {
        let old: InitializeResult = serde_json::from_str("{}").unwrap();
        assert_eq!(old.session_id, None);
        let named = InitializeResult { session_id: Some("s".into()) };
        assert_eq!(serde_json::to_string(&named).unwrap(), r#"{"sessionId":"s"}"#);
    }

    #[test]
    fn a_client_without_extensions_says_nothing_of_them() {
        let params: InitializeParams = serde_json::from_str(r#"{"clientName":"c"}"#).unwrap();
        assert_eq!((params.keep_for_ms, params.takeover, params.observe), (None, false, false));
        assert_eq!(serde_json::to_string(&params).unwrap(), r#"{"clientName":"c","resumeSessionId":null}"#);
    }
}
