//! The `command/exec` family of the first published protocol: native paths, no sequence numbers, no resume.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Base64Bytes, ProcessId};

/// Params of `command/exec`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LegacyExecParams {
    /// Chosen by the client.
    pub process_id: ProcessId,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// A native absolute path.
    pub cwd: String,
    /// The whole environment of the child.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// A terminal instead of pipes.
    #[serde(default)]
    pub tty: bool,
    /// After so many bytes of one stream the rest of it is drained but not sent.
    #[serde(default)]
    pub output_bytes_cap: Option<u64>,
    /// What the child sees as its own name.
    #[serde(default)]
    pub arg0: Option<String>,
}

/// Result of `command/exec`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LegacyExecResult {
    /// As given.
    pub process_id: ProcessId,
    /// Always true: the answer comes when the process has been started.
    pub running: bool,
    /// Always null here; `command/exec/exited` brings it.
    pub exit_code: Option<i32>,
    /// Always null here; `command/exec/outputDelta` brings it.
    pub stdout: Option<String>,
    /// Always null here; `command/exec/outputDelta` brings it.
    pub stderr: Option<String>,
}

/// Params of `command/exec/write`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LegacyWriteParams {
    /// Which process.
    pub process_id: ProcessId,
    /// What to write.
    pub chunk: Base64Bytes,
}

/// Result of `command/exec/write`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegacyWriteResult {
    /// Whether the bytes go to the process.
    pub accepted: bool,
}

/// Params of `command/exec/terminate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LegacyTerminateParams {
    /// Which process.
    pub process_id: ProcessId,
}

/// Params of the notification `command/exec/exited`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LegacyExited {
    /// Which process.
    pub process_id: ProcessId,
    /// Its exit code, 128+N after signal N.
    pub exit_code: i32,
}
