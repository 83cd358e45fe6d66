//! The home directory and the variables that the configuration depends on. They are read once and passed on as a value, so that tests can
//! use other values.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use super::error::{EntryProblem, EnvironmentsError};

pub(super) const HOME: &str = "EXEC_SERVER_HOME";
pub(super) const CODEX_HOME: &str = "CODEX_HOME";
pub(super) const CONFIG_HOME: &str = "XDG_CONFIG_HOME";
pub(super) const URL: &str = "EXEC_SERVER_URL";
pub(super) const CODEX_URL: &str = "CODEX_EXEC_SERVER_URL";

/// The variables that an environment behind a relay needs. All of them must be set.
pub(super) const NOISE_REQUIRED: [&str; 3] = [
    "CODEX_EXEC_SERVER_NOISE_REGISTRY_URL",
    "CODEX_EXEC_SERVER_NOISE_ENVIRONMENT_ID",
    "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
];

/// The home directory and the variables that decide which environments are configured.
#[derive(Clone, Default)]
pub struct HomeAndVariables {
    home: Option<PathBuf>,
    variables: BTreeMap<&'static str, OsString>,
}

impl HomeAndVariables {
    /// The home directory and the variables of this process. Other variables are not read.
    pub fn of_this_process() -> Self {
        let deciding = [HOME, CODEX_HOME, CONFIG_HOME, URL, CODEX_URL].into_iter().chain(NOISE_REQUIRED);
        let variables = deciding.filter_map(|name| Some((name, std::env::var_os(name)?))).collect();
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

    pub(super) fn home(&self) -> Option<&Path> {
        self.home.as_deref().filter(|home| !home.as_os_str().is_empty())
    }

    /// Whether the variable has a value that is not blank.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    pub(super) fn directory(&self, name: &str) -> Option<&Path> {
        self.value(name).map(Path::new)
    }

    /// Name and value of the first of these variables that is set, without white space around the value.
    pub(super) fn first_text<const N: usize>(
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

    fn value(&self, name: &str) -> Option<&OsString> {
        self.variables.get(name).filter(|value| !value.to_string_lossy().trim().is_empty())
    }
}

/// Shows only the names of the variables, because one of the values is a secret.
impl fmt::Debug for HomeAndVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.variables.keys().collect();
        f.debug_struct("HomeAndVariables").field("home", &self.home).field("variables", &names).finish()
    }
}
