//! What the shells are told: to write down their state, and to begin with one.
//!
//! The scripts that capture first note the options, so that they can go on with options they know, then collect functions, aliases, the
//! umask and options, try whether that can be read back, and write it and the environment to stdout. They end as `env`, so that
//! neither traps nor logout files add anything.

use std::ffi::OsString;

/// Variables that carry a state to the shell that restores it.
pub(super) const STATE_VARIABLE: &str = "__CODEX_SHELL_SNAPSHOT_STATE_";

/// A shell that can be captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shell {
    Bash,
    Zsh,
    /// Whatever `sh` is. One that cannot list its functions loses them.
    Sh,
}

impl Shell {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name {
            "bash" => Some(Self::Bash),
            "zsh" => Some(Self::Zsh),
            "sh" => Some(Self::Sh),
            _ => None,
        }
    }
}

/// The line before the state. Whatever a profile prints is not it.
pub(super) fn marker(nonce: &str) -> String {
    format!("# Snapshot file {nonce}")
}

/// The script that writes the marker, the state, NUL and `env -0`.
pub(super) fn capturing(shell: Shell, marker: &str) -> String {
    let script = match shell {
        Shell::Bash => include_str!("capture.bash"),
        Shell::Zsh => include_str!("capture.zsh"),
        Shell::Sh => include_str!("capture.sh"),
    };
    script.replace("@MARKER@", marker)
}

/// Flags, and a script that restores a state from so many variables and then runs its first argument with the others.
pub(super) fn restoring(shell: Shell, variables: usize) -> Vec<OsString> {
    // None of these reads a startup file that the captured shell has read before.
    let (flags, builtin, own_script) = match shell {
        Shell::Bash => ("-pc", "builtin ", "BASH_EXECUTION_STRING=$1; "),
        Shell::Zsh => ("-fc", "builtin ", "ZSH_EXECUTION_STRING=$1; "),
        Shell::Sh => ("-c", "", ""),
    };
    let names: Vec<_> = (0..variables).map(|number| format!("{STATE_VARIABLE}{number}")).collect();
    let state: String = names.iter().map(|name| format!("${{{name}}}")).collect();
    // What a shell says it was told is what the client told it. On one line, so that it is read before the state can give any of its words another meaning. The command is read after it,
    // because it may use its aliases, and in the line of the `shift`, so that its lines keep their numbers.
    let script = format!(
        "{own_script}{builtin}eval \"{state}\"; {builtin}unset {names}; {builtin}eval \"\\\\{builtin}shift; $1\"",
        names = names.join(" ")
    );
    vec![flags.into(), script.into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_put_together_and_its_variables_removed() {
        assert_eq!(
            restoring(Shell::Sh, 2)[1],
            "eval \"${__CODEX_SHELL_SNAPSHOT_STATE_0}${__CODEX_SHELL_SNAPSHOT_STATE_1}\"; \
             unset __CODEX_SHELL_SNAPSHOT_STATE_0 __CODEX_SHELL_SNAPSHOT_STATE_1; eval \"\\\\shift; $1\""
        );
        let flags = [Shell::Bash, Shell::Zsh, Shell::Sh].map(|shell| restoring(shell, 1)[0].clone());
        assert_eq!(flags, ["-pc", "-fc", "-c"]);
    }

    #[test]
    fn every_script_writes_its_marker() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Sh] {
            assert!(capturing(shell, &marker("n")).contains("'# Snapshot file n'"), "{shell:?}");
        }
    }
}
