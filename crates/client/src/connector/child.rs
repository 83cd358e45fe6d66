//! A server that is a child of ours and speaks over its pipes. Its sessions end with it, so there is nothing to come back to.

use std::ffi::OsString;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use transport::{ChildCommand, ChildGuard, MessageLimits, spawn_child};

use super::{Companion, Connecting, Connection, Connector};
use crate::error::ExecServerError;

/// Starts a server and speaks with it over its stdin and stdout.
#[derive(Clone, Debug, Default)]
pub struct ChildConnector {
    /// What to run.
    pub program: OsString,
    /// Its arguments, which make it speak over stdio.
    pub args: Vec<OsString>,
    /// Variables to set beside our own.
    pub env: Vec<(OsString, OsString)>,
    /// Variables of ours that it shall not have.
    pub env_remove: Vec<OsString>,
    /// Where to run it, if not where we are.
    pub cwd: Option<PathBuf>,
}

impl Connector for ChildConnector {
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
            let (stream, guard) =
                spawn_child(&command, MessageLimits::default(), move |line| tracing::debug!(%program, line))
                    .map_err(|error| ExecServerError::Spawn(error.to_string()))?;
            Ok(Connection { stream, companion: Some(Box::new(guard)) })
        })
    }

    fn can_reconnect(&self) -> bool {
        false
    }

    fn place(&self) -> String {
        self.program.to_string_lossy().into_owned()
    }
}

impl Companion for ChildGuard {
    fn last_words(&mut self) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
        Box::pin(async { self.wait_for_exit().await.to_string() })
    }
}
