//! What the shells are told: to report their state, and to begin with one.
//!
//! A profile may redefine any builtin as a function or an alias, set traps and options, and move or close the standard streams. So the
//! reports use only what a profile cannot take away:
//!
//! - Command words are quoted, which switches aliases off, and no reserved word is used.
//! - In bash, special builtins come before functions while `POSIXLY_CORRECT` is set. In zsh, an assignment to `dis_functions` disables a
//!   function. In other shells a special builtin cannot be a function.
//! - Everything happens in subshells, whose failure `||` catches, so that neither `errexit` nor a trap on errors ends the shell.
//! - Reports go to a descriptor that no profile knows.
//!
//! A report is written before and after the file that only interactive shells read by themselves: that file may end the shell or never end.
//! Each report begins with the environment, for which an external program is enough, so that a shell that cannot tell its state can at least
//! tell its environment.

use std::ffi::OsString;

use super::state::Markers;

/// Variables that carry a state to the shell that restores it.
pub(super) const STATE_VARIABLE: &str = "__CODEX_SHELL_SNAPSHOT_STATE_";

/// Where the shell reports. Profiles use single digits, 200 and 255, and shells count up from 10.
pub(super) const REPORT_DESCRIPTOR: i32 = 93;

/// How many reports a shell writes that comes to the end of its script.
pub(super) const REPORTS: usize = 2;

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

    /// What stands before the name of a builtin so that no function takes its place.
    pub(super) fn builtin(self) -> &'static str {
        match self {
            Self::Bash | Self::Zsh => "builtin ",
            Self::Sh => "",
        }
    }
}

/// The script that reports, reads the file that interactive shells read, and reports again.
pub(super) fn capturing(shell: Shell, markers: &Markers) -> String {
    let (report, rc, end) = match shell {
        // A subshell with a trap outlives a file without a newline at its end: bash 5.2 otherwise replaces the subshell by the last
        // command of such a file.
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
    let report = report
        .replace("@END_OF_ENVIRONMENT@", &markers.end_of_environment)
        .replace("@END_OF_STATE@", &markers.end_of_state)
        .replace("@DESCRIPTOR@", &REPORT_DESCRIPTOR.to_string());
    format!("{report}({rc}\n{report}) || __codex_s=\n{end}\n")
}

/// Flags, and a script that restores a state from so many variables and then runs its first argument with the arguments from the third on.
/// The second argument is the part of the state that comes directly before the command.
pub(super) fn restoring(shell: Shell, variables: usize) -> Vec<OsString> {
    // None of these reads a startup file that the captured shell has read before, but for `/etc/zshenv`, which zsh always reads. Bash
    // reads `~/.bashrc` if it takes itself for a remote shell, unless it is told not to.
    let (flags, own_script): (&[_], _) = match shell {
        Shell::Bash => (&["--norc", "-pc"], "BASH_EXECUTION_STRING=$1; "),
        Shell::Zsh => (&["-fc"], "ZSH_EXECUTION_STRING=$1; "),
        Shell::Sh => (&["-c"], ""),
    };
    let builtin = shell.builtin();
    let names: Vec<_> = (0..variables).map(|number| format!("{STATE_VARIABLE}{number}")).collect();
    let state: String = names.iter().map(|name| format!("${{{name}}}")).collect();
    // What a shell says it was told is what the client told it. The variables are unset in the same step in which the state is read, before
    // the state can give any of these words another meaning. The command is read after it, because it may use its aliases, and in the
    // line of the `shift`, so that its lines keep their numbers.
    let script = format!(
        "{own_script}{builtin}eval \"{builtin}unset {names}; {state}\" >/dev/null; {builtin}eval \"\\\\{builtin}shift 2; $2$1\"",
        names = names.join(" ")
    );
    flags.iter().map(OsString::from).chain([script.into()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_put_together_and_its_variables_removed() {
        assert_eq!(
            restoring(Shell::Sh, 2)[1],
            "eval \"unset __CODEX_SHELL_SNAPSHOT_STATE_0 __CODEX_SHELL_SNAPSHOT_STATE_1; \
             ${__CODEX_SHELL_SNAPSHOT_STATE_0}${__CODEX_SHELL_SNAPSHOT_STATE_1}\" >/dev/null; eval \"\\\\shift 2; $2$1\""
        );
        let flags = [Shell::Bash, Shell::Zsh, Shell::Sh].map(|shell| {
            let mut command = restoring(shell, 1);
            command.pop();
            command
        });
        assert_eq!(flags, [vec!["--norc", "-pc"], vec!["-fc"], vec!["-c"]]);
    }

    #[test]
    fn every_script_reports_twice() {
        let markers = Markers::new("n");
        for shell in [Shell::Bash, Shell::Zsh, Shell::Sh] {
            let script = capturing(shell, &markers);
            assert_eq!(script.matches(&markers.end_of_state).count(), REPORTS, "{shell:?}");
            assert!(!script.contains('@') || shell == Shell::Zsh, "{shell:?}: {script}");
        }
    }
}
