//! Information about the machine of the server that clients can ask for: shell, directories, capabilities and
//! configuration files. Also the environment variables that a child process gets.

mod child_env;
mod config;
mod info;
mod passwd;

pub use child_env::CREDENTIAL_VARIABLES;
pub(crate) use child_env::{Variables, child_env, policy_permits, server_env};
pub(crate) use config::{ConfigError, ConfigLocations};
pub(crate) use info::{environment_info, users_shell};
