//! Reads selected keys from the Codex configuration files of the machine, of its user and of a project. Each file is
//! one layer of the result; a later layer overrides an earlier one. The result has two lists of layers: the
//! configuration, and the requirements, by which an administrator limits the values that the configuration may have.
//!
//! The client interprets the keys. This module interprets only the keys that decide which projects are trusted
//! (`trust`), the keys of `managed_config.toml` that become requirements (`managed`), and the keys that a project may
//! not set (`project`).

mod document;
mod error;
mod git;
mod host_name;
mod managed;
mod project;
mod selection;
mod trust;

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use files::{FileRoot, Follow};
use protocol::{ConfigLayer, ConfigLayers, ConfigReadResult, PathUri};
use toml::Table;

pub(crate) use error::ConfigError;

use self::document::{DocumentReader, FileRole};
use self::selection::Selection;
use super::child_env::Variables;
use crate::limits::MAX_CONFIG_PATH_BYTES;

const SYSTEM_DIRECTORY: &str = "/etc/codex";
const CONFIG_FILE: &str = "config.toml";
/// An older file for administrators. It is a layer of the configuration, and some of its keys become requirements.
const MANAGED_FILE: &str = "managed_config.toml";
const REQUIREMENTS_FILE: &str = "requirements.toml";
/// Directory with a configuration file, in the home directory of a user and in directories of a project.
const CODEX_DIRECTORY: &str = ".codex";

/// The contents of one file, or the requirements that follow from it, before the keys that the client asks for are
/// selected.
struct Layer {
    /// Kind and path of the file, for people.
    source: String,
    /// Relative paths in the file are relative to this directory.
    directory: PathBuf,
    table: Table,
}

/// The directories with the configuration files of the machine and of its user.
pub(crate) struct ConfigLocations {
    /// The directory of the machine. `/etc/codex` except in tests.
    system: PathBuf,
    user_home: Option<PathBuf>,
    /// The value of the variable `CODEX_HOME`.
    codex_home: Option<OsString>,
}

impl ConfigLocations {
    /// Finds the home directory from the variables of the server, or from the entry of the user in `/etc/passwd`.
    pub(crate) fn of_machine(variables: &Variables) -> Self {
        let given = |name: &str| variables.get(OsStr::new(name)).filter(|value| !value.is_empty());
        let user_home = given("HOME").and_then(|home| std::path::absolute(home).ok()).or_else(home_from_passwd);
        Self { system: SYSTEM_DIRECTORY.into(), user_home, codex_home: given("CODEX_HOME").cloned() }
    }

    /// Reads the keys for a client that works in `cwd`. All files are read for every request, even if no key of a file is asked for, so that
    /// every request reports a broken file.
    pub(crate) fn read(
        &self,
        cwd: &Path,
        config_paths: &[Vec<String>],
        requirements_paths: &[Vec<String>],
    ) -> Result<ConfigReadResult, ConfigError> {
        if cwd.as_os_str().len() > MAX_CONFIG_PATH_BYTES {
            return Err(ConfigError::CwdTooLong { limit: MAX_CONFIG_PATH_BYTES });
        }
        let codex_home = self.find_codex_home()?;
        let codex_home_dir = PathUri::from_native(&codex_home).ok_or_else(ConfigError::no_home)?;
        let managed_path = self.system.join(MANAGED_FILE);
        let mut reader = DocumentReader::new();
        let system = reader.document(&self.system.join(CONFIG_FILE), FileRole::Config)?;
        let user = reader.document(&codex_home.join(CONFIG_FILE), FileRole::Config)?;
        let managed = reader.document(&managed_path, FileRole::Managed)?;
        let requirements = reader.document(&self.system.join(REQUIREMENTS_FILE), FileRole::Requirements)?;
        let managed_requirements = managed::requirements(&managed)?;
        let project_trust = trust::ProjectTrust::from_layers([&system, &user, &managed])?;
        let projects = project::layers(cwd, &codex_home, &project_trust, &mut reader)?;

        let named = |label: &str, path: &Path| format!("{label} ({})", path.display());
        let layer =
            |source: String, directory: &Path, table| Layer { source, directory: directory.to_owned(), table };
        let system_layer = layer(named("system", &self.system.join(CONFIG_FILE)), &self.system, system);
        let user_layer = layer(named("user", &codex_home.join(CONFIG_FILE)), &codex_home, user);
        let managed_layer = layer(named("legacy managed_config.toml", &managed_path), &self.system, managed);
        let plain = |name: &str, table| layer(self.system.join(name).display().to_string(), &self.system, table);
        // A client inserts the settings of its organisation above the layer of the machine and below the layer of the user.
        let above_machine = [user_layer].into_iter().chain(projects).chain([managed_layer]);
        Ok(ConfigReadResult {
            user_home_dir: self.user_home.as_deref().and_then(PathUri::from_native),
            codex_home_dir,
            hostname: host_name::of_machine(),
            config: select_from_layers(config_paths, system_layer, above_machine)?,
            requirements: select_from_layers(
                requirements_paths,
                plain(REQUIREMENTS_FILE, requirements),
                [plain(MANAGED_FILE, managed_requirements)],
            )?,
        })
    }

    fn find_codex_home(&self) -> Result<PathBuf, ConfigError> {
        let Some(given) = &self.codex_home else {
            return Ok(self.user_home.as_ref().ok_or_else(ConfigError::no_home)?.join(CODEX_DIRECTORY));
        };
        let path = Path::new(given);
        match files::metadata(FileRoot::host(), path, Follow::Yes) {
            Ok(metadata) if metadata.is_directory => files::canonicalize(FileRoot::host(), path)
                .map_err(|error| ConfigError::home_access_failed(path, error)),
            Ok(_) => Err(ConfigError::home_is_no_directory(path, "but that path is not a directory")),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(ConfigError::home_is_no_directory(path, "but that path does not exist"))
            }
            Err(error) => Err(ConfigError::home_access_failed(path, error)),
        }
    }
}

/// The layers with the keys of `paths` only, without layers that have none of them. `cloud_insertion_index` is the
/// index between `first` and `rest`, where the client inserts settings that it gets from elsewhere.
fn select_from_layers(
    paths: &[Vec<String>],
    first: Layer,
    rest: impl IntoIterator<Item = Layer>,
) -> Result<ConfigLayers, ConfigError> {
    let selection = Selection::new(paths);
    let mut layers = Vec::new();
    layers.extend(select_from_layer(&selection, first)?);
    let cloud_insertion_index = layers.len();
    for layer in rest {
        layers.extend(select_from_layer(&selection, layer)?);
    }
    Ok(ConfigLayers { layers, cloud_insertion_index })
}

/// A layer with the selected keys only. None if it has none of them, or if its directory has no URI.
fn select_from_layer(selection: &Selection<'_>, layer: Layer) -> Result<Option<ConfigLayer>, ConfigError> {
    let table = selection.select_from(&layer.table);
    let Some(base_dir) = PathUri::from_native(&layer.directory).filter(|_| !table.is_empty()) else {
        return Ok(None);
    };
    let toml = toml::to_string(&table).map_err(|error| ConfigError::load(error.to_string()))?;
    Ok(Some(ConfigLayer { source: layer.source, base_dir, toml }))
}

fn home_from_passwd() -> Option<PathBuf> {
    let passwd = std::fs::read("/etc/passwd").ok()?;
    let home = super::passwd::field(&passwd, rustix::process::getuid().as_raw(), super::passwd::HOME)?;
    Some(PathBuf::from(OsStr::from_bytes(home))).filter(|home| home.is_absolute())
}

#[cfg(test)]
mod tests;
