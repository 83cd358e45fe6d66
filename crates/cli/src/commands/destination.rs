//! Chooses the environment that a command is for, and connects to it. An environment is this machine or one with an
//! exec-server. Flags take precedence over the configured default; if nothing is configured, the environment is this
//! machine. [`kept_session`](super::kept_session) connects to kept sessions, which outlive the command that made
//! them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use client::{
    ChildConnector, ConnectOptions, EnvironmentLocation, EnvironmentSpec, Environments, ExecServerClient,
    ExecServerClientConnectOptions, HomeAndVariables, PathMap, ServerConnector, SshConnector, TlsRoots, UrlConnector,
};

use super::args::TargetArgs;
use super::background_server;
use super::foreground::Goodbye;
use super::signals::Signals;
use crate::args::server_variables;

/// The name of this program in the logs of servers.
const CLIENT_NAME: &str = "exec-server-cli";

/// How to reach one environment. It holds no connection.
#[derive(Clone)]
pub(crate) struct Destination {
    /// The name in the configuration. `None` for a server that `--connect` or `--ssh` names.
    pub(crate) name: Option<String>,
    /// How the environment is reached.
    pub(crate) location: EnvironmentLocation,
    /// Timeouts, and the name of this client.
    pub(super) options: ExecServerClientConnectOptions,
    /// The file that `--ssh-config` names.
    ssh_config: Option<PathBuf>,
    /// How long a server that is started in the background for kept sessions waits for the next session before it
    /// ends.
    pub(super) background_idle: Duration,
}

impl Destination {
    /// The environment that the flags choose. Without such a flag it is the configured default, which is this machine
    /// if nothing is configured.
    pub(crate) fn choose(flags: &TargetArgs) -> anyhow::Result<Self> {
        if let Some(url) = &flags.connect {
            let (ca_file, token_file) = (flags.ca_file.clone(), flags.client_token_file.clone());
            return Ok(Self::new(EnvironmentLocation::Url { url: url.clone(), ca_file, token_file }, flags));
        }
        if let Some(host) = &flags.ssh {
            anyhow::ensure!(!host.starts_with('-'), "`{host}` is no name of a machine");
            let paths = match (&flags.local_root, &flags.remote_root) {
                (Some(local), Some(remote)) => PathMap::new(&std::path::absolute(local)?, remote)?,
                _ => PathMap::default(),
            };
            return Ok(Self::new(
                EnvironmentLocation::Ssh { host: host.clone(), program: flags.program.clone(), paths },
                flags,
            ));
        }
        let environments = Environments::load(&HomeAndVariables::of_this_process())?;
        let spec = match &flags.environment {
            Some(name) => environments.entries.get(name).with_context(|| unknown_environment(name, &environments))?,
            None => environments.default_environment().context(
                "no environment is chosen, and there is no configured default; give -e, --connect or --ssh",
            )?,
        };
        Ok(Self::configured(spec.clone(), flags))
    }

    /// A configured environment. Certificates and token of the flags take precedence over those of the configuration.
    pub(crate) fn configured(spec: EnvironmentSpec, flags: &TargetArgs) -> Self {
        let EnvironmentSpec { id, mut location, connect_timeout, initialize_timeout, silence_timeout } = spec;
        if let EnvironmentLocation::Url { ca_file, token_file, .. } = &mut location {
            *ca_file = flags.ca_file.clone().or(ca_file.take());
            *token_file = flags.client_token_file.clone().or(token_file.take());
        }
        let destination = Self::new(location, flags);
        let options = ExecServerClientConnectOptions {
            connect_timeout,
            initialize_timeout,
            silence_timeout,
            ..destination.options
        };
        Self { name: Some(id), options, ..destination }
    }

    fn new(location: EnvironmentLocation, flags: &TargetArgs) -> Self {
        Self {
            name: None,
            location,
            options: ExecServerClientConnectOptions { client_name: CLIENT_NAME.to_owned(), ..Default::default() },
            ssh_config: flags.ssh_config.clone(),
            background_idle: flags.background_idle.map_or(background_server::DEFAULT_IDLE, |time| time.0),
        }
    }

    /// How the environment is reached, for people: `this machine`, a URL, `ssh HOST` or `program NAME`. Secrets,
    /// which a URL or the arguments of a program may have, are left out.
    pub(crate) fn address(&self) -> String {
        match &self.location {
            EnvironmentLocation::Local => "this machine".to_owned(),
            EnvironmentLocation::Url { url, .. } => UrlConnector::new(url, ConnectOptions::default()).address(),
            EnvironmentLocation::Program { program, .. } => format!("program {program}"),
            EnvironmentLocation::Ssh { host, .. } => format!("ssh {host}"),
        }
    }

    /// Connects with a new session, which ends when the client is closed.
    pub(crate) async fn connect(self) -> anyhow::Result<ExecServerClient> {
        let connector = self.connector()?;
        Ok(ExecServerClient::connect_boxed(connector, self.options).await?)
    }

    /// The connector that makes the connections to this environment. It is an error if a token, a certificate or the
    /// path of this program cannot be read.
    pub(super) fn connector(&self) -> anyhow::Result<Box<dyn ServerConnector>> {
        Ok(match &self.location {
            EnvironmentLocation::Local => {
                let program = std::env::current_exe().context("cannot find the path of this program")?.into();
                let args = ["--listen", "stdio"].map(Into::into).into();
                Box::new(ChildConnector {
                    program,
                    args,
                    env_remove: server_variables(),
                    ..ChildConnector::default()
                })
            }
            EnvironmentLocation::Url { url, ca_file, token_file } => {
                let options = ConnectOptions {
                    bearer_token: token_file.as_deref().map(read_token).transpose()?,
                    tls_roots: ca_file.as_deref().map(TlsRoots::from_ca_file).transpose()?.unwrap_or_default(),
                    ..ConnectOptions::default()
                };
                Box::new(UrlConnector::new(url, options))
            }
            EnvironmentLocation::Program { program, args, env, cwd } => Box::new(ChildConnector {
                program: program.into(),
                args: args.iter().map(Into::into).collect(),
                env: env.iter().map(|(name, value)| (name.into(), value.into())).collect(),
                cwd: cwd.clone(),
                ..ChildConnector::default()
            }),
            EnvironmentLocation::Ssh { host, program, paths } => {
                let config = self.ssh_config.iter().flat_map(|file| ["-F".into(), file.into()]).collect();
                Box::new(SshConnector::with_ssh(host, program, paths.clone(), config))
            }
        })
    }
}

/// Closes the connection. With [`Goodbye::InOrder`] it waits until the close is complete, or until a fatal signal
/// comes. With [`Goodbye::Skipped`] it does not wait.
pub(crate) async fn leave(client: ExecServerClient, goodbye: Goodbye) {
    if let (Goodbye::InOrder, Ok(mut signals)) = (goodbye, Signals::listen()) {
        let _closed_or_signalled = signals.or_fatal(client.close()).await;
    }
}

fn unknown_environment(name: &str, environments: &Environments) -> String {
    let known: Vec<&str> = environments.entries.keys().map(String::as_str).collect();
    format!("there is no environment `{name}`; there are: {}", known.join(", "))
}

/// The first token in a file. The file may be the token file of a server, which has several tokens with names.
fn read_token(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    exec_server::Tokens::first_in(&text)
        .map(str::to_owned)
        .with_context(|| format!("{} holds no token", path.display()))
}
