//! Converts the [`SandboxContext`] of a request to a [`FilePolicy`] with native paths, which a sandbox can enforce. The
//! crate `sandbox` knows what the rules mean; this module converts the URIs, asks the machine what the
//! policy needs to know, and gives refusals the texts and codes of the protocol. It enforces nothing.
//!
//! [`process_sandbox_rules`] and [`file_sandbox_policy`] read files, so they run on a thread that may block.

mod git_file;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use protocol::{
    FileSystemPermissions, NetworkAccess, PathAccess, PathUri, PermissionPath, Permissions, SandboxContext,
    SpecialPath, WireError,
};
use sandbox::{
    Access, FilePolicy, MINIMAL_ROOTS, MachineFacts, PolicyError, PolicyRequest, RequestedEntry, RequestedFiles,
    RequestedTarget, SandboxNetwork, resolve_policy,
};

/// What a sandbox has to enforce for a command.
#[derive(Clone, Debug)]
pub struct SandboxRules {
    /// Which files the command may read and write.
    pub files: FilePolicy,
    /// The network of the command, if it has no network proxy.
    pub network: SandboxNetwork,
}

/// The rules for a command. `command_cwd` is the directory in which the command starts, and `tmpdir` the value of
/// `TMPDIR` in the environment of the command. A refusal is -32602, as the protocol says for `process/start`.
pub fn process_sandbox_rules(
    context: &SandboxContext,
    command_cwd: &Path,
    tmpdir: Option<&OsStr>,
) -> Result<SandboxRules, WireError> {
    let network = match &context.permissions {
        Permissions::Managed { network: NetworkAccess::Restricted, .. } => SandboxNetwork::None,
        // `external`: the client says that a sandbox around the server enforces the policy, so nothing is restricted here.
        Permissions::Managed { .. } | Permissions::Disabled | Permissions::External { .. } => SandboxNetwork::Host,
    };
    let mut request = policy_request(context, RefusalTexts::Process)?;
    request.cwd.get_or_insert_with(|| command_cwd.to_path_buf());
    let files = resolve(&request, tmpdir)
        .map_err(|error| WireError::invalid_params(format!("failed to prepare process sandbox: {error}")))?;
    Ok(SandboxRules { files, network })
}

/// The rules for a file operation. `tmpdir` is the value of `TMPDIR` in the environment of the server. A refusal is
/// -32600, as the protocol says for `fs/*`.
pub(crate) fn file_sandbox_policy(context: &SandboxContext, tmpdir: Option<&OsStr>) -> Result<FilePolicy, WireError> {
    let request = policy_request(context, RefusalTexts::Files)?;
    resolve(&request, tmpdir).map_err(unresolved)
}

/// Checks the paths and globs in a policy for file operations that allows everything, so that it is refused for the same
/// entries as a policy that is enforced. Members that only matter for a sandbox, such as `cwd`, are not checked. Does not block.
pub(crate) fn check_entries(context: &SandboxContext) -> Result<(), WireError> {
    let Permissions::Managed { file_system: FileSystemPermissions::Restricted { entries, .. }, .. } =
        &context.permissions
    else {
        return Ok(());
    };
    for entry in entries {
        match requested_target(&entry.path, RefusalTexts::Files)? {
            RequestedTarget::Glob(pattern) if entry.access != PathAccess::Deny => {
                return Err(unresolved(PolicyError::GlobAllows(pattern)));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The refusal of a policy for file operations that cannot be resolved.
fn unresolved(error: PolicyError) -> WireError {
    match error {
        PolicyError::MissingCwd => WireError::invalid_request(error.to_string()),
        _ => WireError::invalid_request(format!("failed to prepare fs sandbox: {error}")),
    }
}

/// Which texts and code refusals have. The published protocol has different ones for processes and for files.
#[derive(Clone, Copy)]
enum RefusalTexts {
    Process,
    Files,
}

impl RefusalTexts {
    fn refusal(self, text: String) -> WireError {
        match self {
            Self::Process => WireError::invalid_params(text),
            Self::Files => WireError::invalid_request(text),
        }
    }

    fn cwd(self, cwd: &PathUri) -> Result<PathBuf, WireError> {
        cwd.to_native().map_err(|error| {
            self.refusal(match self {
                Self::Process => format!("sandbox cwd URI `{cwd}` is not valid on this exec-server host: {error}"),
                Self::Files => error.to_string(),
            })
        })
    }

    fn workspace_root(self, root: &PathUri) -> Result<PathBuf, WireError> {
        root.to_native().map_err(|error| {
            self.refusal(match self {
                Self::Process => {
                    format!("sandbox workspace root URI `{root}` is not valid on this exec-server host: {error}")
                }
                Self::Files => {
                    format!("file system sandbox workspace root is not native to this exec-server host: {error}")
                }
            })
        })
    }

    fn permission_path(self, path: &PathUri) -> Result<PathBuf, WireError> {
        path.to_native().map_err(|error| self.refusal(format!("invalid sandbox permission path URI: {error}")))
    }
}

fn policy_request(context: &SandboxContext, texts: RefusalTexts) -> Result<PolicyRequest, WireError> {
    let files = match &context.permissions {
        Permissions::Managed {
            file_system: FileSystemPermissions::Restricted { entries, glob_scan_max_depth },
            ..
        } => RequestedFiles::Restricted {
            entries: entries
                .iter()
                .map(|entry| {
                    let target = requested_target(&entry.path, texts)?;
                    Ok(RequestedEntry { target, access: requested_access(entry.access) })
                })
                .collect::<Result<_, WireError>>()?,
            glob_scan_max_depth: *glob_scan_max_depth,
        },
        Permissions::Managed { file_system: FileSystemPermissions::Unrestricted, .. }
        | Permissions::Disabled
        | Permissions::External { .. } => RequestedFiles::Unrestricted,
    };
    Ok(PolicyRequest {
        files,
        cwd: context.cwd.as_ref().map(|cwd| texts.cwd(cwd)).transpose()?,
        workspace_roots: context
            .workspace_roots
            .iter()
            .map(|root| texts.workspace_root(root))
            .collect::<Result<_, _>>()?,
    })
}

fn requested_access(access: PathAccess) -> Access {
    match access {
        PathAccess::Deny => Access::Deny,
        PathAccess::Read => Access::Read,
        PathAccess::Write => Access::Write,
    }
}

fn requested_target(path: &PermissionPath, texts: RefusalTexts) -> Result<RequestedTarget, WireError> {
    Ok(match path {
        PermissionPath::Path { path } => RequestedTarget::Path(texts.permission_path(path)?),
        PermissionPath::GlobPattern { pattern } => RequestedTarget::Glob(pattern.clone()),
        PermissionPath::Special { value } => match value {
            SpecialPath::Root => RequestedTarget::Root,
            SpecialPath::Minimal => RequestedTarget::Minimal,
            SpecialPath::ProjectRoots { subpath } => {
                RequestedTarget::ProjectRoots { subpath: subpath.as_ref().map(PathBuf::from) }
            }
            SpecialPath::Tmpdir => RequestedTarget::Tmpdir,
            SpecialPath::SlashTmp => RequestedTarget::SlashTmp,
            SpecialPath::Unknown { .. } => RequestedTarget::Unknown,
        },
    })
}

/// Asks the machine what the policy needs to know, and resolves the policy.
fn resolve(request: &PolicyRequest, tmpdir: Option<&OsStr>) -> Result<FilePolicy, PolicyError> {
    resolve_policy(
        request,
        &mut MachineFacts {
            tmpdir: tmpdir.map(PathBuf::from),
            slash_tmp_is_directory: Path::new("/tmp").is_dir(),
            minimal_roots: MINIMAL_ROOTS
                .iter()
                .map(PathBuf::from)
                .filter(|root| root.symlink_metadata().is_ok())
                .collect(),
            git_directories_of: &mut git_file::git_directories_of,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(permissions: &str, rest: &str) -> SandboxContext {
        serde_json::from_str(&format!(r#"{{"permissions":{permissions},{rest}"windowsSandboxLevel":"disabled"}}"#))
            .unwrap()
    }

    fn restricted(entries: &str, rest: &str) -> SandboxContext {
        let permissions = format!(
            r#"{{"type":"managed","file_system":{{"type":"restricted","entries":[{entries}]}},"network":"restricted"}}"#
        );
        context(&permissions, rest)
    }

    fn process(context: &SandboxContext) -> Result<SandboxRules, WireError> {
        process_sandbox_rules(context, Path::new("/command"), Some(OsStr::new("/var/tmp/job")))
    }

    fn access(policy: &FilePolicy, path: &str) -> Access {
        policy.access(Path::new(path)).access
    }

    const ROOT: &str = r#"{"path":{"type":"special","value":{"kind":"root"}},"access":"read"}"#;
    const PROJECT: &str = r#"{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"}"#;
    const GLOB: &str = r#"{"path":{"type":"glob_pattern","pattern":"**/*.env"},"access":"deny"}"#;

    #[test]
    fn the_workspace_write_profile_protects_metadata_and_allows_tmp() {
        let special = |kind: &str, access: &str| {
            format!(r#"{{"path":{{"type":"special","value":{{{kind}}}}},"access":"{access}"}}"#)
        };
        let entries = [
            special(r#""kind":"root""#, "read"),
            special(r#""kind":"project_roots""#, "write"),
            special(r#""kind":"slash_tmp""#, "write"),
            special(r#""kind":"tmpdir""#, "write"),
            special(r#""kind":"project_roots","subpath":".git""#, "read"),
            special(r#""kind":"unknown","path":"later""#, "write"),
        ];
        let roots = r#""cwd":"file:///ws","workspaceRoots":["file:///ws","file:///other"],"#;
        let rules = process(&restricted(&entries.join(","), roots)).unwrap();
        assert_eq!(rules.network, SandboxNetwork::None);
        assert!(!rules.files.writes_everything());
        for (path, expected) in [
            ("/usr/bin/env", Access::Read),
            ("/ws/src/main.rs", Access::Write),
            ("/other/x", Access::Write),
            ("/ws/.git/config", Access::Read),
            ("/other/.codex", Access::Read),
            ("/tmp/x", Access::Write),
            ("/var/tmp/job/x", Access::Write),
            ("/command/x", Access::Read),
        ] {
            assert_eq!(access(&rules.files, path), expected, "{path}");
        }
    }

    #[test]
    fn relative_globs_start_in_the_cwd_of_the_policy_or_of_the_command() {
        let entries = [ROOT, GLOB].join(",");
        let own = process(&restricted(&entries, "")).unwrap().files;
        assert_eq!((access(&own, "/command/a.env"), access(&own, "/ws/a.env")), (Access::Deny, Access::Read));
        let given = process(&restricted(&entries, r#""cwd":"file:///ws","#)).unwrap().files;
        assert_eq!((access(&given, "/command/a.env"), access(&given, "/ws/a.env")), (Access::Read, Access::Deny));
    }

    #[test]
    fn profiles_that_ask_for_nothing_allow_everything() {
        for permissions in [
            r#"{"type":"disabled"}"#,
            r#"{"type":"external","network":"restricted"}"#,
            r#"{"type":"managed","file_system":{"type":"unrestricted"},"network":"enabled"}"#,
        ] {
            let rules = process(&context(permissions, "")).unwrap();
            assert!(rules.files.writes_everything() && rules.network == SandboxNetwork::Host, "{permissions}");
            assert!(file_sandbox_policy(&context(permissions, ""), None).unwrap().writes_everything());
        }
        let offline =
            context(r#"{"type":"managed","file_system":{"type":"unrestricted"},"network":"restricted"}"#, "");
        assert_eq!(process(&offline).unwrap().network, SandboxNetwork::None);
    }

    #[track_caller]
    fn refused(context: &SandboxContext, process_text: &str, files_text: &str) {
        let error = process(context).unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (-32602, process_text));
        let error = file_sandbox_policy(context, None).unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (-32600, files_text));
    }

    #[test]
    fn paths_of_another_system_are_refused_with_the_texts_of_the_protocol() {
        let foreign = r#"{"path":{"type":"path","path":"file:///C:/x"},"access":"read"}"#;
        refused(
            &restricted(foreign, ""),
            "invalid sandbox permission path URI: 'file:///C:/x' is invalid on 'linux'",
            "invalid sandbox permission path URI: 'file:///C:/x' is invalid on 'linux'",
        );
        refused(
            &restricted(ROOT, r#""cwd":"file:///C:/x","#),
            "sandbox cwd URI `file:///C:/x` is not valid on this exec-server host: 'file:///C:/x' is invalid on 'linux'",
            "'file:///C:/x' is invalid on 'linux'",
        );
        refused(
            &restricted(ROOT, r#""workspaceRoots":["file://host/x"],"#),
            "sandbox workspace root URI `file://host/x` is not valid on this exec-server host: \
             'file://host/x' is invalid on 'linux'",
            "file system sandbox workspace root is not native to this exec-server host: \
             'file://host/x' is invalid on 'linux'",
        );
    }

    #[test]
    fn a_policy_that_cannot_be_resolved_is_refused() {
        let glob = r#"{"path":{"type":"glob_pattern","pattern":"/a/*"},"access":"write"}"#;
        let why = "sandbox glob pattern `/a/*` must have access deny; to allow access, name the directory in a `path` entry";
        refused(
            &restricted(glob, ""),
            &format!("failed to prepare process sandbox: {why}"),
            &format!("failed to prepare fs sandbox: {why}"),
        );
    }

    #[test]
    fn entries_are_checked_also_if_the_policy_allows_everything() {
        let all = r#"{"path":{"type":"special","value":{"kind":"root"}},"access":"write"}"#;
        for (entry, why) in [
            (
                r#"{"path":{"type":"path","path":"file:///C:/x"},"access":"write"}"#,
                "invalid sandbox permission path URI: 'file:///C:/x' is invalid on 'linux'",
            ),
            (
                r#"{"path":{"type":"glob_pattern","pattern":"/a/*"},"access":"write"}"#,
                "failed to prepare fs sandbox: sandbox glob pattern `/a/*` must have access deny; to allow access, name \
                 the directory in a `path` entry",
            ),
        ] {
            let context = restricted(&[all, entry].join(","), "");
            assert!(!context.restricts_files());
            let error = check_entries(&context).unwrap_err();
            assert_eq!((error.code, error.message.as_str()), (-32600, why));
            assert_eq!(file_sandbox_policy(&context, None).unwrap_err().message, why);
        }
        let needless = r#"{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"}"#;
        let elsewhere = r#""cwd":"file:///C:/x","workspaceRoots":["file://host/x"],"#;
        assert!(check_entries(&restricted(&[all, needless].join(","), elsewhere)).is_ok());
        assert!(check_entries(&context(r#"{"type":"disabled"}"#, "")).is_ok());
    }

    #[test]
    fn file_operations_need_a_cwd_for_entries_that_depend_on_it() {
        for entry in [PROJECT, GLOB] {
            let error = file_sandbox_policy(&restricted(entry, ""), None).unwrap_err();
            assert_eq!(error.code, -32600);
            assert_eq!(error.message, "file system sandbox context with dynamic permissions requires cwd");
        }
        assert!(file_sandbox_policy(&restricted(ROOT, ""), None).is_ok());
    }

    #[test]
    fn git_files_name_directories_that_are_protected() {
        let directory = tempfile::tempdir().unwrap();
        let git_file = directory.path().join(".git");
        let main = directory.path().join("data/git");
        std::fs::write(&git_file, format!("gitdir: {}", main.display())).unwrap();
        let uri = PathUri::from_native(directory.path()).unwrap();
        let writable = format!(r#"{{"path":{{"type":"path","path":"{uri}"}},"access":"write"}}"#);
        let rules = process(&restricted(&writable, "")).unwrap();
        assert_eq!(rules.files.access(&main.join("HEAD")).access, Access::Read);
        assert_eq!(rules.files.access(&directory.path().join("data")).access, Access::Write);
    }
}
