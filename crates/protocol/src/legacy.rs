//! The `command/exec` methods of the first version of the published protocol (that of `codex exec-server`), for
//! clients that still use them. They differ from `process/*` in that paths are native, events have no sequence
//! numbers, and there is no event when the streams have ended. The notification with output is encoded by
//! [`OutputEvent::Legacy`](crate::OutputEvent).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Base64Bytes, ProcessId};

/// Params of `command/exec`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LegacyExecParams {
    /// Chosen by the client. Unique within the session, together with the ids of `process/start`.
    pub process_id: ProcessId,
    /// The program and its arguments; must not be empty.
    pub argv: Vec<String>,
    /// Working directory as a native absolute path, not a URI.
    pub cwd: String,
    /// The whole environment of the child. Absent: empty.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// True: the process gets a terminal. False, or absent: it gets pipes for output, and `/dev/null` as stdin.
    #[serde(default)]
    pub tty: bool,
    /// The most bytes of each stream that the server sends. The server reads further output and drops it. Absent or
    /// null: no limit.
    #[serde(default)]
    pub output_bytes_cap: Option<u64>,
    /// The `argv[0]` that the program sees. Absent or null: the first element of `argv`.
    #[serde(default)]
    pub arg0: Option<String>,
}

/// Result of `command/exec`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LegacyExecResult {
    /// The id from the request.
    pub process_id: ProcessId,
    /// Always true, because the answer comes when the process has been started.
    pub running: bool,
    /// Always null. The exit code comes with `command/exec/exited`.
    pub exit_code: Option<i32>,
    /// Always null. Output comes with `command/exec/outputDelta`.
    pub stdout: Option<String>,
    /// Always null. Output comes with `command/exec/outputDelta`.
    pub stderr: Option<String>,
}

/// Params of `command/exec/write`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LegacyWriteParams {
    /// The process to write to. An unknown process, or one whose stdin is closed, is an error.
    pub process_id: ProcessId,
    /// Bytes for stdin, which only a process with a terminal has.
    pub chunk: Base64Bytes,
}

/// Result of `command/exec/write`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegacyWriteResult {
    /// Always true: a write that the server does not accept is answered with an error.
    pub accepted: bool,
}

/// Params of `command/exec/terminate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LegacyTerminateParams {
    /// The process to kill with all its descendants. An unknown process is no error.
    pub process_id: ProcessId,
}

/// Params of the notification `command/exec/exited`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LegacyExited {
    /// The process that has exited.
    pub process_id: ProcessId,
    /// Exit code of the process, or 128+N after signal N.
    pub exit_code: i32,
}
