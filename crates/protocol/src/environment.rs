//! What a client can learn about the environment, the machine on which the server runs: `environment/info` and
//! `environment/status`. How the server finds the shell and the directories is not part of this file. An *extension*
//! is a method or a member that only this implementation has, and not the published protocol of `codex exec-server`.
//! [`Capabilities`] lists every extension.

use serde::{Deserialize, Serialize};

use crate::PathUri;
use crate::object_only::objects_only;

/// Result of `environment/info`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentInfo {
    /// The login shell of the user that the server runs as. Another shell if that one is missing, or of a kind that
    /// [`ShellInfo::name`] does not list.
    pub shell: ShellInfo,
    /// Working directory of the server. Null if the directory was removed; absent if an older server answers.
    #[serde(default)]
    pub cwd: Option<PathUri>,
    /// The directory that `TMPDIR` of the server names. Empty without `TMPDIR`, or if `tempDir` is absent. Other
    /// servers may list several directories. Absent if an older server answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temporary_directories: Option<Vec<PathUri>>,
    /// Where programs put temporary files: `TMPDIR`, or else `/tmp`. Absent if `TMPDIR` is relative and the working directory
    /// is gone, or if an older server answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temp_dir: Option<PathUri>,
    /// What this server can do. Absent: every member is false.
    #[serde(default)]
    pub capabilities: Capabilities,
}

/// A shell of the machine that the server runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct ShellInfo {
    /// Kind of the shell: `zsh`, `bash`, `sh`, `powershell` or `cmd`.
    pub name: String,
    /// Native path of the shell, not a URI. It need not be absolute on every system.
    pub path: String,
}

/// The capabilities of a server, each as a boolean. An absent member is false, so a client may use a capability only
/// after it has seen true here. The first six, up to `shell_snapshot_v2`, are part of the published protocol. The
/// others are extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Capabilities {
    /// `process/start` accepts `networkProxy`.
    pub network_proxy_launch: bool,
    /// `capabilityRoots/discoverV1` can enforce a `sandbox`.
    pub capability_discovery_sandbox: bool,
    /// The method `environmentConfig/read` exists.
    pub environment_config_read: bool,
    /// `http/request` accepts `valueEnvVar` in headers.
    pub http_header_env_vars: bool,
    /// `fs/open` can enforce a `sandbox`.
    pub sandboxed_file_streaming: bool,
    /// `process/start` accepts `shellSnapshot`.
    pub shell_snapshot_v2: bool,
    /// `process/start` accepts `size`, and the method `process/resize` exists.
    pub process_resize: bool,
    /// The method `process/closeStdin` exists.
    pub process_close_stdin: bool,
    /// `process/write` answers `repeated`: whether an earlier write with the same id was taken. A write with an
    /// empty `chunk` writes nothing and only asks this.
    pub process_write_query: bool,
    /// `process/signal` accepts every signal of [`Signal`](crate::Signal), not only `interrupt`.
    pub process_signals: bool,
    /// The method `process/list` exists.
    pub process_list: bool,
    /// `process/start` accepts `timeoutMs`; `process/exited` and `process/read` have `timedOut`.
    pub process_timeout: bool,
    /// `process/start` accepts `limits`; `process/exited` and `process/read` then have `usage` and `limitReached`.
    pub process_limits: bool,
    /// `process/exited` and `process/read` have `sandboxDenials`.
    pub sandbox_denials: bool,
    /// `process/start` accepts `umask`.
    pub process_umask: bool,
    /// `process/read` answers `oldestSeq`, `exitSeq`, `gap` and `droppedBytes`.
    pub read_gaps: bool,
    /// `process/read` accepts `part` and answers `partial`.
    pub read_parts: bool,
    /// `initialize` accepts `keepForMs` and `takeover`, and the method `session/keep` exists.
    pub session_keep: bool,
    /// `initialize` accepts `observe`.
    pub session_observe: bool,
    /// The method `process/flow` exists, and `process/start` accepts `paused`.
    pub process_flow: bool,
    /// The method `fs/rename` exists.
    pub fs_rename: bool,
    /// The methods `fs/create`, `fs/writeBlock` and `fs/commit` exist.
    pub fs_write_blocks: bool,
    /// `fs/commit` accepts `modeIfNew`.
    pub fs_mode_if_new: bool,
    /// The method `fs/extents` exists, and `fs/open` answers `metadata`.
    pub fs_extents: bool,
    /// The method `fs/setMetadata` exists, and `fs/getMetadata` answers `mode` and `mtime`.
    pub fs_set_metadata: bool,
    /// The methods `fs/readLink` and `fs/symlink` exist, and `fs/readDirectory` accepts `danglingLinks`.
    pub fs_links: bool,
    /// The methods `fs/watch` and `fs/unwatch` exist.
    pub fs_watch: bool,
    /// The methods `fs/search` and `fs/cancelSearch` exist.
    pub fs_search: bool,
    /// The method `http/cancel` exists.
    pub http_cancel: bool,
    /// `http/request` accepts `maxBodyBytes`, and the method `http/flow` exists.
    pub http_limits: bool,
    /// The method `tcp/connect` exists, and the notifications `tcp/data`, `tcp/flow` and `tcp/close` in both directions.
    pub port_forward: bool,
}

/// Result of `environment/status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentStatus {
    /// Always `ready`: a server that cannot work does not answer.
    pub status: String,
}

objects_only!(ShellInfo);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_answer_with_only_a_shell_decodes() {
        let info: EnvironmentInfo = serde_json::from_str(r#"{"shell":{"name":"bash","path":"/bin/bash"}}"#).unwrap();
        assert_eq!((info.cwd, info.capabilities), (None, Capabilities::default()));
    }

    #[test]
    fn an_unknown_cwd_is_null_and_an_unknown_temp_dir_is_absent() {
        let info = EnvironmentInfo {
            shell: ShellInfo { name: "sh".into(), path: "/bin/sh".into() },
            cwd: None,
            temporary_directories: Some(vec!["file:///t".parse().unwrap()]),
            temp_dir: None,
            capabilities: Capabilities::default(),
        };
        let json = serde_json::to_string(&info).unwrap();
        assert!(json.starts_with(
            r#"{"shell":{"name":"sh","path":"/bin/sh"},"cwd":null,"temporaryDirectories":["file:///t"],"capabilities""#
        ));
    }
}
