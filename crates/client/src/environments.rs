//! Which environments a user has configured, and which one is meant when none is named. It reads the file and the
//! variables once and answers with a value; it connects to nothing and does not know how to.

mod entry;
mod error;
mod file;
mod surroundings;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use error::{EntryProblem, EnvironmentsError, Problem};
pub use surroundings::Surroundings;

use recovery::DEFAULT_SILENCE_TIMEOUT;

use crate::path_map::PathMap;
use surroundings::{CODEX_URL, NOISE_REQUIRED, URL};

/// The id of the environment that is this machine.
const LOCAL: &str = "local";

/// The id of the environment that a variable names by its URL.
const REMOTE: &str = "remote";

/// In place of an id or a URL: no environment.
const NONE: &str = "none";

/// Long enough for a handshake across the world, short enough that nobody believes the program hangs.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// What is configured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Environments {
    /// The id of the environment that is meant when none is named. It is one of `entries`.
    pub default: Option<String>,
    /// Every environment by its id, this machine among them if it may be used.
    pub entries: BTreeMap<String, EnvironmentSpec>,
}

/// One environment.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvironmentSpec {
    /// Its name, unique among the configured ones.
    pub id: String,
    /// How to reach it.
    pub way: Way,
    /// How long making a connection may take.
    pub connect_timeout: Duration,
    /// How long the server may take to answer `initialize`.
    pub initialize_timeout: Duration,
    /// How long a WebSocket server may give no sign of life before its connection counts as lost.
    pub silence_timeout: Duration,
}

/// How an environment is reached.
#[derive(Clone, Debug, PartialEq)]
pub enum Way {
    /// It is this machine; nothing has to be reached.
    Local,
    /// A server that listens.
    Url {
        /// `ws://`, `wss://` or `unix:///PATH`.
        url: String,
        /// Certificates to trust instead of the system's; only with `wss://`.
        ca_file: Option<PathBuf>,
        /// Holds the token to present; not with `unix://`.
        token_file: Option<PathBuf>,
    },
    /// A program that speaks the protocol on its stdin and stdout.
    Program {
        /// What to start.
        program: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables it gets beside the inherited ones.
        env: BTreeMap<String, String>,
        /// Where it starts; absolute.
        cwd: Option<PathBuf>,
    },
    /// A server that is started over ssh.
    Ssh {
        /// As ssh knows it. It does not begin with `-`, so that ssh cannot take it for an option.
        host: String,
        /// The server program there.
        program: String,
        /// Which paths there stand for which here.
        paths: PathMap,
    },
}

impl Environments {
    /// What the user has configured: the file if there is one, else the variable with a URL, else this machine alone.
    pub fn load(surroundings: &Surroundings) -> Result<Self, EnvironmentsError> {
        refuse_noise(surroundings)?;
        match file::find(surroundings)? {
            Some(found) => Self::from_toml(&found.text, &found.path),
            None => from_variables(surroundings),
        }
    }

    /// Reads the text of an `environments.toml`. Relative paths in it are meant from the directory of `path`, which is
    /// not opened; if that is not absolute, relative paths are refused.
    pub fn from_toml(text: &str, path: &Path) -> Result<Self, EnvironmentsError> {
        file::parse(text, path)
    }

    /// The environment that is meant when none is named.
    pub fn default_environment(&self) -> Option<&EnvironmentSpec> {
        self.entries.get(self.default.as_ref()?)
    }

    /// Whether processes may run on this machine.
    pub fn includes_local(&self) -> bool {
        self.entries.contains_key(LOCAL)
    }

    /// One environment that is also the default.
    fn only(spec: EnvironmentSpec) -> Self {
        Self { default: Some(spec.id.clone()), entries: BTreeMap::from([(spec.id.clone(), spec)]) }
    }
}

impl EnvironmentSpec {
    fn new(id: &str, way: Way) -> Self {
        Self {
            id: id.to_owned(),
            way,
            connect_timeout: DEFAULT_TIMEOUT,
            initialize_timeout: DEFAULT_TIMEOUT,
            silence_timeout: DEFAULT_SILENCE_TIMEOUT,
        }
    }

    fn local() -> Self {
        Self::new(LOCAL, Way::Local)
    }
}

/// Ignoring these variables would run on this machine what was meant for another.
fn refuse_noise(surroundings: &Surroundings) -> Result<(), EnvironmentsError> {
    let missing: Vec<_> = NOISE_REQUIRED.into_iter().filter(|name| !surroundings.is_set(name)).collect();
    match missing.len() {
        0 => Err(EnvironmentsError::NoiseNotSupported),
        all if all == NOISE_REQUIRED.len() => Ok(()),
        _ => Err(EnvironmentsError::NoiseIncomplete { missing }),
    }
}

fn from_variables(surroundings: &Surroundings) -> Result<Environments, EnvironmentsError> {
    let Some((name, url)) = surroundings.first_text([URL, CODEX_URL])? else {
        return Ok(Environments::only(EnvironmentSpec::local()));
    };
    if url.eq_ignore_ascii_case(NONE) {
        return Ok(Environments::default());
    }
    let url = entry::checked_url(url).map_err(|problem| EnvironmentsError::Variable { name, problem })?;
    let way = Way::Url { url, ca_file: None, token_file: None };
    Ok(Environments::only(EnvironmentSpec::new(REMOTE, way)))
}

#[cfg(test)]
mod tests;
