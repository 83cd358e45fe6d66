//! `rm`: removes files and links, and with `-r` directories.

use std::process::ExitCode;

use client::{FileOptions, RemoveOptions};

use super::args::RmArgs;
use super::file_hosts::{FileHosts, PlainPaths};
use super::host_path::HostPath;

/// Removes the files in turn. If one cannot be removed, the others still are.
pub(crate) async fn rm(args: RmArgs) -> anyhow::Result<ExitCode> {
    let mut hosts = FileHosts::new(&args.target, &args.sandbox, PlainPaths::FollowFlags)?;
    let paths = hosts.resolve(&args.paths).await?;
    let mut code = ExitCode::SUCCESS;
    for path in &paths {
        if let Err(error) = remove(path, &args).await {
            crate::report_error(&error);
            code = ExitCode::FAILURE;
        }
    }
    hosts.close().await;
    Ok(code)
}

async fn remove(path: &HostPath, args: &RmArgs) -> anyhow::Result<()> {
    anyhow::ensure!(
        !args.recursive || !(path.means_contents() || path.means_working_directory()),
        "refusing to remove {path}: it stands for a directory without naming it; write the name of the directory"
    );
    let failed = |error| anyhow::anyhow!(path.failure("remove", &error));
    let (files, uri) = (&path.host.files, path.uri().map_err(failed)?);
    if !args.recursive
        && let Ok(found) = files.metadata(&uri, &FileOptions::default()).await
    {
        anyhow::ensure!(!found.is_directory || found.is_symlink, "{path} is a directory; remove it with -r");
    }
    let options = RemoveOptions { recursive: args.recursive, force: args.force, ..RemoveOptions::default() };
    files.remove(&uri, &options).await.map_err(failed)
}
