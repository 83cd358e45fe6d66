//! Globs that deny. A pattern is split at slashes: `*`, `?` and `[...]` match within one name, names that begin with a
//! dot included, and `**` as a whole name matches any number of names. `{a,b}` stands for two patterns.
//!
//! Matching walks over the names of a path once and keeps the set of positions in the pattern, so no pattern needs
//! exponential time.

mod braces;
mod name_pattern;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub(super) use braces::expand;
pub(crate) use name_pattern::NameCharacters;
use name_pattern::NamePattern;

use super::{PolicyError, lexical};

/// An absolute pattern with at least one wildcard.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GlobPattern {
    /// The leading names without wildcard.
    directory: PathBuf,
    /// What follows these names. Begins with a wildcard, and ends with a name, never with [`GlobPart::AnyDepth`].
    parts: Vec<GlobPart>,
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum GlobPart {
    /// Exactly one name.
    Name(NamePattern),
    /// `**`: any number of names, also none.
    AnyDepth,
}

/// A pattern that was read: a pattern without wildcards is a plain path.
pub(super) enum ParsedGlob {
    Path(PathBuf),
    Glob(GlobPattern),
}

impl GlobPattern {
    /// Reads a pattern without `{`. A pattern that begins with `/` is absolute, any other pattern is relative to `base`, a
    /// normalised absolute path in which nothing is a wildcard.
    pub(super) fn parse(pattern: &str, base: &Path) -> Result<ParsedGlob, PolicyError> {
        let bad = |reason| PolicyError::BadPattern { pattern: pattern.to_owned(), reason };
        let mut directory = if pattern.starts_with('/') { PathBuf::from("/") } else { base.to_path_buf() };
        let mut parts = Vec::new();
        for name in pattern.split('/') {
            match name {
                "" | "." => {}
                ".." if parts.is_empty() => {
                    directory.pop();
                }
                ".." => return Err(bad("`..` after a wildcard")),
                "**" if parts.last() == Some(&GlobPart::AnyDepth) => {}
                "**" => parts.push(GlobPart::AnyDepth),
                name => {
                    let name = NamePattern::parse(name).map_err(bad)?;
                    match name.literal() {
                        Some(literal) if parts.is_empty() => directory.push(literal),
                        _ => parts.push(GlobPart::Name(name)),
                    }
                }
            }
        }
        if parts.is_empty() {
            return Ok(ParsedGlob::Path(directory));
        }
        // A trailing `**` stands for everything below the directory, and not for the directory itself.
        if parts.last() == Some(&GlobPart::AnyDepth) {
            parts.push(GlobPart::Name(NamePattern::any()));
        }
        Ok(ParsedGlob::Glob(Self { directory, parts }))
    }

    /// The directory below which every match is: the leading names of the pattern that have no wildcard.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether the pattern matches exactly this path. Paths below a match are denied too, but do not match.
    pub fn matches(&self, path: &Path) -> bool {
        lexical::normalised(path).is_some_and(|path| self.longest_match(&path) == Some(lexical::depth(&path)))
    }

    /// Whether a path below this directory can match. If not, a search for matches need not open the directory.
    pub fn may_match_below(&self, directory: &Path) -> bool {
        let Some(directory) = lexical::normalised(directory) else { return false };
        if self.directory.starts_with(&directory) {
            return true;
        }
        let Ok(below) = directory.strip_prefix(&self.directory) else { return false };
        let mut walk = self.walk();
        below.iter().for_each(|name| walk.enter(&NameCharacters::new(name), &mut 0));
        walk.may_match_below()
    }

    /// Begins to compare with paths below [`Self::directory`].
    pub(crate) fn walk(&self) -> GlobWalk<'_> {
        GlobWalk::new(&self.parts)
    }

    /// The number of names of the longest prefix of a normalised absolute path that the pattern matches.
    pub(super) fn longest_match(&self, path: &Path) -> Option<usize> {
        let below = path.strip_prefix(&self.directory).ok()?;
        let mut walk = self.walk();
        let mut longest = None;
        for (index, name) in below.iter().enumerate() {
            walk.enter(&NameCharacters::new(name), &mut 0);
            if walk.has_matched() {
                longest = Some(lexical::depth(&self.directory) + index + 1);
            } else if walk.is_stuck() {
                break;
            }
        }
        longest
    }

    /// Bytes of the part that has wildcards.
    pub(super) fn wildcard_bytes(&self) -> usize {
        self.parts
            .iter()
            .map(|part| match part {
                GlobPart::Name(name) => name.as_str().len() + 1,
                GlobPart::AnyDepth => 3,
            })
            .sum()
    }
}

impl fmt::Display for GlobPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = OsString::from(&self.directory);
        for part in &self.parts {
            if text.as_bytes() != b"/" {
                text.push("/");
            }
            text.push(match part {
                GlobPart::Name(name) => OsStr::new(name.as_str()),
                GlobPart::AnyDepth => OsStr::new("**"),
            });
        }
        Path::new(&text).display().fmt(f)
    }
}

impl fmt::Debug for GlobPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GlobPattern({self})")
    }
}

/// Taking memory costs about as much as this many steps.
const ALLOCATION_STEPS: usize = 16;

/// Matches a path name by name. `positions` is the set of pattern parts that may come next, as in an NFA.
#[derive(Clone)]
pub(crate) struct GlobWalk<'a> {
    parts: &'a [GlobPart],
    /// One flag for each part of the pattern, and a last flag for a complete match.
    positions: Vec<bool>,
}

impl<'a> GlobWalk<'a> {
    fn new(parts: &'a [GlobPart]) -> Self {
        let mut positions = vec![false; parts.len() + 1];
        positions[0] = true;
        let mut walk = Self { parts, positions };
        walk.skip_any_depth();
        walk
    }

    /// Whether the pattern matches the path one name further. Adds the steps that this takes to `steps`.
    pub(crate) fn matches_next(&self, name: &NameCharacters, steps: &mut usize) -> bool {
        *steps += 1;
        // A pattern ends with a name, never with `**`.
        match (self.parts.last(), self.positions[self.parts.len() - 1]) {
            (Some(GlobPart::Name(last)), true) => last.matches(name, steps),
            _ => false,
        }
    }

    /// The walk one name further. Adds the steps that this takes to `steps`.
    pub(crate) fn after(&self, name: &NameCharacters, steps: &mut usize) -> Self {
        let mut walk = self.clone();
        walk.enter(name, steps);
        walk
    }

    fn enter(&mut self, name: &NameCharacters, steps: &mut usize) {
        // Each part is looked at, here and in `skip_any_depth`, and memory is taken for the flags.
        *steps += ALLOCATION_STEPS + 2 * self.parts.len();
        let mut reached = vec![false; self.positions.len()];
        for (index, part) in self.parts.iter().enumerate().filter(|(index, _)| self.positions[*index]) {
            match part {
                GlobPart::AnyDepth => reached[index] = true,
                GlobPart::Name(pattern) if pattern.matches(name, steps) => reached[index + 1] = true,
                GlobPart::Name(_) => {}
            }
        }
        self.positions = reached;
        self.skip_any_depth();
    }

    /// `**` may match no name, so the part after it is reached as well.
    fn skip_any_depth(&mut self) {
        for (index, part) in self.parts.iter().enumerate() {
            if self.positions[index] && *part == GlobPart::AnyDepth {
                self.positions[index + 1] = true;
            }
        }
    }

    /// Whether the pattern matches the path that was walked.
    pub(crate) fn has_matched(&self) -> bool {
        self.positions[self.parts.len()]
    }

    /// Whether a path below the one that was walked can match.
    pub(crate) fn may_match_below(&self) -> bool {
        self.positions[..self.parts.len()].contains(&true)
    }

    fn is_stuck(&self) -> bool {
        !self.positions.contains(&true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glob(pattern: &str) -> GlobPattern {
        match GlobPattern::parse(pattern, Path::new("/base")).unwrap() {
            ParsedGlob::Glob(glob) => glob,
            ParsedGlob::Path(path) => panic!("{pattern} has no wildcard: {path:?}"),
        }
    }

    fn check(pattern: &str, matching: &[&str], others: &[&str]) {
        let glob = glob(pattern);
        for path in matching {
            assert!(glob.matches(Path::new(path)), "{pattern} must match {path}");
        }
        for path in others {
            assert!(!glob.matches(Path::new(path)), "{pattern} must not match {path}");
        }
    }

    #[test]
    fn a_star_stays_within_one_name_and_two_stars_cross_names() {
        check("/ws/*.env", &["/ws/a.env", "/ws/.env"], &["/ws/a/b.env", "/ws/a.envx", "/a.env", "/ws"]);
        check(
            "/ws/**/*.env",
            &["/ws/a.env", "/ws/a/b/c.env", "/ws/.hidden/.env"],
            &["/ws/a.env/x", "/other/a.env", "/ws"],
        );
        check("/ws/a**b", &["/ws/ab", "/ws/axxb"], &["/ws/a/b"]);
        check("/a/**/b/**/c", &["/a/b/c", "/a/x/b/y/z/c", "/a/b/b/c/c"], &["/a/c", "/a/b", "/a/b/c/d"]);
    }

    #[test]
    fn two_stars_at_the_end_match_what_is_below_but_not_the_directory_itself() {
        check("/ws/**", &["/ws/a", "/ws/a/b"], &["/ws", "/wsx"]);
        check("/**", &["/a", "/a/b"], &["/"]);
    }

    #[test]
    fn a_relative_pattern_belongs_to_its_base_in_which_nothing_is_a_wildcard() {
        check("*.pem", &["/base/x.pem"], &["/x.pem", "/base/a/x.pem"]);
        let ParsedGlob::Glob(odd) = GlobPattern::parse("*", Path::new("/a[b]*")).unwrap() else { panic!() };
        assert!(odd.matches(Path::new("/a[b]*/x")) && !odd.matches(Path::new("/ab/x")));
        assert_eq!(glob("**/x"), glob("/base/**/x"), "the same pattern, spelled in two ways");
        assert_eq!(glob("../other/./*//x/").to_string(), "/other/*/x");
    }

    #[test]
    fn a_pattern_without_wildcard_is_a_path() {
        for (pattern, expected) in [("/a/b", "/a/b"), ("x/../y", "/base/y"), (r"/a/\*", "/a/*"), ("/a/[b", "/a/[b")] {
            match GlobPattern::parse(pattern, Path::new("/base")).unwrap() {
                ParsedGlob::Path(path) => assert_eq!(path, Path::new(expected)),
                ParsedGlob::Glob(glob) => panic!("{glob}"),
            }
        }
    }

    #[test]
    fn the_longest_matched_beginning_of_a_path_counts() {
        assert_eq!(glob("/ws/*").longest_match(Path::new("/ws/a/b")), Some(2));
        assert_eq!(glob("/ws/**/x").longest_match(Path::new("/ws/x/y/x/z")), Some(4));
        assert_eq!(glob("/ws/**").longest_match(Path::new("/ws/x/y")), Some(3));
        assert_eq!(glob("/ws/*/x").longest_match(Path::new("/ws/a/y")), None);
    }

    #[test]
    fn a_search_can_leave_out_directories_without_matches() {
        let glob = glob("/ws/*/secret/x?");
        for directory in ["/", "/ws", "/ws/a", "/ws/a/secret"] {
            assert!(glob.may_match_below(Path::new(directory)), "{directory}");
        }
        for directory in ["/other", "/ws/a/b", "/ws/a/secret/x1", "relative"] {
            assert!(!glob.may_match_below(Path::new(directory)), "{directory}");
        }
    }

    #[test]
    fn parent_steps_after_a_wildcard_are_refused() {
        let error = GlobPattern::parse("/a/*/../b", Path::new("/")).err().unwrap();
        assert_eq!(error.to_string(), "sandbox glob pattern `/a/*/../b` is invalid: `..` after a wildcard");
    }

    #[test]
    fn a_hostile_pattern_takes_no_exponential_time() {
        let pattern = format!("/{}b", "**/*a*a*a*a*a/".repeat(70));
        let path = format!("/{}", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/".repeat(70));
        assert!(!glob(&pattern).matches(Path::new(&path)));
    }
}
