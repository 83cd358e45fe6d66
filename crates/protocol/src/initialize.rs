//! The handshake and the lifetime of a session: `initialize` and `session/keep`. The rules for resuming a session are in the
//! server and in the crate `session`.

use serde::{Deserialize, Serialize};

use crate::SessionId;

/// Params of `initialize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeParams {
    /// Name of the client, used in the server's log only.
    pub client_name: String,
    /// The session to resume. Absent or null: the server opens a new one.
    #[serde(default)]
    pub resume_session_id: Option<SessionId>,
    /// Extension `sessionKeep`: milliseconds for which the server keeps the session after its connection is lost. 0: the session ends with
    /// the connection. A value above `--max-session-ttl` counts as that limit. Absent: a new session is kept for `--session-ttl`, and a
    /// resumed session keeps its earlier value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_for_ms: Option<u64>,
    /// Extension `sessionKeep`: true takes the session at once, even from a connection that is alive; that connection is
    /// closed. Absent: false, and a connection that is alive keeps the session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takeover: bool,
    /// Extension `sessionObserve`: true joins the session without attaching to it. Events still go only to the attached
    /// connection, and only some methods are allowed. Needs `resumeSessionId`, and excludes `takeover`. Absent: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub observe: bool,
}

/// Params of `session/keep`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionKeepParams {
    /// Milliseconds for which the server keeps the session after its connection is lost. 0: the session ends with the
    /// connection. A value above `--max-session-ttl` counts as that limit.
    pub keep_for_ms: u64,
}

/// Result of `initialize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeResult {
    /// The id that the client sends as `resumeSessionId` after a lost connection. Absent if an older server answers: its
    /// sessions cannot be resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
}

/// Params of `session/takenOver`. A client on a Unix socket with lines gets it when another connection takes its session; a WebSocket is
/// closed with code 4010 instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenOverNotification {
    /// The reason with which a WebSocket would be closed, for people.
    pub message: String,
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
    fn members_of_extensions_are_absent_by_default() {
        let params: InitializeParams = serde_json::from_str(r#"{"clientName":"c"}"#).unwrap();
        assert_eq!((params.keep_for_ms, params.takeover, params.observe), (None, false, false));
        assert_eq!(serde_json::to_string(&params).unwrap(), r#"{"clientName":"c","resumeSessionId":null}"#);
    }
}
