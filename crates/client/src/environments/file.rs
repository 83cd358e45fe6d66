//! The file `environments.toml`: the directories where the client looks for it, and how it is read. The module
//! `environment_table` checks each `[[environments]]` table.

use std::io;
use std::path::{Path, PathBuf};

use files::{FileRoot, Follow};
use serde::Deserialize;
use toml::Spanned;
use toml::de::DeTable;

use super::environment_table::EnvironmentTable;
use super::error::{EnvironmentsError, Problem};
use super::home_and_variables::{CODEX_HOME, EXEC_SERVER_HOME, HomeAndVariables, XDG_CONFIG_HOME};
use super::remote_location::checked_service;
use super::{EnvironmentSpec, Environments, LOCAL, NONE, value_types};

const FILE_NAME: &str = "environments.toml";

/// The largest file that is read. Ten thousand environments need less.
const MAX_FILE_BYTES: u64 = 2 << 20;

/// The file that was found, with its contents.
pub(super) struct EnvironmentsFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// A problem, and the offset of the byte of the text at which it begins.
pub(super) struct LocatedProblem {
    pub(super) at: usize,
    pub(super) problem: Problem,
}

/// All fields of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    default: Option<Spanned<String>>,
    service: Option<Spanned<String>>,
    #[serde(default = "include_local_by_default")]
    include_local: bool,
    #[serde(default)]
    environments: Vec<Spanned<EnvironmentTable>>,
}

fn include_local_by_default() -> bool {
    true
}

/// Finds the first file that exists, and reads it. A file that exists and cannot be read is an error: if it were
/// skipped, processes would run on another machine than configured. So is a link that leads nowhere.
pub(super) fn find(variables: &HomeAndVariables) -> Result<Option<EnvironmentsFile>, EnvironmentsError> {
    for path in candidates(variables) {
        match read(&path) {
            Ok(Some(text)) => return Ok(Some(EnvironmentsFile { path, text })),
            Ok(None) => {}
            Err(source) => return Err(EnvironmentsError::Unreadable { path, source }),
        }
    }
    Ok(None)
}

/// Reads a file, without waiting for a FIFO or a device in its place. `None` if there is no file.
fn read(path: &Path) -> io::Result<Option<String>> {
    match files::read_file(FileRoot::host(), path, Follow::Yes, MAX_FILE_BYTES) {
        Ok(bytes) => {
            let text = String::from_utf8(bytes);
            text.map(Some).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            if path.is_symlink() {
                return Err(io::Error::new(error.kind(), "it is a link to a file that does not exist"));
            }
            Ok(None)
        }
        Err(error) => Err(io::Error::new(error.kind(), error)),
    }
}

/// The paths at which the file is looked for, in the order in which they are tried.
pub(super) fn candidates(variables: &HomeAndVariables) -> impl Iterator<Item = PathBuf> {
    let home = variables.home();
    // The XDG specification says that a relative path is ignored.
    let config_home = variables.directory(XDG_CONFIG_HOME).filter(|path| path.is_absolute()).map(Path::to_owned);
    let config_home = config_home.or_else(|| home.map(|home| home.join(".config")));
    let directories = [
        variables.directory(EXEC_SERVER_HOME).map(Path::to_owned),
        variables.directory(CODEX_HOME).map(Path::to_owned),
        config_home.map(|path| path.join("exec-server")),
        home.map(|home| home.join(".codex")),
    ];
    directories.into_iter().flatten().map(|directory| directory.join(FILE_NAME))
}

/// The environments of a file, and whether the file has the field `default`. `path` is the path of the file, which is
/// not opened.
pub(super) fn parse(text: &str, path: &Path) -> Result<(Environments, bool), EnvironmentsError> {
    let directory = path.parent().filter(|directory| directory.is_absolute());
    parse_document(text, directory).map_err(|located| EnvironmentsError::File {
        path: path.to_owned(),
        line: line_of(text, located.at),
        problem: located.problem,
    })
}

/// As [`parse`], but the error has an offset instead of the path and the line. `directory` is the directory of the
/// file, and `None` if that is not an absolute path.
fn parse_document(text: &str, directory: Option<&Path>) -> Result<(Environments, bool), LocatedProblem> {
    let located = |error: toml::de::Error| LocatedProblem {
        at: error.span().map_or(0, |span| span.start),
        problem: Problem::Toml(error.message().to_owned()),
    };
    value_types::check(DeTable::parse(text).map_err(located)?.get_ref())?;
    let document: Document = toml::from_str(text).map_err(located)?;
    let mut environments = Environments::default();
    if document.include_local {
        environments.entries.insert(LOCAL.to_owned(), EnvironmentSpec::local());
    }
    environments.service = document.service.map(|service| checked_document_service(&service)).transpose()?;
    for table in document.environments {
        let at = table.get_ref().id_offset();
        let spec = EnvironmentTable::into_spec(table, directory)?;
        if environments.entries.contains_key(&spec.id) {
            return Err(LocatedProblem { at, problem: Problem::DuplicateId(spec.id) });
        }
        environments.entries.insert(spec.id.clone(), spec);
    }
    let names_default = document.default.is_some();
    environments.default = checked_default(&environments, document.default)?;
    Ok((environments, names_default))
}

fn checked_document_service(service: &Spanned<String>) -> Result<String, LocatedProblem> {
    let checked = checked_service(service.get_ref());
    checked.map_err(|problem| LocatedProblem { at: service.span().start, problem: Problem::Service(problem) })
}

/// The id of the default environment, if there is one. `default` is the field of the file. Without the field, this
/// machine is the default, if it is among the environments.
fn checked_default(
    environments: &Environments,
    default: Option<Spanned<String>>,
) -> Result<Option<String>, LocatedProblem> {
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
        false if id == LOCAL => Err(LocatedProblem { at, problem: Problem::ExcludedDefault }),
        false => Err(LocatedProblem { at, problem: Problem::UnknownDefault(id) }),
    }
}

/// The number of the line that has the byte at the offset `at`. The first line is 1.
fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}
