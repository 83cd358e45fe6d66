//! A server that runs as a child process and speaks over its stdin and stdout. The sessions of the server end with
//! the child, so no session can be resumed.

use std::ffi::OsString;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use transport::{ChildCommand, ChildGuard, MessageLimits, spawn_child};

use super::{Companion, Connecting, ServerConnection, ServerConnector};
use crate::error::ExecServerError;

/// Starts a server as a child process and speaks with it over its stdin and stdout. The child is terminated when its
/// connection ends.
#[derive(Clone, Debug, Default)]
pub struct ChildConnector {
    /// The server program: a path, or a name that is looked up in `PATH`.
    pub program: OsString,
    /// The arguments of the program. They must make the server listen on its stdin and stdout.
    pub args: Vec<OsString>,
    /// Variables to set for the child. They win over the variables of this process and over `env_remove`.
    pub env: Vec<(OsString, OsString)>,
    /// Variables of this process that the child does not get.
    pub env_remove: Vec<OsString>,
    /// The working directory of the child. `None` means that of this process.
    pub cwd: Option<PathBuf>,
}

impl ServerConnector for ChildConnector {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            let program = self.program.to_string_lossy().into_owned();
            let command = ChildCommand {
                program: self.program.clone(),
                args: self.args.clone(),
                env: self.env.clone(),
                env_remove: self.env_remove.clone(),
                cwd: self.cwd.clone(),
            };
            // Each line that the child writes to its stderr goes to the log of this process.
            let (stream, guard) =
                spawn_child(&command, MessageLimits::default(), move |line| tracing::debug!(%program, line))
                    .map_err(|error| ExecServerError::Spawn(error.to_string()))?;
            Ok(ServerConnection { stream, companion: Some(Box::new(guard)) })
        })
    }

    fn can_reconnect(&self) -> bool {
        false
    }

    fn address(&self) -> String {
        self.program.to_string_lossy().into_owned()
    }
}

/// Dropping the guard terminates the child.
impl Companion for ChildGuard {
    fn exit_report(&mut self) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
        Box::pin(async { self.wait_for_exit().await.to_string() })
    }
}
