//! Removes the members of a sandbox that the server does not need.

use protocol::{FileSystemPermissions, PermissionPath, Permissions, SandboxContext, SpecialPath};

/// Prefix of a pattern that applies below each workspace root.
const BELOW_PROJECT_ROOTS: &str = "codex-project-roots://";

/// The sandbox without `cwd` and `workspaceRoots` if no entry is relative to them. So the server learns no path that it does not need, and
/// requests that mean the same are equal.
pub(super) fn without_unused_paths(sandbox: &SandboxContext) -> SandboxContext {
    let mut sandbox = sandbox.clone();
    if !depends_on_paths(&sandbox.permissions) {
        sandbox.cwd = None;
        sandbox.workspace_roots.clear();
    }
    sandbox
}

fn depends_on_paths(permissions: &Permissions) -> bool {
    let Permissions::Managed { file_system: FileSystemPermissions::Restricted { entries, .. }, .. } = permissions
    else {
        return false;
    };
    entries.iter().any(|entry| match &entry.path {
        PermissionPath::Path { .. } => false,
        PermissionPath::GlobPattern { pattern } => {
            !pattern.starts_with('/') || pattern.starts_with(BELOW_PROJECT_ROOTS)
        }
        PermissionPath::Special { value } => matches!(value, SpecialPath::ProjectRoots { .. }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether `cwd` and `workspaceRoots` are kept in a sandbox with these entries.
    fn trimmed(entries: &str) -> (bool, bool) {
        let text = format!(
            r#"{{"permissions":{{"type":"managed","file_system":{{"type":"restricted","entries":[{entries}]}},
               "network":"enabled"}},"cwd":"file:///w","workspaceRoots":["file:///w"],"windowsSandboxLevel":"disabled"}}"#
        );
        let sandbox = without_unused_paths(&serde_json::from_str(&text).unwrap());
        (sandbox.cwd.is_some(), !sandbox.workspace_roots.is_empty())
    }

    #[test]
    fn paths_are_sent_only_if_an_entry_is_relative_to_them() {
        let root = r#"{"path":{"type":"special","value":{"kind":"root"}},"access":"read"}"#;
        let path = r#"{"path":{"type":"path","path":"file:///w"},"access":"write"}"#;
        let absolute = r#"{"path":{"type":"glob_pattern","pattern":"/w/*.env"},"access":"deny"}"#;
        assert_eq!(trimmed(&[root, path, absolute].join(",")), (false, false));
        for dependent in [
            r#"{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"}"#,
            r#"{"path":{"type":"glob_pattern","pattern":"**/*.env"},"access":"deny"}"#,
            r#"{"path":{"type":"glob_pattern","pattern":"codex-project-roots://x"},"access":"deny"}"#,
        ] {
            assert_eq!(trimmed(&format!("{root},{dependent}")), (true, true), "{dependent}");
        }
    }
}
