//! Searching the contents or the names of the files below a directory, with the ignore rules and the matcher of ripgrep, so
//! that people find what they expect. Results are handed over as they are found, in batches of bounded size; nothing is sorted.

mod ignore_files;
mod lines;
mod matcher;
mod rules;
mod run;
mod tasks;
mod walk;

use std::fmt::Display;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::available_parallelism;

use grep_regex::RegexMatcher;

use crate::FileError;
use walk::Walk;

/// More context than this is better read from the file.
pub const MAX_CONTEXT_LINES: u32 = 20;
/// Of a line, or, if matches may span lines, of a file. A longer one is an error of its file, because each thread of each search may hold
/// so much.
pub const MAX_SEARCHED_BYTES: usize = 8 << 20;
/// Text of a line beyond this is cut, so that a file without line ends does not become one huge result.
pub const MAX_LINE_BYTES: usize = 4096;
/// Of a pattern. Two bytes of one, `\w`, can take 20 KB of memory before the size of the compiled expression is known, so this bounds
/// what a pattern costs before it is refused: about 90 MB and half a second.
pub const MAX_PATTERN_BYTES: usize = 8 << 10;
/// Globs of a search. Each can take 30 KB when it is compiled.
pub const MAX_GLOBS: usize = 1000;
/// Of all globs of a search together. Compiled they take at most about 60 MB.
pub const MAX_GLOB_BYTES: usize = 64 << 10;

/// Opening braces of one glob. The parser of globs calls itself for each level, and a stack has room for some thousands.
pub const MAX_BRACES: usize = 1000;
/// Threads of a search that does not say how many it wants. More of them mostly wait for each other.
const MOST_THREADS: usize = 12;
/// Errors beyond this are only counted.
pub const MAX_SEARCH_ERRORS: usize = 100;

/// What to look for, and where.
#[derive(Clone, Debug)]
pub struct SearchQuery {
    /// Absolute path of the directory or file to search. A symbolic link here is followed.
    pub root: PathBuf,
    /// What lines must contain; `None` lists files.
    pub pattern: Option<Pattern>,
    /// As `rg -g`: only files that match one of them, relative to the root; with `!` in front, files that are left out. The last
    /// that matches decides, and what is named by one is found even if it is hidden or ignored.
    pub globs: Vec<String>,
    /// Also look at files and directories whose names begin with a dot.
    pub hidden: bool,
    /// Leave out what `.ignore` and `.rgignore` name, and, inside a git repository only, what `.gitignore`, `.git/info/exclude`
    /// and the global excludes of git name. Such files in parents of the root count too. A directory where one of them is something
    /// else than a file, larger than 1 MiB or 10,000 lines, or under a lease of another program, is not searched.
    pub respect_ignore: bool,
    /// Go where symbolic links point to. Loops are found and reported as errors.
    pub follow_symlinks: bool,
    /// How deep to descend; 1 is the content of the root itself.
    pub max_depth: Option<usize>,
    /// Leave out larger files.
    pub max_file_size: Option<u64>,
    /// Stop in a file after so many matching lines.
    pub max_matches_per_file: Option<u64>,
    /// Lines to show before a match, at most [`MAX_CONTEXT_LINES`].
    pub context_before: u32,
    /// Lines to show after a match, at most [`MAX_CONTEXT_LINES`].
    pub context_after: u32,
    /// How many threads work on it; `None` is one per processor, at most twelve.
    pub threads: Option<usize>,
}

impl SearchQuery {
    /// A listing of all files below `root` that are neither hidden nor ignored.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            pattern: None,
            globs: Vec::new(),
            hidden: false,
            respect_ignore: true,
            follow_symlinks: false,
            max_depth: None,
            max_file_size: None,
            max_matches_per_file: None,
            context_before: 0,
            context_after: 0,
            threads: None,
        }
    }

    /// How many threads work on a search that does not say how many it wants.
    pub fn default_threads() -> usize {
        available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS)
    }

    fn thread_count(&self) -> usize {
        self.threads.unwrap_or_else(Self::default_threads).max(1)
    }

    /// Checks everything that can be wrong with the question, before anything is searched.
    pub fn prepare(self) -> Result<PreparedSearch, PrepareSearchError> {
        check_search_size(self.pattern.as_ref().map(|pattern| pattern.text.as_str()), &self.globs)?;
        if !self.root.is_absolute() {
            return Err(FileError::refused("the root of a search must be an absolute path", &self.root).into());
        }
        for lines in [self.context_before, self.context_after] {
            if lines > MAX_CONTEXT_LINES {
                return Err(PrepareSearchError::Context { asked: lines });
            }
        }
        std::fs::metadata(&self.root).map_err(FileError::at(&self.root))?;
        let matcher = self.pattern.as_ref().map(matcher::build).transpose()?;
        let mut noted = SearchSummary::default();
        let walk = Walk::prepare(&self, &mut noted)?;
        Ok(PreparedSearch { search: self, matcher, walk, noted })
    }
}

/// Refuses a question that would cost too much to prepare. It costs nothing itself, so callers need not wait for their turn.
pub fn check_search_size(pattern: Option<&str>, globs: &[String]) -> Result<(), PrepareSearchError> {
    if let Some(pattern) = pattern.filter(|pattern| pattern.len() > MAX_PATTERN_BYTES) {
        return Err(PrepareSearchError::PatternTooLong { bytes: pattern.len() });
    }
    if globs.len() > MAX_GLOBS {
        return Err(PrepareSearchError::TooManyGlobs { count: globs.len() });
    }
    let bytes = globs.iter().map(String::len).sum();
    if bytes > MAX_GLOB_BYTES {
        return Err(PrepareSearchError::GlobsTooLong { bytes });
    }
    if globs.iter().any(|glob| has_too_many_braces(glob.as_bytes())) {
        return Err(PrepareSearchError::TooManyBraces);
    }
    Ok(())
}

/// Whether a glob could nest so deep that parsing it overflows the stack.
fn has_too_many_braces(glob: &[u8]) -> bool {
    glob.iter().filter(|byte| **byte == b'{').count() > MAX_BRACES
}

/// What a line must contain.
#[derive(Clone, Debug, Default)]
pub struct Pattern {
    /// A regular expression in the syntax of the `regex` crate, at most [`MAX_PATTERN_BYTES`].
    pub text: String,
    /// Take the text as it stands, not as a regular expression.
    pub fixed_strings: bool,
    /// Whether `a` finds `A`.
    pub case: CaseSensitivity,
    /// Only whole words.
    pub word: bool,
    /// A match may span lines. Each file is then read as a whole, up to [`MAX_SEARCHED_BYTES`].
    pub multi_line: bool,
}

/// Whether `a` finds `A`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaseSensitivity {
    /// It does not.
    #[default]
    Sensitive,
    /// It does.
    Insensitive,
    /// It does unless the pattern has a capital letter.
    Smart,
}

/// A search that is known to make sense. It can be run more than once.
#[derive(Debug)]
pub struct PreparedSearch {
    search: SearchQuery,
    matcher: Option<RegexMatcher>,
    walk: Walk,
    /// Ignore files that are not used, found before the search began.
    noted: SearchSummary,
}

/// What is handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchHit {
    /// A file, when there is no pattern.
    File {
        /// Its path, which begins with the root as it was given.
        path: Arc<Path>,
    },
    /// Some lines of a file. All of one file come in order, from one thread; other files may come in between.
    Lines {
        /// Its path, which begins with the root as it was given.
        path: Arc<Path>,
        /// At most about 256 lines or 256 KiB.
        lines: Vec<HitLine>,
    },
}

/// A line with a match, or one near it. A match over several lines is told line by line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HitLine {
    /// Counted from 1.
    pub number: u64,
    /// Where in the file the line begins, in bytes; in a file with a UTF-16 byte order mark, where it begins after decoding.
    pub offset: u64,
    /// Without the line feed, at most [`MAX_LINE_BYTES`].
    pub text: Vec<u8>,
    /// Whether the line is longer than the text.
    pub cut: bool,
    /// Byte ranges of the text that match. Empty for context, and when all matches are in what was cut off.
    pub matches: Vec<(u32, u32)>,
    /// Whether it is only here because it is near a match.
    pub is_context: bool,
}

/// How a search went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchSummary {
    /// Files that were opened, or listed when there is no pattern.
    pub files_searched: u64,
    /// Files with at least one match, or listed.
    pub files_matched: u64,
    /// Matching lines; a match over several lines counts once. Zero when files are listed.
    pub matches: u64,
    /// What could not be searched, the first [`MAX_SEARCH_ERRORS`] of them.
    pub errors: Vec<SearchFailure>,
    /// How many there were in all.
    pub error_count: u64,
    /// Whether everything was looked at.
    pub completion: SearchCompletion,
}

impl SearchSummary {
    fn note_error(&mut self, path: &Path, error: impl Display) {
        self.error_count += 1;
        if self.errors.len() < MAX_SEARCH_ERRORS {
            self.errors.push(SearchFailure { path: path.to_owned(), text: shortened(&error.to_string()) });
        }
    }

    /// Adds what another part of the search has counted.
    fn add(&mut self, part: Self) {
        self.files_searched += part.files_searched;
        self.files_matched += part.files_matched;
        self.matches += part.matches;
        self.error_count += part.error_count;
        let room = MAX_SEARCH_ERRORS - self.errors.len();
        self.errors.extend(part.errors.into_iter().take(room));
    }
}

/// What could not be searched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchFailure {
    /// The file or directory.
    pub path: PathBuf,
    /// Why.
    pub text: String,
}

/// Whether everything was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SearchCompletion {
    /// Yes.
    #[default]
    Complete,
    /// Whoever takes the results had enough.
    Stopped,
    /// It was cancelled.
    Cancelled,
}

/// Why a search cannot begin. It is the fault of who asked.
#[derive(Debug, thiserror::Error)]
pub enum PrepareSearchError {
    /// The pattern is longer than [`MAX_PATTERN_BYTES`].
    #[error("the pattern has {bytes} bytes, and at most {MAX_PATTERN_BYTES} are allowed; search for a part of it")]
    PatternTooLong {
        /// How long it is.
        bytes: usize,
    },
    /// There are more globs than [`MAX_GLOBS`].
    #[error("there are {count} globs, and at most {MAX_GLOBS} are allowed; search several times")]
    TooManyGlobs {
        /// How many there are.
        count: usize,
    },
    /// The globs are longer than [`MAX_GLOB_BYTES`].
    #[error("the globs have {bytes} bytes together, and at most {MAX_GLOB_BYTES} are allowed; search several times")]
    GlobsTooLong {
        /// How long they are together.
        bytes: usize,
    },
    /// A glob has more than [`MAX_BRACES`] opening braces.
    #[error("a glob has more than {MAX_BRACES} opening braces; search several times")]
    TooManyBraces,
    /// The pattern is not a regular expression.
    #[error("bad pattern: {0}")]
    Pattern(String),
    /// One of the globs is not one.
    #[error("bad glob `{glob}`: {text}")]
    Glob {
        /// Which.
        glob: String,
        /// Why.
        text: String,
    },
    /// More context than [`MAX_CONTEXT_LINES`].
    #[error("{asked} lines of context are more than {MAX_CONTEXT_LINES}")]
    Context {
        /// How many were asked for.
        asked: u32,
    },
    /// The root is not there or not absolute.
    #[error(transparent)]
    Root(#[from] FileError),
}

/// The texts of the libraries repeat the input, which can be as long as a message.
fn shortened(text: &str) -> String {
    const MOST_BYTES: usize = 500;
    let text = text.trim();
    if text.len() <= MOST_BYTES {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(MOST_BYTES)])
}
