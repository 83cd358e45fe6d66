//! Composes the script that brings a fresh shell into a captured state (a shell snapshot, see `snapshot.rs`). The state comes from the items
//! that the scripts in `report/` list. This module does the quoting, because a profile may have redefined the commands that a shell would need
//! to quote its state.
//!
//! Functions are restored late, because they may redefine the commands that restore other items. A function called
//! `builtin`, and options that would disturb the restoring commands, are restored directly before the command of the
//! client, when everything else is done.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use super::script::Shell;

/// Options of bash and `sh` that would disturb the restoring commands, and are set directly before the command of the client.
const LATE_OPTIONS: &[&str] = &["errexit", "xtrace", "verbose", "posix"];
/// Options of bash that are not restored, because they matter only at the start of a shell or would stop the shell.
const FIXED_BASH_OPTIONS: &[&str] = &["privileged", "noexec", "onecmd", "login_shell", "restricted_shell"];
/// Options that are on in a new bash.
const DEFAULT_BASH_OPTIONS: &[&str] = &["braceexpand", "hashall", "interactive-comments"];
/// Options of zsh that are not restored, because a running shell cannot change them or they matter only at its start.
const FIXED_ZSH_OPTIONS: &[&str] = &[
    "globalrcs",
    "interactive",
    "login",
    "monitor",
    "privileged",
    "rcs",
    "restricted",
    "shinstdin",
    "singlecommand",
    "zle",
];
/// Options of zsh that would disturb the restoring commands, and are set directly before the command of the client.
const LATE_ZSH_OPTIONS: &[&str] =
    &["errexit", "errreturn", "exec", "sourcetrace", "unset", "verbose", "xtrace", "aliases"];

/// The script that brings a fresh shell into a captured state.
#[derive(Debug)]
pub(super) struct RestoreScript {
    pub(super) shell: Shell,
    /// Restores everything except the items in `before_command`.
    pub(super) state: Vec<u8>,
    /// Goes directly before the command of the client, in the same line. Only the definition of a function `builtin`
    /// can add lines.
    pub(super) before_command: Vec<u8>,
}

impl RestoreScript {
    /// Makes the script from the items that the report of the shell lists. A report with an unexpected number of
    /// items restores nothing.
    pub(super) fn new(shell: Shell, items: &[Vec<u8>]) -> Self {
        let items: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
        let (state, before_command) = match (shell, items.as_slice()) {
            (Shell::Bash, [options, shell_options, _flags, umask, aliases, functions, builtin]) => {
                bash([*options, shell_options], umask, aliases, functions, builtin)
            }
            (Shell::Zsh, [options, umask, aliases, fpath, functions @ ..]) => {
                zsh(options, umask, aliases, fpath, functions)
            }
            (Shell::Sh, [options, _flags, umask, aliases, functions]) => sh(options, umask, aliases, functions),
            _ => Default::default(),
        };
        Self { shell, state, before_command }
    }

    /// The script of the state, preceded by a line that unsets the variables in `removed`. Names that no shell can unset are skipped.
    pub(super) fn state_with_unset<'a>(&self, removed: impl Iterator<Item = &'a OsStr>) -> Vec<u8> {
        let is_name_byte = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let is_name = |name: &&OsStr| {
            let bytes = name.as_bytes();
            bytes.iter().all(is_name_byte) && bytes.first().is_some_and(|first| !first.is_ascii_digit())
        };
        let names: Vec<&[u8]> = removed.filter(is_name).map(OsStr::as_bytes).collect();
        if names.is_empty() {
            // The text must not be empty, because at least one variable has to carry it to the shell.
            return [self.state.as_slice(), b"\n"].concat();
        }
        let names = names.join(&b' ');
        [self.shell.builtin().as_bytes(), b"unset ", &names, b" 2>/dev/null\n", &self.state].concat()
    }
}

/// The state and `before_command` of a [`RestoreScript`] for bash. `options` are the options of `set -o` and those of
/// `shopt` that are on, separated by colons. `builtin` is the definition of a function with this name.
fn bash(options: [&[u8]; 2], umask: &[u8], aliases: &[u8], functions: &[u8], builtin: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let [options, shell_options] = options.map(|list| {
        let names = std::str::from_utf8(list).unwrap_or_default().split(':').filter(|name| !name.is_empty());
        names.filter(|name| !FIXED_BASH_OPTIONS.contains(name)).collect::<Vec<_>>()
    });
    let mut state = Vec::new();
    push_line(&mut state, &[b"builtin umask ", umask]);
    push_line(&mut state, &[aliases]);
    // The flag `-p`, with which the restoring shell is started, has set this option.
    push_line(&mut state, &[b"builtin set +o privileged"]);
    for off in DEFAULT_BASH_OPTIONS.iter().filter(|name| !options.contains(*name)) {
        push_line(&mut state, &[b"builtin set +o ", off.as_bytes()]);
    }
    let is_late = |name: &&&str| LATE_OPTIONS.contains(*name);
    for on in options.iter().filter(|name| !is_late(name) && !DEFAULT_BASH_OPTIONS.contains(name)) {
        push_line(&mut state, &[b"builtin set -o ", on.as_bytes()]);
    }
    // The text of a function has its aliases replaced already. So functions are defined before `expand_aliases` is set.
    let (late, early): (Vec<_>, Vec<_>) = shell_options.into_iter().partition(|name| *name == "expand_aliases");
    push_line(&mut state, &[b"builtin shopt -u ${BASHOPTS//:/ }; builtin shopt -s ", early.join(" ").as_bytes()]);
    push_guarded_eval(&mut state, b"builtin ", functions);
    if !late.is_empty() {
        push_line(&mut state, &[b"builtin shopt -s expand_aliases"]);
    }
    let mut before_command = Vec::new();
    for on in options.iter().filter(is_late) {
        before_command.extend([b"builtin set -o ", on.as_bytes(), b"; "].concat());
    }
    if !builtin.is_empty() {
        push_line(&mut before_command, &[builtin]);
    }
    (state, before_command)
}

/// The state and `before_command` of a [`RestoreScript`] for zsh. `functions` contains a name and a body in turn.
fn zsh(options: &[u8], umask: &[u8], aliases: &[u8], fpath: &[u8], functions: &[&[u8]]) -> (Vec<u8>, Vec<u8>) {
    let options: Vec<&str> = std::str::from_utf8(options)
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.strip_prefix("set -o "))
        .filter(|name| !is_zsh_option(name, FIXED_ZSH_OPTIONS))
        .collect();
    let (late, early): (Vec<_>, Vec<_>) = options.into_iter().partition(|name| is_zsh_option(name, LATE_ZSH_OPTIONS));
    // Zsh parses the whole text before it runs the first command, and aliases and options change how text is parsed. So parts have an `eval`
    // of their own.
    let mut state = Vec::new();
    push_line(&mut state, &[b"builtin unalias -a; builtin umask ", umask]);
    push_line(&mut state, &[b"fpath=( ", fpath, b" )"]);
    push_line(&mut state, &[b"builtin eval ", &quote(aliases)]);
    for on in early {
        push_line(&mut state, &[b"builtin set -o ", on.as_bytes()]);
    }
    // Functions are assigned to `functions`, an array of zsh: if zsh cannot parse a function, only this function is
    // lost. The text of a function has its aliases replaced already, so aliases are off during the assignment.
    let mut assignment = b"functions=(".to_vec();
    let mut before_command = Vec::new();
    for on in late {
        before_command.extend([b"builtin set -o ", on.as_bytes(), b"; "].concat());
    }
    for pair in functions.chunks_exact(2) {
        let (name, body) = (quote(pair[0]), quote(pair[1]));
        if pair[0] == b"builtin" {
            before_command.extend([&b"functions=("[..], &name, b" ", &body, b"); "].concat());
        } else {
            assignment.extend([b" ", name.as_slice(), b" ", &body].concat());
        }
    }
    assignment.extend(b" )");
    push_line(&mut state, &[b"builtin setopt noaliases"]);
    push_guarded_eval(&mut state, b"builtin ", &assignment);
    push_line(&mut state, &[b"options[aliases]=on"]);
    (state, before_command)
}

/// Whether `name`, without a leading "no", is one of `names`.
fn is_zsh_option(name: &str, names: &[&str]) -> bool {
    names.contains(&name) || name.strip_prefix("no").is_some_and(|name| names.contains(&name))
}

/// The state and `before_command` of a [`RestoreScript`] for `sh`.
fn sh(options: &[u8], umask: &[u8], aliases: &[u8], functions: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut state, mut before_command) = (Vec::new(), Vec::new());
    push_line(&mut state, &[b"umask ", umask]);
    for option in std::str::from_utf8(options).unwrap_or_default().lines() {
        let name = option.rsplit(' ').next().unwrap_or_default();
        match option {
            _ if !LATE_OPTIONS.contains(&name) => push_line(&mut state, &[option.as_bytes()]),
            _ if option.starts_with("set -o") => before_command.extend([option.as_bytes(), b"; "].concat()),
            _ => {}
        }
    }
    push_guarded_eval(&mut state, b"", functions);
    push_line(&mut state, &[&alias_commands(aliases)]);
    (state, before_command)
}

/// Turns the list that `alias` prints into commands. Some shells print the definitions without the word `alias`. A value may have several
/// lines.
fn alias_commands(list: &[u8]) -> Vec<u8> {
    let mut commands = Vec::new();
    let mut quote = None;
    let mut is_escaped = false;
    for text in list.split_inclusive(|&byte| byte == b'\n') {
        if quote.is_none() && !is_escaped && !text.starts_with(b"alias ") && !text.trim_ascii().is_empty() {
            commands.extend(b"alias ");
        }
        for &byte in text {
            match (quote, byte) {
                _ if is_escaped => is_escaped = false,
                (None | Some(b'"'), b'\\') => is_escaped = true,
                (None, b'\'' | b'"') => quote = Some(byte),
                (Some(open), _) if open == byte => quote = None,
                _ => {}
            }
        }
        commands.extend(text);
    }
    commands
}

/// Adds an `eval` of `piece`. If the shell cannot parse the piece, it prints a complaint and goes on with the rest of the state.
fn push_guarded_eval(state: &mut Vec<u8>, builtin: &[u8], piece: &[u8]) {
    if !piece.is_empty() {
        let complaint = b"printf '%s\\n' 'failed to restore shell snapshot' >&2";
        push_line(state, &[builtin, b"eval ", &quote(piece), b" || ", builtin, complaint]);
    }
}

fn push_line(text: &mut Vec<u8>, parts: &[&[u8]]) {
    text.extend(parts.concat());
    text.push(b'\n');
}

/// Quotes a text as one word for any shell.
fn quote(text: &[u8]) -> Vec<u8> {
    let mut word = vec![b'\''];
    for &byte in text {
        if byte == b'\'' {
            word.extend(br"'\''");
        } else {
            word.push(byte);
        }
    }
    word.push(b'\'');
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restore(shell: Shell, items: &[&str]) -> (String, String) {
        let items: Vec<_> = items.iter().map(|item| item.as_bytes().to_vec()).collect();
        let restore = RestoreScript::new(shell, &items);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (text(&restore.state), text(&restore.before_command))
    }

    #[test]
    fn bash_defines_functions_before_expand_aliases_and_sets_late_options_last() {
        let items = [
            "errexit:hashall:nounset:privileged",
            "expand_aliases:extglob",
            "ehu",
            "0027",
            "alias a='b'",
            "f () { :; }",
            "builtin () { :; }",
        ];
        let expected = "builtin umask 0027\nalias a='b'\nbuiltin set +o privileged\nbuiltin set +o braceexpand\n\
                        builtin set +o interactive-comments\nbuiltin set -o nounset\n\
                        builtin shopt -u ${BASHOPTS//:/ }; builtin shopt -s extglob\n\
                        builtin eval 'f () { :; }' || builtin printf '%s\\n' 'failed to restore shell snapshot' >&2\n\
                        builtin shopt -s expand_aliases\n";
        let late = "builtin set -o errexit; builtin () { :; }\n";
        assert_eq!(restore(Shell::Bash, &items), (expected.to_owned(), late.to_owned()));
    }

    #[test]
    fn zsh_gets_functions_by_assignment_and_late_options_and_builtin_last() {
        let items = [
            "set +o noaliases\nset -o extendedglob\nset -o noglobalrcs\nset -o nounset",
            "022",
            "alias -g x='y'",
            "/a /b",
            "f",
            "echo 'it'",
            "builtin",
            ":",
        ];
        let expected = "builtin unalias -a; builtin umask 022\nfpath=( /a /b )\nbuiltin eval 'alias -g x='\\''y'\\'''\n\
                        builtin set -o extendedglob\nbuiltin setopt noaliases\n\
                        builtin eval 'functions=( '\\''f'\\'' '\\''echo '\\''\\'\\'''\\''it'\\''\\'\\'''\\'''\\'' )' || builtin printf '%s\\n' 'failed to restore shell snapshot' >&2\n\
                        options[aliases]=on\n";
        let late = "builtin set -o nounset; functions=('builtin' ':'); ";
        assert_eq!(restore(Shell::Zsh, &items), (expected.to_owned(), late.to_owned()));
    }

    #[test]
    fn sh_gets_aliases_listed_without_the_word_alias_and_late_options_last() {
        let items =
            ["set -o errexit\nset +o xtrace\nset -o noclobber", "eC", "0022", "a='b\nc=d'\nalias e='it'\"'\"'s'", ""];
        let expected = "umask 0022\nset -o noclobber\nalias a='b\nc=d'\nalias e='it'\"'\"'s'\n";
        assert_eq!(restore(Shell::Sh, &items), (expected.to_owned(), "set -o errexit; ".to_owned()));
    }

    #[test]
    fn without_items_the_script_only_unsets_variables_with_valid_names() {
        assert_eq!(restore(Shell::Bash, &[]), (String::new(), String::new()));
        let names = ["A_B", "BASH_FUNC_x%%", "1A"].map(OsStr::new);
        let state = RestoreScript::new(Shell::Bash, &[]).state_with_unset(names.into_iter());
        assert_eq!(state, b"builtin unset A_B 2>/dev/null\n");
        assert_eq!(RestoreScript::new(Shell::Sh, &[]).state_with_unset(std::iter::empty()), b"\n");
    }
}
