//! Shell snapshots. A snapshot is the state of a login shell after its profile has run: variables, options, aliases,
//! functions. It is captured once, and later commands of the same scope (a name that the client chooses) begin with
//! it instead of running the profile again. Snapshots are kept in memory only. If a snapshot cannot be captured, the
//! command runs as the client sent it.
//!
//! `script` has the scripts that the shells run, `capture` runs a shell and reads its report, `state` parses the report and applies the
//! environment policy of the client, `restore` composes the text that brings another shell into the same state, and `cache` shares
//! snapshots among the starts of a session.

mod cache;
mod capture;
mod restore;
mod script;
mod state;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use protocol::{EnvPolicy, SandboxContext, ShellSnapshot, WireError};

pub(crate) use cache::Snapshots;
pub(crate) use capture::ShellRunner;
use script::Shell;
use state::Snapshot;

use crate::environment::Variables;
use crate::limits::MAX_SNAPSHOT_SCOPE_BYTES;
use crate::start_cancel::StartCancel;

/// Variables that decide which startup files a shell reads, and variables that most startup files use. Two starts with different values
/// of these do not share a snapshot.
const STARTUP_VARIABLES: [&str; 6] = ["HOME", "USER", "PATH", "ZDOTDIR", "ENV", "BASH_ENV"];

/// A start of a login shell command that asks for a snapshot.
pub(crate) struct SnapshotRequest {
    shell: Shell,
    key: SnapshotKey,
    /// The variables that the client sent in `env`.
    overlay: BTreeMap<String, String>,
}

/// Working directory and environment of a command.
pub(crate) struct CommandContext<'a> {
    pub(crate) cwd: &'a Path,
    pub(crate) policy: Option<EnvPolicy>,
    /// The variables that the client sent in `env`. No profile overrides them.
    pub(crate) overlay: BTreeMap<String, String>,
    /// The environment that results from `policy` and `overlay`.
    pub(crate) env: &'a Variables,
    /// The policy that the command is confined by.
    pub(crate) sandbox: Option<SandboxContext>,
}

/// Starts with equal keys share a snapshot.
#[derive(Clone, PartialEq, Eq)]
struct SnapshotKey {
    snapshot: ShellSnapshot,
    cwd: PathBuf,
    policy: Option<EnvPolicy>,
    startup_variables: [Option<OsString>; STARTUP_VARIABLES.len()],
    /// The login shell runs under the policy of the command, and may find other files under another policy.
    sandbox: Option<SandboxContext>,
}

/// Arguments and environment with which a program is executed.
pub(crate) struct Execution {
    pub(crate) argv: Vec<OsString>,
    pub(crate) env: Variables,
}

impl SnapshotRequest {
    /// Checks the request of a client for a snapshot. None: a snapshot is not possible for this command, which then
    /// runs as it is. Only commands of the form `SHELL -lc SCRIPT [NAME [ARGUMENT...]]` can begin with a snapshot.
    pub(crate) fn check(
        snapshot: ShellSnapshot,
        argv: &[String],
        arg0: Option<&str>,
        context: CommandContext<'_>,
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
        // A shell whose `arg0` begins with a dash runs its profile, whatever its flags are, so a snapshot saves
        // nothing.
        if arg0.unwrap_or_default().starts_with('-') {
            return Ok(None);
        }
        let CommandContext { cwd, policy, overlay, env, sandbox } = context;
        let startup_variables = STARTUP_VARIABLES.map(|name| env.get(OsStr::new(name)).cloned());
        Ok(Some(Self {
            shell,
            key: SnapshotKey { snapshot, cwd: cwd.to_owned(), policy, startup_variables, sandbox },
            overlay,
        }))
    }

    /// The execution that restores the snapshot and then runs the command of `argv`. None if there is no snapshot;
    /// then the command runs as it is. `snapshots` are those of the session. If none of them fits, one is captured
    /// with the runner that `new_runner` returns.
    pub(crate) async fn restore<R: ShellRunner>(
        &self,
        snapshots: &Snapshots,
        new_runner: impl FnOnce() -> R,
        argv: &[String],
        arg0: Option<&str>,
        env: &Variables,
    ) -> Option<Execution> {
        let capture = async || self.capture(&new_runner(), &snapshots.cancel, env).await;
        let snapshot = snapshots.get_or_capture(&self.key, capture).await?;
        let state_variables = snapshot.state_variables(env);
        let mut command = script::restore_command(self.shell, state_variables.len());
        command.insert(0, self.key.snapshot.shell.path.as_str().into());
        // `$0` of the command must be the same as without a snapshot.
        let name = argv.get(3).map_or_else(|| arg0.unwrap_or(&argv[0]), String::as_str);
        command.push(name.into());
        command.push(argv[2].as_str().into());
        command.push(snapshot.before_command());
        command.extend(argv.iter().skip(4).map(OsString::from));
        let mut env = snapshot.environment(env, &self.overlay);
        env.extend(state_variables);
        Some(Execution { argv: command, env })
    }

    async fn capture(&self, runner: &impl ShellRunner, cancel: &StartCancel, env: &Variables) -> Option<Snapshot> {
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
        let context =
            CommandContext { cwd: Path::new("/"), policy: None, overlay: BTreeMap::new(), env: &env, sandbox: None };
        let checked = SnapshotRequest::check(snapshot, &argv, arg0, context);
        checked.map(|request| request.is_some()).map_err(|error| error.message)
    }

    #[test]
    fn only_lc_commands_of_the_named_shell_whose_arg0_has_no_leading_dash_can_begin_with_a_snapshot() {
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
    fn a_bad_scope_and_an_unknown_shell_are_refused_with_the_texts_of_the_published_protocol() {
        let scope = "shell snapshot scope must be non-empty and at most 256 bytes";
        assert_eq!(check("bash", "", &[], None).unwrap_err(), scope);
        assert_eq!(check("bash", &"s".repeat(257), &[], None).unwrap_err(), scope);
        assert_eq!(check("bash", &"s".repeat(256), &[], None), Ok(false));
        let shell = "shell snapshots are unsupported for shell `fish`";
        assert_eq!(check("fish", "s", &["/bin/bash", "-lc", "true"], None).unwrap_err(), shell);
        assert_eq!(
            check("fish", "s", &["/bin/bash", "-c", "true"], None),
            Ok(false),
            "a command that is no login command needs no known shell"
        );
    }
}
