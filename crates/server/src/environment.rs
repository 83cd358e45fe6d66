//! What the server reports about its own machine: shell, working directory, platform and configuration files. Also the environment
//! variables that a child process gets.

mod child_env;
mod config;
mod info;
mod passwd;

pub(crate) use child_env::{Variables, child_env, permits, server_env};
pub(crate) use config::{ConfigError, ConfigLocations};
pub(crate) use info::{environment_info, users_shell};
