//! The home directory and the variables that decide which environments (machines on which processes can run) are
//! configured. They are read once and passed on as a value, so that tests can use other values.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use super::error::{EntryProblem, EnvironmentsError};

pub(super) const EXEC_SERVER_HOME: &str = "EXEC_SERVER_HOME";
pub(super) const CODEX_HOME: &str = "CODEX_HOME";
pub(super) const XDG_CONFIG_HOME: &str = "XDG_CONFIG_HOME";
pub(super) const EXEC_SERVER_URL: &str = "EXEC_SERVER_URL";
pub(super) const CODEX_EXEC_SERVER_URL: &str = "CODEX_EXEC_SERVER_URL";

/// The variables that name an environment behind a relay. Such an environment needs all of them. `NOISE` in their
/// names is the name of an encryption protocol.
pub(super) const RELAY_VARIABLES: [&str; 3] = [
    "CODEX_EXEC_SERVER_NOISE_REGISTRY_URL",
    "CODEX_EXEC_SERVER_NOISE_ENVIRONMENT_ID",
    "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
];

/// The account that the token of an environment behind a relay belongs to. It may be missing.
pub(super) const RELAY_ACCOUNT: &str = "CODEX_EXEC_SERVER_NOISE_CHATGPT_ACCOUNT_ID";

/// The service in which an environment is looked for that no file names.
pub(super) const EXEC_SERVER_REMOTE: &str = "EXEC_SERVER_REMOTE";

/// The home directory and the variables that decide which environments are configured.
#[derive(Clone, Default)]
pub struct HomeAndVariables {
    home: Option<PathBuf>,
    variables: BTreeMap<&'static str, OsString>,
}

impl HomeAndVariables {
    /// Takes the home directory of this process, and the variables that the configuration depends on. No other
    /// variable is read.
    pub fn of_this_process() -> Self {
        let names = [EXEC_SERVER_HOME, CODEX_HOME, XDG_CONFIG_HOME, EXEC_SERVER_URL, CODEX_EXEC_SERVER_URL];
        let names = names.into_iter().chain(RELAY_VARIABLES).chain([RELAY_ACCOUNT, EXEC_SERVER_REMOTE]);
        let variables = names.filter_map(|name| Some((name, std::env::var_os(name)?))).collect();
        Self { home: std::env::home_dir(), variables }
    }

    /// Replaces the home directory.
    pub fn with_home(mut self, home: impl Into<PathBuf>) -> Self {
        self.home = Some(home.into());
        self
    }

    /// Sets a variable.
    pub fn with_variable(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.variables.insert(name, value.into());
        self
    }

    /// The home directory. `None` if it is not known or empty.
    pub(super) fn home(&self) -> Option<&Path> {
        self.home.as_deref().filter(|home| !home.as_os_str().is_empty())
    }

    /// Whether the variable has a value that is not blank.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// The value of the variable, unless it is blank. Fails if it is not UTF-8.
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, EntryProblem> {
        self.value(name).map(|value| value.to_str().ok_or(EntryProblem::NotUtf8)).transpose()
    }

    /// The value of the variable as a path. `None` if the variable is blank or not set.
    pub(super) fn directory(&self, name: &str) -> Option<&Path> {
        self.value(name).map(Path::new)
    }

    /// Name and value of the first of these variables that is set, without white space around the value. All of them
    /// hold URLs. Fails if the value is not UTF-8.
    pub(super) fn first_url<const N: usize>(
        &self,
        names: [&'static str; N],
    ) -> Result<Option<(&'static str, &str)>, EnvironmentsError> {
        let first = names.into_iter().find_map(|name| Some((name, self.value(name)?)));
        let Some((name, value)) = first else { return Ok(None) };
        match value.to_str() {
            Some(text) => Ok(Some((name, text.trim()))),
            None => Err(EnvironmentsError::Variable { name, problem: EntryProblem::Url }),
        }
    }

    /// The value of the variable, unless it is blank.
    fn value(&self, name: &str) -> Option<&OsString> {
        self.variables.get(name).filter(|value| !value.to_string_lossy().trim().is_empty())
    }
}

/// Shows only the names of the variables, because a value may be a secret: a token, or a URL with a password.
impl fmt::Debug for HomeAndVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.variables.keys().collect();
        f.debug_struct("HomeAndVariables").field("home", &self.home).field("variables", &names).finish()
    }
}
