//! The sandbox a client asks for, as it travels. The outer object speaks camelCase and everything inside `permissions`
//! snake_case, as the published protocol does.

use serde::{Deserialize, Serialize};

use crate::PathUri;

/// What a request may do, and relative to what that is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxContext {
    /// What is allowed.
    pub permissions: Permissions,
    /// Relative patterns are resolved here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathUri>,
    /// What `project_roots` stands for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workspace_roots: Vec<PathUri>,
    /// Required on every system, and used on one.
    pub windows_sandbox_level: WindowsSandboxLevel,
    /// Windows only.
    #[serde(default)]
    pub windows_sandbox_private_desktop: bool,
    /// Windows only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows_sandbox_proxy_settings_mode: Option<ProxySettingsMode>,
    /// Landlock instead of bubblewrap.
    #[serde(default)]
    pub use_legacy_landlock: bool,
}

/// How Windows separates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WindowsSandboxLevel {
    /// Not at all.
    Disabled,
    /// By a restricted token.
    RestrictedToken,
    /// By another user.
    Elevated,
}

/// What becomes of the proxy settings of Windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxySettingsMode {
    /// They are made to fit.
    Reconcile,
    /// They are left alone.
    Preserve,
}

/// A profile of permissions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Permissions {
    /// We enforce it.
    Managed {
        /// Of the file system.
        file_system: FileSystemPermissions,
        /// Of the network.
        network: NetworkAccess,
    },
    /// No sandbox.
    Disabled,
    /// Somebody else enforces it.
    External {
        /// Of the network.
        network: NetworkAccess,
    },
}

/// What of the network may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkAccess {
    /// Nothing.
    Restricted,
    /// Everything.
    Enabled,
}

/// What of the file system may be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FileSystemPermissions {
    /// Everything.
    Unrestricted,
    /// What is listed; the most specific entry wins, and what no entry covers is denied.
    Restricted {
        /// In no particular order.
        entries: Vec<PermissionEntry>,
        /// How deep patterns are looked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        glob_scan_max_depth: Option<std::num::NonZeroUsize>,
    },
}

/// One line of a restricted profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermissionEntry {
    /// Where.
    pub path: PermissionPath,
    /// What.
    pub access: PathAccess,
    /// What if there is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_path_behavior: Option<MissingPathBehavior>,
}

/// What may be done somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathAccess {
    /// Look.
    Read,
    /// Look and change.
    Write,
    /// Neither.
    #[serde(alias = "none")]
    Deny,
}

/// What an entry for a path that is not there means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingPathBehavior {
    /// Nothing; such entries are written by programs.
    Skip,
}

/// What an entry is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PermissionPath {
    /// A path and what is below it.
    Path {
        /// The path.
        path: PathUri,
    },
    /// Whatever matches; only for `deny`.
    GlobPattern {
        /// The pattern, absolute or relative to the context's `cwd`.
        pattern: String,
    },
    /// A place with a name.
    Special {
        /// The place.
        value: SpecialPath,
    },
}

/// Places with a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SpecialPath {
    /// Everything.
    Root,
    /// What programs need to run.
    Minimal,
    /// The workspace roots of the context.
    #[serde(alias = "current_working_directory")]
    ProjectRoots {
        /// Below each of them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subpath: Option<String>,
    },
    /// `$TMPDIR`.
    Tmpdir,
    /// `/tmp`.
    SlashTmp,
    /// One this version does not know; it means nothing.
    Unknown {
        /// Its name.
        path: String,
        /// Below it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subpath: Option<String>,
    },
}

impl SandboxContext {
    /// Whether it restricts what may be done with files at all: only then must anything be enforced.
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

    /// Whether this server has nothing to enforce, neither on files nor on the network, so that a command may run as it would without
    /// a sandbox. An `external` profile counts: its sandbox is made by somebody else, around the server or inside the command.
    pub fn needs_no_enforcement(&self) -> bool {
        match &self.permissions {
            Permissions::Disabled | Permissions::External { .. } => true,
            Permissions::Managed { network, .. } => *network == NetworkAccess::Enabled && !self.restricts_files(),
        }
    }
}

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
    fn what_is_wrong_does_not_decode() {
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
    fn only_a_profile_that_narrows_something_restricts() {
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
    fn a_profile_that_restricts_neither_files_nor_the_network_asks_for_nothing() {
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
