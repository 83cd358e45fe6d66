//! `mkdir`: makes directories.

use std::ffi::OsStr;
use std::process::ExitCode;

use client::CreateDirectoryOptions;

use super::super::print::complain;
use super::args::MkdirArgs;
use super::place::Sites;

/// Makes each in turn. One that fails does not stop the others.
pub(crate) async fn mkdir(args: MkdirArgs) -> anyhow::Result<ExitCode> {
    let mut sites = Sites::new(&args.r#where)?;
    let mut code = ExitCode::SUCCESS;
    for path in &args.paths {
        if let Err(error) = make(&mut sites, path, args.parents).await {
            complain(&error.to_string());
            code = ExitCode::FAILURE;
        }
    }
    sites.close().await;
    Ok(code)
}

async fn make(sites: &mut Sites<'_>, path: &OsStr, parents: bool) -> anyhow::Result<()> {
    let place = sites.place(path).await?;
    let failed = |error| anyhow::anyhow!(place.complaint("make the directory", &error));
    let options = CreateDirectoryOptions { recursive: parents, ..CreateDirectoryOptions::default() };
    place.site.files.create_directory(&place.uri().map_err(failed)?, &options).await.map_err(failed)
}
