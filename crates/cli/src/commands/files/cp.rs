//! `cp`: copies files and directory trees between this machine and environments (machines with an exec-server), in
//! every combination. This module finds the target path of each source; [`copy_tree`] copies.
//!
//! [`copy_tree`]: super::copy_tree

use std::io::ErrorKind;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use client::{FileOptions, FileSystemError};

use super::super::progress::{DRAW_INTERVAL, ProgressLine};
use super::super::signals::Signals;
use super::args::CpArgs;
use super::copy_file::PermissionPolicy;
use super::copy_tree::{CopyItem, TreeCopy};
use super::file_hosts::{FileHost, FileHosts, PlainPaths};
use super::file_kind::SymlinkPolicy;
use super::host_path::HostPath;

/// Copies all sources. A file that cannot be copied is reported, and the other files are still copied.
pub(crate) async fn cp(args: CpArgs) -> anyhow::Result<ExitCode> {
    // From here on, a signal must not leave an incomplete file behind. Ctrl-Z still stops this program.
    let mut signals = Signals::listen_except_stop()?;
    let progress = Arc::new(ProgressLine::of_copy(args.quiet));
    let mut hosts = FileHosts::new(&args.target, &args.sandbox, PlainPaths::Local)?;
    let code = tokio::select! {
        all_done = copy_all(&args, &mut hosts, &progress) => {
            all_done.map(|all_done| if all_done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        fatal = signals.next_fatal() => Ok(ExitCode::from(fatal.exit_code())),
    };
    progress.clear();
    tokio::select! {
        () = hosts.close() => code,
        // A user who sends a signal now does not want to wait for the close.
        fatal = signals.next_fatal() => Ok(ExitCode::from(fatal.exit_code())),
    }
}

/// Returns false if something could not be copied.
async fn copy_all(args: &CpArgs, hosts: &mut FileHosts<'_>, progress: &Arc<ProgressLine>) -> anyhow::Result<bool> {
    let mut sources = hosts.resolve(&args.paths).await?;
    let target = sources.pop().context("there is nothing to copy")?;
    let (mut items, mut targets) = (Vec::new(), Vec::new());
    let mut all_found = true;
    for warning in missing_features(&sources, &target, args)? {
        progress.report(&warning);
    }
    let is_directory = is_directory(&target).await?;
    anyhow::ensure!(is_directory || sources.len() == 1, "{target} is not a directory");
    for source in sources {
        match exact_target(&source, &target, is_directory, args.recursive).await {
            Ok(exact) => {
                items.push(copy_item(source, &exact, &target, args.recursive).await?);
                targets.push(exact);
            }
            Err(sentence) => {
                progress.report(&sentence);
                all_found = false;
            }
        }
    }
    let permissions = if args.preserve { PermissionPolicy::Exact } else { PermissionPolicy::Umask };
    let copying = TreeCopy::new(args.recursive, permissions, Arc::clone(progress), targets);
    let hosts = hosts.environments();
    let copied = copying.run(items);
    tokio::pin!(copied);
    let mut tick = tokio::time::interval(DRAW_INTERVAL);
    loop {
        tokio::select! {
            copied = &mut copied => return Ok(copied && all_found),
            _ = tick.tick() => progress.draw(hosts.iter().any(|host| FileHost::is_lost(host))),
        }
    }
}

/// For each server without extensions, a sentence that says what the copy will lack. It is an error if `-p` is given
/// and a server cannot do it.
fn missing_features(sources: &[HostPath], target: &HostPath, args: &CpArgs) -> anyhow::Result<Vec<String>> {
    let mut sentences = Vec::new();
    let mut seen: Vec<&Arc<FileHost>> = Vec::new();
    for path in std::iter::once(target).chain(sources) {
        let host = &path.host;
        let is_target = Arc::ptr_eq(host, &target.host);
        anyhow::ensure!(
            host.has_modes() || !args.preserve,
            "the server of {path} does not know modes, so -p cannot be done; leave out -p"
        );
        if seen.iter().any(|known| Arc::ptr_eq(known, host)) {
            continue;
        }
        seen.push(host);
        let modes = match is_target {
            _ if host.has_modes() => None,
            true => Some("it cannot set modes and times, so new files may be readable for others"),
            false => Some("it does not report modes and times, so copies get default modes and do not keep the time"),
        };
        let links = (args.recursive && !host.has_links()).then_some("links are left out");
        let lacks: Vec<&str> = modes.into_iter().chain(links).collect();
        if !lacks.is_empty() {
            sentences.push(format!("the server of {path} knows only the published protocol: {}", lacks.join("; ")));
        }
    }
    Ok(sentences)
}

/// One source with its target: `given` is the target on the command line, and `exact` the path that the copy gets. If
/// a tree is copied into an existing directory, and that directory has a link with the name of the tree, the link is
/// not followed.
async fn copy_item(
    source: HostPath,
    exact: &HostPath,
    given: &HostPath,
    recursive: bool,
) -> anyhow::Result<CopyItem> {
    let (target, target_links) = match exact.path.file_name() {
        Some(name) if recursive && exact.path != given.path => {
            let real =
                given.without_links().await.map_err(|error| anyhow::anyhow!(given.failure("write", &error)))?;
            (real.join(name), SymlinkPolicy::Keep)
        }
        _ => (exact.clone(), SymlinkPolicy::Follow),
    };
    Ok(CopyItem { source, target, target_links })
}

async fn is_directory(target: &HostPath) -> anyhow::Result<bool> {
    let look = async { target.host.files.metadata(&target.uri()?, &FileOptions::default()).await };
    match look.await {
        Ok(found) => Ok(found.is_directory),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
        Err(error) => anyhow::bail!(target.failure("write", &error)),
    }
}

/// The path that the copy of a source gets: `target`, or a path in it if it is a directory. It is an error if the
/// copy would be the source itself, or if a tree would be copied into itself.
async fn exact_target(
    source: &HostPath,
    target: &HostPath,
    is_directory: bool,
    recursive: bool,
) -> Result<HostPath, String> {
    if target.means_directory() && !is_directory && !recursive {
        return Err(format!("{target} is not a directory"));
    }
    let exact = match source.path.file_name() {
        Some(name) if is_directory && !source.means_contents() => target.join(name),
        _ => target.clone(),
    };
    if Arc::ptr_eq(&source.host, &exact.host) {
        let from = canonical(source).await.map_err(|error| source.failure("read", &error))?;
        let to = canonical(&exact).await.map_err(|error| exact.failure("write", &error))?;
        if from == to {
            return Err(format!("{source} and {exact} are the same"));
        }
        if recursive && to.starts_with(&from) {
            return Err(format!("cannot copy {source} into itself"));
        }
    }
    Ok(exact)
}

/// The path without symbolic links. The part of the path that does not exist stays as it is.
async fn canonical(path: &HostPath) -> Result<std::path::PathBuf, FileSystemError> {
    for above in path.path.ancestors() {
        let Some(uri) = client::PathUri::from_native(above) else { break };
        match path.host.files.canonicalize(&uri, None).await {
            Ok(found) => {
                let rest = path.path.strip_prefix(above).unwrap_or(std::path::Path::new(""));
                return Ok(found.to_native().unwrap_or_else(|_| above.to_owned()).join(rest));
            }
            Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(path.path.clone())
}
