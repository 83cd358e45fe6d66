//! Why the configuration cannot be used. Each names the place where the user has to change something.

use std::io;
use std::path::PathBuf;

/// Why there are no environments to choose from.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentsError {
    /// The file exists and cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file says something that cannot be meant.
    #[error("{}:{line}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Where in it, from 1.
        line: usize,
        /// What is wrong there.
        problem: Problem,
    },
    /// A variable has a value that cannot be used.
    #[error("{name}: {problem}")]
    Variable {
        /// Its name.
        name: &'static str,
        /// What is wrong with its value.
        problem: EntryProblem,
    },
    /// Some of the variables for an environment behind a relay, but not all.
    #[error(
        "{} not set, and an environment behind a relay needs the registry URL, the environment id and the token; \
         set all three CODEX_EXEC_SERVER_NOISE_ variables or none",
        are(missing)
    )]
    NoiseIncomplete {
        /// The variables that are not set.
        missing: Vec<&'static str>,
    },
    /// The variables for an environment behind a relay are complete.
    #[error(
        "the CODEX_EXEC_SERVER_NOISE_ variables name an environment behind a relay, which this version cannot reach \
         yet; unset them and name a server by EXEC_SERVER_URL or in environments.toml"
    )]
    NoiseNotSupported,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It is not TOML, or has a field that is missing, unknown or of another type. The words of the parser.
    #[error("{0}")]
    Toml(String),
    /// An id is empty.
    #[error("`id` must not be empty")]
    EmptyId,
    /// An id is too long.
    #[error("environment id `{0}` is longer than 64 characters")]
    LongId(String),
    /// An id has other characters than it may have.
    #[error("environment id `{0}` may have only letters, digits, `-` and `_`")]
    StrangeId(String),
    /// An id with a meaning of its own.
    #[error("environment id `{0}` is reserved; choose another")]
    ReservedId(String),
    /// Two environments have one id.
    #[error("environment id `{0}` is used twice")]
    DuplicateId(String),
    /// `default` names nothing.
    #[error("the default environment `{0}` is not configured")]
    UnknownDefault(String),
    /// `default` names this machine, which `include_local` excludes.
    #[error("the default environment `local` is excluded by `include_local = false`")]
    ExcludedDefault,
    /// One environment is described wrongly.
    #[error("environment `{id}`: {problem}")]
    Entry {
        /// Which one.
        id: String,
        /// How.
        problem: EntryProblem,
    },
}

/// What is wrong with the description of one environment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryProblem {
    /// No way to reach it, or two.
    #[error("give exactly one of `url`, `program` and `ssh` (`program` beside `ssh` is the program over there)")]
    NotOneWay,
    /// A field that says nothing about this way of reaching it.
    #[error("`{field}` has a meaning only beside `{belongs_to}`")]
    Misplaced {
        /// The field.
        field: &'static str,
        /// The field that must be there.
        belongs_to: &'static str,
    },
    /// Not repeated, because a URL can hold a password.
    #[error("the URL must be `ws://HOST`, `wss://HOST` or `unix:///PATH`")]
    Url,
    /// Nothing but space.
    #[error("`{0}` must not be empty")]
    Empty(&'static str),
    /// The operating system has no way to pass it on.
    #[error("`{0}` must not contain the character NUL")]
    Nul(&'static str),
    /// A variable name that cannot be one.
    #[error("`env` names a variable `{0}`, which is empty or contains `=`")]
    VariableName(String),
    /// Zero, negative, infinite, or no number.
    #[error("`{0}` must be a positive number of seconds")]
    Timeout(&'static str),
    /// A root of a path map that is relative.
    #[error("`{0}` must be an absolute path")]
    RelativeRoot(&'static str),
    /// A relative path in a text that is in no known directory.
    #[error("`{0}` is relative, and the directory of the file, from which it would be meant, is not absolute")]
    RelativePath(&'static str),
    /// One root of a path map without the other.
    #[error("`local_root` and `remote_root` must be given together")]
    HalfAMap,
    /// ssh would take it for an option or for several words.
    #[error("`ssh` must name a host, without spaces and without `-` at its beginning")]
    Host,
}

fn are(missing: &[&str]) -> String {
    let verb = if missing.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", missing.join(" and "))
}
