//! Decides whether output may have colours. It does not know which colours there are.

use std::ffi::OsStr;
use std::io::IsTerminal;

/// Whether output to this stream may have colours: the stream is a terminal that can show them, and the user has not turned them off with
/// `NO_COLOR` (<https://no-color.org>).
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
    fn colours_need_a_terminal_type_and_no_refusal() {
        let allowed =
            |no_color: Option<&str>, term: Option<&str>| are_allowed(no_color.map(OsStr::new), term.map(OsStr::new));
        assert!(allowed(None, Some("xterm")) && allowed(Some(""), Some("xterm")));
        assert!(!allowed(Some("1"), Some("xterm")) && !allowed(None, Some("dumb")) && !allowed(None, None));
    }
}
