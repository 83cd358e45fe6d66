//! Extension `fsSearch` of the published protocol: searching for lines that match a pattern, or for files by name.
//! Matches arrive in `fs/found` notifications before the answer. The search itself is in the crate `files`; it finds
//! what ripgrep finds.

use serde::{Deserialize, Serialize};

use super::default_true;
use crate::{Base64Bytes, PathUri, SandboxContext};

/// Params of `fs/search`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SearchParams {
    /// Chosen by the client, at most 32 bytes. Unique among the searches that run on the connection.
    pub search_id: String,
    /// The directory or file to search. It must exist.
    pub path: PathUri,
    /// A regular expression of Rust's crate `regex`, at most 8,192 bytes. Absent: the search lists files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// True takes `pattern` literally. Absent: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fixed_strings: bool,
    /// Whether upper and lower case differ. Absent: `sensitive`.
    #[serde(default)]
    pub case: SearchCase,
    /// True finds the pattern only as a whole word. Absent: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub word: bool,
    /// True lets a match span several lines. Files above 8 MiB are then reported in `errors` instead of being searched. Absent:
    /// false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub multi_line: bool,
    /// Globs of the files to search, as with `rg -g`. A glob with `!` in front excludes files and directories, and
    /// the last glob that matches decides. At most 1,000. Empty, or absent: all files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub globs: Vec<String>,
    /// True searches also files and directories whose names begin with a dot. Absent: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// True, or absent: files and directories that `.gitignore` and similar files exclude are left out.
    #[serde(default = "default_true")]
    pub respect_ignore: bool,
    /// True follows symbolic links. Absent: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub follow_symlinks: bool,
    /// How many levels the search descends. With 1, only the entries of `path` itself are searched. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_depth: Option<usize>,
    /// Files with more bytes than this are left out. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_file_bytes: Option<u64>,
    /// How many matching lines of one file are returned. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_matches_per_file: Option<u64>,
    /// After this many matches the search stops. Counts lines, or files if there is no pattern. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_matches: Option<u64>,
    /// How many lines before and after each match are returned with it, at most 20. They do not count as matches. Absent: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_lines: Option<u32>,
    /// The sandbox for this request. It is refused if the server cannot enforce it. Absent or null: no restriction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

impl SearchParams {
    /// A listing of all files below `path` that are neither hidden nor ignored. The caller sets `search_id`.
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

/// Whether upper and lower case differ for a pattern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SearchCase {
    /// Upper and lower case differ.
    #[default]
    Sensitive,
    /// Upper and lower case are the same.
    Insensitive,
    /// Upper and lower case differ only if the pattern has an upper-case letter.
    Smart,
}

/// Params of `fs/cancelSearch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CancelSearchParams {
    /// The search to cancel. A search that has finished or is unknown is no error.
    pub search_id: String,
}

/// Result of `fs/search`. It comes after the last `fs/found` of the search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SearchResult {
    /// How many files were opened, or listed if there is no pattern.
    pub files_searched: u64,
    /// How many files have a match, or were listed if there is no pattern.
    pub files_matched: u64,
    /// How many lines matched. A match over several lines counts once. 0 if there is no pattern.
    pub matches: u64,
    /// Whether the search ended early, because it was cancelled or reached `maxMatches`.
    pub stopped: bool,
    /// The `seq` of the last `fs/found`. 0 if none was sent.
    pub last_seq: u64,
    /// The first 100 errors: files and directories that could not be searched completely, and faults of ignore files.
    pub errors: Vec<SearchError>,
    /// Number of all errors, including those that are not in `errors`.
    pub error_count: u64,
}

/// A file or directory that could not be searched completely, or a fault of an ignore file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchError {
    /// The file or directory, or the ignore file that is at fault. Absent if it has no absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathUri>,
    /// The reason, for people.
    pub message: String,
}

/// Params of the notification `fs/found`: some matches of a search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FoundNotification {
    /// The search that found the files.
    pub search_id: String,
    /// Number of the notification: 1 for the first of a search, 2 for the second, and so on.
    pub seq: u64,
    /// The files with matches, in no particular order. The lines of one file come in order, perhaps in several notifications.
    pub files: Vec<FoundFile>,
}

/// A file that matched, with some or all of its lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundFile {
    /// Path of the file.
    pub path: PathUri,
    /// Lines with a match, and lines of context. Empty, or absent: the search has no pattern and lists files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<FoundLine>,
}

/// A line with a match, or a line of context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FoundLine {
    /// Number of the line in the file, counted from 1.
    pub number: u64,
    /// Position of the first byte of the line in the file. If the file begins with a byte order mark, the position
    /// in the text after the mark, decoded to UTF-8.
    pub offset: u64,
    /// The line without its line feed, cut after 4,096 bytes. Bytes that are not UTF-8 are replaced.
    pub text: String,
    /// The exact bytes of `text`, if `text` cannot express them. Absent otherwise.
    #[serde(rename = "textBase64", default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<Base64Bytes>,
    /// Positions of the matches in the line. Empty, or absent: the line is context, or all its matches are beyond the cut.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<MatchRange>,
    /// Whether the line is longer than `text`. Absent: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// Position of a match, counted in the bytes of the line. If `textBase64` is present, these are its bytes and not
/// those of `text`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchRange {
    /// Position of the first byte of the match.
    pub start: u32,
    /// Position after the last byte of the match.
    pub end: u32,
}
