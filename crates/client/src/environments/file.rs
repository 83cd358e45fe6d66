//! `environments.toml`: where it is looked for, and what it says as a whole. What one environment says is in `entry`.

use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use super::entry::Entry;
use super::error::{EnvironmentsError, Problem};
use super::surroundings::{CODEX_HOME, CONFIG_HOME, HOME, Surroundings};
use super::{EnvironmentSpec, Environments, LOCAL, NONE};

const FILE_NAME: &str = "environments.toml";

/// A file that exists.
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// A problem and the byte of the text at which it begins.
pub(super) struct Misfit {
    pub(super) at: usize,
    pub(super) problem: Problem,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    default: Option<Spanned<String>>,
    #[serde(default = "included")]
    include_local: bool,
    #[serde(default)]
    environments: Vec<Spanned<Entry>>,
}

fn included() -> bool {
    true
}

/// The first file that exists. One that exists and cannot be read is an error: passing over it would run things
/// elsewhere than configured.
pub(super) fn find(surroundings: &Surroundings) -> Result<Option<Found>, EnvironmentsError> {
    for path in places(surroundings) {
        match std::fs::read_to_string(&path) {
            Ok(text) => return Ok(Some(Found { path, text })),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(source) => return Err(EnvironmentsError::Unreadable { path, source }),
        }
    }
    Ok(None)
}

fn places(surroundings: &Surroundings) -> impl Iterator<Item = PathBuf> {
    let home = surroundings.home();
    // The XDG specification wants a relative one ignored.
    let config_home = surroundings.directory(CONFIG_HOME).filter(|path| path.is_absolute()).map(Path::to_owned);
    let config_home = config_home.or_else(|| home.map(|home| home.join(".config")));
    let directories = [
        surroundings.directory(HOME).map(Path::to_owned),
        surroundings.directory(CODEX_HOME).map(Path::to_owned),
        config_home.map(|path| path.join("exec-server")),
        home.map(|home| home.join(".codex")),
    ];
    directories.into_iter().flatten().map(|directory| directory.join(FILE_NAME))
}

pub(super) fn parse(text: &str, path: &Path) -> Result<Environments, EnvironmentsError> {
    let directory = path.parent().filter(|directory| directory.is_absolute());
    read(text, directory).map_err(|misfit| EnvironmentsError::File {
        path: path.to_owned(),
        line: line_of(text, misfit.at),
        problem: misfit.problem,
    })
}

fn read(text: &str, directory: Option<&Path>) -> Result<Environments, Misfit> {
    let document: Document = toml::from_str(text).map_err(|error| Misfit {
        at: error.span().map_or(0, |span| span.start),
        problem: Problem::Toml(error.message().to_owned()),
    })?;
    let mut environments = Environments::default();
    if document.include_local {
        environments.entries.insert(LOCAL.to_owned(), EnvironmentSpec::local());
    }
    for entry in document.environments {
        let at = entry.get_ref().id_at();
        let spec = Entry::into_spec(entry, directory)?;
        if environments.entries.contains_key(&spec.id) {
            return Err(Misfit { at, problem: Problem::DuplicateId(spec.id) });
        }
        environments.entries.insert(spec.id.clone(), spec);
    }
    environments.default = default_of(&environments, document.default)?;
    Ok(environments)
}

fn default_of(environments: &Environments, default: Option<Spanned<String>>) -> Result<Option<String>, Misfit> {
    let Some(default) = default else {
        return Ok(environments.includes_local().then(|| LOCAL.to_owned()));
    };
    let at = default.span().start;
    let id = default.into_inner();
    if id.eq_ignore_ascii_case(NONE) {
        return Ok(None);
    }
    match environments.entries.contains_key(&id) {
        true => Ok(Some(id)),
        false if id == LOCAL => Err(Misfit { at, problem: Problem::ExcludedDefault }),
        false => Err(Misfit { at, problem: Problem::UnknownDefault(id) }),
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}
