//! Decides whether output may have colours. It does not choose the colours.

use std::ffi::OsStr;
use std::io::IsTerminal;

/// Whether output to this stream may have colours: the stream is a terminal that can show colours, and the user has
/// not turned colours off with `NO_COLOR` (<https://no-color.org>).
pub(crate) fn are_wanted_on(stream: &impl IsTerminal) -> bool {
    let variable = |name| std::env::var_os(name);
    stream.is_terminal() && are_allowed(variable("NO_COLOR").as_deref(), variable("TERM").as_deref())
}

fn are_allowed(no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty) && term.is_some_and(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_need_a_capable_terminal_type_and_an_unset_or_empty_no_color() {
        let allowed =
            |no_color: Option<&str>, term: Option<&str>| are_allowed(no_color.map(OsStr::new), term.map(OsStr::new));
        assert!(allowed(None, Some("xterm")) && allowed(Some(""), Some("xterm")));
        assert!(!allowed(Some("1"), Some("xterm")) && !allowed(None, Some("dumb")) && !allowed(None, None));
    }
}
