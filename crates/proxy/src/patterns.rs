//! Lists of allowed and denied hosts. A pattern is a host (`example.com`, `10.0.0.1`), the hosts below a name
//! (`*.example.com`: `a.example.com` and `a.b.example.com`, but not `example.com`), a name and the hosts below it
//! (`**.example.com`), or every host (`*`). Wildcards elsewhere, ports and schemes are refused. A
//! pattern that can never match is an error, so that nobody relies on it.

use std::collections::HashSet;

use crate::host::TargetHost;
use crate::limits::{MAX_PATTERN_BYTES, MAX_PATTERNS};

/// What a list says about a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DomainRule {
    /// The host may be reached.
    Allow,
    /// The host must not be reached, whatever other patterns say.
    Deny,
}

/// Why patterns are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// A pattern, of which this is the beginning, cannot be understood.
    #[error(
        "the domain pattern `{0}` is not valid; use a host, `*.` or `**.` and a host name, or `*`, without scheme, port and path"
    )]
    Invalid(String),
    /// There are more than [`MAX_PATTERNS`].
    #[error(
        "there are more than {MAX_PATTERNS} domain patterns; use patterns with `*.` for hosts of the same domain"
    )]
    TooMany,
    /// All patterns together have more than [`MAX_PATTERN_BYTES`] bytes.
    #[error(
        "the domain patterns have more than {MAX_PATTERN_BYTES} bytes; use patterns with `*.` for hosts of the same domain"
    )]
    TooLong,
}

/// Which hosts are allowed and which are denied. A host that no pattern matches is neither.
#[derive(Clone, Debug, Default)]
pub struct DomainPatterns {
    allowed: HostSet,
    denied: HostSet,
}

#[derive(Clone, Debug, Default)]
struct HostSet {
    /// Patterns without wildcards.
    literal: HashSet<TargetHost>,
    /// Names of `**.` patterns, which are in the set themselves.
    roots: HashSet<String>,
    /// Names of `*.` and `**.` patterns. Every host below them is in the set.
    parents: HashSet<String>,
    every_host: bool,
}

impl DomainPatterns {
    /// Makes the lists from patterns. Deny beats allow, so the order does not matter.
    pub fn new<'a>(rules: impl IntoIterator<Item = (&'a str, DomainRule)>) -> Result<Self, PatternError> {
        let mut patterns = Self::default();
        let mut bytes = 0;
        for (index, (pattern, rule)) in rules.into_iter().enumerate() {
            bytes += pattern.len();
            if index >= MAX_PATTERNS {
                return Err(PatternError::TooMany);
            }
            if bytes > MAX_PATTERN_BYTES {
                return Err(PatternError::TooLong);
            }
            let set = match rule {
                DomainRule::Allow => &mut patterns.allowed,
                DomainRule::Deny => &mut patterns.denied,
            };
            set.insert(pattern).ok_or_else(|| PatternError::Invalid(shown(pattern)))?;
        }
        Ok(patterns)
    }

    /// What the patterns say about a host. None: no pattern matches.
    pub(crate) fn rule_for(&self, host: &TargetHost) -> Option<DomainRule> {
        if self.denied.contains(host) {
            Some(DomainRule::Deny)
        } else {
            self.allowed.contains(host).then_some(DomainRule::Allow)
        }
    }

    /// Whether a pattern without wildcards allows the host.
    pub(crate) fn allows_exactly(&self, host: &TargetHost) -> bool {
        self.allowed.literal.contains(host)
    }
}

impl HostSet {
    fn insert(&mut self, pattern: &str) -> Option<()> {
        if pattern == "*" {
            self.every_host = true;
            return Some(());
        }
        let (name, includes_name) = match (pattern.strip_prefix("**."), pattern.strip_prefix("*.")) {
            (Some(name), _) => (name, true),
            (None, Some(name)) => (name, false),
            (None, None) => {
                self.literal.insert(parse(pattern)?);
                return Some(());
            }
        };
        // No host is below an address.
        let TargetHost::Name(name) = parse(name)? else { return None };
        if includes_name {
            self.roots.insert(name.clone());
        }
        self.parents.insert(name);
        Some(())
    }

    fn contains(&self, host: &TargetHost) -> bool {
        self.every_host
            || self.literal.contains(host)
            || matches!(host, TargetHost::Name(name) if self.roots.contains(name) || self.has_parent(name))
    }

    fn has_parent(&self, name: &str) -> bool {
        let mut rest = name;
        while let Some((_, parent)) = rest.split_once('.') {
            if self.parents.contains(parent) {
                return true;
            }
            rest = parent;
        }
        false
    }
}

/// A host in a pattern. A pattern has no wildcard inside a name.
fn parse(text: &str) -> Option<TargetHost> {
    if text.contains('*') { None } else { TargetHost::parse(text).ok() }
}

/// The beginning of a pattern, for an error.
fn shown(pattern: &str) -> String {
    pattern.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(patterns: &[(&str, DomainRule)], host: &str) -> Option<DomainRule> {
        let patterns = DomainPatterns::new(patterns.iter().copied()).unwrap();
        patterns.rule_for(&TargetHost::parse(host).unwrap())
    }

    fn allowed_by(pattern: &str, host: &str) -> bool {
        rule(&[(pattern, DomainRule::Allow)], host) == Some(DomainRule::Allow)
    }

    #[test]
    fn a_pattern_matches_exactly_its_hosts() {
        for (pattern, host, matches) in [
            ("example.com", "example.com", true),
            ("Example.Com.", "EXAMPLE.com..", true),
            ("example.com", "a.example.com", false),
            ("example.com", "xexample.com", false),
            ("*.example.com", "example.com", false),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "aexample.com", false),
            ("*.example.com", "a.example.com.evil.test", false),
            ("**.example.com", "example.com", true),
            ("**.example.com", "a.b.example.com", true),
            ("**.example.com", "notexample.com", false),
            ("*.com", "example.com", true),
            ("*", "anything.test", true),
            ("*", "1.2.3.4", true),
            ("[::1]", "0:0::1", true),
            ("10.0.0.1", "::ffff:10.0.0.1", true),
            ("bücher.example", "xn--bcher-kva.example", true),
        ] {
            assert_eq!(allowed_by(pattern, host), matches, "{pattern} {host}");
        }
    }

    #[test]
    fn deny_beats_allow_in_every_order() {
        let (allow, deny) = (DomainRule::Allow, DomainRule::Deny);
        for patterns in [
            [("example.com", allow), ("**.example.com", deny)],
            [("*", deny), ("example.com", allow)],
            [("example.com", deny), ("*", allow)],
        ] {
            assert_eq!(rule(&patterns, "example.com"), Some(deny), "{patterns:?}");
        }
        assert_eq!(rule(&[("example.com", deny), ("*", allow)], "other.test"), Some(allow));
        assert_eq!(rule(&[("example.com", deny)], "other.test"), None);
    }

    #[test]
    fn malformed_patterns_are_refused() {
        for pattern in [
            "",
            "*.",
            "**.",
            "**",
            "***.a",
            "*a.example",
            "a.*.example",
            "a*",
            "*.*.example",
            "https://a.example",
            "a.example:443",
            "a.example/x",
            "*.10.0.0.1",
            "*.[::1]",
            "a b",
        ] {
            let refused = DomainPatterns::new([(pattern, DomainRule::Allow)]);
            assert_eq!(refused.unwrap_err(), PatternError::Invalid(pattern.to_owned()), "{pattern}");
        }
    }

    #[test]
    fn number_and_size_of_the_patterns_are_limited() {
        let made = |count: usize, length: usize| {
            let patterns: Vec<String> = (0..count).map(|number| format!("{number:0>length$}.test")).collect();
            DomainPatterns::new(patterns.iter().map(|pattern| (pattern.as_str(), DomainRule::Allow))).map(drop)
        };
        assert_eq!(made(MAX_PATTERNS, 5), Ok(()));
        assert_eq!(made(MAX_PATTERNS + 1, 5), Err(PatternError::TooMany));
        assert_eq!(made(MAX_PATTERN_BYTES / 64, 59), Ok(()), "64 bytes each");
        assert_eq!(
            made(MAX_PATTERN_BYTES / 64 + 1, 59),
            Err(PatternError::TooMany),
            "both limits are reached at once"
        );
        assert_eq!(made(MAX_PATTERNS, 60), Err(PatternError::TooLong));
    }

    #[test]
    fn only_a_pattern_without_wildcards_allows_exactly() {
        let host = TargetHost::parse("localhost").unwrap();
        let patterns =
            [("localhost", true), ("*", false), ("**.localhost", false), ("*.localhost", false), ("other", false)];
        for (pattern, exactly) in patterns {
            let patterns = DomainPatterns::new([(pattern, DomainRule::Allow)]).unwrap();
            assert_eq!(patterns.allows_exactly(&host), exactly, "{pattern}");
        }
    }
}
