//! The flags for serving an environment through a service, and the configuration that they describe.

use std::ffi::OsStr;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use clap::builder::{FalseyValueParser, TypedValueParser as _};
use exec_server::{
    DirectPolicy, IdentityFileError, RemoteCredentialSource, RemoteEnvironmentConfig, load_or_create_identity,
};

use crate::commands::state_directory;

/// The variable of the published server for `--exit-on-stdin-close`.
const CODEX_EXIT_ON_STDIN_CLOSE: &str = "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE";

/// The file with the keys of the executor, in the state directory of the user.
const IDENTITY_FILE: &str = "executor.key";

/// The text about `--identity-file` in the manual page. `--help` shows a shorter one.
const IDENTITY_HELP: &str = "The file that keeps the keys of the executor; it is made if it is missing. Clients can pin the key, so it should \
outlive a restart. [default: executor.key in the state directory of the user]";

/// The flags for an environment behind a relay.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct RemoteArgs {
    /// URL of the service through which clients reach this machine
    // No variable sets the flags that make a server an executor: EXEC_SERVER_REMOTE is for clients, and servers inherit it
    // from them.
    #[arg(long, value_name = "URL", requires = "environment_id")]
    pub(crate) remote: Option<String>,

    /// Id of this machine in the service
    // `--executor-id` is the older name.
    #[arg(long, value_name = "ID", alias = "executor-id", requires = "remote")]
    pub(crate) environment_id: Option<String>,

    /// A name for people, which the service may show
    #[arg(long, hide_short_help = true, value_name = "NAME", requires = "remote")]
    name: Option<String>,

    /// Use the agent identity in CODEX_ACCESS_TOKEN as the credential for the service
    #[arg(long, hide_short_help = true, alias = "allow-agent-identity-auth", requires = "remote")]
    use_agent_identity_auth: bool,

    /// File that keeps the keys of this machine
    #[arg(long, long_help = IDENTITY_HELP, hide_short_help = true, value_name = "FILE", requires = "remote")]
    identity_file: Option<PathBuf>,

    /// Which --listen addresses to offer to clients as a direct path without the relay: private ones (`private`), public
    /// ones too (`on`), or none (`off`)
    #[arg(long, env = "EXEC_SERVER_DIRECT", hide_env = true, hide_short_help = true, value_name = "on|off|private", default_value_t = DirectPolicy::Private)]
    direct: DirectPolicy,

    /// End when stdin is closed; only with --remote
    #[arg(long, env = "EXEC_SERVER_EXIT_ON_STDIN_CLOSE", hide_env = true, hide_short_help = true)]
    exit_on_stdin_close: bool,
}

impl RemoteArgs {
    /// The environment that the flags describe. `None` without `--remote`.
    pub(crate) fn environment(&self) -> anyhow::Result<Option<RemoteEnvironmentConfig>> {
        let exit_on_stdin_close = self.exit_on_stdin_close || codex_exit_on_stdin_close()?;
        let (Some(base_url), Some(environment_id)) = (&self.remote, &self.environment_id) else {
            anyhow::ensure!(!exit_on_stdin_close, "--exit-on-stdin-close needs --remote");
            return Ok(None);
        };
        let credential = match self.use_agent_identity_auth {
            true => RemoteCredentialSource::AgentIdentity,
            false => RemoteCredentialSource::Found,
        };
        Ok(Some(RemoteEnvironmentConfig {
            name: self.name.clone(),
            credential,
            identity_file: self.identity_file()?,
            exit_on_stdin_close,
            direct: self.direct,
            ..RemoteEnvironmentConfig::new(base_url, environment_id)
        }))
    }

    /// The file that the flag names, or else the default file. `None` if the default file cannot be used, so that a
    /// machine without a writable home directory can be served too.
    fn identity_file(&self) -> anyhow::Result<Option<PathBuf>> {
        if let Some(path) = &self.identity_file {
            return Ok(Some(path.clone()));
        }
        let unusable = match state_directory() {
            Err(error) => error,
            Ok(directory) => {
                let path = directory.join(IDENTITY_FILE);
                match load_or_create_identity(&path) {
                    Ok(_) => return Ok(Some(path)),
                    Err(error @ IdentityFileError::Io { .. }) => error.into(),
                    Err(error) => return Err(error.into()),
                }
            }
        };
        tracing::warn!(
            "the keys of this machine will change with each start, because they cannot be kept: {unusable}"
        );
        Ok(None)
    }
}

/// Whether the variable of the published server says that the server ends when stdin is closed.
fn codex_exit_on_stdin_close() -> anyhow::Result<bool> {
    let Some(value) = std::env::var_os(CODEX_EXIT_ON_STDIN_CLOSE) else { return Ok(false) };
    parse_bool(&value).with_context(|| format!("{CODEX_EXIT_ON_STDIN_CLOSE} must be true or false"))
}

fn parse_bool(value: &OsStr) -> anyhow::Result<bool> {
    Ok(FalseyValueParser::new().parse_ref(&clap::Command::new(""), None, value)?)
}
