//! `sandbox explain`: one line for each path, with what the policy allows and why. It asks the same function that
//! decides in a server, with the facts of this machine, and runs nothing.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use client::PathUri;
use sandbox::{Access, AccessDecision, EntrySource, EntryTarget, FilePolicy};
use serde_json::{Value, json};

use super::super::args::ExplainArgs;
use super::super::print::print;
use super::super::sandbox_flags::{PolicyExtension, policy_context};
use crate::terminal_text::{json_line, readable};

pub(crate) async fn explain(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let own = std::env::current_dir().context("cannot find out the current directory")?;
    let cwd = args.cwd.as_ref().map_or_else(|| own.clone(), |cwd| own.join(cwd));
    let extension = PolicyExtension { writable: &args.writable, allow_network: false };
    let context = policy_context(&args.policy, &cwd, &extension)?;
    let tmpdir = std::env::var_os("TMPDIR");
    let rules = server::process_sandbox_rules(&context, &cwd, tmpdir.as_deref())
        .map_err(|error| anyhow::anyhow!(error.message))?;
    let paths: Vec<PathBuf> = args.paths.iter().map(|path| normalised(&cwd.join(path))).collect::<Result<_, _>>()?;
    print(&lines(&rules.files, &paths, args.json)).await?;
    Ok(ExitCode::SUCCESS)
}

/// The conversion to a URI and back removes `.` and `..`, as the server does.
fn normalised(path: &Path) -> anyhow::Result<PathBuf> {
    let not_sendable = || format!("{} cannot be sent to a server as a `file:` URI", path.display());
    let uri = PathUri::from_native(path).with_context(not_sendable)?;
    uri.to_native().with_context(not_sendable)
}

fn lines(policy: &FilePolicy, paths: &[PathBuf], as_json: bool) -> String {
    let width = paths.iter().map(|path| shown(path).chars().count()).max().unwrap_or(0);
    paths
        .iter()
        .map(|path| {
            let decision = policy.access(path);
            if as_json {
                return json_line(&as_value(path, &decision));
            }
            format!("{:<5}  {:<width$}  {}\n", word(decision.access), shown(path), reason(path, &decision))
        })
        .collect()
}

fn as_value(path: &Path, decision: &AccessDecision<'_>) -> Value {
    let target = decision.entry.map(|entry| match &entry.target {
        EntryTarget::Path(target) => target.to_string_lossy().into_owned(),
        EntryTarget::Glob(glob) => glob.to_string(),
    });
    let (source, index) = match decision.entry.map(|entry| &entry.source) {
        Some(EntrySource::Request(index)) => (Some("policy"), Some(*index)),
        Some(EntrySource::ProtectedName { .. }) => (Some("protectedName"), None),
        Some(EntrySource::GitDirectory { .. }) => (Some("gitDirectory"), None),
        Some(EntrySource::Unrestricted) => (Some("unrestricted"), None),
        None => (None, None),
    };
    json!({
        "path": path.to_string_lossy(),
        "access": word(decision.access),
        "source": source,
        "entryIndex": index,
        "target": target,
        "matched": decision.entry.map(|_| decision.matched.to_string_lossy()),
        "reason": reason(path, decision),
    })
}

fn word(access: Access) -> &'static str {
    match access {
        Access::Deny => "deny",
        Access::Read => "read",
        Access::Write => "write",
    }
}

/// Why the policy decides so, as a part of a sentence. Entries are counted from 1, as people count.
fn reason(path: &Path, decision: &AccessDecision<'_>) -> String {
    let Some(entry) = decision.entry else { return "no entry is for this path".to_owned() };
    let matched = shown(&decision.matched);
    match (&entry.source, &entry.target) {
        (EntrySource::Unrestricted, _) => "the policy does not restrict files".to_owned(),
        (EntrySource::Request(index), EntryTarget::Glob(glob)) => {
            format!("entry {} denies `{}`, which matches {matched}", index + 1, readable(&glob.to_string()))
        }
        (EntrySource::Request(index), EntryTarget::Path(_)) => {
            let is_exact = decision.matched == path;
            let phrase = match (entry.access, is_exact) {
                (Access::Deny, true) => "denies access to",
                (Access::Deny, false) => "denies access below",
                (Access::Read, true) => "allows reading",
                (Access::Read, false) => "allows reading below",
                (Access::Write, true) => "allows writing",
                (Access::Write, false) => "allows writing below",
            };
            format!("entry {} {phrase} {matched}", index + 1)
        }
        (EntrySource::ProtectedName { writable }, _) => {
            let name = decision.matched.file_name().map(Path::new).map(shown).unwrap_or_default();
            format!("{name} is protected in the writable directory {}", shown(writable))
        }
        (EntrySource::GitDirectory { git_file }, _) => {
            format!("{matched} is protected: {} names it as its git directory", shown(git_file))
        }
    }
}

fn shown(path: &Path) -> String {
    readable(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> FilePolicy {
        let context = serde_json::from_str(text).unwrap();
        server::process_sandbox_rules(&context, Path::new("/ws"), None).unwrap().files
    }

    const POLICY: &str = r#"{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[
        {"path":{"type":"path","path":"file:///usr"},"access":"read"},
        {"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"},
        {"path":{"type":"path","path":"file:///ws/key"},"access":"deny"},
        {"path":{"type":"glob_pattern","pattern":"**/*.env"},"access":"deny"}]},"network":"restricted"},
        "workspaceRoots":["file:///ws"],"windowsSandboxLevel":"disabled"}"#;

    #[test]
    fn paths_are_normalised_and_one_that_has_no_uri_is_an_error() {
        assert_eq!(normalised(Path::new("/a/./b/../c")).unwrap(), Path::new("/a/c"));
        for path in ["relative/path", "/with\0nul"] {
            let error = normalised(Path::new(path)).unwrap_err().to_string();
            assert!(error.starts_with(path), "{error}");
        }
    }

    #[test]
    fn each_path_gets_a_line_with_the_access_and_the_reason() {
        let paths =
            ["/usr/bin/make", "/ws", "/ws/a.rs", "/ws/key", "/ws/key/x", "/ws/d/.env", "/ws/.git/config", "/home"];
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        assert_eq!(
            lines(&policy(POLICY), &paths, false),
            "\
read   /usr/bin/make    entry 1 allows reading below /usr
write  /ws              entry 2 allows writing /ws
write  /ws/a.rs         entry 2 allows writing below /ws
deny   /ws/key          entry 3 denies access to /ws/key
deny   /ws/key/x        entry 3 denies access below /ws/key
deny   /ws/d/.env       entry 4 denies `/ws/**/*.env`, which matches /ws/d/.env
read   /ws/.git/config  .git is protected in the writable directory /ws
deny   /home            no entry is for this path
"
        );
    }

    #[test]
    fn json_has_an_object_for_each_path() {
        let paths: Vec<PathBuf> = ["/ws/a.env/x", "/home", "/ws/.git"].iter().map(PathBuf::from).collect();
        let text = lines(&policy(POLICY), &paths, true);
        let values: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(
            values[0],
            json!({"path": "/ws/a.env/x", "access": "deny", "source": "policy", "entryIndex": 3, "target": "/ws/**/*.env",
                "matched": "/ws/a.env", "reason": "entry 4 denies `/ws/**/*.env`, which matches /ws/a.env"})
        );
        assert_eq!(
            values[1],
            json!({"path": "/home", "access": "deny", "source": null, "entryIndex": null, "target": null, "matched": null,
                "reason": "no entry is for this path"})
        );
        assert_eq!((&values[2]["source"], &values[2]["target"]), (&json!("protectedName"), &json!("/ws/.git")));
    }

    #[test]
    fn control_characters_in_a_path_are_made_visible() {
        let unrestricted = policy(r#"{"permissions":{"type":"disabled"},"windowsSandboxLevel":"disabled"}"#);
        assert_eq!(
            lines(&unrestricted, &["/a\x1b[2J".into()], false),
            "write  /a\\u{1b}[2J  the policy does not restrict files\n"
        );
    }
}
