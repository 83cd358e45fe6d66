//! `cat`: prints files to stdout.

use std::process::ExitCode;

use client::Stream;

use super::super::foreground::BROKEN_PIPE;
use super::super::output_queue::OutputQueue;
use super::args::CatArgs;
use super::file_hosts::{FileHosts, PlainPaths};
use super::host_path::HostPath;

/// How far one file was printed.
enum Printed {
    Whole,
    /// Until stdout could not be written any more, for example because its reader has closed the pipe.
    OutputFailed,
}

/// Prints the files in turn. If one cannot be read, the others are still printed.
pub(crate) async fn cat(args: CatArgs) -> anyhow::Result<ExitCode> {
    let mut hosts = FileHosts::new(&args.target, &args.sandbox, PlainPaths::FollowFlags)?;
    let paths = hosts.resolve(&args.paths).await?;
    let (output, written) = OutputQueue::start()?;
    let mut code = ExitCode::SUCCESS;
    for path in &paths {
        match print_file(path, &output).await {
            Ok(Printed::Whole) => {}
            Ok(Printed::OutputFailed) => break,
            Err(error) => {
                crate::report_error(&error);
                code = ExitCode::FAILURE;
            }
        }
    }
    // Without the queue, the writing thread ends after the last piece.
    drop(output);
    let written = written.await;
    hosts.close().await;
    match written {
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::from(BROKEN_PIPE)),
        Ok(Err(error)) => Err(anyhow::Error::from(error).context("cannot write to stdout")),
        Ok(Ok(())) => Ok(code),
        Err(_) => anyhow::bail!("the output was not written to its end"),
    }
}

async fn print_file(path: &HostPath, output: &OutputQueue) -> anyhow::Result<Printed> {
    let unreadable = |error| anyhow::anyhow!(path.failure("read", &error));
    let uri = path.uri().map_err(unreadable)?;
    let mut reader = path.host.files.read_file_stream(&uri, None).await.map_err(unreadable)?;
    while let Some(piece) = reader.next().await {
        let piece = piece.map_err(unreadable)?;
        match output.reserve().await {
            Some(permit) => permit.send(Stream::Stdout, piece),
            None => return Ok(Printed::OutputFailed),
        }
    }
    Ok(Printed::Whole)
}
