//! Where a process starts and with which variables. On this machine it is as if it was started by our own shell; elsewhere it is as the
//! server over there has it, unless a flag says otherwise.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::Mode;

use client::{EnvironmentInfo, ExecServerClient, ExecServerError, PathMap, PathUri, ProcessId, StartParams, Way};

use super::terminal::window_size;
use crate::args::server_variables;

/// What this machine and the environment have in common.
pub(crate) struct StartContext {
    is_local: bool,
    is_kept: bool,
    paths: PathMap,
}

/// What the flags of a command say about its start.
pub(crate) struct StartFlags<'a> {
    pub(crate) cwd: Option<&'a Path>,
    pub(crate) env: &'a [String],
    pub(crate) tty: bool,
}

impl StartContext {
    /// `is_kept`: the process is for a kept session, whose server was started by somebody else, or earlier.
    pub(crate) fn new(way: &Way, is_kept: bool) -> Self {
        let paths = if let Way::Ssh { paths, .. } = way { paths.clone() } else { PathMap::default() };
        Self { is_local: matches!(way, Way::Local), is_kept, paths }
    }

    /// A start of this command in an environment that says this of itself.
    pub(crate) fn start(
        &self,
        info: &EnvironmentInfo,
        id: ProcessId,
        argv: &[String],
        flags: StartFlags<'_>,
    ) -> anyhow::Result<StartParams> {
        let cwd = self.cwd(info, flags.cwd)?;
        let mut params = StartParams::new(id, argv, cwd);
        params.tty = flags.tty;
        params.pipe_stdin = !flags.tty;
        if self.is_local && self.is_kept {
            params.env_policy = None;
            params.env = own_variables().collect();
            // The server in the background has the umask of whoever has started it.
            params.umask = info.capabilities.process_umask.then(own_umask);
        } else if self.is_local {
            // They were not passed on to our server.
            let withheld = server_variables();
            params.env =
                own_variables().filter(|(name, _)| withheld.iter().any(|other| other == name.as_str())).collect();
        }
        if flags.tty {
            params.size = window_size();
            params.env.extend(std::env::var("TERM").ok().map(|term| ("TERM".to_owned(), term)));
        }
        params.env.extend(given_variables(flags.env)?);
        Ok(params)
    }

    fn cwd(&self, info: &EnvironmentInfo, given: Option<&Path>) -> anyhow::Result<PathUri> {
        let native = match given {
            Some(given) if given.is_absolute() => given.to_owned(),
            _ => {
                let base = match self.own_directory()? {
                    Some(own) => own,
                    None => remote_directory(info),
                };
                given.map_or(base.clone(), |given| base.join(given))
            }
        };
        PathUri::from_native(&native).with_context(|| format!("{} is not absolute", native.display()))
    }

    /// The directory we are in, if it is also one over there.
    fn own_directory(&self) -> anyhow::Result<Option<PathBuf>> {
        if self.is_local {
            return std::env::current_dir().map(Some).context("cannot find out the current directory");
        }
        let own = std::env::current_dir().ok();
        Ok(own.filter(|own| PathUri::from_native(own).is_some_and(|uri| self.paths.covers(&uri))))
    }
}

/// Where the server is, or the root if it does not say.
fn remote_directory(info: &EnvironmentInfo) -> PathBuf {
    info.cwd.as_ref().and_then(|cwd| cwd.to_native().ok()).unwrap_or_else(|| PathBuf::from("/"))
}

/// What of our environment can travel as text.
fn own_variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// The permissions that files of ours do not get. The umask can only be read by setting it; what is set for that moment is the strictest.
fn own_umask() -> u32 {
    let own = rustix::process::umask(Mode::RWXU | Mode::RWXG | Mode::RWXO);
    rustix::process::umask(own);
    own.bits()
}

fn given_variables(given: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let mut variables = BTreeMap::new();
    for text in given {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text.as_str(), std::env::var(text).ok()),
        };
        anyhow::ensure!(!name.is_empty(), "`--env {text}` names no variable; write it like NAME=VALUE");
        variables.extend(value.map(|value| (name.to_owned(), value)));
    }
    Ok(variables)
}

/// The smallest number that no process of the session has.
pub(crate) async fn unused_id(client: &ExecServerClient) -> Result<ProcessId, ExecServerError> {
    let processes = client.processes().await?;
    let is_used = |id: &String| processes.iter().any(|process| process.process_id.as_str() == id);
    let free = (1_u64..).map(|number| number.to_string()).find(|id| !is_used(id));
    Ok(ProcessId::from(free.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_set_or_passed_on() {
        let given =
            ["A=1".to_owned(), "B=".to_owned(), "C=x=y".to_owned(), "PATH".to_owned(), "NO_SUCH_NAME".to_owned()];
        let mut expected: BTreeMap<String, String> =
            [("A", "1"), ("B", ""), ("C", "x=y")].map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        expected.insert("PATH".to_owned(), std::env::var("PATH").unwrap());
        assert_eq!(given_variables(&given).unwrap(), expected);
        assert!(given_variables(&["=1".to_owned()]).is_err());
    }
}
