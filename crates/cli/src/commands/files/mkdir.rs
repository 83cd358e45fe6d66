//! `mkdir`: makes directories.

use std::process::ExitCode;

use client::CreateDirectoryOptions;

use super::args::MkdirArgs;
use super::place::{BarePaths, Place, Sites};

/// Makes each in turn. One that fails does not stop the others.
pub(crate) async fn mkdir(args: MkdirArgs) -> anyhow::Result<ExitCode> {
    let mut sites = Sites::new(&args.r#where, BarePaths::Chosen)?;
    let places = sites.places(&args.paths).await?;
    let mut code = ExitCode::SUCCESS;
    for place in &places {
        if let Err(error) = make(place, args.parents).await {
            crate::complain(&error);
            code = ExitCode::FAILURE;
        }
    }
    sites.close().await;
    Ok(code)
}

async fn make(place: &Place, parents: bool) -> anyhow::Result<()> {
    let failed = |error| anyhow::anyhow!(place.complaint("make the directory", &error));
    let options = CreateDirectoryOptions { recursive: parents, ..CreateDirectoryOptions::default() };
    place.site.files.create_directory(&place.uri().map_err(failed)?, &options).await.map_err(failed)
}
