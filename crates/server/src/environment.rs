//! What the server knows about its own machine, and the environment it gives to a child.

mod child_env;
mod config;
mod info;
mod passwd;

pub(crate) use child_env::{Variables, child_env, permits, server_env};
pub(crate) use config::{ConfigError, ConfigPlaces};
pub(crate) use info::{environment_info, users_shell};
