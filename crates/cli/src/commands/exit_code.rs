//! Chooses the exit code of this program: the exit code of the command that it runs in an environment, or a code that
//! says why there is none. The numbers are those that shells, docker and `timeout` use.

use std::io::ErrorKind;
use std::process::ExitCode;

use client::{
    ExecServerClient, ExecServerError, ExecutorFileSystem as _, ExitStatus, FileOptions, PathUri, StartParams,
};
use protocol::{ErrorCode, ErrorData, error_kind};

use super::foreground::EndReason;
use super::print::report;

/// The command ran longer than `--timeout`.
const TIMED_OUT: u8 = 124;
/// The command exists, but cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
const NOT_FOUND: u8 = 127;

const ENOENT: i32 = 2;

/// Our exit code for a command that has ended. If the server reports a number that cannot be an exit code, ours is
/// [`OUR_FAILURE`](crate::OUR_FAILURE), because the last byte of the number could look like a success.
pub(crate) fn of_command(status: &ExitStatus) -> ExitCode {
    if status.timed_out {
        return ExitCode::from(TIMED_OUT);
    }
    ExitCode::from(u8::try_from(status.code).unwrap_or_else(|_| {
        report(&format!("the server says that the command ended with {}, which is no exit code", status.code));
        crate::OUR_FAILURE
    }))
}

/// Our exit code if we have given up waiting for the server to end the command. `reason` says why the server was
/// asked.
pub(crate) fn of_abandoned(reason: Option<EndReason>) -> u8 {
    match reason {
        Some(EndReason::Passed(fatal) | EndReason::Replaced(fatal)) => fatal.exit_code(),
        Some(EndReason::TimeOver) => TIMED_OUT,
        None => crate::OUR_FAILURE,
    }
}

/// Our exit code and an error text for a start that has failed because of the command: the command was not found,
/// cannot be executed, or took too long to start. If the start has failed for another reason, the error is returned
/// unchanged.
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
    let code_of_command = match data {
        Some(data) => code_from_error_data(data, program, params),
        // Servers without extensions do not say which file the operating system refused.
        None if *code == ErrorCode::Internal.number() => code_from_files(client, program, params).await,
        None => None,
    };
    match code_of_command {
        Some(NOT_FOUND) if data.is_some() => {
            Ok((ExitCode::from(NOT_FOUND), anyhow::anyhow!("{program}: command not found")))
        }
        Some(code) => Ok((ExitCode::from(code), anyhow::anyhow!("{program}: {message}"))),
        None => Err(error),
    }
}

/// The exit code for an error that is about the program. `None` if the error is about something else.
fn code_from_error_data(data: &ErrorData, program: &str, params: &StartParams) -> Option<u8> {
    let errno = data.errno?;
    // The error names the program or the working directory. The working directory may have another path on the
    // server's machine, so the last part of the path must be the name of the program. A working directory of that
    // name is recognised only if its whole path is the same.
    let is_about_program =
        data.path.as_deref().is_some_and(|path| path == program || path.ends_with(&file_name(program)));
    if !is_about_program || data.path.as_deref() == Some(params.cwd.as_str()) {
        return None;
    }
    Some(if errno == ENOENT { NOT_FOUND } else { NOT_EXECUTABLE })
}

/// Looks at the files on the server's machine to find out why a start has failed. `None` if the reason is the working
/// directory. The server searches a program without a slash in its name along a `PATH` that we do not know; most
/// likely it was not found.
async fn code_from_files(client: &ExecServerClient, program: &str, params: &StartParams) -> Option<u8> {
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

/// The last part of the URI of the program, with its slash.
fn file_name(program: &str) -> String {
    let path = PathUri::from_native(&std::path::Path::new("/").join(program));
    path.and_then(|path| path.as_str().rsplit_once('/').map(|(_, name)| format!("/{name}"))).unwrap_or_default()
}
