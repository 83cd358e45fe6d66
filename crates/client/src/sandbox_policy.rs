//! The policies of older programs: read-only, workspace-write and two that restrict nothing. A server does not know
//! them. [`SandboxPolicy::to_context`] makes the sandbox object that is sent to a server. Nothing is sent here.

use std::path::{Path, PathBuf};

use protocol::{
    FileSystemPermissions, MissingPathBehavior, NetworkAccess, PathAccess, PathUri, PermissionEntry, PermissionPath,
    Permissions, SandboxContext, SpecialPath, WindowsSandboxLevel,
};
use serde::Deserialize;

/// Names in a workspace that a command may not change: the data of git, and the settings of agents.
const PROTECTED_NAMES: [&str; 3] = [".git", ".agents", ".codex"];

/// A policy as older programs write it, with native paths.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum SandboxPolicy {
    /// The command runs without a sandbox.
    DangerFullAccess,
    /// Every file may be read, and none written.
    ReadOnly {
        /// Whether the network may be used.
        #[serde(default)]
        network_access: bool,
    },
    /// Another sandbox around the server restricts the command.
    ExternalSandbox {
        /// Whether that sandbox allows the network.
        #[serde(default = "restricted")]
        network_access: NetworkAccess,
    },
    /// Every file may be read. Files of the workspace and of directories for temporary files may be written.
    WorkspaceWrite {
        /// Further directories in which files may be written, as absolute paths.
        #[serde(default)]
        writable_roots: Vec<PathBuf>,
        /// Whether the network may be used.
        #[serde(default)]
        network_access: bool,
        /// Whether the directory that `TMPDIR` names stays read-only.
        #[serde(default)]
        exclude_tmpdir_env_var: bool,
        /// Whether `/tmp` stays read-only.
        #[serde(default)]
        exclude_slash_tmp: bool,
    },
}

/// A path of a policy cannot be sent, because it is not absolute.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the path `{}` of the sandbox policy is not absolute", .0.display())]
pub struct RelativePolicyPath(pub PathBuf);

fn restricted() -> NetworkAccess {
    NetworkAccess::Restricted
}

impl SandboxPolicy {
    /// The sandbox object for a server. The workspace is `cwd`. `exists` says whether a path exists on the machine of
    /// the server: the protected names that exist are listed with their paths. A caller that does not know answers
    /// false; the server protects these names all the same.
    pub fn to_context(
        &self,
        cwd: &Path,
        exists: impl Fn(&Path) -> bool,
    ) -> Result<SandboxContext, RelativePolicyPath> {
        let permissions = match self {
            Self::DangerFullAccess => Permissions::Disabled,
            Self::ExternalSandbox { network_access } => Permissions::External { network: *network_access },
            Self::ReadOnly { network_access } => {
                managed(vec![special(SpecialPath::Root, PathAccess::Read)], *network_access)
            }
            Self::WorkspaceWrite { writable_roots, network_access, exclude_tmpdir_env_var, exclude_slash_tmp } => {
                let mut entries = vec![
                    special(SpecialPath::Root, PathAccess::Read),
                    special(SpecialPath::ProjectRoots { subpath: None }, PathAccess::Write),
                ];
                if !exclude_slash_tmp {
                    entries.push(special(SpecialPath::SlashTmp, PathAccess::Write));
                }
                if !exclude_tmpdir_env_var {
                    entries.push(special(SpecialPath::Tmpdir, PathAccess::Write));
                }
                for root in writable_roots {
                    entries.push(path_entry(root, PathAccess::Write)?);
                }
                entries.extend(PROTECTED_NAMES.map(|name| {
                    let subpath = Some(name.to_owned());
                    protection(special(SpecialPath::ProjectRoots { subpath }, PathAccess::Read))
                }));
                for root in std::iter::once(cwd).chain(writable_roots.iter().map(PathBuf::as_path)) {
                    for name in PROTECTED_NAMES {
                        let path = root.join(name);
                        if (root == cwd && name == ".codex") || exists(&path) {
                            entries.push(protection(path_entry(&path, PathAccess::Read)?));
                        }
                    }
                }
                managed(entries, *network_access)
            }
        };
        let cwd = uri(cwd)?;
        Ok(SandboxContext {
            permissions,
            workspace_roots: vec![cwd.clone()],
            cwd: Some(cwd),
            windows_sandbox_level: WindowsSandboxLevel::Disabled,
            windows_sandbox_private_desktop: false,
            windows_sandbox_proxy_settings_mode: None,
            use_legacy_landlock: false,
        })
    }
}

fn managed(entries: Vec<PermissionEntry>, network_access: bool) -> Permissions {
    Permissions::Managed {
        file_system: FileSystemPermissions::Restricted { entries, glob_scan_max_depth: None },
        network: if network_access { NetworkAccess::Enabled } else { NetworkAccess::Restricted },
    }
}

fn special(value: SpecialPath, access: PathAccess) -> PermissionEntry {
    PermissionEntry { path: PermissionPath::Special { value }, access, missing_path_behavior: None }
}

fn path_entry(path: &Path, access: PathAccess) -> Result<PermissionEntry, RelativePolicyPath> {
    Ok(PermissionEntry { path: PermissionPath::Path { path: uri(path)? }, access, missing_path_behavior: None })
}

fn protection(entry: PermissionEntry) -> PermissionEntry {
    PermissionEntry { missing_path_behavior: Some(MissingPathBehavior::Skip), ..entry }
}

fn uri(path: &Path) -> Result<PathUri, RelativePolicyPath> {
    PathUri::from_native(path).ok_or_else(|| RelativePolicyPath(path.to_path_buf()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: &str = r#""cwd":"file:///tmp/ws","workspaceRoots":["file:///tmp/ws"],"windowsSandboxLevel":"disabled","windowsSandboxPrivateDesktop":false,"useLegacyLandlock":false}"#;
    const ROOT_READ: &str = r#"{"path":{"type":"special","value":{"kind":"root"}},"access":"read"}"#;

    fn converted(policy: &str, existing: &[&str]) -> String {
        let policy: SandboxPolicy = serde_json::from_str(policy).unwrap();
        let exists = |path: &Path| existing.iter().any(|existing| Path::new(existing) == path);
        serde_json::to_string(&policy.to_context(Path::new("/tmp/ws"), exists).unwrap()).unwrap()
    }

    #[test]
    fn policies_without_entries() {
        for (policy, permissions) in [
            (r#"{"type":"danger-full-access"}"#, r#"{"type":"disabled"}"#.to_owned()),
            (r#"{"type":"external-sandbox"}"#, r#"{"type":"external","network":"restricted"}"#.to_owned()),
            (
                r#"{"type":"external-sandbox","network_access":"enabled"}"#,
                r#"{"type":"external","network":"enabled"}"#.to_owned(),
            ),
            (
                r#"{"type":"read-only"}"#,
                format!(
                    r#"{{"type":"managed","file_system":{{"type":"restricted","entries":[{ROOT_READ}]}},"network":"restricted"}}"#
                ),
            ),
            (
                r#"{"type":"read-only","network_access":true}"#,
                format!(
                    r#"{{"type":"managed","file_system":{{"type":"restricted","entries":[{ROOT_READ}]}},"network":"enabled"}}"#
                ),
            ),
        ] {
            assert_eq!(converted(policy, &[]), format!(r#"{{"permissions":{permissions},{REST}"#));
        }
    }

    fn expected(entries: &[&str], network: &str) -> String {
        let entries = entries.join(",");
        format!(
            r#"{{"permissions":{{"type":"managed","file_system":{{"type":"restricted","entries":[{entries}]}},"network":"{network}"}},{REST}"#
        )
    }

    const PROJECT_WRITE: &str = r#"{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"}"#;
    const PROJECT_PROTECTIONS: [&str; 3] = [
        r#"{"path":{"type":"special","value":{"kind":"project_roots","subpath":".git"}},"access":"read","missing_path_behavior":"skip"}"#,
        r#"{"path":{"type":"special","value":{"kind":"project_roots","subpath":".agents"}},"access":"read","missing_path_behavior":"skip"}"#,
        r#"{"path":{"type":"special","value":{"kind":"project_roots","subpath":".codex"}},"access":"read","missing_path_behavior":"skip"}"#,
    ];
    const OWN_CODEX: &str =
        r#"{"path":{"type":"path","path":"file:///tmp/ws/.codex"},"access":"read","missing_path_behavior":"skip"}"#;

    #[test]
    fn workspace_write_with_its_defaults() {
        let entries = [
            &[
                ROOT_READ,
                PROJECT_WRITE,
                r#"{"path":{"type":"special","value":{"kind":"slash_tmp"}},"access":"write"}"#,
                r#"{"path":{"type":"special","value":{"kind":"tmpdir"}},"access":"write"}"#,
            ][..],
            &PROJECT_PROTECTIONS,
            &[OWN_CODEX],
        ];
        assert_eq!(converted(r#"{"type":"workspace-write"}"#, &[]), expected(&entries.concat(), "restricted"));
    }

    #[test]
    fn workspace_write_with_everything_changed() {
        let policy = r#"{"type":"workspace-write","writable_roots":["/data"],"network_access":true,
            "exclude_tmpdir_env_var":true,"exclude_slash_tmp":true}"#;
        let entries = [
            &[ROOT_READ, PROJECT_WRITE, r#"{"path":{"type":"path","path":"file:///data"},"access":"write"}"#][..],
            &PROJECT_PROTECTIONS,
            &[
                r#"{"path":{"type":"path","path":"file:///tmp/ws/.git"},"access":"read","missing_path_behavior":"skip"}"#,
                OWN_CODEX,
                r#"{"path":{"type":"path","path":"file:///data/.agents"},"access":"read","missing_path_behavior":"skip"}"#,
            ],
        ];
        assert_eq!(
            converted(policy, &["/tmp/ws/.git", "/data/.agents", "/elsewhere/.git"]),
            expected(&entries.concat(), "enabled")
        );
    }

    #[test]
    fn relative_paths_and_other_types_are_refused() {
        let policy: SandboxPolicy =
            serde_json::from_str(r#"{"type":"workspace-write","writable_roots":["data"]}"#).unwrap();
        let refused = |cwd: &str| policy.to_context(Path::new(cwd), |_| false).unwrap_err();
        assert_eq!(refused("/ws"), RelativePolicyPath("data".into()));
        assert_eq!(refused("/ws").to_string(), "the path `data` of the sandbox policy is not absolute");
        let full = SandboxPolicy::DangerFullAccess.to_context(Path::new("ws"), |_| false);
        assert_eq!(full.unwrap_err(), RelativePolicyPath("ws".into()));
        assert!(serde_json::from_str::<SandboxPolicy>(r#"{"type":"full-access"}"#).is_err());
    }
}
