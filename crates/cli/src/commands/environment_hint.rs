//! Tells a person at a shell which environment (which machine) the shell is in, by a variable, a line at the start
//! and a prefix of the prompt. The prefix uses only variables that the shell itself has for its prompt. No file of
//! the user is changed, and a profile can still set a prompt of its own:
//!
//! - bash runs `PROMPT_COMMAND` before each prompt, after the profile, so the prefix comes before the prompt that the
//!   profile has made; if the profile replaces `PROMPT_COMMAND`, there is no prefix;
//! - zsh takes its first prompt from `PROMPT`; if a profile replaces it, there is no prefix;
//! - other shells get no prefix.

use client::{EnvironmentLocation, StartParams};

use super::destination::Destination;
use crate::terminal_text::readable;

/// Variable with the name of the environment, in every shell that `exec-server shell` opens. The user's own prompt
/// can show it.
const VARIABLE: &str = "EXEC_SERVER_ENVIRONMENT";

/// The longest name in a prompt, in characters.
const LONGEST_NAME: usize = 40;

/// The names of one environment that the prompt and the first line of a shell show.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EnvironmentHint {
    /// A short name without characters that a shell would expand in a prompt.
    name: String,
    /// How the environment is reached, without secrets.
    address: String,
    is_local: bool,
}

impl EnvironmentHint {
    pub(crate) fn new(destination: &Destination) -> Self {
        let address = destination.address();
        let name = match (&destination.name, &destination.location) {
            (Some(name), _) => name.as_str(),
            (None, EnvironmentLocation::Ssh { host, .. }) => host.rsplit('@').next().unwrap_or(host),
            (None, EnvironmentLocation::Url { .. }) => host_and_port(&address),
            (None, EnvironmentLocation::Remote(location)) => location.environment_id.as_str(),
            (None, EnvironmentLocation::Local | EnvironmentLocation::Program { .. }) => address.as_str(),
        };
        Self { name: plain(name), is_local: matches!(destination.location, EnvironmentLocation::Local), address }
    }

    /// Sets [`VARIABLE`], unless the user has set it with `--env`, whose values are in `given`. A value that comes
    /// from an outer shell of `exec-server shell` is replaced.
    pub(crate) fn set_variable(&self, params: &mut StartParams, given: &[String]) {
        if !given.iter().any(|text| text.split('=').next() == Some(VARIABLE)) {
            params.env.insert(VARIABLE.to_owned(), self.name.clone());
        }
    }

    /// Puts the name before the prompt of a shell of this kind (`bash`, `zsh`, …). A variable that the user has set
    /// stays as it is. A shell on this machine gets no prefix.
    pub(crate) fn mark_prompt(&self, params: &mut StartParams, shell: &str) {
        let name = &self.name;
        let (variable, value) = match shell {
            _ if self.is_local => return,
            "bash" => (
                "PROMPT_COMMAND",
                format!(r#"case ${{PS1-}} in "({name}) "*) ;; *) PS1="({name}) ${{PS1-}}" ;; esac"#),
            ),
            // The usual prompt of zsh: the name of the machine, and `#` for root.
            "zsh" => ("PROMPT", format!("({name}) %m%# ")),
            _ => return,
        };
        params.env.entry(variable.to_owned()).or_insert(value);
    }

    /// The line that a person sees before the first prompt. `is_kept`: the shell is in a kept session, which outlives
    /// this command, so the keys `~.` leave the shell running.
    pub(crate) fn greeting(&self, is_kept: bool) -> String {
        let escape = if is_kept { "leaves the shell running" } else { "hangs up" };
        let name = &self.name;
        let address = if self.address == *name { String::new() } else { format!(" ({})", readable(&self.address)) };
        format!("[exec-server: connected to {name}{address}; ~. {escape}]\n")
    }
}

/// The part of a URL that tells servers apart: host and port, or the name of a socket.
fn host_and_port(url: &str) -> &str {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme == "unix" { rest.rsplit('/').next().unwrap_or(rest) } else { rest.split('/').next().unwrap_or(rest) }
}

/// The name with `_` for every character that a shell could expand in a prompt, or that a terminal would not show.
fn plain(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:[]".contains(c);
    name.chars().take(LONGEST_NAME).map(|c| if is_plain(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::args::TargetArgs;
    use super::*;

    fn hint(flags: TargetArgs) -> EnvironmentHint {
        EnvironmentHint::new(&Destination::choose(&flags).unwrap())
    }

    fn params() -> StartParams {
        StartParams::new("1", ["sh"], "file:///".parse().unwrap())
    }

    #[test]
    fn a_name_is_short_and_has_no_characters_that_a_shell_expands() {
        for (url, name) in [
            ("ws://10.0.0.5:7000/x", "10.0.0.5:7000"),
            ("wss://me:secret@[::1]:7000?token=secret", "[::1]:7000"),
            ("unix:///run/user/1000/exec.sock", "exec.sock"),
            ("unix:///tmp/$(touch x)`y`\\!%n\u{1b}[1m\n", "__touch_x__y____n_[1m_"),
        ] {
            let flags = TargetArgs { connect: Some(url.to_owned()), ..TargetArgs::default() };
            assert_eq!(hint(flags).name, name);
        }
        assert_eq!(plain(&"x".repeat(1000)).len(), LONGEST_NAME);
    }

    #[test]
    fn the_greeting_has_the_name_the_address_and_the_effect_of_the_escape_keys() {
        let flags = TargetArgs { ssh: Some("me@build-host".to_owned()), ..TargetArgs::default() };
        let greeting = "[exec-server: connected to build-host (ssh me@build-host); ~. hangs up]\n";
        assert_eq!(hint(flags).greeting(false), greeting);
    }

    #[test]
    fn variables_of_the_user_are_left_alone() {
        let hint = hint(TargetArgs { ssh: Some("h".to_owned()), ..TargetArgs::default() });
        let mut start = params();
        for name in ["PROMPT_COMMAND", "PROMPT", VARIABLE] {
            start.env.insert(name.to_owned(), "mine".to_owned());
        }
        let before = start.env.clone();
        hint.set_variable(&mut start, &[format!("{VARIABLE}=mine")]);
        for shell in ["bash", "zsh", "sh"] {
            hint.mark_prompt(&mut start, shell);
        }
        assert_eq!(start.env, before);
    }

    #[test]
    fn a_shell_whose_prompt_cannot_be_marked_gets_only_the_variable_which_replaces_an_inherited_one() {
        let hint = hint(TargetArgs { ssh: Some("h".to_owned()), ..TargetArgs::default() });
        let mut start = params();
        start.env.insert(VARIABLE.to_owned(), "outer".to_owned());
        hint.set_variable(&mut start, &[]);
        hint.mark_prompt(&mut start, "sh");
        assert_eq!(start.env.into_iter().collect::<Vec<_>>(), [(VARIABLE.to_owned(), "h".to_owned())]);
    }
}
