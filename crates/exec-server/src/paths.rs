//! The guard of an embedded server, a second process that kills the processes of the server if the server itself is
//! killed. Its program is the embedding program itself, started with a special argument.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// The argument with which the server starts the program as its guard. Not meant for people.
const GUARD_ARGUMENT: &str = "__guard";

/// The program of the guard, which kills the processes of the server if the server itself is killed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecServerRuntimePaths {
    guard: Option<PathBuf>,
}

impl ExecServerRuntimePaths {
    /// Uses the running program as guard. It must call [`become_guard_if_asked`] before anything else.
    pub fn of_this_program() -> io::Result<Self> {
        Ok(Self { guard: Some(std::env::current_exe()?) })
    }

    /// Uses no guard. If the server is killed with SIGKILL, the processes that it has started go on running.
    pub fn unguarded() -> Self {
        Self::default()
    }

    /// Program and arguments of the guard, as [`ServerConfig`](crate::ServerConfig) takes them. `None` without a guard.
    pub fn guard(self) -> Option<(PathBuf, Vec<String>)> {
        self.guard.map(|program| (program, vec![GUARD_ARGUMENT.to_owned()]))
    }
}

/// If the server has started this program as its guard, works as the guard until the server is gone, and returns the
/// exit code for the program. Otherwise returns `None` at once.
pub fn become_guard_if_asked() -> Option<i32> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != GUARD_ARGUMENT {
        return None;
    }
    let code = spawn::guard_main(&args.next().unwrap_or_default());
    Some(i32::from(code != ExitCode::SUCCESS))
}
