//! The reasons why the configuration of environments cannot be used. It is in a file `environments.toml` or in
//! variables. Each error names the file, the line or the variable that the user has to change.

use std::io;
use std::path::PathBuf;

/// The reason why the environments could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentsError {
    /// A file `environments.toml` exists and cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The contents of the file are wrong.
    #[error("{}:{line}: {problem}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The number of the line with the problem. The first line is 1.
        line: usize,
        /// What is wrong in that line.
        problem: Problem,
    },
    /// A variable has a value that cannot be used.
    #[error("{name}: {problem}")]
    Variable {
        /// The name of the variable.
        name: &'static str,
        /// Why the value cannot be used.
        problem: EntryProblem,
    },
    /// Some of the variables for an environment behind a relay are set, but not all.
    #[error(
        "{} not set, and an environment behind a relay needs the registry URL, the environment id and the token; \
         set all three CODEX_EXEC_SERVER_NOISE_ variables or none",
        names_and_verb(missing)
    )]
    NoiseIncomplete {
        /// The variables that are not set.
        missing: Vec<&'static str>,
    },
}

/// What is wrong with the contents of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file is not TOML, or a field is missing or unknown. Holds the message of the parser, which shows no value.
    #[error("{0}")]
    Toml(String),
    /// A field has a value of the wrong type. The error does not hold the value, because it can be a secret.
    #[error("`{field}` must be {expected}")]
    WrongType {
        /// The name of the field.
        field: String,
        /// The type that the field must have, with its article.
        expected: &'static str,
    },
    /// An environment has the empty text as its id.
    #[error("`id` must not be empty")]
    EmptyId,
    /// An id has more than 64 characters.
    #[error("environment id `{0}` is longer than 64 characters")]
    LongId(String),
    /// An id has a character other than ASCII letters, digits, `-` and `_`.
    #[error("environment id `{0}` may have only ASCII letters, digits, `-` and `_`")]
    StrangeId(String),
    /// An id is `local`, or `none` in upper or lower case. Both words have a fixed meaning.
    #[error("environment id `{0}` is reserved; choose another")]
    ReservedId(String),
    /// Two environments have the same id.
    #[error("environment id `{0}` is used twice")]
    DuplicateId(String),
    /// `default` names an environment that is not configured.
    #[error("the default environment `{0}` is not configured")]
    UnknownDefault(String),
    /// `default` names this machine, which `include_local` excludes.
    #[error("the default environment `local` is excluded by `include_local = false`")]
    ExcludedDefault,
    /// `service` cannot be used.
    #[error("`service`: {0}")]
    Service(EntryProblem),
    /// The table of one environment is wrong.
    #[error("environment `{id}`: {problem}")]
    Entry {
        /// The id of the environment.
        id: String,
        /// What is wrong with the table.
        problem: EntryProblem,
    },
}

/// What is wrong with the table of one environment, or with the value of a variable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryProblem {
    /// The table has none of `url`, `remote`, `program` and `ssh`, or two that exclude each other.
    #[error("give `url`, `remote`, `program`, `ssh`, or `ssh` together with `program`")]
    NotOneWay,
    /// A field has no meaning for this kind of environment.
    #[error("`{field}` has a meaning only beside `{belongs_to}`")]
    Misplaced {
        /// The name of the field.
        field: &'static str,
        /// The field or value without which the field has no meaning.
        belongs_to: &'static str,
    },
    /// The URL cannot be used. The error does not hold the URL, because a URL can contain a password.
    #[error("the URL must be `ws://HOST`, `wss://HOST` or `unix:///PATH`")]
    Url,
    /// The URL of a service cannot be used. The error does not hold the URL, because a URL can contain a password.
    #[error("the URL of a service must be `https://HOST` or `http://HOST`")]
    Service,
    /// The id of an environment in a service is blank or has a control character.
    #[error("the id of an environment must not be blank and must have no line breaks")]
    EnvironmentId,
    /// The text is not a fingerprint.
    #[error("the key must be a fingerprint `SHA256:…`, as `exec-server env show` prints it")]
    PinnedKey,
    /// A token or an account cannot be sent in a header. The error does not hold it, because a token is secret.
    #[error("the value must be visible ASCII without spaces")]
    HeaderWord,
    /// The value of a variable is not UTF-8.
    #[error("the value is not UTF-8")]
    NotUtf8,
    /// A field is empty, or has only white space.
    #[error("`{0}` must not be empty")]
    Empty(&'static str),
    /// A field contains NUL, which the operating system cannot pass to a program.
    #[error("`{0}` must not contain the character NUL")]
    Nul(&'static str),
    /// `env` has a key that cannot be the name of a variable. The error does not hold the key, because a secret may
    /// follow the `=`.
    #[error("`env` has a variable whose name is empty or contains `=`")]
    VariableName,
    /// A timeout is zero, negative, too large or not a number.
    #[error("`{0}` must be a positive number of seconds")]
    Timeout(&'static str),
    /// `local_root` or `remote_root` is a relative path.
    #[error("`{0}` must be an absolute path")]
    RelativeRoot(&'static str),
    /// A path is relative, and cannot be resolved because the path of the file is relative too.
    #[error(
        "`{0}` is relative, and it cannot be resolved because the path of the file is relative too; write an absolute path"
    )]
    RelativePath(&'static str),
    /// Only one of `local_root` and `remote_root` is given.
    #[error("`local_root` and `remote_root` must be given together")]
    OneRootOfTwo,
    /// The host in `ssh` is empty, begins with `-`, or contains white space or a control character.
    #[error("`ssh` must name a host, without spaces and without `-` at its beginning")]
    Host,
}

/// The names, followed by "is" or "are".
fn names_and_verb(missing: &[&str]) -> String {
    let verb = if missing.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", missing.join(" and "))
}
