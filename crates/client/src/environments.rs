//! The environments that a user has configured, and which of them is the default. An environment is a machine on
//! which processes can run: this machine, or the machine of a server. `Environments::load` reads the file
//! `environments.toml` and some variables of this process once. This module connects to nothing.

mod environment_table;
mod error;
mod file;
mod home_and_variables;
mod remote_location;
mod value_types;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use error::{EntryProblem, EnvironmentsError, Problem};
pub use home_and_variables::HomeAndVariables;
pub use remote_location::{RemoteCredential, RemoteLocation};

use recovery::DEFAULT_SILENCE_TIMEOUT;

use crate::path_map::PathMap;
use home_and_variables::{CODEX_EXEC_SERVER_URL, EXEC_SERVER_REMOTE, EXEC_SERVER_URL, RELAY_VARIABLES};

/// The id of the environment that is this machine.
const LOCAL: &str = "local";

/// The id of the environment whose URL is in a variable of this process.
const REMOTE: &str = "remote";

/// This word, in upper or lower case, instead of a URL means that there is no environment. Instead of the id of the
/// default environment, it means that there is no default.
const NONE: &str = "none";

/// Default of the limits for connecting and for the handshake. Long enough for a slow handshake over a long distance, short enough that
/// users do not believe that the program hangs.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Default of the limit for connecting through a service. The service is asked for up to 14 s, because an executor that was just
/// lost may return; after that the relay has 10 s, and the executor 12 s.
const REMOTE_CONNECT_TIMEOUT: Duration = Duration::from_secs(36);

/// The configured environments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Environments {
    /// The id of the environment to use when the user names none. It is a key of `entries`. `None` if there is no default.
    pub default: Option<String>,
    /// The service in which environments are looked for that are not among `entries`. `None`: there is none.
    pub service: Option<String>,
    /// All environments by their ids. This machine is among them, as `local`, unless the file excludes it, or a
    /// variable holds the URL of the only environment, or `none`.
    pub entries: BTreeMap<String, EnvironmentSpec>,
}

/// Where the configuration was found. With this value a program can tell its user why an environment is the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvironmentsSource {
    /// A file `environments.toml`, which takes precedence over a variable with a URL.
    File {
        /// The file that was read.
        path: PathBuf,
        /// Whether the file has the field `default`. Without that field the default is this machine, unless the file excludes this machine.
        names_default: bool,
    },
    /// The variable of this name, which holds the URL of the only environment, or `none`.
    Variable(&'static str),
    /// There is neither a file nor a variable with a URL, so this machine is the only environment.
    Unconfigured,
}

/// The configuration of one environment.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvironmentSpec {
    /// The name by which users choose the environment. It is unique.
    pub id: String,
    /// How the client reaches the environment.
    pub location: EnvironmentLocation,
    /// Limit for making a connection.
    pub connect_timeout: Duration,
    /// Limit for the answer to `initialize`.
    pub initialize_timeout: Duration,
    /// A WebSocket counts as lost when the server has given no sign of life for this long.
    pub silence_timeout: Duration,
}

/// How an environment is reached.
#[derive(Clone, Debug, PartialEq)]
pub enum EnvironmentLocation {
    /// The environment is this machine.
    Local,
    /// A server that listens on a URL.
    Url {
        /// `ws://HOST`, `wss://HOST` or `unix:///PATH`.
        url: String,
        /// File with the certificates to trust instead of those of the system. Only with `wss://`.
        ca_file: Option<PathBuf>,
        /// File with the token that the client sends. Not with `unix://`.
        token_file: Option<PathBuf>,
    },
    /// A program that serves on its stdin and stdout.
    Program {
        /// The program: a path, or a name that is looked up in `PATH`.
        program: String,
        /// The arguments of the program.
        args: Vec<String>,
        /// Variables that the program gets in addition to the inherited ones.
        env: BTreeMap<String, String>,
        /// The working directory of the program, as an absolute path. `None` means that of this process.
        cwd: Option<PathBuf>,
    },
    /// A server that the client starts over ssh.
    Ssh {
        /// The destination as `ssh` takes it. It does not begin with `-`, so that `ssh` cannot take it for an option.
        host: String,
        /// The server program on that machine.
        program: String,
        /// Maps paths of this machine to paths of that machine, and back.
        paths: PathMap,
    },
    /// A server that a service and its relay lead to.
    Remote(RemoteLocation),
}

impl Environments {
    /// Loads the configuration: the file if there is one, else the variable with a URL, else this machine alone.
    pub fn load(variables: &HomeAndVariables) -> Result<Self, EnvironmentsError> {
        Self::load_with_source(variables).map(|(environments, _)| environments)
    }

    /// As [`load`](Self::load), and also returns where the configuration was found.
    pub fn load_with_source(variables: &HomeAndVariables) -> Result<(Self, EnvironmentsSource), EnvironmentsError> {
        if let Some(location) = remote_location::from_variables(variables)? {
            let environments = Self::only(EnvironmentSpec::remote(REMOTE, location));
            return Ok((environments, EnvironmentsSource::Variable(RELAY_VARIABLES[0])));
        }
        let service = service_of_variable(variables)?;
        let (environments, source) = match file::find(variables)? {
            None => from_variables(variables)?,
            Some(found) => {
                let (environments, names_default) = file::parse(&found.text, &found.path)?;
                (environments, EnvironmentsSource::File { path: found.path, names_default })
            }
        };
        Ok((Self { service: service.or(environments.service), ..environments }, source))
    }

    /// The paths at which `environments.toml` is looked for, in this order.
    pub fn candidate_files(variables: &HomeAndVariables) -> Vec<PathBuf> {
        file::candidates(variables).collect()
    }

    /// Reads the text of an `environments.toml`. Relative paths in the text are resolved against the directory of `path`; if that directory
    /// is not absolute, relative paths are refused. The file itself is not opened.
    pub fn from_toml(text: &str, path: &Path) -> Result<Self, EnvironmentsError> {
        file::parse(text, path).map(|(environments, _)| environments)
    }

    /// The environment to use when the user names none.
    pub fn default_environment(&self) -> Option<&EnvironmentSpec> {
        self.entries.get(self.default.as_ref()?)
    }

    /// The environment of this id: a configured one, or else one of the service.
    pub fn find(&self, id: &str) -> Option<EnvironmentSpec> {
        if let Some(spec) = self.entries.get(id) {
            return Some(spec.clone());
        }
        let service = self.service.clone().filter(|_| id != LOCAL && !id.eq_ignore_ascii_case(NONE))?;
        let environment_id = remote_location::checked_environment_id(id).ok()?;
        let (pinned_key, ca_file, credential) = (None, None, RemoteCredential::Found);
        let location = RemoteLocation { service, environment_id, pinned_key, ca_file, credential };
        Some(EnvironmentSpec::remote(id, location))
    }

    /// Whether the configuration lets processes run on this machine.
    pub fn includes_local(&self) -> bool {
        self.entries.contains_key(LOCAL)
    }

    /// A configuration with one environment, which is the default.
    fn only(spec: EnvironmentSpec) -> Self {
        Self { default: Some(spec.id.clone()), service: None, entries: BTreeMap::from([(spec.id.clone(), spec)]) }
    }
}

impl EnvironmentSpec {
    fn new(id: &str, location: EnvironmentLocation) -> Self {
        Self {
            id: id.to_owned(),
            location,
            connect_timeout: DEFAULT_TIMEOUT,
            initialize_timeout: DEFAULT_TIMEOUT,
            silence_timeout: DEFAULT_SILENCE_TIMEOUT,
        }
    }

    fn remote(id: &str, location: RemoteLocation) -> Self {
        let connect_timeout = REMOTE_CONNECT_TIMEOUT;
        Self { connect_timeout, ..Self::new(id, EnvironmentLocation::Remote(location)) }
    }

    fn local() -> Self {
        Self::new(LOCAL, EnvironmentLocation::Local)
    }
}

/// The service that a variable names for environments that no file names.
fn service_of_variable(variables: &HomeAndVariables) -> Result<Option<String>, EnvironmentsError> {
    let text = variables.text(EXEC_SERVER_REMOTE);
    let service = text.and_then(|text| text.map(remote_location::checked_service).transpose());
    service.map_err(|problem| EnvironmentsError::Variable { name: EXEC_SERVER_REMOTE, problem })
}

/// The environment whose URL is in a variable, or this machine if no such variable is set.
fn from_variables(variables: &HomeAndVariables) -> Result<(Environments, EnvironmentsSource), EnvironmentsError> {
    let Some((name, url)) = variables.first_url([EXEC_SERVER_URL, CODEX_EXEC_SERVER_URL])? else {
        return Ok((Environments::only(EnvironmentSpec::local()), EnvironmentsSource::Unconfigured));
    };
    let source = EnvironmentsSource::Variable(name);
    if url.eq_ignore_ascii_case(NONE) {
        return Ok((Environments::default(), source));
    }
    let url = environment_table::checked_url(url).map_err(|problem| EnvironmentsError::Variable { name, problem })?;
    let location = EnvironmentLocation::Url { url, ca_file: None, token_file: None };
    Ok((Environments::only(EnvironmentSpec::new(REMOTE, location)), source))
}

#[cfg(test)]
mod tests;
