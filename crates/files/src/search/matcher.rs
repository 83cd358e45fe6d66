//! Compiling a pattern to a matcher. The patterns come from clients, so the memory of a matcher is limited.

use grep_regex::{RegexMatcher, RegexMatcherBuilder};

use super::{CaseSensitivity, Pattern, PrepareSearchError, shortened};

/// Most bytes of a compiled expression. Enough for every pattern that a person writes.
pub const MAX_COMPILED_BYTES: usize = 16 << 20;
/// Most bytes of a cache of automaton states. Each thread of a search has one cache for each search direction. A
/// smaller cache only makes a search slower.
const MAX_CACHE_BYTES: usize = 4 << 20;

pub(super) fn build(pattern: &Pattern) -> Result<RegexMatcher, PrepareSearchError> {
    let mut builder = RegexMatcherBuilder::new();
    builder
        // For this builder, `multi_line` means that `^` and `$` match at every line, not that a match may span lines.
        .multi_line(true)
        .fixed_strings(pattern.fixed_strings)
        .case_insensitive(pattern.case == CaseSensitivity::Insensitive)
        .case_smart(pattern.case == CaseSensitivity::Smart)
        .word(pattern.word)
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(MAX_CACHE_BYTES);
    if !pattern.multi_line {
        // If no match can span lines, the searcher can jump to candidate matches instead of going line by line.
        builder.line_terminator(Some(b'\n'));
    }
    builder
        .build(&pattern.text)
        .map_err(|error| PrepareSearchError::InvalidPattern(shortened(&reason(&error.to_string()))))
}

/// The reason in an error of the regex library as one line, without the lines that show the position in the pattern.
fn reason(error: &str) -> String {
    let reason = error.rsplit_once("\nerror: ").map_or(error, |(_, reason)| reason);
    reason.replace(char::is_control, " ")
}
