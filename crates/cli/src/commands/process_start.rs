//! Chooses the working directory and the variables of a process that is started in an environment, which is a machine
//! with a server. On this machine they are ours, as if the user's shell had started the process. On other machines
//! they are those of the server, unless a flag says otherwise: `--cwd` and `--env` do, and so does `--local-root` if
//! we are in or below that directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::Mode;

use client::{
    EnvironmentInfo, EnvironmentLocation, ExecServerClient, ExecServerError, PathMap, PathUri, ProcessId, StartParams,
};

use super::sandbox_flags::SandboxArgs;
use super::terminal::window_size;
use crate::args::server_variables;

/// The facts about environment and session that a start depends on, besides its flags.
pub(crate) struct StartContext {
    /// Whether the environment is this machine.
    is_local: bool,
    /// Whether the process is for a kept session, which outlives this command.
    is_kept: bool,
    /// Maps paths of this machine to paths of the environment.
    paths: PathMap,
}

/// The flags of a command that its start depends on.
pub(crate) struct StartFlags<'a> {
    pub(crate) cwd: Option<&'a Path>,
    pub(crate) env: &'a [String],
    pub(crate) tty: bool,
    pub(crate) sandbox: &'a SandboxArgs,
}

impl StartContext {
    /// `is_kept`: the process is for a kept session. Its server may have been started by an earlier command.
    pub(crate) fn new(location: &EnvironmentLocation, is_kept: bool) -> Self {
        let paths =
            if let EnvironmentLocation::Ssh { paths, .. } = location { paths.clone() } else { PathMap::default() };
        Self { is_local: matches!(location, EnvironmentLocation::Local), is_kept, paths }
    }

    /// The params of the request that starts this command in the environment that `info` describes.
    pub(crate) fn start_params(
        &self,
        info: &EnvironmentInfo,
        id: ProcessId,
        argv: &[String],
        flags: StartFlags<'_>,
    ) -> anyhow::Result<StartParams> {
        let cwd = self.cwd(info, flags.cwd)?;
        let sandbox = flags.sandbox.context(&cwd.to_native()?)?;
        let mut params = StartParams::new(id, argv, cwd);
        params.sandbox = sandbox.as_ref().map(serde_json::value::to_raw_value).transpose()?;
        params.tty = flags.tty;
        params.pipe_stdin = !flags.tty;
        if self.is_local && self.is_kept {
            // The server in the background has the variables of the command that started it, so none is inherited.
            params.env_policy = None;
            params.env = own_variables().collect();
            // The same holds for the umask.
            params.umask = info.capabilities.process_umask.then(own_umask);
        } else if self.is_local {
            // The server was started without the variables of this command that would configure it, and no process inherits
            // the variables with credentials from the server. The process still gets both kinds.
            let withheld = server_variables();
            let is_withheld = |name: &str| {
                withheld.iter().any(|other| other == name) || server::CREDENTIAL_VARIABLES.contains(&name)
            };
            params.env = own_variables().filter(|(name, _)| is_withheld(name)).collect();
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
        PathUri::from_native(&native)
            .with_context(|| format!("{} cannot be sent to a server as a `file:` URI", native.display()))
    }

    /// Our working directory, if the environment has it too: it is this machine, or a path map covers the directory.
    fn own_directory(&self) -> anyhow::Result<Option<PathBuf>> {
        if self.is_local {
            return std::env::current_dir().map(Some).context("cannot find out the current directory");
        }
        let own = std::env::current_dir().ok();
        Ok(own.filter(|own| PathUri::from_native(own).is_some_and(|uri| self.paths.covers(&uri))))
    }
}

/// The working directory of the server, or the root directory if the server does not name it.
fn remote_directory(info: &EnvironmentInfo) -> PathBuf {
    info.cwd.as_ref().and_then(|cwd| cwd.to_native().ok()).unwrap_or_else(|| PathBuf::from("/"))
}

/// Our variables. Those that are not UTF-8 cannot be sent and are left out.
fn own_variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Our umask. It can only be read by setting it, so it is set to the strictest value for that moment.
fn own_umask() -> u32 {
    let own = rustix::process::umask(Mode::RWXU | Mode::RWXG | Mode::RWXO);
    rustix::process::umask(own);
    own.bits()
}

/// The variables that `--env` sets. `NAME` alone passes our own value on, or nothing if we have none.
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

/// The smallest number that is not the id of a process of the session.
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
    fn an_env_flag_sets_a_variable_or_passes_ours_on_and_needs_a_name() {
        let given =
            ["A=1".to_owned(), "B=".to_owned(), "C=x=y".to_owned(), "PATH".to_owned(), "NO_SUCH_NAME".to_owned()];
        let mut expected: BTreeMap<String, String> =
            [("A", "1"), ("B", ""), ("C", "x=y")].map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        expected.insert("PATH".to_owned(), std::env::var("PATH").unwrap());
        assert_eq!(given_variables(&given).unwrap(), expected);
        assert!(given_variables(&["=1".to_owned()]).is_err());
    }
}
