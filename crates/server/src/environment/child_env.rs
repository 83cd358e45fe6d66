//! The environment of a child process: the variables that the client sent and, if the client also sent a policy, the
//! variables that the policy selects from the environment of the server or sets itself. A few protected variables
//! never reach a child.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use protocol::{EnvInherit, EnvPolicy};

/// Credentials and settings of the server and its host that no child may see, whatever the client asks for.
const PROTECTED: &[&str] = &[
    "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE",
    "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
    "NODE_REPL_AUTH_TOKEN",
    "OPENAI_FEDERATION_RULE_ID",
    "OPENAI_IDENTITY_TOKEN_FILE",
    "OPENAI_WORKLOAD_IDENTITY_CONTEXT",
];

/// Variables in which the server finds its own credentials for a service. No child process inherits them from the
/// server. A client can still set variables with these names for a child, because then the values are the client's own.
pub const CREDENTIAL_VARIABLES: &[&str] = &["EXEC_SERVER_API_KEY", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN"];

/// The variables that [`EnvInherit::Core`] inherits.
const CORE: &[&str] =
    &["PATH", "SHELL", "TMPDIR", "TEMP", "TMP", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "USER"];

/// Variables that a policy excludes unless it sets `ignore_default_excludes`.
const SECRET_PATTERNS: &[&str] = &["*KEY*", "*SECRET*", "*TOKEN*"];

/// Environment variables by name. Names and values that come from this machine may be invalid UTF-8.
pub(crate) type Variables = BTreeMap<OsString, OsString>;

/// The present environment of the server's own process.
pub(crate) fn server_env() -> Variables {
    std::env::vars_os().collect()
}

/// The environment of a child: the variables that `policy` selects from `server` or sets (none without a policy),
/// overridden by `overlay`, the variables that the client sent. [`PROTECTED`] variables are removed at the end.
pub(crate) fn child_env(
    server: &Variables,
    policy: Option<&EnvPolicy>,
    overlay: &BTreeMap<String, String>,
) -> Variables {
    let mut variables = policy.map(|policy| apply(policy, server)).unwrap_or_default();
    variables.extend(overlay.iter().map(|(name, value)| (name.into(), value.into())));
    variables.retain(|name, _| !is_any_of(name, PROTECTED));
    variables
}

/// The variables that the policy selects from `server`, and those that it sets.
fn apply(policy: &EnvPolicy, server: &Variables) -> Variables {
    let mut variables = match policy.inherit {
        EnvInherit::All => server.clone(),
        EnvInherit::Core => {
            server.iter().filter(|(name, _)| is_any_of(name, CORE)).map(|(n, v)| (n.clone(), v.clone())).collect()
        }
        EnvInherit::None => Variables::new(),
    };
    variables.retain(|name, _| !is_excluded(policy, name) && !is_any_of(name, CREDENTIAL_VARIABLES));
    variables.extend(policy.set.iter().map(|(name, value)| (name.into(), value.into())));
    variables.retain(|name, _| is_included(policy, name));
    variables
}

/// Whether a variable that a shell profile exports may reach a child. False if the policy excludes the variable, does
/// not include it or sets it itself, and for [`PROTECTED`] variables.
pub(crate) fn policy_permits(policy: Option<&EnvPolicy>, name: &OsStr) -> bool {
    let by_policy = policy.is_none_or(|policy| {
        let is_set = policy.set.keys().any(|set| name == set.as_str());
        !is_set && !is_excluded(policy, name) && is_included(policy, name)
    });
    by_policy && !is_any_of(name, PROTECTED)
}

fn is_excluded(policy: &EnvPolicy, name: &OsStr) -> bool {
    let looks_secret = || SECRET_PATTERNS.iter().any(|pattern| matches(pattern, name));
    !policy.ignore_default_excludes && looks_secret() || policy.exclude.iter().any(|pattern| matches(pattern, name))
}

fn is_included(policy: &EnvPolicy, name: &OsStr) -> bool {
    policy.include_only.is_empty() || policy.include_only.iter().any(|pattern| matches(pattern, name))
}

fn is_any_of(name: &OsStr, names: &[&str]) -> bool {
    names.iter().any(|known| name.as_bytes().eq_ignore_ascii_case(known.as_bytes()))
}

/// Whether `pattern`, with the wildcards `*` and `?`, matches the whole name without regard to ASCII case. The
/// pattern comes from a client and must not keep the server busy, so the number of steps is at most about the product
/// of both lengths.
fn matches(pattern: &str, name: &OsStr) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut in_pattern, mut in_name) = (0, 0);
    // The last `*`, and the position in the name up to which it matches. If the rest does not match, the `*` takes
    // one byte more.
    let mut retry = None;
    while in_name < name.len() {
        match pattern.get(in_pattern) {
            Some(b'*') => {
                retry = Some((in_pattern, in_name));
                in_pattern += 1;
            }
            Some(&byte) if byte == b'?' || byte.eq_ignore_ascii_case(&name[in_name]) => {
                in_pattern += 1;
                in_name += 1;
            }
            _ => {
                let Some((star, star_end)) = retry else { return false };
                retry = Some((star, star_end + 1));
                in_pattern = star + 1;
                in_name = star_end + 1;
            }
        }
    }
    pattern[in_pattern..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt as _;

    fn vars<const N: usize>(pairs: [(&str, &str); N]) -> Variables {
        pairs.map(|(name, value)| (name.into(), value.into())).into()
    }

    fn strings<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
        pairs.map(|(name, value)| (name.into(), value.into())).into()
    }

    fn policy(inherit: EnvInherit) -> EnvPolicy {
        EnvPolicy {
            inherit,
            ignore_default_excludes: false,
            exclude: vec![],
            set: BTreeMap::new(),
            include_only: vec![],
        }
    }

    #[test]
    fn without_policy_the_child_gets_exactly_what_the_client_sent() {
        let server = vars([("HOME", "/root")]);
        assert_eq!(child_env(&server, None, &BTreeMap::new()), Variables::new());
        assert_eq!(child_env(&server, None, &strings([("A", "1")])), vars([("A", "1")]));
    }

    #[test]
    fn a_policy_excludes_and_sets_variables_the_overlay_overrides_it_and_protected_names_are_removed() {
        let server = vars([
            ("PATH", "/bin"),
            ("API_KEY", "k"),
            ("MY_TOKEN", "t"),
            ("FOO", "f"),
            ("openai_identity_token_file", "x"),
        ]);
        let policy = EnvPolicy {
            exclude: vec!["f*".into()],
            set: strings([("SET", "s"), ("NODE_REPL_AUTH_TOKEN", "no")]),
            ..policy(EnvInherit::All)
        };
        let env = child_env(&server, Some(&policy), &strings([("PATH", "/mine"), ("Node_Repl_Auth_Token", "no")]));
        assert_eq!(env, vars([("PATH", "/mine"), ("SET", "s")]));
    }

    #[test]
    fn credentials_of_the_server_are_not_inherited_but_those_of_the_client_arrive() {
        let server = vars([
            ("EXEC_SERVER_API_KEY", "secret"),
            ("codex_api_key", "secret"),
            ("CODEX_ACCESS_TOKEN", "secret"),
            ("A", "1"),
        ]);
        let policy = EnvPolicy {
            ignore_default_excludes: true,
            set: strings([("CODEX_ACCESS_TOKEN", "client")]),
            ..policy(EnvInherit::All)
        };
        let env = child_env(&server, Some(&policy), &strings([("CODEX_API_KEY", "client")]));
        assert_eq!(env, vars([("A", "1"), ("CODEX_ACCESS_TOKEN", "client"), ("CODEX_API_KEY", "client")]));
    }

    #[test]
    fn a_policy_can_inherit_core_variables_or_none_or_include_only_some() {
        let server = vars([("path", "/bin"), ("HOME", "/h"), ("EDITOR", "vi"), ("API_KEY", "k")]);
        assert_eq!(
            child_env(&server, Some(&policy(EnvInherit::Core)), &BTreeMap::new()),
            vars([("path", "/bin"), ("HOME", "/h")])
        );
        assert_eq!(child_env(&server, Some(&policy(EnvInherit::None)), &BTreeMap::new()), Variables::new());
        let only = EnvPolicy {
            include_only: vec!["HO?E".into(), "api*".into()],
            ignore_default_excludes: true,
            ..policy(EnvInherit::All)
        };
        assert_eq!(child_env(&server, Some(&only), &BTreeMap::new()), vars([("HOME", "/h"), ("API_KEY", "k")]));
    }

    #[test]
    fn names_that_are_not_utf8_are_kept() {
        let odd = OsString::from_vec(vec![b'A', 0xff]);
        let server = Variables::from([(odd.clone(), OsString::from_vec(vec![0xfe]))]);
        assert!(child_env(&server, Some(&policy(EnvInherit::All)), &BTreeMap::new()).contains_key(&odd));
    }

    #[test]
    fn wildcards_match_whole_names_without_regard_to_case() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*b*c", "aXXbYYc", true),
            ("a*b*c", "aXXbYY", false),
            ("?", "", false),
            ("*KEY*", "monkey", true),
            ("a**", "a", true),
            ("*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(matches(pattern, OsStr::new(name)), expected, "{pattern} {name}");
        }
    }
}
