//! The scripts of shell snapshots (see `snapshot.rs`): one with which a shell reports its state, and one with which a shell begins in a
//! reported state.
//!
//! A profile may redefine any builtin as a function or an alias, set traps and options, and move or close the standard streams. So the
//! reporting scripts use only what a profile cannot change:
//!
//! - Command words are quoted, which switches aliases off, and no reserved word is used.
//! - In bash, special builtins take precedence over functions while `POSIXLY_CORRECT` is set. In zsh, an assignment to `dis_functions` disables a
//!   function. In other shells a special builtin cannot be a function.
//! - Everything happens in subshells, whose failure `||` catches, so that neither `errexit` nor a trap on errors ends the shell.
//! - Reports go to a descriptor that no profile knows.
//!
//! A login shell does not read the startup file of interactive shells, for example `~/.bashrc`, so the script reads it. That file may end
//! the shell or never end. So one report is written before the file is read and one afterwards. Each report begins with the environment,
//! which an external program prints. So even a shell that cannot report its options and functions reports its environment.

use std::ffi::OsString;

use super::state::Markers;

/// Prefix of the environment variables that carry a state to the shell that restores it.
pub(super) const STATE_VARIABLE: &str = "__CODEX_SHELL_SNAPSHOT_STATE_";

/// The descriptor to which the shell writes its reports. Profiles and shells do not use this number: profiles use single digits, 200 and 255,
/// and shells count up from 10.
pub(super) const REPORT_DESCRIPTOR: i32 = 93;

/// Number of reports that a shell has written when it reaches the end of its script.
pub(super) const REPORT_COUNT: usize = 2;

/// A shell that can be captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shell {
    Bash,
    Zsh,
    /// The shell that is installed as `sh`. If it cannot list its functions, they are not restored.
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

    /// The prefix of a builtin that prevents a function of the same name from being called.
    pub(super) fn builtin(self) -> &'static str {
        match self {
            Self::Bash | Self::Zsh => "builtin ",
            Self::Sh => "",
        }
    }
}

/// The script that reports the state, reads the startup file of interactive shells, and reports again.
pub(super) fn capture_script(shell: Shell, markers: &Markers) -> String {
    let (report, rc, end) = match shell {
        // The trap keeps the subshell alive. Without a trap, bash 5.2 replaces the subshell by the last command of a
        // `.bashrc` that does not end with a newline, and the second report would be missing.
        Shell::Bash => (
            include_str!("report/report.bash"),
            r#"\trap : USR2; __codex_r=${BASH_ENV:+/dev/null}; \. "${__codex_r:-${HOME-}/.bashrc}""#,
            r"POSIXLY_CORRECT=y; \trap - EXIT; \exit",
        ),
        Shell::Zsh => (
            include_str!("report/report.zsh"),
            r#"\. "${ZDOTDIR:-${HOME-}}/.zshrc""#,
            r"dis_functions[trap]=: dis_functions[exit]=:; \trap - EXIT; \exit",
        ),
        Shell::Sh => (include_str!("report/report.sh"), r#"\. "${ENV:-/dev/null}""#, r"\trap - 0; \exit"),
    };
    // Lines that begin with `#` explain the script to its reader. A shell must not get them, because a zsh profile
    // can change the character that begins a comment.
    let report = report
        .split_inclusive('\n')
        .filter(|line| !line.starts_with('#'))
        .collect::<String>()
        .replace("@END_OF_ENVIRONMENT@", &markers.end_of_environment)
        .replace("@END_OF_STATE@", &markers.end_of_state)
        .replace("@DESCRIPTOR@", &REPORT_DESCRIPTOR.to_string());
    format!("{report}({rc}\n{report}) || __codex_s=\n{end}\n")
}

/// Flags for a shell, and a script that restores a state from `variable_count` environment variables and then runs a
/// command. The arguments of the script are the command, the part of the state that comes directly before the
/// command, and the arguments of the command.
pub(super) fn restore_command(shell: Shell, variable_count: usize) -> Vec<OsString> {
    // With these flags no shell reads a startup file that the captured shell has read, except `/etc/zshenv`, which zsh always reads. Without
    // `--norc`, bash would read `~/.bashrc` if it takes itself for a remote shell.
    let (flags, set_execution_string): (&[_], _) = match shell {
        Shell::Bash => (&["--norc", "-pc"], "BASH_EXECUTION_STRING=$1; "),
        Shell::Zsh => (&["-fc"], "ZSH_EXECUTION_STRING=$1; "),
        Shell::Sh => (&["-c"], ""),
    };
    let builtin = shell.builtin();
    let names: Vec<_> = (0..variable_count).map(|number| format!("{STATE_VARIABLE}{number}")).collect();
    let state: String = names.iter().map(|name| format!("${{{name}}}")).collect();
    // `BASH_EXECUTION_STRING` and `ZSH_EXECUTION_STRING` are set to the command of the client, as without a snapshot.
    // The variables that carry the state are unset in the same `eval` that restores the state, so that the state
    // cannot redefine `unset` before. The command has an `eval` of its own, because it may use aliases of the state.
    // It begins in the line of the `shift`, so that its line numbers stay the same.
    let script = format!(
        "{set_execution_string}{builtin}eval \"{builtin}unset {names}; {state}\" >/dev/null; {builtin}eval \"\\\\{builtin}shift 2; $2$1\"",
        names = names.join(" ")
    );
    flags.iter().map(OsString::from).chain([script.into()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_joins_the_state_from_its_variables_and_unsets_them() {
        assert_eq!(
            restore_command(Shell::Sh, 2)[1],
            "eval \"unset __CODEX_SHELL_SNAPSHOT_STATE_0 __CODEX_SHELL_SNAPSHOT_STATE_1; \
             ${__CODEX_SHELL_SNAPSHOT_STATE_0}${__CODEX_SHELL_SNAPSHOT_STATE_1}\" >/dev/null; eval \"\\\\shift 2; $2$1\""
        );
    }

    #[test]
    fn the_flags_keep_the_restoring_shell_from_reading_startup_files() {
        let flags = [Shell::Bash, Shell::Zsh, Shell::Sh].map(|shell| {
            let mut command = restore_command(shell, 1);
            command.pop();
            command
        });
        assert_eq!(flags, [vec!["--norc", "-pc"], vec!["-fc"], vec!["-c"]]);
    }

    #[test]
    fn every_script_reports_twice_and_has_no_placeholder_left() {
        let markers = Markers::new("n");
        for shell in [Shell::Bash, Shell::Zsh, Shell::Sh] {
            let script = capture_script(shell, &markers);
            assert_eq!(script.matches(&markers.end_of_state).count(), REPORT_COUNT, "{shell:?}");
            // The script of zsh contains `@` also outside of placeholders.
            assert!(!script.contains('@') || shell == Shell::Zsh, "{shell:?}: {script}");
        }
    }
}
