//! Shell snapshots: what the profile of a login shell leaves behind is captured once, and later commands of the same scope begin with it
//! instead of running the profile again. Everything stays in memory. Whatever goes wrong, the command runs as it was asked for.
//!
//! `script` has what the shells are told, `capture` runs one, `state` takes its report apart and applies the policy, `restore` composes the
//! text that another shell begins with, and `cache` shares snapshots among the starts of a session.

mod cache;
mod capture;
mod restore;
mod script;
mod state;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use protocol::{EnvPolicy, ShellSnapshot, WireError};

pub(crate) use cache::Snapshots;
pub(crate) use capture::CaptureShell;
use script::Shell;
use state::Snapshot;

use crate::environment::Variables;
use crate::limits::MAX_SNAPSHOT_SCOPE_BYTES;
use crate::start_cancel::StartCancel;

/// Variables that decide which startup files a shell reads, and what most of those build upon. With other values the state would be
/// another one.
const DECIDING: [&str; 6] = ["HOME", "USER", "PATH", "ZDOTDIR", "ENV", "BASH_ENV"];

/// A start that may begin with a snapshot.
pub(crate) struct SnapshotRequest {
    shell: Shell,
    key: Key,
    /// What the client says in `env` itself.
    overlay: BTreeMap<String, String>,
}

/// Where a command runs, and how the client wants its environment.
pub(crate) struct Surroundings<'a> {
    pub(crate) cwd: &'a Path,
    pub(crate) policy: Option<EnvPolicy>,
    /// What the client says in `env` itself. No profile overrules it.
    pub(crate) overlay: BTreeMap<String, String>,
    /// The environment that follows from all of it.
    pub(crate) env: &'a Variables,
}

/// Starts for which this is equal share a snapshot.
#[derive(Clone, PartialEq, Eq)]
struct Key {
    snapshot: ShellSnapshot,
    cwd: PathBuf,
    policy: Option<EnvPolicy>,
    deciding: [Option<OsString>; DECIDING.len()],
}

/// What to execute.
pub(crate) struct Execution {
    pub(crate) argv: Vec<OsString>,
    pub(crate) env: Variables,
}

impl SnapshotRequest {
    /// Checks what a client asks for. None: the command is none that could begin with a snapshot, whatever shell the client names.
    pub(crate) fn check(
        snapshot: ShellSnapshot,
        argv: &[String],
        arg0: Option<&str>,
        surroundings: Surroundings<'_>,
    ) -> Result<Option<Self>, WireError> {
        if snapshot.scope_id.is_empty() || snapshot.scope_id.len() > MAX_SNAPSHOT_SCOPE_BYTES {
            let error =
                format!("shell snapshot scope must be non-empty and at most {MAX_SNAPSHOT_SCOPE_BYTES} bytes");
            return Err(WireError::invalid_params(error));
        }
        let is_login_command = argv.len() >= 3 && argv[0] == snapshot.shell.path && argv[1] == "-lc";
        if !is_login_command {
            return Ok(None);
        }
        let Some(shell) = Shell::from_name(&snapshot.shell.name) else {
            let name = protocol::shortened(&snapshot.shell.name);
            let error = format!("shell snapshots are unsupported for shell `{name}`");
            return Err(WireError::invalid_params(error));
        };
        // A shell whose name begins with a dash would run its profile whatever its flags are.
        if arg0.unwrap_or_default().starts_with('-') {
            return Ok(None);
        }
        let Surroundings { cwd, policy, overlay, env } = surroundings;
        let deciding = DECIDING.map(|name| env.get(OsStr::new(name)).cloned());
        Ok(Some(Self { shell, key: Key { snapshot, cwd: cwd.to_owned(), policy, deciding }, overlay }))
    }

    /// What to execute instead of `argv` in `env`. None if there is no snapshot and the command is to run as it is.
    /// `snapshots` are those of the session, and `shell` runs a profile if none of them fits.
    pub(crate) async fn restore<S: CaptureShell>(
        &self,
        snapshots: &Snapshots,
        shell: impl FnOnce() -> S,
        argv: &[String],
        arg0: Option<&str>,
        env: &Variables,
    ) -> Option<Execution> {
        let capture = async || self.capture(&shell(), &snapshots.cancel, env).await;
        let snapshot = snapshots.get_or_capture(&self.key, capture).await?;
        let chunks = snapshot.state_variables(env);
        let mut command = script::restoring(self.shell, chunks.len());
        command.insert(0, self.key.snapshot.shell.path.as_str().into());
        // The name that the shell would have had anyway.
        let name = argv.get(3).map_or_else(|| arg0.unwrap_or(&argv[0]), String::as_str);
        command.push(name.into());
        command.push(argv[2].as_str().into());
        command.push(snapshot.before_command());
        command.extend(argv.iter().skip(4).map(OsString::from));
        let mut env = snapshot.environment(env, &self.overlay);
        env.extend(chunks);
        Some(Execution { argv: command, env })
    }

    async fn capture(&self, runner: &impl CaptureShell, cancel: &StartCancel, env: &Variables) -> Option<Snapshot> {
        let path = &self.key.snapshot.shell.path;
        match capture::capture(runner, cancel, self.shell, path, &self.key.cwd, env).await {
            Ok(captured) => Some(Snapshot::new(self.shell, captured, env, self.key.policy.as_ref())),
            Err(reason) => {
                tracing::debug!(shell = path, "no shell snapshot: {reason}");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::ShellInfo;

    fn check(name: &str, scope: &str, argv: &[&str], arg0: Option<&str>) -> Result<bool, String> {
        let shell = ShellInfo { name: name.into(), path: "/bin/bash".into() };
        let snapshot = ShellSnapshot { scope_id: scope.into(), shell };
        let argv: Vec<String> = argv.iter().map(ToString::to_string).collect();
        let env = Variables::new();
        let surroundings = Surroundings { cwd: Path::new("/"), policy: None, overlay: BTreeMap::new(), env: &env };
        let checked = SnapshotRequest::check(snapshot, &argv, arg0, surroundings);
        checked.map(|request| request.is_some()).map_err(|error| error.message)
    }

    #[test]
    fn only_login_commands_of_that_shell_fit() {
        let fits = |argv, arg0| check("bash", "s", argv, arg0).unwrap();
        assert!(fits(&["/bin/bash", "-lc", "true"], None));
        assert!(fits(&["/bin/bash", "-lc", "true", "name", "x"], Some("name")));
        for argv in [
            &["/bin/bash", "-lc"][..],
            &["/bin/bash", "-c", "true"],
            &["/usr/bin/bash", "-lc", "true"],
            &["/bin/bash", "-l", "-c", "true"],
            &[],
        ] {
            assert!(!fits(argv, None), "{argv:?}");
        }
        assert!(!fits(&["/bin/bash", "-lc", "true"], Some("-bash")));
    }

    #[test]
    fn refusals_have_the_texts_of_the_contract() {
        let scope = "shell snapshot scope must be non-empty and at most 256 bytes";
        assert_eq!(check("bash", "", &[], None).unwrap_err(), scope);
        assert_eq!(check("bash", &"s".repeat(257), &[], None).unwrap_err(), scope);
        assert_eq!(check("bash", &"s".repeat(256), &[], None), Ok(false));
        let shell = "shell snapshots are unsupported for shell `fish`";
        assert_eq!(check("fish", "s", &["/bin/bash", "-lc", "true"], None).unwrap_err(), shell);
        assert_eq!(check("fish", "s", &["/bin/bash", "-c", "true"], None), Ok(false), "it is not about this command");
    }
}
