//! Extension `fsSearch`: lines that match, or files whose names do.

use serde::{Deserialize, Serialize};

use super::default_true;
use crate::{Base64Bytes, PathUri, SandboxContext};

/// Params of `fs/search`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SearchParams {
    /// Chosen by the client, at most 32 bytes, unique among the searches of the connection.
    pub search_id: String,
    /// A directory or a file.
    pub path: PathUri,
    /// A regular expression; without it, files are found by their names alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// The pattern is meant literally.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fixed_strings: bool,
    /// Whether case matters.
    #[serde(default)]
    pub case: SearchCase,
    /// Only whole words.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub word: bool,
    /// A match may go over several lines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub multi_line: bool,
    /// Which names; `!` in front excludes, and of several the last that fits decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub globs: Vec<String>,
    /// Names with a dot in front too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// Leave out what `.gitignore` and its kin leave out.
    #[serde(default = "default_true")]
    pub respect_ignore: bool,
    /// Enter links.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub follow_symlinks: bool,
    /// How deep; 1 is what is directly in the directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_depth: Option<usize>,
    /// Larger files are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_file_bytes: Option<u64>,
    /// In one file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_matches_per_file: Option<u64>,
    /// In all: lines, or files if there is no pattern.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_matches: Option<u64>,
    /// Lines before and after each match, at most 20 each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_lines: Option<u32>,
    /// What may be done on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

impl SearchParams {
    /// Every file below a path that ripgrep would look at.
    pub fn below(path: PathUri) -> Self {
        Self {
            search_id: String::new(),
            path,
            pattern: None,
            fixed_strings: false,
            case: SearchCase::Sensitive,
            word: false,
            multi_line: false,
            globs: Vec::new(),
            hidden: false,
            respect_ignore: true,
            follow_symlinks: false,
            max_depth: None,
            max_file_bytes: None,
            max_matches_per_file: None,
            max_matches: None,
            context_lines: None,
            sandbox: None,
        }
    }
}

/// Whether case matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SearchCase {
    /// It does.
    #[default]
    Sensitive,
    /// It does not.
    Insensitive,
    /// It does if the pattern has an upper-case letter.
    Smart,
}

/// Params of `fs/cancelSearch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CancelSearchParams {
    /// Which search; one that is over is fine.
    pub search_id: String,
}

/// Result of `fs/search`, after everything it has found was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SearchResult {
    /// Files that were looked into.
    pub files_searched: u64,
    /// Files with at least one match.
    pub files_matched: u64,
    /// Lines that matched.
    pub matches: u64,
    /// Whether it ended before its end: cancelled, or `maxMatches` was reached.
    pub stopped: bool,
    /// The number of the last `fs/found`; 0 if nothing was found.
    pub last_seq: u64,
    /// The first hundred files that could not be looked into.
    pub errors: Vec<SearchError>,
    /// How many there were.
    pub error_count: u64,
}

/// A file that could not be looked into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchError {
    /// Which one, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathUri>,
    /// Why.
    pub message: String,
}

/// Params of `fs/found`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FoundNotification {
    /// Which search.
    pub search_id: String,
    /// From 1, without holes.
    pub seq: u64,
    /// In no particular order of files; the lines of one are in order.
    pub files: Vec<FoundFile>,
}

/// What was found in a file, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundFile {
    /// Which one.
    pub path: PathUri,
    /// Empty if files were looked for by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<FoundLine>,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FoundLine {
    /// From 1.
    pub number: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// Without its end, cut after 4,096 bytes; what is not UTF-8 is replaced.
    pub text: String,
    /// The same in full, if it had to be changed.
    #[serde(rename = "textBase64", default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<Base64Bytes>,
    /// Where the matches are in it; none in a line of context.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<MatchRange>,
    /// Whether it was cut.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// A match within a line, in bytes of the line as it stands in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchRange {
    /// Its first byte.
    pub start: u32,
    /// The one after its last.
    pub end: u32,
}
