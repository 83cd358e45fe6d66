//! Removes the members of a sandbox that the server does not need.

use protocol::{FileSystemPermissions, PermissionPath, Permissions, SandboxContext, SpecialPath};

/// The sandbox, without `cwd` and `workspaceRoots` if no entry of its permissions is relative to them. So the server
/// learns no path that it does not need.
pub(super) fn without_unused_paths(sandbox: &SandboxContext) -> SandboxContext {
    let mut sandbox = sandbox.clone();
    if !has_relative_entry(&sandbox.permissions) {
        sandbox.cwd = None;
        sandbox.workspace_roots.clear();
    }
    sandbox
}

/// Whether an entry is relative to `cwd` or to `workspaceRoots`.
fn has_relative_entry(permissions: &Permissions) -> bool {
    let Permissions::Managed { file_system: FileSystemPermissions::Restricted { entries, .. }, .. } = permissions
    else {
        return false;
    };
    entries.iter().any(|entry| match &entry.path {
        PermissionPath::Path { .. } => false,
        // A pattern that begins with `codex-project-roots://` applies below each workspace root, so it is relative
        // too.
        PermissionPath::GlobPattern { pattern } => !pattern.starts_with('/'),
        PermissionPath::Special { value } => matches!(value, SpecialPath::ProjectRoots { .. }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether `cwd` and `workspaceRoots` are kept in a sandbox with these entries.
    fn keeps_cwd_and_roots(entries: &str) -> (bool, bool) {
        let text = format!(
            r#"{{"permissions":{{"type":"managed","file_system":{{"type":"restricted","entries":[{entries}]}},
               "network":"enabled"}},"cwd":"file:///w","workspaceRoots":["file:///w"],"windowsSandboxLevel":"disabled"}}"#
        );
        let sandbox = without_unused_paths(&serde_json::from_str(&text).unwrap());
        (sandbox.cwd.is_some(), !sandbox.workspace_roots.is_empty())
    }

    #[test]
    fn cwd_and_workspace_roots_are_kept_only_if_an_entry_is_relative_to_them() {
        let root = r#"{"path":{"type":"special","value":{"kind":"root"}},"access":"read"}"#;
        let path = r#"{"path":{"type":"path","path":"file:///w"},"access":"write"}"#;
        let absolute = r#"{"path":{"type":"glob_pattern","pattern":"/w/*.env"},"access":"deny"}"#;
        assert_eq!(keeps_cwd_and_roots(&[root, path, absolute].join(",")), (false, false));
        for dependent in [
            r#"{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"}"#,
            r#"{"path":{"type":"glob_pattern","pattern":"**/*.env"},"access":"deny"}"#,
            r#"{"path":{"type":"glob_pattern","pattern":"codex-project-roots://x"},"access":"deny"}"#,
        ] {
            assert_eq!(keeps_cwd_and_roots(&format!("{root},{dependent}")), (true, true), "{dependent}");
        }
    }
}
