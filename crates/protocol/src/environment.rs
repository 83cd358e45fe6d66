//! What a client can learn about the environment itself.

use serde::{Deserialize, Serialize};

use crate::PathUri;

/// Result of `environment/info`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentInfo {
    /// The shell of the user the server runs as.
    pub shell: ShellInfo,
    /// The server's working directory; null when it has none.
    #[serde(default)]
    pub cwd: Option<PathUri>,
    /// Directories for temporary files that the environment names: `TMPDIR`, or none. An old server does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temporary_directories: Option<Vec<PathUri>>,
    /// Where temporary files go; left out if that cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temp_dir: Option<PathUri>,
    /// What this server can do beyond the oldest one.
    #[serde(default)]
    pub capabilities: Capabilities,
}

/// A shell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShellInfo {
    /// `zsh`, `bash`, `sh`, `powershell` or `cmd`.
    pub name: String,
    /// Its native path, which need not be absolute on every system.
    pub path: String,
}

/// Features by name. One that is missing is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Capabilities {
    /// `process/start` takes a network proxy to launch.
    pub network_proxy_launch: bool,
    /// `capabilityRoots/discoverV1` takes a sandbox.
    pub capability_discovery_sandbox: bool,
    /// `environmentConfig/read` exists.
    pub environment_config_read: bool,
    /// `http/request` takes header values from the environment.
    pub http_header_env_vars: bool,
    /// `fs/open` works with a sandbox.
    pub sandboxed_file_streaming: bool,
    /// `process/start` takes `shellSnapshot`.
    pub shell_snapshot_v2: bool,
    /// `process/start.size` and `process/resize`.
    pub process_resize: bool,
    /// `process/closeStdin`.
    pub process_close_stdin: bool,
    /// `process/write` answers `repeated`, and a write of nothing only asks for it.
    pub process_write_query: bool,
    /// `process/signal` knows more than `interrupt`.
    pub process_signals: bool,
    /// `process/list`.
    pub process_list: bool,
    /// `process/start.timeoutMs`.
    pub process_timeout: bool,
    /// `process/start.umask`.
    pub process_umask: bool,
    /// `process/read` tells where output is no longer retained.
    pub read_gaps: bool,
    /// `process/read.part`.
    pub read_parts: bool,
    /// `initialize.keepForMs`, `initialize.takeover` and `session/keep`.
    pub session_keep: bool,
    /// `initialize.observe`.
    pub session_observe: bool,
    /// `process/flow`.
    pub process_flow: bool,
    /// `fs/rename`.
    pub fs_rename: bool,
    /// `fs/create`, `fs/writeBlock` and `fs/commit`.
    pub fs_write_blocks: bool,
    /// `fs/commit.modeIfNew`.
    pub fs_mode_if_new: bool,
    /// `fs/extents`, and metadata in the answer to `fs/open`.
    pub fs_extents: bool,
    /// `fs/setMetadata`, and `mode` and `mtime` in the answer to `fs/getMetadata`.
    pub fs_set_metadata: bool,
    /// `fs/readLink` and `fs/symlink`.
    pub fs_links: bool,
    /// `fs/watch` and `fs/unwatch`.
    pub fs_watch: bool,
    /// `fs/search` and `fs/cancelSearch`.
    pub fs_search: bool,
    /// `http/cancel`.
    pub http_cancel: bool,
    /// `http/request.maxBodyBytes` and `http/flow`.
    pub http_limits: bool,
}

/// Result of `environment/status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentStatus {
    /// `ready`.
    pub status: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_answer_with_only_a_shell_decodes() {
        let info: EnvironmentInfo = serde_json::from_str(r#"{"shell":{"name":"bash","path":"/bin/bash"}}"#).unwrap();
        assert_eq!((info.cwd, info.capabilities), (None, Capabilities::default()));
    }

    #[test]
    fn cwd_is_null_and_unknown_directories_are_left_out() {
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
