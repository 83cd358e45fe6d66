//! From the command line to a connected client.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use client::{
    ChildConnector, ConnectOptions, EnvironmentSpec, Environments, ExecServerClient, ExecServerClientConnectOptions,
    HomeAndVariables, PathMap, ServerConnector, SshConnector, TlsRoots, UrlConnector, Way,
};

use super::args::{USUAL_KEEP, WhereArgs};
use super::foreground::Goodbye;
use super::named::SessionRecord;
use super::print::complain;
use super::signals::Signals;
use super::{local_server, named};
use crate::args::server_variables;

/// Who we are in the server's logs.
const CLIENT_NAME: &str = "exec-server-cli";

/// What a command wants of a kept session. Where the server cannot let anybody look without taking the session, every command takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be sent the events of its processes. Whoever is attached is told so and has to leave.
    Attach,
    /// The same for a command that begins there, which must not cost another command its connection: it is refused while somebody is
    /// attached.
    Run,
    /// To list, read, end and leave processes there, beside whoever is attached.
    Look,
}

/// Whether a session that is not there is made, and for how long it is kept then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Creation {
    /// The absence of the session is an error.
    Never,
    /// The session is made if it is not there.
    IfAbsent {
        /// The time that `--keep` says. Without it, the session is kept for [`USUAL_KEEP`], or for longer if somebody has asked for that.
        keep: Option<Duration>,
    },
}

impl Creation {
    fn is_allowed(self) -> bool {
        self != Self::Never
    }

    /// For how long to ask the server to keep the session. None: what the server has been told before stays.
    fn keep(self, known: Option<&SessionRecord>) -> Option<Duration> {
        let Self::IfAbsent { keep } = self else { return None };
        keep.or_else(|| match known {
            Some(record) => record.keep.map(|so_far| so_far.max(USUAL_KEEP)),
            None => Some(USUAL_KEEP),
        })
    }
}

/// Where to, and how patiently.
pub(crate) struct Destination {
    pub(crate) way: Way,
    options: ExecServerClientConnectOptions,
    ssh_config: Option<std::path::PathBuf>,
    background_idle: Duration,
}

impl Destination {
    /// What the flags say, or what is configured, or this machine.
    pub(crate) fn choose(given: &WhereArgs) -> anyhow::Result<Self> {
        let options = ExecServerClientConnectOptions { client_name: CLIENT_NAME.to_owned(), ..Default::default() };
        let ssh_config = given.ssh_config.clone();
        let background_idle = given.background_idle.map_or(local_server::IDLE, |time| time.0);
        if let Some(url) = &given.connect {
            let (ca_file, token_file) = (given.ca_file.clone(), given.client_token_file.clone());
            return Ok(Self {
                way: Way::Url { url: url.clone(), ca_file, token_file },
                options,
                ssh_config,
                background_idle,
            });
        }
        if let Some(host) = &given.ssh {
            anyhow::ensure!(!host.starts_with('-'), "`{host}` is no name of a machine");
            let paths = match (&given.local_root, &given.remote_root) {
                (Some(local), Some(remote)) => PathMap::new(&std::path::absolute(local)?, remote)?,
                _ => PathMap::default(),
            };
            let way = Way::Ssh { host: host.clone(), program: given.program.clone(), paths };
            return Ok(Self { way, options, ssh_config, background_idle });
        }
        let environments = Environments::load(&HomeAndVariables::of_this_process())?;
        let mut spec = match &given.environment {
            Some(name) => environments.entries.get(name).cloned().with_context(|| unknown(name, &environments))?,
            None => environments.default_environment().cloned().context(
                "no environment is chosen: the configuration names no default; give one with -e, --connect or --ssh",
            )?,
        };
        if let Way::Url { ca_file, token_file, .. } = &mut spec.way {
            *ca_file = given.ca_file.clone().or(ca_file.take());
            *token_file = given.client_token_file.clone().or(token_file.take());
        }
        let EnvironmentSpec { way, connect_timeout, initialize_timeout, silence_timeout, .. } = spec;
        let options =
            ExecServerClientConnectOptions { connect_timeout, initialize_timeout, silence_timeout, ..options };
        Ok(Self { way, options, ssh_config, background_idle })
    }

    /// A client with a session of its own, which ends with it.
    pub(crate) async fn connect(self) -> anyhow::Result<ExecServerClient> {
        let connector = self.connector()?;
        Ok(ExecServerClient::connect_boxed(connector, self.options).await?)
    }

    /// A client of the kept session of this name. A session that this server does not know stays remembered, under another name if a new
    /// one takes its place: another server may answer at the same address for a while.
    pub(crate) async fn connect_to_session(
        mut self,
        name: &str,
        creation: Creation,
        purpose: Purpose,
    ) -> anyhow::Result<ExecServerClient> {
        // Before anything is started for its sake.
        named::check(name)?;
        if matches!(self.way, Way::Local) {
            // Our own child would end with us.
            let start = creation.is_allowed().then_some(self.background_idle);
            let there = local_server::way(start).await?;
            self.way = there.with_context(|| no_session(name, "on this machine"))?;
        }
        let Way::Url { url, .. } = &self.way else {
            anyhow::bail!("a session can be kept only on a server that listens; this one ends with its connection");
        };
        let url = url.clone();
        let mut known = named::load(name, &url)?;
        if known.is_none() && !creation.is_allowed() {
            anyhow::bail!(no_session(name, &format!("at {url}")));
        }
        let mut options = self.options.clone();
        options.keep_for = creation.keep(known.as_ref());
        options.takeover = known.is_some() && purpose == Purpose::Attach;
        options.observe = known.is_some() && purpose == Purpose::Look;
        options.resume_session_id = known.as_ref().map(|record| record.session.clone());
        let client = match ExecServerClient::connect_boxed(self.connector()?, options.clone()).await {
            Err(error) if error.is_still_attached() && purpose == Purpose::Run => anyhow::bail!(
                "another command is attached to the session `{name}`; give another --session, or start yours in the \
                 background with `exec-server run -d` and read its output with `exec-server logs -f`"
            ),
            // It was not kept that long, or the server is another one by now.
            Err(client::ExecServerError::Server { code: -32600, message, .. }) if known.is_some() => {
                anyhow::ensure!(
                    creation.is_allowed(),
                    "the server at {url} does not have the session `{name}`, or not any more: {message}"
                );
                options = ExecServerClientConnectOptions {
                    keep_for: creation.keep(None),
                    resume_session_id: None,
                    takeover: false,
                    observe: false,
                    ..options
                };
                let client = ExecServerClient::connect_boxed(self.connector()?, options.clone()).await?;
                match known.take().map(|record| named::set_aside(name, &url, &record)).transpose() {
                    Ok(former) => {
                        if let Some(former) = former.flatten() {
                            complain(&format!(
                                "the server at {url} does not have the session `{name}`, so a new one was started; if \
                                 the server that has the old one comes back, use --session {former}"
                            ));
                        }
                    }
                    Err(error) => {
                        // It could only be remembered in place of the old one.
                        client.end_session().await;
                        return Err(error);
                    }
                }
                client
            }
            result => result?,
        };
        // Also for who attaches: whether to come back after a takeover depends on them.
        let capabilities = client.capabilities().await?;
        anyhow::ensure!(
            !creation.is_allowed() || capabilities.session_keep,
            "the server at {url} cannot keep sessions; run the command without --session"
        );
        let session = client.session_id().context("the server names no session")?.clone();
        let keep = options.keep_for.or(known.as_ref().and_then(|record| record.keep));
        let record = SessionRecord { session, keep };
        let is_new = known.is_none();
        if known != Some(record.clone())
            && let Err(error) = named::save(name, &url, &record)
        {
            if is_new {
                // Nobody could find it again.
                client.end_session().await;
            }
            return Err(error);
        }
        named::touch(name, &url)?;
        Ok(client)
    }

    fn connector(&self) -> anyhow::Result<Box<dyn ServerConnector>> {
        Ok(match &self.way {
            Way::Local => {
                let program = std::env::current_exe().context("cannot find the path of this program")?.into();
                let args = ["--listen", "stdio"].map(Into::into).into();
                Box::new(ChildConnector {
                    program,
                    args,
                    env_remove: server_variables(),
                    ..ChildConnector::default()
                })
            }
            Way::Url { url, ca_file, token_file } => {
                let options = ConnectOptions {
                    bearer_token: token_file.as_deref().map(read_token).transpose()?,
                    tls_roots: ca_file.as_deref().map(TlsRoots::from_ca_file).transpose()?.unwrap_or_default(),
                    ..ConnectOptions::default()
                };
                Box::new(UrlConnector::new(url, options))
            }
            Way::Program { program, args, env, cwd } => Box::new(ChildConnector {
                program: program.into(),
                args: args.iter().map(Into::into).collect(),
                env: env.iter().map(|(name, value)| (name.into(), value.into())).collect(),
                cwd: cwd.clone(),
                ..ChildConnector::default()
            }),
            Way::Ssh { host, program, paths } => {
                let config = self.ssh_config.iter().flat_map(|file| ["-F".into(), file.into()]).collect();
                Box::new(SshConnector::with_ssh(host, program, paths.clone(), config))
            }
        })
    }
}

/// Leaves the server: in order, unless another signal comes that would end us, or at once.
pub(crate) async fn leave(client: ExecServerClient, goodbye: Goodbye) {
    if let (Goodbye::InOrder, Ok(mut signals)) = (goodbye, Signals::listen()) {
        let _told_again = signals.or_fatal(client.close()).await;
    }
}

fn no_session(name: &str, place: &str) -> String {
    format!("there is no session `{name}` {place}; start one with `exec-server run --session {name}`")
}

fn unknown(name: &str, environments: &Environments) -> String {
    let known: Vec<&str> = environments.entries.keys().map(String::as_str).collect();
    format!("there is no environment `{name}`; there are: {}", known.join(", "))
}

/// The token of the first line that holds one. The file may be the one of the server, with names and several tokens.
fn read_token(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    exec_server::Tokens::first_in(&text)
        .map(str::to_owned)
        .with_context(|| format!("{} holds no token", path.display()))
}
