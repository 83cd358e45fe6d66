//! `man`: prints one manual page, or writes all of them to a directory, from which packages take them.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;

use super::args::ManArgs;
use super::print::print;
use crate::man_pages;

pub(crate) async fn man(args: ManArgs) -> anyhow::Result<ExitCode> {
    match &args.dir {
        Some(directory) => write_all(directory)?,
        None => print(&page_of(args.command.as_deref())?).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The page of a command, or of the program itself if `command` is `None`.
fn page_of(command: Option<&str>) -> anyhow::Result<String> {
    let pages = man_pages::all();
    let names: Vec<&str> = pages.iter().filter_map(|page| page.command.as_deref()).collect();
    let page = pages.iter().find(|page| page.command.as_deref() == command).with_context(|| {
        format!("there is no command `{}`; there are: {}", command.unwrap_or_default(), names.join(", "))
    })?;
    Ok(page.text.clone())
}

fn write_all(directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    for page in man_pages::all() {
        let path = directory.join(page.file_name);
        std::fs::write(&path, page.text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
