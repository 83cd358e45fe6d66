//! `{a,b}` in patterns. A group may be nested and may contain slashes, so it is expanded before a pattern is split.

use super::name_pattern::class_end;
use crate::policy::limits::MAX_ALTERNATIVES;
use crate::policy::{PolicyError, limits};

/// All patterns that a pattern with `{a,b}` stands for. A pattern without such a group stands for itself.
pub(in crate::policy) fn expand(pattern: &str) -> Result<Vec<String>, PolicyError> {
    if pattern.len() > limits::MAX_PATTERN_BYTES {
        return Err(PolicyError::PatternTooLong(pattern.len()));
    }
    let mut expanded = Vec::new();
    let mut waiting = vec![pattern.to_owned()];
    while let Some(next) = waiting.pop() {
        match first_group(&next) {
            Ok(None) => expanded.push(next),
            Ok(Some(group)) => {
                waiting.extend(group.alternatives.iter().rev().map(|alternative| {
                    [&next[..group.start], &next[alternative.clone()], &next[group.end..]].concat()
                }));
            }
            Err(reason) => return Err(PolicyError::BadPattern { pattern: pattern.to_owned(), reason }),
        }
        if expanded.len() + waiting.len() > MAX_ALTERNATIVES {
            return Err(PolicyError::TooManyAlternatives(pattern.to_owned()));
        }
    }
    Ok(expanded)
}

struct BraceGroup {
    /// Position of the `{`.
    start: usize,
    /// Position after the `}`.
    end: usize,
    alternatives: Vec<std::ops::Range<usize>>,
}

fn first_group(pattern: &str) -> Result<Option<BraceGroup>, &'static str> {
    let bytes = pattern.as_bytes();
    let mut group: Option<BraceGroup> = None;
    let mut depth = 0;
    let mut alternative_start = 0;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match (byte, &mut group) {
            (b'\\', _) => at += 1,
            (b'[', _) => at = class_end(bytes, at).unwrap_or(at),
            (b'{', None) => {
                group = Some(BraceGroup { start: at, end: at, alternatives: Vec::new() });
                depth = 1;
                alternative_start = at + 1;
            }
            (b'{', Some(_)) => depth += 1,
            (b',', Some(group)) if depth == 1 => {
                group.alternatives.push(alternative_start..at);
                alternative_start = at + 1;
            }
            (b'}', Some(group)) => {
                depth -= 1;
                if depth == 0 {
                    group.alternatives.push(alternative_start..at);
                    group.end = at + 1;
                    break;
                }
            }
            _ => {}
        }
        at += 1;
    }
    if group.is_some() && depth > 0 {
        return Err(r"`{` without `}`; write `\{` if a brace is meant");
    }
    Ok(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_expanded_also_nested_and_with_slashes() {
        for (pattern, expected) in [
            ("/a/*.x", &["/a/*.x"][..]),
            ("/a/*.{env,pem}", &["/a/*.env", "/a/*.pem"]),
            ("/{a,b/{c,d}}/{,x}", &["/a/", "/a/x", "/b/c/", "/b/c/x", "/b/d/", "/b/d/x"]),
            ("/{a}", &["/a"]),
            (r"/\{a,b\}", &[r"/\{a,b\}"]),
            ("/[{]a,b", &["/[{]a,b"]),
            ("/{[,]x,[}]y}", &["/[,]x", "/[}]y"]),
            ("/a}b", &["/a}b"]),
        ] {
            assert_eq!(expand(pattern).unwrap(), expected, "{pattern}");
        }
    }

    #[test]
    fn unclosed_groups_and_patterns_that_stand_for_too_many_are_refused() {
        assert!(matches!(expand("/{a,b"), Err(PolicyError::BadPattern { .. })));
        assert_eq!(
            expand(&"{a,b}".repeat(7)),
            Err(PolicyError::TooManyAlternatives("{a,b}".repeat(7))),
            "128 patterns"
        );
        assert_eq!(expand(&"{a,b}".repeat(6)).unwrap().len(), 64);
        assert!(matches!(expand(&"{a,b}".repeat(200)), Err(PolicyError::TooManyAlternatives(_))));
        assert_eq!(expand(&"x".repeat(1025)), Err(PolicyError::PatternTooLong(1025)));
    }
}
