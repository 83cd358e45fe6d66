//! `mkdir`: makes directories.

use std::process::ExitCode;

use client::CreateDirectoryOptions;

use super::args::MkdirArgs;
use super::file_hosts::{FileHosts, PlainPaths};
use super::host_path::HostPath;

/// Makes the directories in turn. If one cannot be made, the others still are.
pub(crate) async fn mkdir(args: MkdirArgs) -> anyhow::Result<ExitCode> {
    let mut hosts = FileHosts::new(&args.target, &args.sandbox, PlainPaths::FollowFlags)?;
    let paths = hosts.resolve(&args.paths).await?;
    let mut code = ExitCode::SUCCESS;
    for path in &paths {
        if let Err(error) = make(path, args.parents).await {
            crate::report_error(&error);
            code = ExitCode::FAILURE;
        }
    }
    hosts.close().await;
    Ok(code)
}

async fn make(path: &HostPath, parents: bool) -> anyhow::Result<()> {
    let failed = |error| anyhow::anyhow!(path.failure("make the directory", &error));
    let options = CreateDirectoryOptions { recursive: parents, ..CreateDirectoryOptions::default() };
    path.host.files.create_directory(&path.uri().map_err(failed)?, &options).await.map_err(failed)
}
