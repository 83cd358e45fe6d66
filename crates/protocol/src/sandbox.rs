//! The sandbox that a client asks for. Names in the outer object are camelCase and names inside `permissions` are
//! snake_case, as in the published protocol of `codex exec-server`.
//!
//! Start with [`SandboxContext`], the policy of a sandbox. This file has the shape of a policy, and decides whether a
//! policy restricts anything. It does not enforce a policy; the crate `sandbox` does.

use serde::{Deserialize, Serialize};

use crate::PathUri;
use crate::object_only::objects_only;

/// What a request or a process may access, and the directories to which the policy refers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct SandboxContext {
    /// What is allowed. Required.
    pub permissions: Permissions,
    /// The directory against which relative glob patterns are resolved. Absent or null: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathUri>,
    /// The directories that `project_roots` entries stand for. Empty, or absent: such entries grant and deny nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workspace_roots: Vec<PathUri>,
    /// How the sandbox works on Windows. Required on every system, also where it has no effect.
    pub windows_sandbox_level: WindowsSandboxLevel,
    /// Only for Windows: whether the process gets a private desktop. Absent: false.
    #[serde(default)]
    pub windows_sandbox_private_desktop: bool,
    /// Only for Windows: what happens to the proxy settings. Absent: `reconcile`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows_sandbox_proxy_settings_mode: Option<ProxySettingsMode>,
    /// Only for Linux: true enforces the policy with Landlock instead of bubblewrap. Absent: false.
    #[serde(default)]
    pub use_legacy_landlock: bool,
}

/// Which mechanism enforces a sandbox on Windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WindowsSandboxLevel {
    /// No mechanism: nothing is enforced on Windows.
    Disabled,
    /// The process gets a restricted token.
    RestrictedToken,
    /// The process runs as another user.
    Elevated,
}

/// What happens to the proxy settings of Windows when a sandboxed process starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxySettingsMode {
    /// The settings are adapted to the policy.
    Reconcile,
    /// The settings stay as they are.
    Preserve,
}

/// A permission profile: what is allowed, and who enforces it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", tag = "type", rename_all = "snake_case")]
pub enum Permissions {
    /// The server enforces the permissions.
    Managed {
        /// Which paths may be read and written.
        file_system: FileSystemPermissions,
        /// Whether the network may be used.
        network: NetworkAccess,
    },
    /// There is no sandbox, and everything is allowed.
    Disabled,
    /// Another sandbox, outside this server or inside the command, enforces the permissions. The server enforces nothing.
    External {
        /// Whether that sandbox allows the network.
        network: NetworkAccess,
    },
}

/// Whether the network may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkAccess {
    /// The network may not be used.
    Restricted,
    /// The whole network may be used.
    Enabled,
}

/// Which paths may be read and written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", tag = "type", rename_all = "snake_case")]
pub enum FileSystemPermissions {
    /// Every path may be read and written.
    Unrestricted,
    /// Only what the entries allow. For each path the most specific entry decides, and a path without an entry is denied.
    Restricted {
        /// The entries of the policy. Their order has no meaning. Required, but may be empty.
        entries: Vec<PermissionEntry>,
        /// How many levels of directories are searched for matches of glob patterns, at least 1. Absent: no limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        glob_scan_max_depth: Option<std::num::NonZeroUsize>,
    },
}

/// One rule of a restricted policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct PermissionEntry {
    /// The paths that the rule applies to.
    pub path: PermissionPath,
    /// What the rule allows for these paths.
    pub access: PathAccess,
    /// What the rule means if its path does not exist. Absent: the rule applies all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_path_behavior: Option<MissingPathBehavior>,
}

/// What a rule allows for its paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathAccess {
    /// The paths may be read.
    Read,
    /// The paths may be read and written.
    Write,
    /// The paths may be neither read nor written. Older clients write `none`.
    #[serde(alias = "none")]
    Deny,
}

/// What a rule means if its path does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingPathBehavior {
    /// The rule may be skipped. Clients set this for protections that they add themselves, such as for `.git`.
    Skip,
}

/// The paths that a rule applies to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", tag = "type", rename_all = "snake_case")]
pub enum PermissionPath {
    /// A path and everything below it.
    Path {
        /// Absolute path, as a URI that is valid on the machine of the server.
        path: PathUri,
    },
    /// Every path that matches a glob pattern. Only meaningful with `deny`.
    GlobPattern {
        /// The pattern: absolute, or relative to the `cwd` of the context.
        pattern: String,
    },
    /// A location that the machine or the context defines.
    Special {
        /// The location that is meant.
        value: SpecialPath,
    },
}

/// Locations that the machine or the context defines. Any other `kind` does not decode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", tag = "kind", rename_all = "snake_case")]
pub enum SpecialPath {
    /// The root directory `/`, and so every path.
    Root,
    /// The system directories that programs need to run, such as `/usr` and `/etc`.
    Minimal,
    /// Every directory of `workspaceRoots` in the context. Older clients write `current_working_directory`.
    #[serde(alias = "current_working_directory")]
    ProjectRoots {
        /// A path below each of these directories. Absent: the directories themselves.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subpath: Option<String>,
    },
    /// The directory that `TMPDIR` names. The rule has no effect if `TMPDIR` is not set.
    Tmpdir,
    /// The directory `/tmp`.
    SlashTmp,
    /// `kind` is `unknown`: a location that this version of the protocol has no other kind for. The rule has no
    /// effect.
    Unknown {
        /// Name of the location.
        path: String,
        /// A path below the location. Absent: the location itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subpath: Option<String>,
    },
}

impl SandboxContext {
    /// Whether the policy may deny reading or writing of some path. True for every `restricted` policy, except one
    /// that allows writing below `root` and has no rule that allows less. If false, there is nothing to enforce on
    /// files.
    pub fn restricts_files(&self) -> bool {
        let Permissions::Managed { file_system: FileSystemPermissions::Restricted { entries, .. }, .. } =
            &self.permissions
        else {
            return false;
        };
        let is_root =
            |entry: &PermissionEntry| matches!(&entry.path, PermissionPath::Special { value: SpecialPath::Root });
        let writes_everywhere = entries.iter().any(|entry| is_root(entry) && entry.access == PathAccess::Write);
        let narrows = entries.iter().any(|entry| entry.access != PathAccess::Write);
        !writes_everywhere || narrows
    }

    /// Whether the server must refuse network access for what it does on behalf of this sandbox.
    pub fn restricts_network(&self) -> bool {
        matches!(self.permissions, Permissions::Managed { network: NetworkAccess::Restricted, .. })
    }

    /// Whether the server has nothing to enforce, neither on files nor on the network, so that a command may run without a
    /// sandbox. This includes `external` profiles, because another sandbox enforces them.
    pub fn needs_no_enforcement(&self) -> bool {
        match &self.permissions {
            Permissions::Disabled | Permissions::External { .. } => true,
            Permissions::Managed { network, .. } => *network == NetworkAccess::Enabled && !self.restricts_files(),
        }
    }
}

objects_only!(SandboxContext, Permissions, FileSystemPermissions, PermissionEntry, PermissionPath, SpecialPath);

#[cfg(test)]
mod tests {
    use super::*;

    fn context(permissions: &str) -> SandboxContext {
        serde_json::from_str(&format!(r#"{{"permissions":{permissions},"windowsSandboxLevel":"disabled"}}"#)).unwrap()
    }

    #[test]
    fn permission_entries_survive_a_round_trip() {
        let text = concat!(
            r#"{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":["#,
            r#"{"path":{"type":"special","value":{"kind":"root"}},"access":"read"},"#,
            r#"{"path":{"type":"path","path":"file:///tmp/ws"},"access":"write"},"#,
            r#"{"path":{"type":"special","value":{"kind":"project_roots","subpath":".git"}},"access":"read","missing_path_behavior":"skip"},"#,
            r#"{"path":{"type":"glob_pattern","pattern":"/tmp/ws/**/*.env"},"access":"deny"}"#,
            r#"],"glob_scan_max_depth":4},"network":"restricted"},"cwd":"file:///tmp/ws","workspaceRoots":["file:///tmp/ws"],"#,
            r#""windowsSandboxLevel":"restricted-token","windowsSandboxPrivateDesktop":false,"#,
            r#""windowsSandboxProxySettingsMode":"preserve","useLegacyLandlock":false}"#
        );
        let context: SandboxContext = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&context).unwrap(), text);
    }

    #[test]
    fn older_spellings_are_understood() {
        let old = context(
            r#"{"type":"managed","file_system":{"type":"restricted","entries":[
               {"path":{"type":"special","value":{"kind":"current_working_directory"}},"access":"none"}]},"network":"enabled"}"#,
        );
        let new = context(
            r#"{"type":"managed","file_system":{"type":"restricted","entries":[
               {"path":{"type":"special","value":{"kind":"project_roots"}},"access":"deny"}]},"network":"enabled"}"#,
        );
        assert_eq!(old, new);
    }

    #[test]
    fn invalid_contexts_do_not_decode() {
        for (bad, why) in [
            (r#"{"permissions":{"type":"disabled"}}"#, "missing field `windowsSandboxLevel`"),
            (
                r#"{"permissions":{"type":"disabled"},"cwd":"/tmp","windowsSandboxLevel":"disabled"}"#,
                "relative URL without a base",
            ),
            (
                r#"{"permissions":{"type":"sometimes"},"windowsSandboxLevel":"disabled"}"#,
                "unknown variant `sometimes`",
            ),
        ] {
            let error = serde_json::from_str::<SandboxContext>(bad).unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn only_a_managed_policy_that_does_not_allow_all_writes_restricts_files() {
        let restricted = |entries: &str| {
            context(&format!(
                r#"{{"type":"managed","file_system":{{"type":"restricted","entries":[{entries}]}},"network":"enabled"}}"#
            ))
        };
        let root = r#"{"path":{"type":"special","value":{"kind":"root"}},"access":"write"}"#;
        let read = r#"{"path":{"type":"path","path":"file:///x"},"access":"read"}"#;
        assert!(!context(r#"{"type":"disabled"}"#).restricts_files());
        assert!(!context(r#"{"type":"external","network":"restricted"}"#).restricts_files());
        assert!(
            !context(r#"{"type":"managed","file_system":{"type":"unrestricted"},"network":"restricted"}"#)
                .restricts_files()
        );
        assert!(!restricted(root).restricts_files());
        assert!(restricted("").restricts_files());
        assert!(restricted(read).restricts_files());
        assert!(restricted(&format!("{root},{read}")).restricts_files());
    }

    #[test]
    fn only_a_managed_policy_that_restricts_files_or_the_network_needs_enforcement() {
        for profile in [
            r#"{"type":"disabled"}"#,
            r#"{"type":"external","network":"enabled"}"#,
            r#"{"type":"external","network":"restricted"}"#,
            r#"{"type":"managed","file_system":{"type":"unrestricted"},"network":"enabled"}"#,
            r#"{"type":"managed","file_system":{"type":"restricted","entries":[
               {"path":{"type":"special","value":{"kind":"root"}},"access":"write"}]},"network":"enabled"}"#,
        ] {
            assert!(context(profile).needs_no_enforcement(), "{profile}");
        }
        for profile in [
            r#"{"type":"managed","file_system":{"type":"unrestricted"},"network":"restricted"}"#,
            r#"{"type":"managed","file_system":{"type":"restricted","entries":[]},"network":"enabled"}"#,
            r#"{"type":"managed","file_system":{"type":"restricted","entries":[
               {"path":{"type":"special","value":{"kind":"root"}},"access":"write"},
               {"path":{"type":"path","path":"file:///x"},"access":"deny"}]},"network":"enabled"}"#,
        ] {
            assert!(!context(profile).needs_no_enforcement(), "{profile}");
        }
    }
}
