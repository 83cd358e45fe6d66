//! The helpers of an embedded server. They are further processes of the embedding program, started with a special
//! argument: the guard, which kills the processes of the server when the server has ended, even by SIGKILL; and the
//! launcher of a sandbox, which starts commands in it.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// The first argument of the guard. A second argument, which the server adds, tells the guard to which server it
/// belongs. Not meant for people.
const GUARD_ARGUMENT: &str = "__guard";

/// The first argument of the launcher of a sandbox. Not meant for people.
const LAUNCHER_ARGUMENT: &str = "__launcher";

/// The launcher must be the same program as the server, also if the file of the program was replaced meanwhile. The
/// kernel finds it by this name for as long as the server runs.
const RUNNING_PROGRAM: &str = "/proc/self/exe";

/// The program that a server starts as its helpers: the guard, which kills the processes of the server if the server
/// itself is killed, and the launchers of sandboxes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecServerRuntimePaths {
    guard: Option<PathBuf>,
}

impl ExecServerRuntimePaths {
    /// Uses the running program for the helpers. Its `main` must call [`become_guard_if_asked`] before anything else.
    pub fn of_this_program() -> io::Result<Self> {
        Ok(Self { guard: Some(std::env::current_exe()?) })
    }

    /// Uses no helpers. If the server is killed with SIGKILL, the processes that it has started go on running, and
    /// requests that need a sandbox are refused.
    pub fn unguarded() -> Self {
        Self::default()
    }

    /// Program and arguments of the guard, as [`ServerConfig`](crate::ServerConfig) takes them. `None` without a guard.
    pub fn guard(&self) -> Option<(PathBuf, Vec<String>)> {
        self.guard.as_ref().map(|program| (program.clone(), vec![GUARD_ARGUMENT.to_owned()]))
    }

    /// Program and arguments of the launcher of a sandbox, as [`ServerConfig`](crate::ServerConfig) takes them. `None`
    /// without helpers.
    pub fn sandbox_launcher(&self) -> Option<(PathBuf, Vec<String>)> {
        self.guard.as_ref().map(|_| (RUNNING_PROGRAM.into(), vec![LAUNCHER_ARGUMENT.to_owned()]))
    }
}

/// If a server has started this program as one of its helpers, does the work of the helper, and returns the exit code
/// for this program. Otherwise returns `None` at once. Must be called before the program starts a thread.
pub fn become_guard_if_asked() -> Option<i32> {
    let mut args = std::env::args_os().skip(1);
    let first = args.next()?;
    let code = if first == GUARD_ARGUMENT {
        let code = spawn::guard_main(&args.next().unwrap_or_default());
        server::clean_up_after_server(&spawn::guard_notes());
        code
    } else if first == LAUNCHER_ARGUMENT {
        sandbox::launcher_main()
    } else {
        return None;
    };
    Some(i32::from(code != ExitCode::SUCCESS))
}
