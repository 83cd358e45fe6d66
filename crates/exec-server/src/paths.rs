//! Where the server finds itself.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// How the server starts itself as its own guard; never typed by a person.
const GUARD_ARGUMENT: &str = "__guard";

/// Programs that the server starts for its own purposes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecServerRuntimePaths {
    guard: Option<PathBuf>,
}

impl ExecServerRuntimePaths {
    /// This very program guards the server it runs. It must call [`become_guard_if_asked`] before anything else.
    pub fn of_this_program() -> io::Result<Self> {
        Ok(Self { guard: Some(std::env::current_exe()?) })
    }

    /// Nobody guards the server: if it is killed with SIGKILL, what it has started stays.
    pub fn unguarded() -> Self {
        Self::default()
    }

    /// The guard's program and arguments, as [`ServerConfig`](crate::ServerConfig) takes them.
    pub fn guard(self) -> Option<(PathBuf, Vec<String>)> {
        self.guard.map(|program| (program, vec![GUARD_ARGUMENT.to_owned()]))
    }
}

/// If this program was started to guard a server, does that until the server is gone, and returns what to exit with.
pub fn become_guard_if_asked() -> Option<i32> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != GUARD_ARGUMENT {
        return None;
    }
    let code = spawn::guard_main(&args.next().unwrap_or_default());
    Some(i32::from(code != ExitCode::SUCCESS))
}
