//! The home directory and the variables that decide, taken from the process once, so that everything behind this is
//! the same for a made-up user as for a real one.

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

/// An environment behind a relay needs all of them.
pub(super) const NOISE_REQUIRED: [&str; 3] = [
    "CODEX_EXEC_SERVER_NOISE_REGISTRY_URL",
    "CODEX_EXEC_SERVER_NOISE_ENVIRONMENT_ID",
    "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
];

/// What of a process's surroundings decides which environments it has.
#[derive(Clone, Default)]
pub struct Surroundings {
    home: Option<PathBuf>,
    variables: BTreeMap<&'static str, OsString>,
}

impl Surroundings {
    /// Those of this process. Other variables than the ones that decide are not looked at.
    pub fn of_this_process() -> Self {
        let deciding = [HOME, CODEX_HOME, CONFIG_HOME, URL, CODEX_URL].into_iter().chain(NOISE_REQUIRED);
        let variables = deciding.filter_map(|name| Some((name, std::env::var_os(name)?))).collect();
        Self { home: std::env::home_dir(), variables }
    }

    /// The same with this home directory.
    pub fn with_home(mut self, home: impl Into<PathBuf>) -> Self {
        self.home = Some(home.into());
        self
    }

    /// The same with this variable.
    pub fn with_variable(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.variables.insert(name, value.into());
        self
    }

    pub(super) fn home(&self) -> Option<&Path> {
        self.home.as_deref().filter(|home| !home.as_os_str().is_empty())
    }

    /// Whether it has a value that is not blank.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    pub(super) fn directory(&self, name: &str) -> Option<&Path> {
        self.value(name).map(Path::new)
    }

    /// The first of these variables that is set, without the space around its value.
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

/// Names alone: one of the values is a secret.
impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.variables.keys().collect();
        f.debug_struct("Surroundings").field("home", &self.home).field("variables", &names).finish()
    }
}
