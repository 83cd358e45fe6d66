//! The guard of an embedded server: a second process that kills the processes which the server has started, when the
//! server has ended, even by SIGKILL. The guard runs the embedding program, started with a special argument.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// The first argument of the guard. A second argument, which the server adds, tells the guard to which server it
/// belongs. Not meant for people.
const GUARD_ARGUMENT: &str = "__guard";

/// The program that a server starts as its guard, which kills the processes of the server if the server itself is
/// killed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecServerRuntimePaths {
    guard: Option<PathBuf>,
}

impl ExecServerRuntimePaths {
    /// Uses the running program as guard. Its `main` must call [`become_guard_if_asked`] before anything else.
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

/// If a server has started this program as its guard: waits until the server has ended, kills the processes that the
/// server has left, and returns the exit code for this program. Otherwise returns `None` at once.
pub fn become_guard_if_asked() -> Option<i32> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != GUARD_ARGUMENT {
        return None;
    }
    let code = spawn::guard_main(&args.next().unwrap_or_default());
    Some(i32::from(code != ExitCode::SUCCESS))
}
