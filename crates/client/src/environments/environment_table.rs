//! One `[[environments]]` table of the file `environments.toml`, which configures one environment, a machine on which
//! processes can run. This module decides which fields the table may have, and which of them go together.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use recovery::DEFAULT_SILENCE_TIMEOUT;
use serde::Deserialize;
use toml::Spanned;
use url::Url;

use super::error::{EntryProblem, Problem};
use super::file::LocatedProblem;
use super::remote_location::{
    RemoteCredential, RemoteLocation, checked_environment_id, checked_fingerprint, checked_service,
};
use super::{DEFAULT_TIMEOUT, EnvironmentLocation, EnvironmentSpec, LOCAL, NONE, REMOTE_CONNECT_TIMEOUT};
use crate::path_map::PathMap;

/// Limit for ids. Users type them, and lists show them.
const MAX_ID_CHARS: usize = 64;

/// The program that is started over ssh if `program` is not set.
const SERVER_PROGRAM: &str = "exec-server";

/// How error messages name the URLs of WebSockets.
const WEBSOCKET_URL: &str = "url = \"ws://…\" or \"wss://…\"";

/// The fields as the file has them. `docs/environments.md` says what they mean.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EnvironmentTable {
    id: Spanned<String>,
    url: Option<Spanned<String>>,
    ca_file: Option<Spanned<String>>,
    token_file: Option<Spanned<String>>,
    program: Option<Spanned<String>>,
    args: Option<Spanned<Vec<String>>>,
    env: Option<Spanned<BTreeMap<String, String>>>,
    cwd: Option<Spanned<String>>,
    ssh: Option<Spanned<String>>,
    local_root: Option<Spanned<String>>,
    remote_root: Option<Spanned<String>>,
    remote: Option<Spanned<String>>,
    environment_id: Option<Spanned<String>>,
    pinned_key: Option<Spanned<String>>,
    connect_timeout_sec: Option<Spanned<f64>>,
    initialize_timeout_sec: Option<Spanned<f64>>,
    silence_timeout_sec: Option<Spanned<f64>>,
}

/// The offset of the byte of the file at which a problem of this table begins, and the problem.
type TableProblem = (usize, EntryProblem);

impl EnvironmentTable {
    /// The offset of the byte of the file at which the value of `id` begins.
    pub(super) fn id_offset(&self) -> usize {
        self.id.span().start
    }

    /// Checks the fields, and makes the configuration of the environment from them. Neither opens a file nor
    /// connects. `directory` is the directory of `environments.toml`, and `None` if that is not an absolute path.
    pub(super) fn into_spec(
        table: Spanned<Self>,
        directory: Option<&Path>,
    ) -> Result<EnvironmentSpec, LocatedProblem> {
        let start = table.span().start;
        let table = table.into_inner();
        check_id(table.id.get_ref()).map_err(|problem| LocatedProblem { at: table.id_offset(), problem })?;
        let id = table.id.get_ref().clone();
        table
            .checked_spec(start, directory)
            .map_err(|(at, problem)| LocatedProblem { at, problem: Problem::Entry { id, problem } })
    }

    /// `start` is the offset of the byte of the file at which the table begins.
    fn checked_spec(self, start: usize, directory: Option<&Path>) -> Result<EnvironmentSpec, TableProblem> {
        let location = match (&self.url, &self.program, &self.ssh, &self.remote) {
            (Some(url), None, None, None) => self.url_location(url, directory)?,
            (None, Some(program), None, None) => self.program_location(program, directory)?,
            (None, program, Some(host), None) => self.ssh_location(host, program.as_ref())?,
            (None, None, None, Some(service)) => self.remote_location(service, directory)?,
            _ => return Err((start, EntryProblem::NotOneWay)),
        };
        let connect_timeout = if self.remote.is_some() { REMOTE_CONNECT_TIMEOUT } else { DEFAULT_TIMEOUT };
        Ok(EnvironmentSpec {
            connect_timeout: timeout("connect_timeout_sec", self.connect_timeout_sec.as_ref(), connect_timeout)?,
            initialize_timeout: timeout(
                "initialize_timeout_sec",
                self.initialize_timeout_sec.as_ref(),
                DEFAULT_TIMEOUT,
            )?,
            silence_timeout: timeout(
                "silence_timeout_sec",
                self.silence_timeout_sec.as_ref(),
                DEFAULT_SILENCE_TIMEOUT,
            )?,
            id: self.id.into_inner(),
            location,
        })
    }

    fn url_location(
        &self,
        url: &Spanned<String>,
        directory: Option<&Path>,
    ) -> Result<EnvironmentLocation, TableProblem> {
        self.refuse_fields_of_other_kinds("url")?;
        let at = url.span().start;
        let url = checked_url(url.get_ref()).map_err(|problem| (at, problem))?;
        if !url.starts_with("wss://") {
            refuse_if_set("ca_file", start_of(&self.ca_file), "url = \"wss://…\"")?;
        }
        if url.starts_with("unix://") {
            refuse_if_set("token_file", start_of(&self.token_file), WEBSOCKET_URL)?;
            // There are no pings over a Unix socket, and none are needed: the kernel reports the end of the
            // connection.
            refuse_if_set("silence_timeout_sec", start_of(&self.silence_timeout_sec), WEBSOCKET_URL)?;
        }
        let ca_file = resolved("ca_file", self.ca_file.as_ref(), directory)?;
        let token_file = resolved("token_file", self.token_file.as_ref(), directory)?;
        Ok(EnvironmentLocation::Url { url, ca_file, token_file })
    }

    fn program_location(
        &self,
        program: &Spanned<String>,
        directory: Option<&Path>,
    ) -> Result<EnvironmentLocation, TableProblem> {
        self.refuse_fields_of_other_kinds("program")?;
        let program = non_empty("program", program)?;
        let args = self.args.as_ref().map_or(Ok(Vec::new()), |args| {
            let fits = args.get_ref().iter().all(|arg| !arg.contains('\0'));
            if fits { Ok(args.get_ref().clone()) } else { Err((args.span().start, EntryProblem::Nul("args"))) }
        })?;
        let env = self.env.as_ref().map_or(Ok(BTreeMap::new()), |env| {
            let checked = check_variables(env.get_ref()).map(|()| env.get_ref().clone());
            checked.map_err(|problem| (env.span().start, problem))
        })?;
        let cwd = resolved("cwd", self.cwd.as_ref(), directory)?;
        Ok(EnvironmentLocation::Program { program, args, env, cwd })
    }

    fn ssh_location(
        &self,
        host: &Spanned<String>,
        program: Option<&Spanned<String>>,
    ) -> Result<EnvironmentLocation, TableProblem> {
        self.refuse_fields_of_other_kinds("ssh")?;
        let at = host.span().start;
        let host = host.get_ref().clone();
        if host.is_empty() || host.starts_with('-') || host.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err((at, EntryProblem::Host));
        }
        let program = program.map_or(Ok(SERVER_PROGRAM.to_owned()), |program| non_empty("program", program))?;
        let paths = match (&self.local_root, &self.remote_root) {
            (None, None) => PathMap::default(),
            (Some(local), Some(remote)) => {
                let roots = (absolute_path("local_root", local)?, absolute_path("remote_root", remote)?);
                // A path map refuses only relative paths, so this does not fail.
                PathMap::of([roots]).map_err(|_| (local.span().start, EntryProblem::RelativeRoot("local_root")))?
            }
            (Some(half), None) | (None, Some(half)) => return Err((half.span().start, EntryProblem::OneRootOfTwo)),
        };
        Ok(EnvironmentLocation::Ssh { host, program, paths })
    }

    fn remote_location(
        &self,
        service: &Spanned<String>,
        directory: Option<&Path>,
    ) -> Result<EnvironmentLocation, TableProblem> {
        self.refuse_fields_of_other_kinds("remote")?;
        let checked = |text: &Spanned<String>, check: fn(&str) -> Result<String, EntryProblem>| {
            check(text.get_ref()).map_err(|problem| (text.span().start, problem))
        };
        let token_file = resolved("token_file", self.token_file.as_ref(), directory)?;
        Ok(EnvironmentLocation::Remote(RemoteLocation {
            service: checked(service, checked_service)?,
            environment_id: checked(self.environment_id.as_ref().unwrap_or(&self.id), checked_environment_id)?,
            pinned_key: self.pinned_key.as_ref().map(|key| checked(key, checked_fingerprint)).transpose()?,
            ca_file: resolved("ca_file", self.ca_file.as_ref(), directory)?,
            credential: token_file.map_or(RemoteCredential::Found, RemoteCredential::TokenFile),
        }))
    }

    /// Refuses the fields of the other kinds of environments, so that no user believes that such a field has an
    /// effect. `kind` is the field that decides the kind of this environment: `url`, `program`, `ssh` or `remote`.
    fn refuse_fields_of_other_kinds(&self, kind: &str) -> Result<(), TableProblem> {
        let fields: [(_, _, &[&str]); 11] = [
            ("connect_timeout_sec", start_of(&self.connect_timeout_sec), &["url", "remote"]),
            ("silence_timeout_sec", start_of(&self.silence_timeout_sec), &["url", "remote"]),
            ("ca_file", start_of(&self.ca_file), &["url", "remote"]),
            ("token_file", start_of(&self.token_file), &["url", "remote"]),
            ("args", start_of(&self.args), &["program"]),
            ("env", start_of(&self.env), &["program"]),
            ("cwd", start_of(&self.cwd), &["program"]),
            ("local_root", start_of(&self.local_root), &["ssh"]),
            ("remote_root", start_of(&self.remote_root), &["ssh"]),
            ("environment_id", start_of(&self.environment_id), &["remote"]),
            ("pinned_key", start_of(&self.pinned_key), &["remote"]),
        ];
        let mut others = fields.into_iter().filter(|(_, _, belongs_to)| !belongs_to.contains(&kind));
        others.try_for_each(|(field, at, belongs_to)| refuse_if_set(field, at, belongs_to[0]))
    }
}

/// The URL without white space around it. Fails if the URL does not have a form that the client supports.
pub(super) fn checked_url(text: &str) -> Result<String, EntryProblem> {
    let text = text.trim();
    let fits = match text.strip_prefix("unix://") {
        Some(path) => path.starts_with('/') && !path.contains('\0'),
        None => (text.starts_with("ws://") || text.starts_with("wss://")) && Url::parse(text).is_ok(),
    };
    if fits { Ok(text.to_owned()) } else { Err(EntryProblem::Url) }
}

fn check_id(id: &str) -> Result<(), Problem> {
    let problem = match id {
        "" => Problem::EmptyId,
        id if id.chars().count() > MAX_ID_CHARS => Problem::LongId(id.to_owned()),
        id if !id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') => {
            Problem::StrangeId(id.to_owned())
        }
        // `default = "None"` means that there is no default, so an environment with that id could not be the default.
        id if id == LOCAL || id.eq_ignore_ascii_case(NONE) => Problem::ReservedId(id.to_owned()),
        _ => return Ok(()),
    };
    Err(problem)
}

fn check_variables(env: &BTreeMap<String, String>) -> Result<(), EntryProblem> {
    for (name, value) in env {
        if name.is_empty() || name.contains('=') {
            return Err(EntryProblem::VariableName);
        }
        if name.contains('\0') || value.contains('\0') {
            return Err(EntryProblem::Nul("env"));
        }
    }
    Ok(())
}

/// Fails if the table has the field. `at` is the offset of the field's value, and `None` if the table does not have
/// the field. `belongs_to` is the field or value without which `field` has no meaning.
fn refuse_if_set(field: &'static str, at: Option<usize>, belongs_to: &'static str) -> Result<(), TableProblem> {
    at.map_or(Ok(()), |at| Err((at, EntryProblem::Misplaced { field, belongs_to })))
}

/// The offset of the value of a field. `None` if the table does not have the field.
fn start_of<T>(field: &Option<Spanned<T>>) -> Option<usize> {
    field.as_ref().map(|value| value.span().start)
}

fn timeout(field: &'static str, seconds: Option<&Spanned<f64>>, default: Duration) -> Result<Duration, TableProblem> {
    let Some(seconds) = seconds else { return Ok(default) };
    let duration = Duration::try_from_secs_f64(*seconds.get_ref()).ok().filter(|duration| !duration.is_zero());
    duration.ok_or_else(|| (seconds.span().start, EntryProblem::Timeout(field)))
}

fn non_empty(field: &'static str, text: &Spanned<String>) -> Result<String, TableProblem> {
    let problem = match text.get_ref() {
        text if text.trim().is_empty() => EntryProblem::Empty(field),
        text if text.contains('\0') => EntryProblem::Nul(field),
        text => return Ok(text.clone()),
    };
    Err((text.span().start, problem))
}

/// The path in a field, which is a path of this machine. A relative path is resolved against `directory`, the
/// directory of the file.
fn resolved(
    field: &'static str,
    path: Option<&Spanned<String>>,
    directory: Option<&Path>,
) -> Result<Option<PathBuf>, TableProblem> {
    let Some(path) = path else { return Ok(None) };
    let text = PathBuf::from(non_empty(field, path)?);
    match directory {
        _ if text.is_absolute() => Ok(Some(text)),
        Some(directory) => Ok(Some(directory.join(text))),
        None => Err((path.span().start, EntryProblem::RelativePath(field))),
    }
}

/// The path in a field, which must be absolute.
fn absolute_path(field: &'static str, path: &Spanned<String>) -> Result<PathBuf, TableProblem> {
    let text = PathBuf::from(non_empty(field, path)?);
    if text.is_absolute() { Ok(text) } else { Err((path.span().start, EntryProblem::RelativeRoot(field))) }
}
