//! Compiling a pattern to a matcher. The patterns come from clients, so their memory is limited.

use grep_regex::{RegexMatcher, RegexMatcherBuilder};

use super::{CaseSensitivity, Pattern, PrepareSearchError, shortened};

/// Largest compiled expression. Enough for every pattern that a person writes.
pub const PROGRAM_BYTES: usize = 16 << 20;
/// Largest cache of automaton states, one for each direction in each thread of a search. A smaller cache only makes a search slower.
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
        // If no match can span lines, the searcher can jump to candidate matches instead of going line by line.
        builder.line_terminator(Some(b'\n'));
    }
    builder
        .build(&pattern.text)
        .map_err(|error| PrepareSearchError::InvalidPattern(shortened(&in_one_line(&error.to_string()))))
}

/// The reason in an error of the regex library, without the lines that show the position in the pattern.
fn in_one_line(error: &str) -> String {
    let what = error.rsplit_once("\nerror: ").map_or(error, |(_, what)| what);
    what.replace(char::is_control, " ")
}
