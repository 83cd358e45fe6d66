//! `mkdir`: makes directories.

use std::process::ExitCode;

use client::CreateDirectoryOptions;

use super::args::MkdirArgs;
use super::file_hosts::{BarePaths, FileHosts, HostPath};

/// Makes each in turn. One that fails does not stop the others.
pub(crate) async fn mkdir(args: MkdirArgs) -> anyhow::Result<ExitCode> {
    let mut hosts = FileHosts::new(&args.target, BarePaths::Chosen)?;
    let places = hosts.places(&args.paths).await?;
    let mut code = ExitCode::SUCCESS;
    for place in &places {
        if let Err(error) = make(place, args.parents).await {
            crate::report_error(&error);
            code = ExitCode::FAILURE;
        }
    }
    hosts.close().await;
    Ok(code)
}

async fn make(place: &HostPath, parents: bool) -> anyhow::Result<()> {
    let failed = |error| anyhow::anyhow!(place.complaint("make the directory", &error));
    let options = CreateDirectoryOptions { recursive: parents, ..CreateDirectoryOptions::default() };
    place.host.files.create_directory(&place.uri().map_err(failed)?, &options).await.map_err(failed)
}
