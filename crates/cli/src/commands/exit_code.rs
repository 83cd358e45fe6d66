//! What we exit with: the command's own code, or one that says why there is none, as shells and their like do.

use std::io::ErrorKind;
use std::process::ExitCode;

use client::{
    ExecServerClient, ExecServerError, ExecutorFileSystem as _, ExitStatus, FileOptions, PathUri, StartParams,
};
use protocol::{ErrorCode, ErrorData, error_kind};

use super::foreground::EndReason;
use super::print::report;

/// The command's time was over.
const TIMED_OUT: u8 = 124;
/// The command is there and cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
const NOT_FOUND: u8 = 127;

const ENOENT: i32 = 2;

/// What became of a command that has ended. A number that no exit code can be says nothing about the command, so it is our failure: cut to
/// its last byte it could be taken for a success.
pub(crate) fn of_command(status: ExitStatus) -> ExitCode {
    if status.timed_out {
        return ExitCode::from(TIMED_OUT);
    }
    ExitCode::from(u8::try_from(status.code).unwrap_or_else(|_| {
        report(&format!("the server says that the command ended with {}, which is no exit code", status.code));
        crate::OUR_FAILURE
    }))
}

/// What to exit with if the server did not end a command that was to end for this reason.
pub(crate) fn of_abandoned(reason: Option<EndReason>) -> u8 {
    match reason {
        Some(EndReason::Passed(fatal) | EndReason::Replaced(fatal)) => fatal.exit_code(),
        Some(EndReason::TimeOver) => TIMED_OUT,
        None => crate::OUR_FAILURE,
    }
}

/// What to exit with after a start that the operating system over there has refused, and what to say. The error comes back if the command
/// is not to blame.
pub(crate) async fn of_refused_start(
    client: &ExecServerClient,
    error: ExecServerError,
    params: &StartParams,
) -> Result<(ExitCode, anyhow::Error), ExecServerError> {
    let program = params.argv.first().map_or("", String::as_str);
    let ExecServerError::Server { code, message, data } = &error else { return Err(error) };
    if error.is_of_kind(error_kind::START_TIMED_OUT) {
        return Ok((ExitCode::from(TIMED_OUT), anyhow::anyhow!("{program}: {message}")));
    }
    let blamed = match data {
        Some(data) => by_data(data, program, params),
        // Published servers say no more than that the operating system refused.
        None if *code == ErrorCode::Internal.number() => by_looking(client, program, params).await,
        None => None,
    };
    match blamed {
        Some(NOT_FOUND) if data.is_some() => {
            Ok((ExitCode::from(NOT_FOUND), anyhow::anyhow!("{program}: command not found")))
        }
        Some(code) => Ok((ExitCode::from(code), anyhow::anyhow!("{program}: {message}"))),
        None => Err(error),
    }
}

fn by_data(data: &ErrorData, program: &str, params: &StartParams) -> Option<u8> {
    let errno = data.errno?;
    // A directory may have another name over there, but a program is never called like one that it starts in.
    let is_about_program =
        data.path.as_deref().is_some_and(|path| path == program || path.ends_with(&file_name(program)));
    if !is_about_program || data.path.as_deref() == Some(params.cwd.as_str()) {
        return None;
    }
    Some(if errno == ENOENT { NOT_FOUND } else { NOT_EXECUTABLE })
}

/// Finds out who is to blame by looking at the files over there: the directory is fine, and the program is not there or cannot be
/// executed. A bare name is searched where we cannot look; that it was not found is by far the most likely.
async fn by_looking(client: &ExecServerClient, program: &str, params: &StartParams) -> Option<u8> {
    let files = client.file_system();
    let options = FileOptions::default();
    let is_directory = files.metadata(&params.cwd, &options).await.is_ok_and(|metadata| metadata.is_directory);
    if !is_directory {
        return None;
    }
    if !program.contains('/') {
        return Some(NOT_FOUND);
    }
    let path = PathUri::from_native(&params.cwd.to_native().ok()?.join(program))?;
    match files.metadata(&path, &options).await {
        Err(error) if error.kind == ErrorKind::NotFound => Some(NOT_FOUND),
        _ => Some(NOT_EXECUTABLE),
    }
}

/// The end of the URI of a program that is named by its path.
fn file_name(program: &str) -> String {
    let path = PathUri::from_native(&std::path::Path::new("/").join(program));
    path.and_then(|path| path.as_str().rsplit_once('/').map(|(_, name)| format!("/{name}"))).unwrap_or_default()
}
