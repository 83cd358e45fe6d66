//! What we exit with: the command's own code, or one that says why there is none, as shells and their like do.

use std::process::ExitCode;

use client::{ExecServerError, ExitStatus, StartParams};

/// The command's time was over.
const TIMED_OUT: u8 = 124;
/// The command is there and cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
const NOT_FOUND: u8 = 127;

const ENOENT: i32 = 2;

/// What became of a command that has ended.
pub(crate) fn of_command(status: ExitStatus) -> ExitCode {
    // As the operating system does it.
    ExitCode::from(if status.timed_out { TIMED_OUT } else { (status.code & 0xff) as u8 })
}

/// What to exit with after a start that the operating system over there has refused, and what to say. The error comes back if the command
/// is not to blame.
pub(crate) fn of_refused_start(
    error: ExecServerError,
    params: &StartParams,
) -> Result<(ExitCode, anyhow::Error), ExecServerError> {
    let program = params.argv.first().map_or("", String::as_str);
    let ExecServerError::Server { message, data: Some(data), .. } = &error else { return Err(error) };
    let Some(errno) = data.errno else { return Err(error) };
    // A directory may have another name over there, but a program is never called like one that it starts in.
    let is_about_program =
        data.path.as_deref().is_some_and(|path| path == program || path.ends_with(&file_name(program)));
    if !is_about_program || data.path.as_deref() == Some(params.cwd.as_str()) {
        return Err(error);
    }
    Ok(match errno {
        ENOENT => (ExitCode::from(NOT_FOUND), anyhow::anyhow!("{program}: command not found")),
        _ => (ExitCode::from(NOT_EXECUTABLE), anyhow::anyhow!("{program}: {message}")),
    })
}

/// The end of the URI of a program that is named by its path.
fn file_name(program: &str) -> String {
    let path = protocol::PathUri::from_native(&std::path::Path::new("/").join(program));
    path.and_then(|path| path.as_str().rsplit_once('/').map(|(_, name)| format!("/{name}"))).unwrap_or_default()
}
