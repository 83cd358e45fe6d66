//! Chooses the environment that a command is for, and connects to it. An environment is this machine or one with an
//! exec-server. Flags take precedence over the configured default; if nothing is configured, the environment is this
//! machine. [`kept_session`](super::kept_session) connects to kept sessions, which outlive the command that made
//! them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use client::{
    ChildConnector, ConnectOptions, DirectPolicy, EnvironmentLocation, EnvironmentSpec, Environments,
    ExecServerClient, ExecServerClientConnectOptions, HomeAndVariables, PathMap, RelayConnector, RelayConnectorError,
    RemoteCredential, RemoteLocation, ServerConnector, SshConnector, TlsRoots, UrlConnector,
};
use exec_server::{IdentityFileError, RelayIdentity, load_or_create_identity, variables_of_this_process};

use super::args::TargetArgs;
use super::background_server;
use super::flag_file::{FlagFile, FlagOrigin};
use super::foreground::Goodbye;
use super::saved_sessions::state_directory;
use super::signals::Signals;
use crate::args::server_variables;
use crate::terminal_text::error_line;

/// The name of this program in the logs of servers.
const CLIENT_NAME: &str = "exec-server-cli";

/// The file with the keys of this program, in the state directory of the user.
const IDENTITY_FILE: &str = "harness.key";

/// How to reach one environment. It holds no connection.
#[derive(Clone)]
pub(crate) struct Destination {
    /// The name in the configuration. `None` for a server that `--connect` or `--ssh` names.
    pub(crate) name: Option<String>,
    /// How the environment is reached.
    pub(crate) location: EnvironmentLocation,
    /// The flag or the variable that names the certificates to trust. `None`: the configuration names them, or there are
    /// none.
    ca_file_setting: Option<String>,
    /// The same for the token.
    token_file_setting: Option<String>,
    /// Timeouts, and the name of this client.
    pub(super) options: ExecServerClientConnectOptions,
    /// Which addresses of a remote environment are tried as a direct path.
    direct: DirectPolicy,
    /// The file that `--ssh-config` names.
    ssh_config: Option<PathBuf>,
    /// How long a server that is started in the background for kept sessions waits for the next session before it
    /// ends.
    pub(super) background_idle: Duration,
}

impl Destination {
    /// The environment that the flags choose. Without such a flag it is the default, which is this machine if nothing
    /// is configured. A configuration can also have no default, which is an error here.
    pub(crate) fn choose(flags: &TargetArgs) -> anyhow::Result<Self> {
        if let Some(url) = &flags.connect {
            let location = EnvironmentLocation::Url { url: url.clone(), ca_file: None, token_file: None };
            let mut destination = Self::new(location, flags);
            destination.take_files(flags, |_, _| true);
            return Ok(destination);
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
            Some(name) => known_environment(name, &environments)?,
            None => environments.default_environment().cloned().context(
                "there is no default environment (`exec-server env` says why); give -e, --connect or --ssh",
            )?,
        };
        Ok(Self::configured(spec, flags, environments.default.as_deref()))
    }

    /// This machine, through a server that is started for the command.
    pub(crate) fn this_machine(flags: &TargetArgs) -> Self {
        Self::new(EnvironmentLocation::Local, flags)
    }

    /// The environment that a path names (`NAME:PATH`). A token or certificates that the user has typed are for the
    /// environment that a flag chooses. Without such a flag they are for the default, and it is an error if the path
    /// names another environment.
    pub(crate) fn named(name: &str, flags: &TargetArgs) -> anyhow::Result<Self> {
        let environments = Environments::load(&HomeAndVariables::of_this_process())?;
        let spec = known_environment(name, &environments)?;
        let default = environments.default.as_deref();
        if let (None, Some(file_flag)) = (flags.flag(), flags.typed_file_flag()) {
            anyhow::ensure!(
                default == Some(name),
                "{file_flag} is for the environment that -e chooses, or for the default, and `{name}` is another one; \
                 give -e {name} and write :PATH, or write the file into environments.toml"
            );
        }
        Ok(Self::configured(spec, flags, default))
    }

    /// A configured environment. `default` is the name of the default environment. A token and certificates go to one
    /// environment only, so that no other server learns the token:
    ///
    /// - If the user has typed their flag, they go to the environment that the flags choose, or else to the default.
    /// - If a variable names their file, they go to the default, unless the configuration already names a file there.
    pub(crate) fn configured(spec: EnvironmentSpec, flags: &TargetArgs, default: Option<&str>) -> Self {
        let EnvironmentSpec { id, location, connect_timeout, initialize_timeout, silence_timeout } = spec;
        let is_default = default == Some(id.as_str());
        let is_chosen = match flags.flag() {
            Some(_) => flags.environment.as_ref() == Some(&id),
            None => is_default,
        };
        let mut destination = Self::new(location, flags);
        destination.take_files(flags, |file, own| match file.origin {
            FlagOrigin::CommandLine => is_chosen,
            FlagOrigin::Variable => is_default && own.is_none(),
        });
        let options = ExecServerClientConnectOptions {
            connect_timeout,
            initialize_timeout,
            silence_timeout,
            ..destination.options
        };
        Self { name: Some(id), options, ..destination }
    }

    /// Takes the token and the certificates of the flags, as far as the URL can use them and `is_for_us` says that they
    /// are for this environment. `is_for_us` also gets the file that the configuration names.
    fn take_files(&mut self, flags: &TargetArgs, is_for_us: impl Fn(&FlagFile, &Option<PathBuf>) -> bool) {
        let settings = (&mut self.ca_file_setting, &mut self.token_file_setting);
        match &mut self.location {
            EnvironmentLocation::Url { url, ca_file, token_file } => {
                let scheme = url.split("://").next().unwrap_or_default().to_ascii_lowercase();
                let (has_tls, has_token) = (!matches!(scheme.as_str(), "ws" | "unix"), scheme != "unix");
                if has_tls {
                    take_file(ca_file, &flags.ca_file, settings.0, &is_for_us);
                }
                if has_token {
                    take_file(token_file, &flags.client_token_file, settings.1, &is_for_us);
                }
            }
            EnvironmentLocation::Remote(RemoteLocation { ca_file, credential, .. }) => {
                take_file(ca_file, &flags.ca_file, settings.0, &is_for_us);
                let mut token_file = match credential {
                    RemoteCredential::TokenFile(path) => Some(path.clone()),
                    RemoteCredential::Found | RemoteCredential::Token { .. } => None,
                };
                take_file(&mut token_file, &flags.client_token_file, settings.1, &is_for_us);
                if let Some(path) = token_file {
                    *credential = RemoteCredential::TokenFile(path);
                }
            }
            EnvironmentLocation::Local | EnvironmentLocation::Program { .. } | EnvironmentLocation::Ssh { .. } => {}
        }
    }

    fn new(location: EnvironmentLocation, flags: &TargetArgs) -> Self {
        Self {
            name: None,
            location,
            ca_file_setting: None,
            token_file_setting: None,
            options: ExecServerClientConnectOptions { client_name: CLIENT_NAME.to_owned(), ..Default::default() },
            direct: flags.direct,
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
            EnvironmentLocation::Remote(location) => remote_address(location),
        }
    }

    /// Connects with a new session, which ends when the client is closed.
    pub(crate) async fn connect(self) -> anyhow::Result<ExecServerClient> {
        let connector = self.connector()?;
        Ok(ExecServerClient::connect_boxed(connector, self.options).await?)
    }

    /// The connector to an environment behind a relay. It uses the keys in a file of the user, because a kept session can be
    /// resumed only with the keys that it was made with.
    pub(crate) fn relay_connector(&self, location: &RemoteLocation) -> anyhow::Result<RelayConnector> {
        let identity = identity()?;
        let variables = variables_of_this_process();
        let connector = RelayConnector::to_environment(location, Arc::new(identity), variables, self.direct);
        connector.map_err(|error| match &error {
            RelayConnectorError::TokenFile { .. } => UnusableFile::new(&self.token_file_setting, error.into()).into(),
            RelayConnectorError::Access(_) => UnusableFile::new(&self.ca_file_setting, error.into()).into(),
            _ => anyhow::Error::from(error),
        })
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
                let token = token_file.as_deref().map(|path| (path, &self.token_file_setting));
                let certificates = ca_file.as_deref().map(|path| (path, &self.ca_file_setting));
                let options = connect_options(token, certificates)?;
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
            EnvironmentLocation::Remote(location) => Box::new(self.relay_connector(location)?),
        })
    }
}

/// The options for a connection with the token and the certificates in these files. The second part of each pair is the flag
/// or the variable that names the file, for errors.
pub(super) fn connect_options(
    token: Option<(&Path, &Option<String>)>,
    certificates: Option<(&Path, &Option<String>)>,
) -> anyhow::Result<ConnectOptions> {
    let bearer_token = token
        .map(|(path, setting)| read_token(path).map_err(|error| UnusableFile::new(setting, error)))
        .transpose()?;
    let tls_roots = certificates
        .map(|(path, setting)| TlsRoots::from_ca_file(path).map_err(|error| UnusableFile::new(setting, error.into())))
        .transpose()?;
    Ok(ConnectOptions { bearer_token, tls_roots: tls_roots.unwrap_or_default(), ..ConnectOptions::default() })
}

/// Takes the file of a flag instead of `own`, the file that the configuration names, if `is_for_us` says so.
fn take_file(
    own: &mut Option<PathBuf>,
    flag: &Option<FlagFile>,
    setting: &mut Option<String>,
    is_for_us: &impl Fn(&FlagFile, &Option<PathBuf>) -> bool,
) {
    if let Some(file) = flag.as_ref().filter(|file| is_for_us(file, own)) {
        *own = Some(file.path.clone());
        *setting = Some(file.setting.clone());
    }
}

/// The environment and its service, without the parts of the URL that may be secret.
fn remote_address(location: &RemoteLocation) -> String {
    let service = UrlConnector::new(&location.service, ConnectOptions::default()).address();
    format!("{} at {service}", location.environment_id)
}

/// A token file or a certificate file cannot be used.
#[derive(Debug)]
pub(crate) struct UnusableFile {
    /// What the user has to correct: a flag, a variable or the configuration.
    pub(crate) setting: String,
    error: anyhow::Error,
}

impl UnusableFile {
    /// `setting` is the flag or the variable that names the file.
    fn new(setting: &Option<String>, error: anyhow::Error) -> Self {
        Self { setting: setting.clone().unwrap_or_else(|| "the path in the configuration".to_owned()), error }
    }
}

impl std::fmt::Display for UnusableFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&error_line(&self.error))
    }
}

impl std::error::Error for UnusableFile {}

/// Closes the connection. With [`Goodbye::InOrder`] it waits until the close is complete, or until a fatal signal
/// comes. With [`Goodbye::Skipped`] it does not wait.
pub(crate) async fn leave(client: ExecServerClient, goodbye: Goodbye) {
    if let (Goodbye::InOrder, Ok(mut signals)) = (goodbye, Signals::listen()) {
        let _closed_or_signalled = signals.or_fatal(client.close()).await;
    }
}

fn known_environment(name: &str, environments: &Environments) -> anyhow::Result<EnvironmentSpec> {
    environments.find(name).with_context(|| {
        let known: Vec<&str> = environments.entries.keys().map(String::as_str).collect();
        format!("there is no environment `{name}`; there are: {}", known.join(", "))
    })
}

/// The first token in a file. The file may be the token file of a server, which has several tokens with names.
fn read_token(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    exec_server::Tokens::first_in(&text)
        .map(str::to_owned)
        .with_context(|| format!("{} holds no token", path.display()))
}

/// The keys in the file of the user. New ones on a machine without a writable home directory, where no session can be
/// kept either.
fn identity() -> anyhow::Result<RelayIdentity> {
    let unusable = match state_directory() {
        Err(error) => error,
        Ok(directory) => match load_or_create_identity(&directory.join(IDENTITY_FILE)) {
            Ok(identity) => return Ok(identity),
            Err(error @ IdentityFileError::Io { .. }) => error.into(),
            Err(error) => return Err(error.into()),
        },
    };
    tracing::debug!("the keys of this program are used once, because they cannot be kept: {unusable}");
    Ok(RelayIdentity::generate()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flag_file(path: &str, origin: FlagOrigin) -> FlagFile {
        FlagFile { path: path.into(), origin, setting: String::new() }
    }

    /// The file with certificates and the token file, in this order, that are used for the environment `id`. If
    /// `has_own`, its configuration names both files. The environment `default` is the default.
    fn files(id: &str, has_own: bool, flags: &TargetArgs) -> (Option<PathBuf>, Option<PathBuf>) {
        let own = |name: &str| has_own.then(|| name.into());
        let location =
            EnvironmentLocation::Url { url: "wss://h".into(), ca_file: own("own"), token_file: own("own") };
        let timeout = Duration::from_secs(1);
        let spec = EnvironmentSpec {
            id: id.to_owned(),
            location,
            connect_timeout: timeout,
            initialize_timeout: timeout,
            silence_timeout: timeout,
        };
        match Destination::configured(spec, flags, Some("default")).location {
            EnvironmentLocation::Url { ca_file, token_file, .. } => (ca_file, token_file),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn files_of_typed_flags_go_to_the_chosen_environment_and_files_of_variables_to_a_default_that_names_none() {
        use FlagOrigin::{CommandLine, Variable};
        for (origin, chosen, id, has_own, expected) in [
            (CommandLine, None, "default", false, Some("given")),
            (CommandLine, None, "default", true, Some("given")),
            (CommandLine, None, "other", false, None),
            (CommandLine, None, "other", true, Some("own")),
            (CommandLine, Some("other"), "other", true, Some("given")),
            (CommandLine, Some("other"), "default", false, None),
            (CommandLine, Some("other"), "third", true, Some("own")),
            (Variable, None, "default", false, Some("given")),
            (Variable, None, "default", true, Some("own")),
            (Variable, None, "other", false, None),
            (Variable, Some("default"), "default", false, Some("given")),
            (Variable, Some("other"), "other", false, None),
            (Variable, Some("other"), "other", true, Some("own")),
        ] {
            let given = Some(flag_file("given", origin));
            let environment = chosen.map(str::to_owned);
            let flags =
                TargetArgs { environment, ca_file: given.clone(), client_token_file: given, ..Default::default() };
            let expected = expected.map(PathBuf::from);
            let case = format!("{origin:?}, -e {chosen:?}, {id}, own: {has_own}");
            assert_eq!(files(id, has_own, &flags), (expected.clone(), expected), "{case}");
        }
    }

    #[test]
    fn a_token_that_was_typed_together_with_connect_does_not_go_to_the_default_environment() {
        let given = Some(flag_file("given", FlagOrigin::CommandLine));
        let flags = TargetArgs { connect: Some("ws://h".into()), client_token_file: given, ..TargetArgs::default() };
        assert_eq!(files("default", false, &flags), (None, None));
    }
}
