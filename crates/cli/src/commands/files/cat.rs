//! `cat`: files to our stdout.

use std::process::ExitCode;

use client::Stream;

use super::super::output_queue::OutputQueue;
use super::args::CatArgs;
use super::file_hosts::{BarePaths, FileHosts, HostPath};

/// What a shell reports of a program that wrote to a pipe nobody reads.
const NOBODY_READS: u8 = 128 + 13;

/// What became of one file.
enum Printed {
    Whole,
    /// Somebody has read enough.
    Enough,
}

/// Prints each in turn. One that fails does not stop the others.
pub(crate) async fn cat(args: CatArgs) -> anyhow::Result<ExitCode> {
    let mut hosts = FileHosts::new(&args.target, BarePaths::Chosen)?;
    let places = hosts.places(&args.paths).await?;
    let (output, written) = OutputQueue::start()?;
    let mut code = ExitCode::SUCCESS;
    for place in &places {
        match print_file(place, &output).await {
            Ok(Printed::Whole) => {}
            Ok(Printed::Enough) => break,
            Err(error) => {
                crate::report_error(&error);
                code = ExitCode::FAILURE;
            }
        }
    }
    drop(output);
    let written = written.await;
    hosts.close().await;
    match written {
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::from(NOBODY_READS)),
        Ok(Err(error)) => Err(anyhow::Error::from(error).context("cannot write to stdout")),
        Ok(Ok(())) => Ok(code),
        Err(_) => anyhow::bail!("the output was not written to its end"),
    }
}

async fn print_file(place: &HostPath, output: &OutputQueue) -> anyhow::Result<Printed> {
    let unreadable = |error| anyhow::anyhow!(place.complaint("read", &error));
    let uri = place.uri().map_err(unreadable)?;
    let mut reader = place.host.files.read_file_stream(&uri, None).await.map_err(unreadable)?;
    while let Some(piece) = reader.next().await {
        let piece = piece.map_err(unreadable)?;
        match output.reserve().await {
            Some(permit) => permit.send(Stream::Stdout, piece),
            None => return Ok(Printed::Enough),
        }
    }
    Ok(Printed::Whole)
}
