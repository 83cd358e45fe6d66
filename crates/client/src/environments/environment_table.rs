//! One `[[environments]]` table: which fields it may have, and which of them go together.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use recovery::DEFAULT_SILENCE_TIMEOUT;
use serde::Deserialize;
use toml::Spanned;
use url::Url;

use super::error::{EntryProblem, Problem};
use super::file::LocatedProblem;
use super::{DEFAULT_TIMEOUT, EnvironmentSpec, LOCAL, NONE, Way};
use crate::path_map::PathMap;

/// Limit for ids. Users type them, and lists show them.
const MAX_ID_CHARS: usize = 64;

/// The program that is started over ssh if `program` is not set.
const SERVER_PROGRAM: &str = "exec-server";

/// The fields as the file has them.
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
    connect_timeout_sec: Option<Spanned<f64>>,
    initialize_timeout_sec: Option<Spanned<f64>>,
    silence_timeout_sec: Option<Spanned<f64>>,
}

/// The offset at which a problem of this table begins, and the problem.
type TableProblem = (usize, EntryProblem);

impl EnvironmentTable {
    pub(super) fn id_at(&self) -> usize {
        self.id.span().start
    }

    /// Checks everything that can be checked without a connection.
    pub(super) fn into_spec(
        table: Spanned<Self>,
        directory: Option<&Path>,
    ) -> Result<EnvironmentSpec, LocatedProblem> {
        let start = table.span().start;
        let table = table.into_inner();
        check_id(table.id.get_ref()).map_err(|problem| LocatedProblem { at: table.id_at(), problem })?;
        let id = table.id.get_ref().clone();
        table
            .checked_spec(start, directory)
            .map_err(|(at, problem)| LocatedProblem { at, problem: Problem::Entry { id, problem } })
    }

    fn checked_spec(self, start: usize, directory: Option<&Path>) -> Result<EnvironmentSpec, TableProblem> {
        let way = match (&self.url, &self.program, &self.ssh) {
            (Some(url), None, None) => self.by_url(url, directory)?,
            (None, Some(program), None) => self.by_program(program, directory)?,
            (None, program, Some(host)) => self.by_ssh(host, program.as_ref())?,
            _ => return Err((start, EntryProblem::NotOneWay)),
        };
        Ok(EnvironmentSpec {
            connect_timeout: timeout("connect_timeout_sec", self.connect_timeout_sec.as_ref(), DEFAULT_TIMEOUT)?,
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
            way,
        })
    }

    fn by_url(&self, url: &Spanned<String>, directory: Option<&Path>) -> Result<Way, TableProblem> {
        self.refuse_all_but("url")?;
        let at = url.span().start;
        let url = checked_url(url.get_ref()).map_err(|problem| (at, problem))?;
        if !url.starts_with("wss://") {
            refuse("ca_file", start_of(&self.ca_file), "url = \"wss://…\"")?;
        }
        if url.starts_with("unix://") {
            refuse("token_file", start_of(&self.token_file), "url = \"wss://…\"")?;
            // Unix sockets have no pings.
            refuse("silence_timeout_sec", start_of(&self.silence_timeout_sec), "url = \"ws://…\"")?;
        }
        let ca_file = resolved("ca_file", self.ca_file.as_ref(), directory)?;
        let token_file = resolved("token_file", self.token_file.as_ref(), directory)?;
        Ok(Way::Url { url, ca_file, token_file })
    }

    fn by_program(&self, program: &Spanned<String>, directory: Option<&Path>) -> Result<Way, TableProblem> {
        self.refuse_all_but("program")?;
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
        Ok(Way::Program { program, args, env, cwd })
    }

    fn by_ssh(&self, host: &Spanned<String>, program: Option<&Spanned<String>>) -> Result<Way, TableProblem> {
        self.refuse_all_but("ssh")?;
        let at = host.span().start;
        let host = host.get_ref().clone();
        if host.is_empty() || host.starts_with('-') || host.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err((at, EntryProblem::Host));
        }
        let program = program.map_or(Ok(SERVER_PROGRAM.to_owned()), |program| non_empty("program", program))?;
        let paths = match (&self.local_root, &self.remote_root) {
            (None, None) => PathMap::default(),
            (Some(local), Some(remote)) => PathMap::of([(root("local_root", local)?, root("remote_root", remote)?)])
                .map_err(|_| (local.span().start, EntryProblem::RelativeRoot("local_root")))?,
            (Some(half), None) | (None, Some(half)) => return Err((half.span().start, EntryProblem::HalfAMap)),
        };
        Ok(Way::Ssh { host, program, paths })
    }

    /// Refuses the fields of the other kinds of environments, so that no user believes that such a field has an effect.
    fn refuse_all_but(&self, way: &str) -> Result<(), TableProblem> {
        let fields = [
            ("connect_timeout_sec", start_of(&self.connect_timeout_sec), "url"),
            ("silence_timeout_sec", start_of(&self.silence_timeout_sec), "url"),
            ("ca_file", start_of(&self.ca_file), "url"),
            ("token_file", start_of(&self.token_file), "url"),
            ("args", start_of(&self.args), "program"),
            ("env", start_of(&self.env), "program"),
            ("cwd", start_of(&self.cwd), "program"),
            ("local_root", start_of(&self.local_root), "ssh"),
            ("remote_root", start_of(&self.remote_root), "ssh"),
        ];
        let mut others = fields.into_iter().filter(|(_, _, belongs_to)| *belongs_to != way);
        others.try_for_each(|(field, at, belongs_to)| refuse(field, at, belongs_to))
    }
}

/// The URL without white space around it, if the client can connect to it.
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
        // `default = "None"` means no environment, so an environment with that id could not be the default.
        id if id == LOCAL || id.eq_ignore_ascii_case(NONE) => Problem::ReservedId(id.to_owned()),
        _ => return Ok(()),
    };
    Err(problem)
}

fn check_variables(env: &BTreeMap<String, String>) -> Result<(), EntryProblem> {
    for (name, value) in env {
        if name.is_empty() || name.contains('=') {
            return Err(EntryProblem::VariableName(name.clone()));
        }
        if name.contains('\0') || value.contains('\0') {
            return Err(EntryProblem::Nul("env"));
        }
    }
    Ok(())
}

fn refuse(field: &'static str, at: Option<usize>, belongs_to: &'static str) -> Result<(), TableProblem> {
    at.map_or(Ok(()), |at| Err((at, EntryProblem::Misplaced { field, belongs_to })))
}

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

/// A path of this machine. A relative path is resolved against the directory of the file.
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

fn root(field: &'static str, path: &Spanned<String>) -> Result<PathBuf, TableProblem> {
    let text = PathBuf::from(non_empty(field, path)?);
    if text.is_absolute() { Ok(text) } else { Err((path.span().start, EntryProblem::RelativeRoot(field))) }
}
