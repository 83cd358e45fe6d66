//! The flags that put a command or file operations into a sandbox, and the sandbox object that they stand for. The
//! server enforces it; this module only reads policies.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueHint};
use client::{PathUri, SandboxContext, SandboxPolicy};
use protocol::{
    FileSystemPermissions, NetworkAccess, PathAccess, PermissionEntry, PermissionPath, Permissions, SandboxDenial,
};
use rustix::fs::OFlags;
use serde_json::{Value, json};

use crate::terminal_text::readable_beginning;

/// The longest policy file. It is far more than a server accepts as the policy of a request.
const MAX_POLICY_BYTES: u64 = 16 << 20;

/// The flags for a sandbox.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Sandbox")]
pub(crate) struct SandboxArgs {
    /// Restrict files and network: read-only, workspace-write or a JSON file
    #[arg(long, value_name = "POLICY", value_hint = ValueHint::FilePath)]
    sandbox: Option<PathBuf>,
    /// Make this directory of the environment writable in the sandbox; repeatable
    #[arg(long, value_name = "DIR", requires = "sandbox")]
    writable: Vec<PathBuf>,
    /// Allow the network in the sandbox
    #[arg(long, requires = "sandbox")]
    allow_network: bool,
}

impl SandboxArgs {
    /// Whether a sandbox is asked for.
    pub(crate) fn is_given(&self) -> bool {
        self.sandbox.is_some()
    }

    /// The sandbox to ask the server for. `workspace` is the working directory in the environment. `None` without
    /// `--sandbox`.
    pub(crate) fn context(&self, workspace: &Path) -> anyhow::Result<Option<SandboxContext>> {
        let Some(policy) = &self.sandbox else { return Ok(None) };
        let extension = PolicyExtension { writable: &self.writable, allow_network: self.allow_network };
        policy_context(policy, workspace, &extension).map(Some)
    }
}

/// What flags add to a policy.
pub(crate) struct PolicyExtension<'a> {
    /// Further writable directories. Relative ones are below the workspace.
    pub(crate) writable: &'a [PathBuf],
    pub(crate) allow_network: bool,
}

/// The sandbox that a policy stands for. The policy is `read-only`, `workspace-write` or the path of a file.
pub(crate) fn policy_context(
    policy: &Path,
    workspace: &Path,
    extension: &PolicyExtension<'_>,
) -> anyhow::Result<SandboxContext> {
    let mut context = match policy.to_str() {
        Some("read-only") => from_older(&SandboxPolicy::ReadOnly { network_access: false }, workspace)?,
        Some("workspace-write") => {
            let policy = SandboxPolicy::WorkspaceWrite {
                writable_roots: Vec::new(),
                network_access: false,
                exclude_tmpdir_env_var: false,
                exclude_slash_tmp: false,
            };
            from_older(&policy, workspace)?
        }
        _ => from_file(policy, workspace)?,
    };
    extension.apply(&mut context, workspace)?;
    Ok(context)
}

/// Converts a policy of the older form ([`SandboxPolicy`]). The closure says that no protected name, such as `.git`,
/// exists. This is no loss: the server protects them anyway.
fn from_older(policy: &SandboxPolicy, workspace: &Path) -> anyhow::Result<SandboxContext> {
    Ok(policy.to_context(workspace, |_| false)?)
}

/// Reads a policy file: a sandbox object as requests have it, its `permissions` alone, or a policy of the older form. In
/// a sandbox object, `cwd` and `workspaceRoots` may be missing and are then the workspace, so that one file is good for
/// many directories.
fn from_file(path: &Path, workspace: &Path) -> anyhow::Result<SandboxContext> {
    let shown = path.display();
    let text = read_policy(path).with_context(|| {
        format!("cannot read the sandbox policy {shown}; it is `read-only`, `workspace-write` or the path of a file")
    })?;
    let not_a_policy = || format!("{shown} is not a sandbox policy; docs/sandbox.md has examples");
    let mut value: Value = serde_json::from_str(&text).with_context(not_a_policy)?;
    // serde would silently ignore one of two members with the same name.
    protocol::check_json(&text).with_context(not_a_policy)?;
    if !value.is_object() {
        return Err(anyhow::anyhow!("it must contain a JSON object").context(not_a_policy()));
    }
    if value.get("type").is_some() && value.get("permissions").is_some() {
        return Err(
            anyhow::anyhow!("it has `type` and `permissions`, which are two policies").context(not_a_policy())
        );
    }
    if matches!(value["type"].as_str(), Some("managed" | "disabled" | "external")) {
        value = json!({"permissions": value});
    }
    if value.get("type").is_some() {
        return from_older(&serde_json::from_value(value).with_context(not_a_policy)?, workspace);
    }
    if let Value::Object(members) = &mut value {
        let workspace = uri(workspace)?.to_string();
        members.entry("workspaceRoots").or_insert_with(|| vec![workspace.clone()].into());
        members.entry("cwd").or_insert_with(|| workspace.into());
        members.entry("windowsSandboxLevel").or_insert_with(|| "disabled".into());
    }
    serde_json::from_value(value).with_context(not_a_policy)
}

/// The text of a policy file. Only a regular file is read: nobody may ever write to a pipe.
fn read_policy(path: &Path) -> io::Result<String> {
    // Without this flag, opening a named pipe waits for a writer. It has no effect on regular files.
    let without_waiting = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(without_waiting).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    file.take(MAX_POLICY_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_POLICY_BYTES {
        return Err(io::Error::other(format!("it has more than {MAX_POLICY_BYTES} bytes")));
    }
    Ok(text)
}

impl PolicyExtension<'_> {
    fn apply(&self, context: &mut SandboxContext, workspace: &Path) -> anyhow::Result<()> {
        if self.writable.is_empty() && !self.allow_network {
            return Ok(());
        }
        let Permissions::Managed { file_system, network } = &mut context.permissions else {
            anyhow::bail!(
                "the policy is of the type disabled or external, so --writable and --allow-network have no effect; leave them out"
            );
        };
        if self.allow_network {
            *network = NetworkAccess::Enabled;
        }
        let FileSystemPermissions::Restricted { entries, .. } = file_system else {
            anyhow::ensure!(
                self.writable.is_empty(),
                "the policy does not restrict files, so --writable has no effect; leave it out"
            );
            return Ok(());
        };
        for directory in self.writable {
            let path = uri(&workspace.join(directory))?;
            entries.push(PermissionEntry {
                path: PermissionPath::Path { path },
                access: PathAccess::Write,
                missing_path_behavior: None,
            });
        }
        Ok(())
    }
}

/// A sentence for a command whose sandbox has probably made it fail. It is short, whatever the server has sent.
pub(crate) fn sentence_about_denial(denials: &[SandboxDenial]) -> String {
    const SHOWN: usize = 3;
    // More than the name of any system call and of what it is about.
    const NAME_CHARACTERS: usize = 64;
    let name = |text: &str| readable_beginning(text, NAME_CHARACTERS);
    let mut refused: Vec<String> = denials
        .iter()
        .take(SHOWN)
        .map(|denial| match &denial.target {
            Some(target) => format!("{} {}", name(&denial.operation), name(target)),
            None => name(&denial.operation),
        })
        .collect();
    if denials.len() > SHOWN {
        refused.push(format!("{} more", denials.len() - SHOWN));
    }
    let known = if refused.is_empty() { String::new() } else { format!(" ({})", refused.join(", ")) };
    // Refused accesses to files are never in the list, so `--writable` may help in any case.
    let is_internet = |denial: &SandboxDenial| matches!(denial.target.as_deref(), Some("AF_INET" | "AF_INET6"));
    let flags = if denials.is_empty() || denials.iter().any(is_internet) {
        "--writable DIR and --allow-network allow"
    } else {
        "--writable DIR allows"
    };
    format!("the command failed, probably because its sandbox refused something{known}; {flags} more")
}

fn uri(path: &Path) -> anyhow::Result<PathUri> {
    PathUri::from_native(path)
        .with_context(|| format!("{} cannot be sent to a server as a `file:` URI", path.display()))
}

#[cfg(test)]
mod tests {
    use protocol::SpecialPath;

    use super::*;

    const NOTHING: PolicyExtension<'_> = PolicyExtension { writable: &[], allow_network: false };

    fn from_text(text: &str, extension: &PolicyExtension<'_>) -> anyhow::Result<Value> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("policy.json");
        std::fs::write(&file, text).unwrap();
        policy_context(&file, Path::new("/ws"), extension).map(|context| serde_json::to_value(context).unwrap())
    }

    #[test]
    fn words_stand_for_policies_in_the_workspace() {
        let read_only = policy_context(Path::new("read-only"), Path::new("/ws"), &NOTHING).unwrap();
        assert_eq!(
            serde_json::to_string(&read_only).unwrap(),
            r#"{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[{"path":{"type":"special","value":{"kind":"root"}},"access":"read"}]},"network":"restricted"},"cwd":"file:///ws","workspaceRoots":["file:///ws"],"windowsSandboxLevel":"disabled","windowsSandboxPrivateDesktop":false,"useLegacyLandlock":false}"#
        );
        let extension = PolicyExtension { writable: &["/data".into(), "out".into()], allow_network: true };
        let extended = policy_context(Path::new("workspace-write"), Path::new("/ws"), &extension).unwrap();
        let Permissions::Managed { file_system: FileSystemPermissions::Restricted { entries, .. }, network } =
            extended.permissions
        else {
            panic!("a managed policy");
        };
        assert_eq!(network, NetworkAccess::Enabled);
        let last: Vec<String> =
            entries[entries.len() - 2..].iter().map(|entry| serde_json::to_string(entry).unwrap()).collect();
        assert_eq!(
            last,
            [
                r#"{"path":{"type":"path","path":"file:///data"},"access":"write"}"#,
                r#"{"path":{"type":"path","path":"file:///ws/out"},"access":"write"}"#
            ]
        );
    }

    #[test]
    fn members_of_a_policy_file_are_kept_and_missing_ones_are_filled_in() {
        let permissions = r#""permissions":{"type":"managed","file_system":{"type":"restricted","entries":[]},"network":"restricted"}"#;
        let filled = from_text(&format!("{{{permissions}}}"), &NOTHING).unwrap();
        assert_eq!(filled["cwd"], "file:///ws");
        assert_eq!(filled["workspaceRoots"][0], "file:///ws");
        let permissions_alone = permissions.strip_prefix(r#""permissions":"#).unwrap();
        assert_eq!(from_text(permissions_alone, &NOTHING).unwrap(), filled);
        let given =
            format!(r#"{{{permissions},"cwd":"file:///x","workspaceRoots":[],"windowsSandboxLevel":"elevated"}}"#);
        let given = from_text(&given, &NOTHING).unwrap();
        assert_eq!((&given["cwd"], &given["windowsSandboxLevel"]), (&"file:///x".into(), &"elevated".into()));
        assert!(given.get("workspaceRoots").is_none(), "empty roots stay empty, and are then left out");
        let older = from_text(r#"{"type":"danger-full-access"}"#, &NOTHING).unwrap();
        assert_eq!(older["permissions"]["type"], "disabled");
    }

    #[test]
    fn a_policy_is_read_only_from_a_regular_file_and_a_pipe_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        for path in [pipe, directory.path().to_path_buf(), "/dev/zero".into()] {
            let (told, refused) = std::sync::mpsc::channel();
            let policy = path.clone();
            std::thread::spawn(move || told.send(policy_context(&policy, Path::new("/ws"), &NOTHING)));
            let error = refused.recv_timeout(std::time::Duration::from_secs(30)).expect("it waits").unwrap_err();
            assert!(format!("{error:#}").ends_with(": it is not a regular file"), "{error:#}");
        }
    }

    #[test]
    fn the_names_that_a_client_protects_are_those_that_a_server_protects() {
        let context = policy_context(Path::new("workspace-write"), Path::new("/ws"), &NOTHING).unwrap();
        let Permissions::Managed { file_system: FileSystemPermissions::Restricted { entries, .. }, .. } =
            context.permissions
        else {
            panic!("a managed policy");
        };
        let names: Vec<&str> = entries
            .iter()
            .filter_map(|entry| match &entry.path {
                PermissionPath::Special { value: SpecialPath::ProjectRoots { subpath } } => subpath.as_deref(),
                _ => None,
            })
            .collect();
        assert_eq!(names, sandbox::PROTECTED_NAMES);
    }

    #[test]
    fn a_denial_is_described_by_what_was_refused_if_that_is_known() {
        let sentence = |targets: &[&str]| {
            let denial = |target: &&str| SandboxDenial {
                operation: "socket".to_owned(),
                target: (!target.is_empty()).then(|| (*target).to_owned()),
                count: 1,
            };
            sentence_about_denial(&targets.iter().map(denial).collect::<Vec<_>>())
        };
        assert!(sentence(&[]).starts_with("the command failed, probably because its sandbox refused something; --"));
        assert!(sentence(&["AF_INET", ""]).contains("something (socket AF_INET, socket); "));
        for (targets, is_named) in [(&[][..], true), (&["AF_PACKET", "AF_INET6"], true), (&["AF_PACKET", ""], false)]
        {
            assert_eq!(sentence(targets).contains("--allow-network"), is_named, "{targets:?}");
        }
        assert!(sentence(&["A", "B", "C", "D", "E"]).contains("(socket A, socket B, socket C, 2 more)"));
        assert!(sentence(&["\x1b[2J"]).contains("socket \\u{1b}[2J"), "the server chooses the text");
        let long = "x".repeat(100_000);
        let cut = format!("(socket {}…, socket A, socket {}…)", &long[..64], &long[..64]);
        assert!(sentence(&[&long, "A", &long]).contains(&cut), "names are cut");
        let everything_long = SandboxDenial { operation: long.clone(), target: Some(long), count: u64::MAX };
        assert!(sentence_about_denial(&vec![everything_long; 5000]).chars().count() < 600);
    }

    #[test]
    fn invalid_policy_files_and_flags_that_do_not_apply_are_refused() {
        let missing = policy_context(Path::new("/no/such/file"), Path::new("/ws"), &NOTHING).unwrap_err();
        assert!(missing.to_string().contains("`read-only`, `workspace-write` or the path of a file"), "{missing}");
        for text in ["", "[]", "{}", r#"{"type":"none"}"#, r#"{"permissions":{"type":"sometimes"}}"#] {
            assert!(from_text(text, &NOTHING).unwrap_err().to_string().contains("is not a sandbox policy"), "{text}");
        }
        let restricted =
            r#"{"type":"managed","file_system":{"type":"restricted","entries":[]},"network":"restricted"}"#;
        for (text, problem) in [
            (
                format!(r#"{{"permissions":{restricted},"permissions":{{"type":"disabled"}}}}"#),
                "duplicate JSON object key",
            ),
            (r#"{"type":"read-only","type":"danger-full-access"}"#.to_owned(), "duplicate JSON object key"),
            (format!(r#"{{"type":"danger-full-access","permissions":{restricted}}}"#), "two policies"),
        ] {
            let error = format!("{:#}", from_text(&text, &NOTHING).unwrap_err());
            assert!(error.contains("is not a sandbox policy") && error.contains(problem), "{error}");
        }
        for text in ["[]", "3", "null", r#""read-only""#] {
            let error = format!("{:#}", from_text(text, &NOTHING).unwrap_err());
            assert!(
                error.ends_with(
                    "is not a sandbox policy; docs/sandbox.md has examples: it must contain a JSON object"
                ),
                "{error}"
            );
        }
        let long = " ".repeat(usize::try_from(MAX_POLICY_BYTES).unwrap() + 1);
        let long = from_text(&long, &NOTHING).unwrap_err();
        assert!(format!("{long:#}").contains("more than 16777216 bytes"), "{long:#}");
        let writable = PolicyExtension { writable: &["/x".into()], allow_network: false };
        for text in [
            r#"{"type":"danger-full-access"}"#,
            r#"{"permissions":{"type":"managed","file_system":{"type":"unrestricted"},"network":"restricted"}}"#,
        ] {
            assert!(from_text(text, &writable).unwrap_err().to_string().contains("no effect; leave"), "{text}");
        }
    }
}
