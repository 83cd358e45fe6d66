//! `rm`: removes files, links and, if asked to, directories.

use std::process::ExitCode;

use client::{FileOptions, RemoveOptions};

use super::args::RmArgs;
use super::file_hosts::{BarePaths, FileHosts, HostPath};

/// Removes each in turn. One that fails does not save the others.
pub(crate) async fn rm(args: RmArgs) -> anyhow::Result<ExitCode> {
    let mut hosts = FileHosts::new(&args.target, BarePaths::Chosen)?;
    let places = hosts.places(&args.paths).await?;
    let mut code = ExitCode::SUCCESS;
    for place in &places {
        if let Err(error) = remove(place, &args).await {
            crate::report_error(&error);
            code = ExitCode::FAILURE;
        }
    }
    hosts.close().await;
    Ok(code)
}

async fn remove(place: &HostPath, args: &RmArgs) -> anyhow::Result<()> {
    anyhow::ensure!(
        !args.recursive || !(place.means_contents() || place.is_left_out()),
        "refusing to remove {place}: it means a directory without naming it; write its name"
    );
    let failed = |error| anyhow::anyhow!(place.complaint("remove", &error));
    let (files, uri) = (&place.host.files, place.uri().map_err(failed)?);
    if !args.recursive
        && let Ok(found) = files.metadata(&uri, &FileOptions::default()).await
    {
        anyhow::ensure!(!found.is_directory || found.is_symlink, "{place} is a directory; remove it with -r");
    }
    let options = RemoveOptions { recursive: args.recursive, force: args.force, ..RemoveOptions::default() };
    files.remove(&uri, &options).await.map_err(failed)
}
