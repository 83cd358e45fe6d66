//! What the server knows about its own machine, looked up once, and the environment it gives to a child.

mod child_env;
mod info;

pub(crate) use child_env::{Variables, child_env, server_env};
pub(crate) use info::environment_info;
