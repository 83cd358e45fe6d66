//! A captured state as a value: taken apart, and laid over the environment of another start.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use protocol::EnvPolicy;

use super::restore::Restore;
use super::script::{STATE_VARIABLE, Shell};
use crate::environment::{Variables, permits};

/// The kernel takes 128 KiB in one variable.
const VARIABLE_BYTES: usize = 60 << 10;
/// What a shell keeps for itself: where it is, how deep it is nested, what it ran last. `POSIXLY_CORRECT` is set by the capture.
const OF_THE_SHELL: [&str; 5] = ["PWD", "OLDPWD", "SHLVL", "_", "POSIXLY_CORRECT"];

/// The items that end the two parts of a report. Nothing that a profile prints is one of them.
pub(super) struct Markers {
    /// A variable that `env` is given, so that it prints it last.
    pub(super) end_of_environment: String,
    /// The last item of the state.
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

/// One report of a shell.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Captured {
    env: Variables,
    /// What the script of the shell lists; empty if the shell could tell its environment only.
    state: Vec<Vec<u8>>,
}

impl Captured {
    /// The last environment and the last state that are complete. None without an environment.
    pub(super) fn parse(output: &[u8], markers: &Markers) -> Option<Self> {
        let (mut env, mut state) = (None, Vec::new());
        let mut items: Vec<&[u8]> = Vec::new();
        // What follows the last NUL is not a whole item.
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

/// What a profile does to a shell.
#[derive(Debug)]
pub(super) struct Snapshot {
    restore: Restore,
    changes: Vec<Change>,
    /// Names that the profile exports and the policy excludes.
    excluded: Vec<OsString>,
}

/// A variable that the profile sets, changes or removes.
#[derive(Debug)]
struct Change {
    name: OsString,
    before: Option<OsString>,
    after: Option<OsString>,
}

impl Snapshot {
    /// What has changed since the shell was started in `env`, as far as the policy lets it through. The policy is about names; where it says
    /// to begin does not matter here, because the profile has added these on its own.
    pub(super) fn new(shell: Shell, captured: Captured, env: &Variables, policy: Option<&EnvPolicy>) -> Self {
        let mut after = captured.env;
        let mut changes = Vec::new();
        for (name, before) in env {
            let after = after.remove(name);
            if after.as_ref() != Some(before) {
                changes.push(Change { name: name.clone(), before: Some(before.clone()), after });
            }
        }
        changes.extend(after.into_iter().map(|(name, after)| Change { name, before: None, after: Some(after) }));
        changes.retain(|change| !is_of_the_shell(&change.name));
        let (changes, excluded): (_, Vec<_>) =
            changes.into_iter().partition(|change: &Change| permits(policy, &change.name));
        let excluded = excluded.into_iter().map(|change| change.name).collect();
        Self { restore: Restore::new(shell, &captured.state), changes, excluded }
    }

    /// The environment of a start that begins with this. What the start itself says in `overlay`, or says otherwise than the one that was
    /// captured, stays.
    pub(super) fn environment(&self, env: &Variables, overlay: &BTreeMap<String, String>) -> Variables {
        let mut result = env.clone();
        for Change { name, before, after } in &self.changes {
            let is_the_clients = name.to_str().is_some_and(|name| overlay.contains_key(name));
            if is_the_clients || env.get(name) != before.as_ref() {
                continue;
            }
            match after {
                Some(value) => result.insert(name.clone(), value.clone()),
                None => result.remove(name),
            };
        }
        result
    }

    /// The state in variables, none of which ends inside a character. It begins by removing what a startup file that runs again may have
    /// exported although the policy excludes it, unless the start has it in `env`.
    pub(super) fn state_variables(&self, env: &Variables) -> Vec<(OsString, OsString)> {
        let excluded = self.excluded.iter().filter(|name| !env.contains_key(*name));
        let state = self.restore.state(excluded.map(OsString::as_os_str));
        let mut variables = Vec::new();
        let mut rest = state.as_slice();
        while !rest.is_empty() {
            let mut end = rest.len().min(VARIABLE_BYTES);
            let continues = |byte: Option<&u8>| byte.is_some_and(|byte| byte & 0b1100_0000 == 0b1000_0000);
            let whole = end;
            while whole - end < 3 && continues(rest.get(end)) {
                end -= 1;
            }
            let (chunk, after) = rest.split_at(end);
            let name = format!("{STATE_VARIABLE}{}", variables.len());
            variables.push((name.into(), OsString::from_vec(chunk.to_vec())));
            rest = after;
        }
        variables
    }

    /// The part of the state that comes directly before the command.
    pub(super) fn before_command(&self) -> OsString {
        OsString::from_vec(self.restore.before_command.clone())
    }
}

fn is_of_the_shell(name: &OsStr) -> bool {
    OF_THE_SHELL.iter().any(|own| name == *own) || name.as_bytes().starts_with(b"__codex_")
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

    fn captured<const N: usize>(env: [(&str, &str); N]) -> Captured {
        Captured { env: vars(env), state: Vec::new() }
    }

    #[test]
    fn the_last_environment_and_the_last_state_count() {
        let markers = Markers { end_of_environment: "E=1".into(), end_of_state: "# S".into() };
        let parse = |output: &str| Captured::parse(output.as_bytes(), &markers);
        let report = |env, state: &[&str]| {
            Some(Captured { env, state: state.iter().map(|item| item.as_bytes().to_vec()).collect() })
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
    fn what_the_profile_did_is_laid_over_another_start() {
        let first = vars([("PATH", "/bin"), ("GONE", "1"), ("TURN", "1"), ("KEPT", "k")]);
        let after = [("PATH", "/mine:/bin"), ("TURN", "1"), ("KEPT", "k"), ("NEW", "n"), ("PWD", "/"), ("_", "env")];
        let snapshot = Snapshot::new(Shell::Bash, captured(after), &first, None);
        assert_eq!(
            snapshot.environment(&first, &BTreeMap::new()),
            vars([("PATH", "/mine:/bin"), ("TURN", "1"), ("KEPT", "k"), ("NEW", "n")])
        );
        let second = vars([("PATH", "/bin"), ("TURN", "2"), ("NEW", "from the client")]);
        let expected = vars([("PATH", "/mine:/bin"), ("TURN", "2"), ("NEW", "from the client")]);
        assert_eq!(
            snapshot.environment(&second, &BTreeMap::new()),
            expected,
            "what the client says differently wins"
        );
        let overlay = [("PATH".to_owned(), "/bin".to_owned())].into();
        assert_eq!(snapshot.environment(&second, &overlay), second, "what the client says wins");
    }

    #[test]
    fn the_policy_filters_what_the_profile_exports_and_not_where_it_began() {
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
        let snapshot = |policy: &EnvPolicy| Snapshot::new(Shell::Bash, captured(after), &base, Some(policy));
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
        let restore = Restore { shell: Shell::Sh, state: text.clone().into_bytes(), before_command: Vec::new() };
        let snapshot = Snapshot { restore, changes: Vec::new(), excluded: Vec::new() };
        let variables = snapshot.state_variables(&Variables::new());
        assert_eq!(variables.len(), 3);
        assert_eq!(variables[2].0, "__CODEX_SHELL_SNAPSHOT_STATE_2");
        assert!(variables.iter().all(|(_, chunk)| chunk.len() <= VARIABLE_BYTES && chunk.to_str().is_some()));
        let joined: Vec<u8> = variables.into_iter().flat_map(|(_, chunk)| chunk.into_vec()).collect();
        assert!(joined == format!("{text}\n").into_bytes(), "the parts make the whole, which ends with a line");
    }
}
