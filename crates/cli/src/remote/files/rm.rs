//! `rm`: removes files, links and, if asked to, directories.

use std::ffi::OsStr;
use std::process::ExitCode;

use client::{FileOptions, RemoveOptions};

use super::super::print::complain;
use super::args::RmArgs;
use super::place::Sites;

/// Removes each in turn. One that fails does not save the others.
pub(crate) async fn rm(args: RmArgs) -> anyhow::Result<ExitCode> {
    let mut sites = Sites::new(&args.r#where)?;
    let mut code = ExitCode::SUCCESS;
    for path in &args.paths {
        if let Err(error) = remove(&mut sites, path, &args).await {
            complain(&error.to_string());
            code = ExitCode::FAILURE;
        }
    }
    sites.close().await;
    Ok(code)
}

async fn remove(sites: &mut Sites<'_>, path: &OsStr, args: &RmArgs) -> anyhow::Result<()> {
    let place = sites.place(path).await?;
    let failed = |error| anyhow::anyhow!(place.complaint("remove", &error));
    let (files, uri) = (&place.site.files, place.uri().map_err(failed)?);
    if !args.recursive
        && let Ok(found) = files.metadata(&uri, &FileOptions::default()).await
    {
        anyhow::ensure!(!found.is_directory || found.is_symlink, "{place} is a directory; remove it with -r");
    }
    let options = RemoveOptions { recursive: args.recursive, force: args.force, ..RemoveOptions::default() };
    files.remove(&uri, &options).await.map_err(failed)
}
