//! The configuration files of the machine, of its user and of a project: where they are, and what they say about some keys. What
//! the keys mean is the client's business.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use files::{FileError, Follow};
use protocol::{ConfigLayer, ConfigLayers, ConfigReadResult, ConfigSource, PathUri};

use super::child_env::Variables;
use super::toml_selection::{Selection, Unparsable};

/// A file with more in it is not one that a person has written.
const FILE_BYTES: u64 = 1 << 20;
const SYSTEM_DIRECTORY: &str = "/etc/codex";
const CONFIG_FILE: &str = "config.toml";
const REQUIREMENTS_FILE: &str = "requirements.toml";
/// In the home directory of a user, and in directories of a project.
const CODEX_DIRECTORY: &str = ".codex";
/// What a project has at its root.
const PROJECT_MARKER: &str = ".git";

/// Why configuration cannot be told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("the home directory of the user is unknown; start the server with HOME or CODEX_HOME set")]
    NoHome,
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: FileError },
    #[error("cannot read {}: it is not UTF-8", path.display())]
    NotUtf8 { path: PathBuf },
    #[error("{}:{}: {}", path.display(), why.line, why.problem)]
    Broken { path: PathBuf, why: Unparsable },
}

/// Where the files of a machine are, the project aside.
pub(crate) struct ConfigPlaces {
    system: PathBuf,
    user_home: Option<PathBuf>,
    codex_home: Option<PathBuf>,
}

impl ConfigPlaces {
    /// As the environment of the server says, and else the user's entry in `/etc/passwd`.
    pub(crate) fn of_machine(variables: &Variables) -> Self {
        let directory = |name: &str| {
            let value = variables.get(OsStr::new(name)).filter(|value| !value.is_empty())?;
            std::path::absolute(value).ok()
        };
        let user_home = directory("HOME").or_else(home_from_passwd);
        let codex_home = directory("CODEX_HOME").or_else(|| Some(user_home.as_ref()?.join(CODEX_DIRECTORY)));
        Self { system: SYSTEM_DIRECTORY.into(), user_home, codex_home }
    }

    /// What the files say about the keys. Files about which nothing is asked are not looked at.
    pub(crate) fn read(
        &self,
        cwd: &Path,
        config_paths: &[Vec<String>],
        requirements_paths: &[Vec<String>],
    ) -> Result<ConfigReadResult, ConfigError> {
        let codex_home = self.codex_home.as_deref().ok_or(ConfigError::NoHome)?;
        Ok(ConfigReadResult {
            user_home_dir: self.user_home.as_deref().and_then(PathUri::from_native),
            codex_home_dir: PathUri::from_native(codex_home).ok_or(ConfigError::NoHome)?,
            hostname: hostname(),
            config: self.config(cwd, codex_home, &Selection::new(config_paths))?,
            requirements: self.requirements(&Selection::new(requirements_paths))?,
        })
    }

    fn config(&self, cwd: &Path, codex_home: &Path, selection: &Selection) -> Result<ConfigLayers, ConfigError> {
        let system = layer(&self.system, CONFIG_FILE, selection, |file| ConfigSource::System { file })?;
        // What a user says counts more than what an organisation prefers, and the machine's less.
        let cloud_insertion_index = usize::from(system.is_some());
        let mut layers: Vec<_> = system.into_iter().collect();
        layers.extend(layer(codex_home, CONFIG_FILE, selection, |file| ConfigSource::User { file })?);
        for directory in project_directories(cwd) {
            let directory = directory.join(CODEX_DIRECTORY);
            // Whoever works in the home directory has one file, not two.
            if !is_same(&directory, codex_home) {
                layers.extend(layer(&directory, CONFIG_FILE, selection, |file| ConfigSource::Project { file })?);
            }
        }
        Ok(ConfigLayers { layers, cloud_insertion_index })
    }

    fn requirements(&self, selection: &Selection) -> Result<ConfigLayers, ConfigError> {
        let system = layer(&self.system, REQUIREMENTS_FILE, selection, |file| ConfigSource::System { file })?;
        let layers: Vec<_> = system.into_iter().collect();
        // What an organisation requires counts more than what one machine does.
        Ok(ConfigLayers { cloud_insertion_index: layers.len(), layers })
    }
}

/// From the nearest directory above that looks like the root of a project down to `cwd`; `cwd` alone if none does.
fn project_directories(cwd: &Path) -> Vec<&Path> {
    let is_root = |directory: &&Path| files::metadata(&directory.join(PROJECT_MARKER), Follow::Yes).is_ok();
    let root = cwd.ancestors().find(is_root).unwrap_or(cwd);
    let mut directories: Vec<_> = cwd.ancestors().take_while(|directory| directory.starts_with(root)).collect();
    directories.reverse();
    directories
}

fn is_same(one: &Path, other: &Path) -> bool {
    one == other
        || matches!((files::canonicalize(one), files::canonicalize(other)), (Ok(one), Ok(other)) if one == other)
}

/// A file that is there is a layer, even if it says nothing about the keys.
fn layer(
    directory: &Path,
    name: &str,
    selection: &Selection,
    source: impl FnOnce(PathUri) -> ConfigSource,
) -> Result<Option<ConfigLayer>, ConfigError> {
    let path = directory.join(name);
    let (Some(file), Some(base_dir)) = (PathUri::from_native(&path), PathUri::from_native(directory)) else {
        return Ok(None);
    };
    if selection.is_empty() {
        return Ok(None);
    }
    let bytes = match files::read_file(&path, Follow::Yes, FILE_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(source) => return Err(ConfigError::Unreadable { path, source }),
    };
    let Ok(text) = String::from_utf8(bytes) else { return Err(ConfigError::NotUtf8 { path }) };
    match selection.of(&text) {
        Ok(toml) => Ok(Some(ConfigLayer { source: source(file), base_dir, toml })),
        Err(why) => Err(ConfigError::Broken { path, why }),
    }
}

fn hostname() -> Option<String> {
    let name = rustix::system::uname().nodename().to_str().ok()?.to_owned();
    (!name.is_empty()).then_some(name)
}

fn home_from_passwd() -> Option<PathBuf> {
    let passwd = std::fs::read("/etc/passwd").ok()?;
    let home = super::passwd::field(&passwd, rustix::process::getuid().as_raw(), super::passwd::HOME)?;
    Some(PathBuf::from(OsStr::from_bytes(home))).filter(|home| home.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Machine {
        directory: tempfile::TempDir,
    }

    impl Machine {
        fn new() -> Self {
            Self { directory: tempfile::tempdir().unwrap() }
        }

        fn at(&self, path: &str) -> PathBuf {
            self.directory.path().join(path)
        }

        fn write(&self, path: &str, text: impl AsRef<[u8]>) {
            std::fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
            std::fs::write(self.at(path), text).unwrap();
        }

        fn read(&self, cwd: &str, config: &[&[&str]], requirements: &[&[&str]]) -> Result<ConfigReadResult, String> {
            let owned = |paths: &[&[&str]]| -> Vec<Vec<String>> {
                paths.iter().map(|path| path.iter().map(ToString::to_string).collect()).collect()
            };
            let places = ConfigPlaces {
                system: self.at("etc"),
                user_home: Some(self.at("home")),
                codex_home: Some(self.at("home/.codex")),
            };
            places.read(&self.at(cwd), &owned(config), &owned(requirements)).map_err(|error| error.to_string())
        }
    }

    fn texts(layers: &ConfigLayers) -> Vec<&str> {
        layers.layers.iter().map(|layer| layer.toml.as_str()).collect()
    }

    #[test]
    fn layers_come_from_the_machine_the_user_and_the_project_down_to_the_cwd() {
        let machine = Machine::new();
        for (path, name) in [
            ("etc/config.toml", "system"),
            ("home/.codex/config.toml", "user"),
            ("outside/.codex/config.toml", "not part of the project"),
            ("outside/project/.codex/config.toml", "root"),
            ("outside/project/a/b/.codex/config.toml", "cwd"),
        ] {
            machine.write(path, format!("model = \"{name}\"\nother = 1\n"));
        }
        std::fs::create_dir(machine.at("outside/project/.git")).unwrap();
        let result = machine.read("outside/project/a/b", &[&["model"]], &[]).unwrap();
        assert_eq!(
            texts(&result.config),
            ["model = \"system\"\n", "model = \"user\"\n", "model = \"root\"\n", "model = \"cwd\"\n"]
        );
        assert_eq!(result.config.cloud_insertion_index, 1);
        assert_eq!(result.requirements, ConfigLayers::default());
        let uri = |path: &str| PathUri::from_native(&machine.at(path)).unwrap();
        assert_eq!(
            result.config.layers[3],
            ConfigLayer {
                source: ConfigSource::Project { file: uri("outside/project/a/b/.codex/config.toml") },
                base_dir: uri("outside/project/a/b/.codex"),
                toml: "model = \"cwd\"\n".into(),
            }
        );
    }

    #[test]
    fn requirements_are_the_machines() {
        let machine = Machine::new();
        machine.write("etc/requirements.toml", "[mcp_servers.x]\nurl = \"u\"\n");
        machine.write("home/.codex/requirements.toml", "[mcp_servers.y]\nurl = \"u\"\n");
        let result = machine.read("work", &[], &[&["mcp_servers"]]).unwrap();
        assert_eq!(texts(&result.requirements), ["[mcp_servers.x]\nurl = \"u\"\n"]);
        assert_eq!(result.requirements.cloud_insertion_index, 1);
        assert_eq!(result.config, ConfigLayers::default());
    }

    #[test]
    fn without_a_project_only_the_cwd_counts_and_the_home_counts_once() {
        let machine = Machine::new();
        machine.write("work/.codex/config.toml", "a = 1");
        machine.write("work/in/.codex/config.toml", "a = 2");
        machine.write("home/.codex/config.toml", "a = 3");
        assert_eq!(texts(&machine.read("work/in", &[&["a"]], &[]).unwrap().config), ["a = 3\n", "a = 2\n"]);
        let at_home = machine.read("home", &[&["a"]], &[]).unwrap();
        assert_eq!(texts(&at_home.config), ["a = 3\n"]);
        assert_eq!(at_home.config.cloud_insertion_index, 0);
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let machine = Machine::new();
        let file = machine.at("home/.codex/config.toml").display().to_string();
        let refused = |text: &[u8]| {
            machine.write("home/.codex/config.toml", text);
            machine.read("work", &[&["a"]], &[]).unwrap_err()
        };
        assert!(refused(b"a = 1\nb = = 2").starts_with(&format!("{file}:2: ")));
        assert_eq!(refused(b"a = \"\xff\""), format!("cannot read {file}: it is not UTF-8"));
        let large = refused(&[b'#'; FILE_BYTES as usize + 1]);
        assert_eq!(large, format!("cannot read {file}: file is too large to read: limit is 1048576 bytes"));
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        let directory = machine.read("work", &[&["a"]], &[]).unwrap_err();
        assert!(directory.starts_with(&format!("cannot read {file}: ")), "{directory}");
    }
}
