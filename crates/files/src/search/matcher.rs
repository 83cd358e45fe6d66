//! From a pattern to a matcher. The limits keep a pattern that somebody else wrote from taking the memory of the machine.

use grep_regex::{RegexMatcher, RegexMatcherBuilder};

use super::{CaseSensitivity, Pattern, PrepareSearchError, shortened};

/// Of a compiled expression: enough for every pattern a person writes.
const PROGRAM_BYTES: usize = 16 << 20;
/// Of the states a thread finds while it searches, forward and backward; with fewer the search is only slower. All threads of all
/// searches of a session can have so many.
const CACHE_BYTES: usize = 4 << 20;

pub(super) fn build(pattern: &Pattern) -> Result<RegexMatcher, PrepareSearchError> {
    let mut builder = RegexMatcherBuilder::new();
    builder
        .multi_line(true)
        .fixed_strings(pattern.fixed_strings)
        .case_insensitive(pattern.case == CaseSensitivity::Insensitive)
        .case_smart(pattern.case == CaseSensitivity::Smart)
        .word(pattern.word)
        .size_limit(PROGRAM_BYTES)
        .dfa_size_limit(CACHE_BYTES);
    if !pattern.multi_line {
        // The promise that no match spans lines is what lets the searcher jump to candidates instead of going line by line.
        builder.line_terminator(Some(b'\n'));
    }
    builder
        .build(&pattern.text)
        .map_err(|error| PrepareSearchError::Pattern(shortened(&in_one_line(&error.to_string()))))
}

/// What is wrong, without the drawing of where.
fn in_one_line(error: &str) -> String {
    let what = error.rsplit_once("\nerror: ").map_or(error, |(_, what)| what);
    what.replace(char::is_control, " ")
}
