//! A captured state as a value: taken apart, and laid over the environment of another start.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use protocol::EnvPolicy;

use super::script::STATE_VARIABLE;
use crate::environment::{Variables, permits};

/// The kernel takes 128 KiB in one variable.
const VARIABLE_BYTES: usize = 60 << 10;
/// What a shell keeps for itself: where it is, how deep it is nested, what it ran last.
const OF_THE_SHELL: [&str; 4] = ["PWD", "OLDPWD", "SHLVL", "_"];
/// How bash exports a function. The state has them already.
const EXPORTED_FUNCTION: &[u8] = b"BASH_FUNC_";

/// What a shell has written down.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Captured {
    state: Vec<u8>,
    env: Variables,
}

impl Captured {
    /// Takes apart what the script has written. None if something of it is missing.
    pub(super) fn parse(output: &[u8], marker: &str) -> Option<Self> {
        let start = output.windows(marker.len()).position(|window| window == marker.as_bytes())?;
        let (state, env) = split_at_byte(&output[start..], 0)?;
        let mut variables = Variables::new();
        let env = env.strip_suffix(&[0])?;
        for variable in env.split(|&byte| byte == 0) {
            let (name, value) = split_at_byte(variable, b'=')?;
            variables.insert(OsString::from_vec(name.to_vec()), OsString::from_vec(value.to_vec()));
        }
        Some(Self { state: state.to_vec(), env: variables })
    }
}

/// What a profile does to a shell.
#[derive(Debug)]
pub(super) struct Snapshot {
    state: Vec<u8>,
    changes: Vec<Change>,
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
    pub(super) fn new(captured: Captured, env: &Variables, policy: Option<&EnvPolicy>) -> Self {
        let mut after = captured.env;
        let mut changes = Vec::new();
        for (name, before) in env {
            let after = after.remove(name);
            if after.as_ref() != Some(before) {
                changes.push(Change { name: name.clone(), before: Some(before.clone()), after });
            }
        }
        changes.extend(after.into_iter().map(|(name, after)| Change { name, before: None, after: Some(after) }));
        changes.retain(|change| !is_of_the_shell(&change.name) && permits(policy, &change.name));
        Self { state: captured.state, changes }
    }

    /// The environment of a start that begins with this. What the start itself says otherwise than the one that was captured stays.
    pub(super) fn environment(&self, env: &Variables) -> Variables {
        let mut result = env.clone();
        for Change { name, before, after } in &self.changes {
            if env.get(name) != before.as_ref() {
                continue;
            }
            match after {
                Some(value) => result.insert(name.clone(), value.clone()),
                None => result.remove(name),
            };
        }
        result
    }

    /// The state in variables, none of which ends inside a character.
    pub(super) fn state_variables(&self) -> Vec<(OsString, OsString)> {
        let mut variables = Vec::new();
        let mut rest = self.state.as_slice();
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
}

fn is_of_the_shell(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    OF_THE_SHELL.iter().any(|own| name == *own)
        || bytes.starts_with(EXPORTED_FUNCTION)
        || bytes.starts_with(STATE_VARIABLE.as_bytes())
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
        Captured { state: Vec::new(), env: vars(env) }
    }

    #[test]
    fn output_is_taken_apart_from_its_marker_on() {
        let parsed = Captured::parse(b"noise\n# M\nstate\n\0A=1\0B=x=y\n\0", "# M").unwrap();
        assert_eq!(parsed, Captured { state: b"# M\nstate\n".to_vec(), env: vars([("A", "1"), ("B", "x=y\n")]) });
        for broken in [&b"state\0A=1\0"[..], b"# M\nstate", b"# M\nstate\0", b"# M\nstate\0A=1", b"# M\0A\0"] {
            assert_eq!(Captured::parse(broken, "# M"), None, "{broken:?}");
        }
    }

    #[test]
    fn what_the_profile_did_is_laid_over_another_start() {
        let first = vars([("PATH", "/bin"), ("GONE", "1"), ("TURN", "1"), ("KEPT", "k")]);
        let after = [("PATH", "/mine:/bin"), ("TURN", "1"), ("KEPT", "k"), ("NEW", "n"), ("PWD", "/"), ("_", "env")];
        let snapshot = Snapshot::new(captured(after), &first, None);
        assert_eq!(
            snapshot.environment(&first),
            vars([("PATH", "/mine:/bin"), ("TURN", "1"), ("KEPT", "k"), ("NEW", "n")])
        );
        let second = vars([("PATH", "/bin"), ("TURN", "2"), ("NEW", "from the client")]);
        let expected = vars([("PATH", "/mine:/bin"), ("TURN", "2"), ("NEW", "from the client")]);
        assert_eq!(snapshot.environment(&second), expected, "what the client says differently wins");
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
        let environment = |policy: &EnvPolicy| Snapshot::new(captured(after), &base, Some(policy)).environment(&base);
        assert_eq!(environment(&policy), vars([("SET", "policy"), ("FINE", "f")]));
        let only = EnvPolicy { include_only: vec!["API*".into()], ignore_default_excludes: true, ..policy };
        assert_eq!(environment(&only), vars([("SET", "policy"), ("API_KEY", "k")]));
    }

    #[test]
    fn a_long_state_is_split_between_characters() {
        let text = format!("x{}", "é".repeat(VARIABLE_BYTES));
        let snapshot = Snapshot { state: text.clone().into_bytes(), changes: Vec::new() };
        let variables = snapshot.state_variables();
        assert_eq!(variables.len(), 3);
        assert_eq!(variables[2].0, "__CODEX_SHELL_SNAPSHOT_STATE_2");
        assert!(variables.iter().all(|(_, chunk)| chunk.len() <= VARIABLE_BYTES && chunk.to_str().is_some()));
        let joined: Vec<u8> = variables.into_iter().flat_map(|(_, chunk)| chunk.into_vec()).collect();
        assert_eq!(joined, text.into_bytes());
    }
}
