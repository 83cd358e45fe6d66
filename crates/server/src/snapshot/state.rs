//! The captured state of a shell (a shell snapshot, see `snapshot.rs`) as a value. This module parses the report of
//! the shell, filters it by the client's policy for variables of the environment, and applies the result to the
//! environment of another start.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use protocol::EnvPolicy;

use super::restore::RestoreScript;
use super::script::{STATE_VARIABLE, Shell};
use crate::environment::{Variables, policy_permits};

/// Longest part of a state in one variable, in bytes. The kernel allows 128 KiB for name and value.
const VARIABLE_BYTES: usize = 60 << 10;
/// Variables that are not restored. A shell maintains all but the last by itself; `POSIXLY_CORRECT` is set by the capture script.
const SHELL_OWN_VARIABLES: [&str; 5] = ["PWD", "OLDPWD", "SHLVL", "_", "POSIXLY_CORRECT"];

/// The items that end the two parts of a report, environment and state. An item is a text that ends with NUL. The
/// markers contain a random nonce, so that no other item equals them.
pub(super) struct Markers {
    /// An assignment that is passed to the program `env`, which prints it after all other variables.
    pub(super) end_of_environment: String,
    /// The item after the last item of the state.
    pub(super) end_of_state: String,
}

impl Markers {
    pub(super) fn new(nonce: &str) -> Self {
        Self {
            end_of_environment: format!("__CODEX_SHELL_SNAPSHOT_ENVIRONMENT={nonce}"),
            end_of_state: format!("# Snapshot file {nonce}"),
        }
    }
}

/// The parsed report of a shell.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ShellReport {
    env: Variables,
    /// Options, umask, aliases and functions, in the form and order of the script in `report/`. Empty if the shell could report only its
    /// environment.
    state: Vec<Vec<u8>>,
}

impl ShellReport {
    /// Takes the last complete environment and the last complete state. None if there is no complete environment.
    pub(super) fn parse(output: &[u8], markers: &Markers) -> Option<Self> {
        let (mut env, mut state) = (None, Vec::new());
        let mut items: Vec<&[u8]> = Vec::new();
        // Bytes after the last NUL are an incomplete item.
        let end = output.iter().rposition(|&byte| byte == 0)?;
        for item in output[..end].split(|&byte| byte == 0) {
            if item == markers.end_of_environment.as_bytes() {
                env = Some(variables(&items));
                items.clear();
            } else if item == markers.end_of_state.as_bytes() {
                state = items.drain(..).map(<[u8]>::to_vec).collect();
            } else {
                items.push(item);
            }
        }
        Some(Self { env: env?, state })
    }
}

fn variables(items: &[&[u8]]) -> Variables {
    let split = items.iter().filter_map(|item| split_at_byte(item, b'='));
    split.map(|(name, value)| (OsString::from_vec(name.to_vec()), OsString::from_vec(value.to_vec()))).collect()
}

/// The changes that a profile makes to a shell.
#[derive(Debug)]
pub(super) struct Snapshot {
    restore: RestoreScript,
    changes: Vec<VariableChange>,
    /// Names of variables that the profile changes although the policy does not permit it.
    excluded: Vec<OsString>,
}

/// A variable that the profile sets, changes or removes.
#[derive(Debug)]
struct VariableChange {
    name: OsString,
    before: Option<OsString>,
    after: Option<OsString>,
}

impl Snapshot {
    /// Compares the report with `env`, the environment in which the shell was started, and keeps the changes that the
    /// policy permits. Only the rules of the policy about names apply. `inherit` does not: a profile may
    /// export variables even if none are inherited.
    pub(super) fn new(shell: Shell, captured: ShellReport, env: &Variables, policy: Option<&EnvPolicy>) -> Self {
        let mut after = captured.env;
        let mut changes = Vec::new();
        for (name, before) in env {
            let after = after.remove(name);
            if after.as_ref() != Some(before) {
                changes.push(VariableChange { name: name.clone(), before: Some(before.clone()), after });
            }
        }
        changes.extend(after.into_iter().map(|(name, after)| VariableChange {
            name,
            before: None,
            after: Some(after),
        }));
        changes.retain(|change| !is_shell_own(&change.name));
        let (changes, excluded): (_, Vec<_>) =
            changes.into_iter().partition(|change: &VariableChange| policy_permits(policy, &change.name));
        let excluded = excluded.into_iter().map(|change| change.name).collect();
        Self { restore: RestoreScript::new(shell, &captured.state), changes, excluded }
    }

    /// The environment of a start that begins with this snapshot. A variable keeps its value in `env` if the client
    /// sent it in `overlay`, or if this value differs from the one with which the captured shell was started.
    pub(super) fn environment(&self, env: &Variables, overlay: &BTreeMap<String, String>) -> Variables {
        let mut result = env.clone();
        for VariableChange { name, before, after } in &self.changes {
            let is_from_client = name.to_str().is_some_and(|name| overlay.contains_key(name));
            if is_from_client || env.get(name) != before.as_ref() {
                continue;
            }
            match after {
                Some(value) => result.insert(name.clone(), value.clone()),
                None => result.remove(name),
            };
        }
        result
    }

    /// The script of the state, split into environment variables, never inside a UTF-8 character. The script begins
    /// by unsetting variables that the policy does not permit: a startup file that runs again, such as `/etc/zshenv`,
    /// may have exported them. Variables in `env` are not unset.
    pub(super) fn state_variables(&self, env: &Variables) -> Vec<(OsString, OsString)> {
        let excluded = self.excluded.iter().filter(|name| !env.contains_key(*name));
        let state = self.restore.state_with_unset(excluded.map(OsString::as_os_str));
        let mut variables = Vec::new();
        let mut rest = state.as_slice();
        while !rest.is_empty() {
            let longest = rest.len().min(VARIABLE_BYTES);
            let is_continuation = |byte: Option<&u8>| byte.is_some_and(|byte| byte & 0b1100_0000 == 0b1000_0000);
            let mut end = longest;
            // A character has at most three continuation bytes; more of them are not UTF-8 and are split anywhere.
            while longest - end < 3 && is_continuation(rest.get(end)) {
                end -= 1;
            }
            let (chunk, after) = rest.split_at(end);
            let name = format!("{STATE_VARIABLE}{}", variables.len());
            variables.push((name.into(), OsString::from_vec(chunk.to_vec())));
            rest = after;
        }
        variables
    }

    /// The part of the script that comes directly before the command of the client.
    pub(super) fn before_command(&self) -> OsString {
        OsString::from_vec(self.restore.before_command.clone())
    }
}

fn is_shell_own(name: &OsStr) -> bool {
    SHELL_OWN_VARIABLES.iter().any(|own| name == *own) || name.as_bytes().starts_with(b"__codex_")
}

fn split_at_byte(bytes: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|&each| each == byte)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::EnvInherit;

    fn vars<const N: usize>(pairs: [(&str, &str); N]) -> Variables {
        pairs.map(|(name, value)| (name.into(), value.into())).into()
    }

    fn report_with_env<const N: usize>(env: [(&str, &str); N]) -> ShellReport {
        ShellReport { env: vars(env), state: Vec::new() }
    }

    #[test]
    fn the_last_complete_environment_and_state_are_used() {
        let markers = Markers { end_of_environment: "E=1".into(), end_of_state: "# S".into() };
        let parse = |output: &str| ShellReport::parse(output.as_bytes(), &markers);
        let report = |env, state: &[&str]| {
            Some(ShellReport { env, state: state.iter().map(|item| item.as_bytes().to_vec()).collect() })
        };
        let full = "A=1\0B=x=y\n\0E=1\0s\0t\0# S\0";
        assert_eq!(parse(full), report(vars([("A", "1"), ("B", "x=y\n")]), &["s", "t"]));
        let second = format!("{full}C=1\0E=1\0u\0# S\0");
        assert_eq!(parse(&second), report(vars([("C", "1")]), &["u"]));
        for cut in ["C=1\0E=1\0u\0# S", "C=1\0E=1\0u", "C=1\0E=1\0"] {
            assert_eq!(parse(&format!("{full}{cut}")), report(vars([("C", "1")]), &["s", "t"]), "{cut}");
        }
        for cut in ["C=1\0E=1", "C=1", "C"] {
            assert_eq!(parse(&format!("{full}{cut}")), parse(full), "{cut}");
        }
        assert_eq!(parse("A=1\0E=1\0s\0"), report(vars([("A", "1")]), &[]));
        for nothing in ["", "A=1\0", "A=1\0E=1", "s\0# S\0"] {
            assert_eq!(parse(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn changes_of_the_profile_are_applied_to_another_start_except_to_values_of_its_own() {
        let first = vars([("PATH", "/bin"), ("GONE", "1"), ("TURN", "1"), ("KEPT", "k")]);
        let after = [("PATH", "/mine:/bin"), ("TURN", "1"), ("KEPT", "k"), ("NEW", "n"), ("PWD", "/"), ("_", "env")];
        let snapshot = Snapshot::new(Shell::Bash, report_with_env(after), &first, None);
        assert_eq!(
            snapshot.environment(&first, &BTreeMap::new()),
            vars([("PATH", "/mine:/bin"), ("TURN", "1"), ("KEPT", "k"), ("NEW", "n")])
        );
        let second = vars([("PATH", "/bin"), ("TURN", "2"), ("NEW", "from the client")]);
        let expected = vars([("PATH", "/mine:/bin"), ("TURN", "2"), ("NEW", "from the client")]);
        assert_eq!(
            snapshot.environment(&second, &BTreeMap::new()),
            expected,
            "a variable that differs from the captured start is not changed"
        );
        let overlay = [("PATH".to_owned(), "/bin".to_owned())].into();
        assert_eq!(snapshot.environment(&second, &overlay), second, "a variable that the client sent is not changed");
    }

    #[test]
    fn the_policy_drops_and_unsets_names_that_the_profile_exports_but_inherit_does_not_apply() {
        let policy = EnvPolicy {
            inherit: EnvInherit::None,
            ignore_default_excludes: false,
            exclude: vec!["DROP*".into()],
            set: [("SET".to_owned(), "policy".to_owned())].into(),
            include_only: vec![],
        };
        let after =
            [("API_KEY", "k"), ("DROPPED", "d"), ("SET", "profile"), ("FINE", "f"), ("NODE_REPL_AUTH_TOKEN", "t")];
        let base = vars([("SET", "policy")]);
        let snapshot = |policy: &EnvPolicy| Snapshot::new(Shell::Bash, report_with_env(after), &base, Some(policy));
        let environment = |policy: &EnvPolicy| snapshot(policy).environment(&base, &BTreeMap::new());
        assert_eq!(environment(&policy), vars([("SET", "policy"), ("FINE", "f")]));
        let state = &snapshot(&policy).state_variables(&vars([("SET", "policy"), ("API_KEY", "the client's")]))[0].1;
        let removed = "builtin unset DROPPED NODE_REPL_AUTH_TOKEN 2>/dev/null\n";
        assert!(state.to_str().unwrap().starts_with(removed), "{state:?}");
        let only = EnvPolicy { include_only: vec!["API*".into()], ignore_default_excludes: true, ..policy };
        assert_eq!(environment(&only), vars([("SET", "policy"), ("API_KEY", "k")]));
    }

    #[test]
    fn a_long_state_is_split_between_characters() {
        let text = format!("x{}", "é".repeat(VARIABLE_BYTES));
        let restore =
            RestoreScript { shell: Shell::Sh, state: text.clone().into_bytes(), before_command: Vec::new() };
        let snapshot = Snapshot { restore, changes: Vec::new(), excluded: Vec::new() };
        let variables = snapshot.state_variables(&Variables::new());
        assert_eq!(variables.len(), 3);
        assert_eq!(variables[2].0, "__CODEX_SHELL_SNAPSHOT_STATE_2");
        assert!(variables.iter().all(|(_, chunk)| chunk.len() <= VARIABLE_BYTES && chunk.to_str().is_some()));
        let joined: Vec<u8> = variables.into_iter().flat_map(|(_, chunk)| chunk.into_vec()).collect();
        assert!(joined == format!("{text}\n").into_bytes(), "the joined parts are the state and a newline");
    }
}
