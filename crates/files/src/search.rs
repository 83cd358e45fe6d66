//! Searching the contents or the names of the files below a directory, with the ignore rules and the regular expressions of ripgrep.
//! Results are delivered as they are found, in batches of bounded size, unsorted.
//!
//! [`SearchQuery::prepare`] checks a query, and [`PreparedSearch::run`] (in `run`) starts the threads. `tasks` is
//! their shared stack of work, `walk` lists directories, `rules` decides which entries are skipped, `ignore_files`
//! reads ignore files, `matcher` compiles the pattern, and `lines` turns matches into [`SearchHit`]s. Requests,
//! clients and limits across searches are the concern of the caller.

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

use crate::{FileError, FileRoot};
use walk::SearchWalk;

pub use ignore_files::{MAX_FILE_BYTES as MAX_IGNORE_FILE_BYTES, MAX_LINES as MAX_IGNORE_FILE_LINES};
pub use matcher::MAX_COMPILED_BYTES as MAX_COMPILED_PATTERN_BYTES;
pub use rules::MAX_RULES_IN_EFFECT as MAX_IGNORE_RULES;

/// Most lines of context before or after a match. A client that needs more reads the file.
pub const MAX_CONTEXT_LINES: u32 = 20;
/// Longest line that is searched, in bytes. If matches may span lines, this is the size of the largest file that is
/// searched. A longer line or a larger file is reported as an error, because every thread of every search may hold
/// this much in memory.
pub const MAX_SEARCHED_BYTES: usize = 8 << 20;
/// Most bytes of a line that a result contains. The rest is cut off, so that a file without line ends is not one huge result.
pub const MAX_LINE_BYTES: usize = 4096;
/// Longest pattern in bytes. Two bytes of a pattern, `\w`, can take 20 KB of memory before the size of the compiled expression is known.
/// With this limit, a pattern costs at most about 90 MB and half a second before it is refused.
pub const MAX_PATTERN_BYTES: usize = 8 << 10;
/// Most globs of a search. Each can take 30 KB when it is compiled.
pub const MAX_GLOBS: usize = 1000;
/// Most bytes of all globs of a search together. Compiled, they take at most about 60 MB.
pub const MAX_GLOB_BYTES: usize = 64 << 10;
/// Most opening braces of one glob. The glob parser calls itself for each level of nested braces, and the stack of a
/// thread has room for a few thousand levels.
pub const MAX_BRACES: usize = 1000;
/// Most threads of a search whose query does not set a number. More threads mostly wait for each other.
pub const MAX_DEFAULT_THREADS: usize = 12;
/// Most errors that a [`SearchSummary`] lists. Further errors are only counted.
pub const MAX_SEARCH_ERRORS: usize = 100;

/// The root, the pattern and the options of a search. [`SearchQuery::below`] has the defaults.
#[derive(Clone, Debug)]
pub struct SearchQuery {
    /// Absolute path of the directory or file to search. A symbolic link here is followed. The root is never skipped,
    /// also if it is a hidden, ignored or large file.
    pub root: PathBuf,
    /// The pattern that a line must match. `None` lists files instead.
    pub pattern: Option<Pattern>,
    /// Globs as for `rg -g`, relative to the root. Files and directories that match a glob with a leading `!` are
    /// skipped. If there are globs without `!`, only files that match one of these are searched. The last glob that
    /// matches decides. A file that a glob includes is searched even if it is hidden or ignored, but not if it is in
    /// a skipped directory.
    pub globs: Vec<String>,
    /// Whether files and directories whose names begin with a dot are searched.
    pub hidden: bool,
    /// Whether the files that `.ignore` and `.rgignore` name are skipped, and, inside a git or Jujutsu repository only,
    /// those that `.gitignore`, `.git/info/exclude` and the global excludes of git name. Ignore files in parents of the
    /// root apply too. A directory is reported as an error and not searched if one of its ignore files is a FIFO, a
    /// socket or a device other than `/dev/null`, has more than 1 MiB or 10,000 lines or too many braces in a line,
    /// or is under a lease of another program; also if the directory and those above it have more than 20,000 rules.
    pub respect_ignore: bool,
    /// Whether symbolic links below the root are followed. A link to a directory above the link is reported as an error.
    pub follow_symlinks: bool,
    /// Most levels below the root. With 1, only the entries of the root itself are searched. `None` is no limit.
    pub max_depth: Option<usize>,
    /// Size in bytes above which files are skipped. `None` is no limit.
    pub max_file_size: Option<u64>,
    /// Matching lines after which the search of one file stops. `None` is no limit.
    pub max_matches_per_file: Option<u64>,
    /// Lines to deliver before each match, at most 20.
    pub context_before: u32,
    /// Lines to deliver after each match, at most 20.
    pub context_after: u32,
    /// Number of threads, including the calling one. `None` is [`SearchQuery::default_threads`].
    pub threads: Option<usize>,
}

impl SearchQuery {
    /// A query that lists all files below `root` that are neither hidden nor ignored.
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

    /// Threads of a search whose query does not set a number: one for each processor, at most twelve.
    pub fn default_threads() -> usize {
        available_parallelism().map_or(1, NonZero::get).min(MAX_DEFAULT_THREADS)
    }

    fn thread_count(&self) -> usize {
        self.threads.unwrap_or_else(Self::default_threads).max(1)
    }

    /// Checks the query, compiles its pattern and globs, and reads the ignore files that apply to the root. All paths,
    /// also that of the global excludes of git, are resolved in `file_root`. May block.
    pub fn prepare(self, file_root: &FileRoot) -> Result<PreparedSearch, PrepareSearchError> {
        check_search_size(self.pattern.as_ref().map(|pattern| pattern.text.as_str()), &self.globs)?;
        if !self.root.is_absolute() {
            return Err(FileError::refused("the root of a search must be an absolute path", &self.root).into());
        }
        for lines in [self.context_before, self.context_after] {
            if lines > MAX_CONTEXT_LINES {
                return Err(PrepareSearchError::TooMuchContext { lines });
            }
        }
        let root = &self.root;
        file_root.run(&[root], |inside| inside.stat(root).map(|_| ()).map_err(FileError::at(root)))?;
        let matcher = self.pattern.as_ref().map(matcher::build).transpose()?;
        let mut preparation = SearchSummary::default();
        let inside = file_root.enter().map_err(FileError::at(root))?;
        let walk = SearchWalk::prepare(&inside, &self, &mut preparation)?;
        drop(inside);
        Ok(PreparedSearch { file_root: file_root.clone(), query: self, matcher, walk, preparation })
    }
}

/// Refuses a pattern or globs that would take too much memory when they are compiled. The check itself is cheap, so a
/// caller that queues searches can make it before a search waits in the queue.
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

/// Whether a glob may be nested so deep that parsing it overflows the stack.
fn has_too_many_braces(glob: &[u8]) -> bool {
    glob.iter().filter(|byte| **byte == b'{').count() > MAX_BRACES
}

/// The text or the regular expression that a line must match.
#[derive(Clone, Debug, Default)]
pub struct Pattern {
    /// A regular expression in the syntax of the `regex` crate, of at most 8 KiB.
    pub text: String,
    /// Whether the text is searched literally and not as a regular expression.
    pub fixed_strings: bool,
    /// Whether upper and lower case are distinguished.
    pub case: CaseSensitivity,
    /// Whether a match must begin and end at a word boundary.
    pub word: bool,
    /// Whether a match may span lines. Each file is then read as a whole, up to 8 MiB.
    pub multi_line: bool,
}

/// Whether upper and lower case are distinguished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaseSensitivity {
    /// `a` does not match `A`.
    #[default]
    Sensitive,
    /// `a` matches `A`.
    Insensitive,
    /// As `Insensitive`, unless the pattern contains a literal upper-case letter.
    Smart,
}

/// A query that was checked and compiled. It can be run more than once.
#[derive(Debug)]
pub struct PreparedSearch {
    file_root: FileRoot,
    query: SearchQuery,
    matcher: Option<RegexMatcher>,
    walk: SearchWalk,
    /// Errors of the preparation, such as ignore files that are not used. The summary of every run begins with them.
    preparation: SearchSummary,
}

/// One result, as [`PreparedSearch::run`] passes it to the sink, the callback of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchHit {
    /// A file, if the query has no pattern.
    File {
        /// The path, which begins with the root as it was given.
        path: Arc<Path>,
    },
    /// Lines of one file. Several hits of the same file come in order and from one thread; hits of other files may come in between.
    Lines {
        /// The path, which begins with the root as it was given.
        path: Arc<Path>,
        /// Lines with a match and lines of context, in the order of the file. At most about 256 lines or 256 KiB.
        lines: Vec<HitLine>,
    },
}

/// A line with a match, or a line of context. A match that spans lines gives one `HitLine` for each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HitLine {
    /// Line number, counted from 1.
    pub number: u64,
    /// Byte offset of the line in the file. If the file begins with a byte order mark, the offset is in the text
    /// after the mark, which was decoded to UTF-8 if it was UTF-16.
    pub offset: u64,
    /// The line without its line feed, at most 4 KiB. Need not be UTF-8.
    pub text: Vec<u8>,
    /// Whether the line is longer than `text`.
    pub cut: bool,
    /// Start and end of each match, as byte offsets in `text`. Empty for a line of context, and if all matches are in the part that was
    /// cut off.
    pub matches: Vec<(u32, u32)>,
    /// Whether the line is delivered only as context of a match.
    pub is_context: bool,
}

/// The counts and errors of a search, and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchSummary {
    /// Files that were opened. If the query has no pattern, files that were listed.
    pub files_searched: u64,
    /// Files with at least one match. If the query has no pattern, files that were listed.
    pub files_matched: u64,
    /// Matching lines; a match that spans lines counts once. 0 if the query has no pattern.
    pub matches: u64,
    /// Files and directories that could not be searched, and faults of ignore files; at most 100.
    pub errors: Vec<SearchFailure>,
    /// Number of all errors, including those that are not in `errors`.
    pub error_count: u64,
    /// Whether all files were searched.
    pub completion: SearchCompletion,
}

impl SearchSummary {
    fn add_error(&mut self, path: &Path, error: impl Display) {
        self.error_count += 1;
        if self.errors.len() < MAX_SEARCH_ERRORS {
            self.errors.push(SearchFailure { path: path.to_owned(), text: shortened(&error.to_string()) });
        }
    }

    /// Adds the counts and errors of another summary. `completion` stays.
    fn add(&mut self, part: Self) {
        self.files_searched += part.files_searched;
        self.files_matched += part.files_matched;
        self.matches += part.matches;
        self.error_count += part.error_count;
        let room = MAX_SEARCH_ERRORS - self.errors.len();
        self.errors.extend(part.errors.into_iter().take(room));
    }
}

/// A file or directory that could not be searched, or not completely, or a fault of an ignore file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchFailure {
    /// The file or directory. If an ignore file or a configuration of git is at fault, this is that file.
    pub path: PathBuf,
    /// The reason, shortened to about 500 bytes.
    pub text: String,
}

/// Whether a search covered all files, and if not, why it ended early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SearchCompletion {
    /// All files were searched, apart from those with errors.
    #[default]
    Complete,
    /// The sink returned `Break`.
    Stopped,
    /// The [`Cancel`](crate::Cancel) flag was set.
    Cancelled,
}

/// The reason why a search cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum PrepareSearchError {
    /// The pattern is longer than 8 KiB.
    #[error("the pattern has {bytes} bytes, and at most {MAX_PATTERN_BYTES} are allowed; search for a part of it")]
    PatternTooLong {
        /// Length of the pattern.
        bytes: usize,
    },
    /// There are more than 1,000 globs.
    #[error("there are {count} globs, and at most {MAX_GLOBS} are allowed; search several times")]
    TooManyGlobs {
        /// Number of globs.
        count: usize,
    },
    /// The globs are longer than 64 KiB together.
    #[error("the globs have {bytes} bytes together, and at most {MAX_GLOB_BYTES} are allowed; search several times")]
    GlobsTooLong {
        /// Length of all globs together.
        bytes: usize,
    },
    /// A glob has more than 1,000 opening braces.
    #[error("a glob has more than {MAX_BRACES} opening braces; search several times")]
    TooManyBraces,
    /// The pattern is not a valid regular expression, or its compiled form is too large. Holds the text of the regex library.
    #[error("bad pattern: {0}")]
    InvalidPattern(String),
    /// A glob has a syntax error.
    #[error("bad glob `{glob}`: {text}")]
    InvalidGlob {
        /// The glob, or all globs if the fault is not in a single one. Shortened to about 500 bytes.
        glob: String,
        /// The text of the glob library.
        text: String,
    },
    /// The query asks for more than 20 lines of context.
    #[error("{lines} lines of context are more than {MAX_CONTEXT_LINES}; ask for fewer lines")]
    TooMuchContext {
        /// Lines of context that the query asks for.
        lines: u32,
    },
    /// The root does not exist or is not an absolute path, or an ignore file in the root or above it cannot be used.
    #[error(transparent)]
    Root(#[from] FileError),
}

/// Cuts a text to about 500 bytes. Errors of the regex and glob libraries repeat the input, which can be very long.
fn shortened(text: &str) -> String {
    const MAX_BYTES: usize = 500;
    let text = text.trim();
    if text.len() <= MAX_BYTES {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(MAX_BYTES)])
}
