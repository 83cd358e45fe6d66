//! What the server knows about its own machine, and the environment it gives to a child.

mod child_env;
mod config_files;
mod info;
mod passwd;
mod toml_selection;

pub(crate) use child_env::{Variables, child_env, permits, server_env};
pub(crate) use config_files::{ConfigError, ConfigPlaces};
pub(crate) use info::{environment_info, users_shell};
