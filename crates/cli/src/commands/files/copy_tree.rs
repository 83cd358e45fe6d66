//! Copies files and directory trees, several files at a time. A file that cannot be copied is reported and left out,
//! and the other files are still copied. Start reading at [`TreeCopy::run`].

use std::ffi::OsString;
use std::sync::Arc;

use client::{CreateDirectoryOptions, FileMetadata, NewMetadata};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::super::progress::ProgressLine;
use super::copy_file::{PermissionPolicy, copy_file, copy_link};
use super::file_kind::{FileKind, SymlinkPolicy, inspect};
use super::host_path::HostPath;
use super::same_directory::is_same_directory;

/// Files and directories that are copied at once.
const ITEMS_AT_ONCE: usize = 32;
/// Permits for memory that all files share while they are copied. A file takes one permit for each [`PERMIT_BYTES`]
/// of its size, so small files are copied side by side, and large files one after the other.
const MEMORY_PERMITS: u32 = 16;
const PERMIT_BYTES: u64 = 128 << 10;

/// A file, directory or link to copy.
pub(crate) struct CopyItem {
    pub(crate) source: HostPath,
    pub(crate) target: HostPath,
    /// What to do with a link at the target. Inside of a target tree, an earlier copy may have left a link that leads
    /// out of the tree. Such a link must not be followed.
    pub(crate) target_links: SymlinkPolicy,
}

/// How one `cp` command copies, and what all its copies share.
pub(crate) struct TreeCopy {
    pub(crate) recursive: bool,
    permissions: PermissionPolicy,
    pub(crate) progress: Arc<ProgressLine>,
    memory: Semaphore,
    /// The target path of each source that was given on the command line.
    targets: Vec<HostPath>,
}

/// The result of copying one item.
#[derive(Default)]
struct ItemOutcome {
    /// The files and directories in a directory that was copied, which are copied next.
    inside: Vec<CopyItem>,
    /// A directory that was copied, and the mode and time that it gets after everything in it is copied.
    directory: Option<(HostPath, NewMetadata)>,
    has_failed: bool,
}

impl TreeCopy {
    pub(crate) fn new(
        recursive: bool,
        permissions: PermissionPolicy,
        progress: Arc<ProgressLine>,
        targets: Vec<HostPath>,
    ) -> Arc<Self> {
        let memory = Semaphore::new(MEMORY_PERMITS as usize);
        Arc::new(Self { recursive, permissions, progress, memory, targets })
    }

    /// Copies these items and everything in them. Returns false if something was left out. Dropping the future stops
    /// the copy and leaves no incomplete file.
    pub(crate) async fn run(self: &Arc<Self>, items: Vec<CopyItem>) -> bool {
        let mut waiting = items;
        let mut under_way: JoinSet<ItemOutcome> = JoinSet::new();
        let mut directories = Vec::new();
        let mut all_done = true;
        loop {
            // The latest item goes first, so that a tree is finished branch by branch and few items wait.
            while under_way.len() < ITEMS_AT_ONCE
                && let Some(item) = waiting.pop()
            {
                let copying = Arc::clone(self);
                under_way.spawn(async move { copying.copy(item).await });
            }
            let Some(outcome) = under_way.join_next().await else { break };
            let outcome = outcome.unwrap_or(ItemOutcome { has_failed: true, ..ItemOutcome::default() });
            waiting.extend(outcome.inside);
            directories.extend(outcome.directory);
            all_done &= !outcome.has_failed;
        }
        // Directories get their modes and times only now, because a new file changes the time of its directory, and
        // no file can be made in a read-only directory. Inner directories come before those that they are in.
        for (path, metadata) in directories.into_iter().rev() {
            all_done &= self.finish_directory(&path, &metadata).await;
        }
        all_done
    }

    async fn copy(&self, item: CopyItem) -> ItemOutcome {
        match self.try_copy(&item).await {
            Ok(outcome) => outcome,
            Err(sentence) => {
                self.progress.report(&sentence);
                ItemOutcome { has_failed: true, ..ItemOutcome::default() }
            }
        }
    }

    async fn try_copy(&self, item: &CopyItem) -> Result<ItemOutcome, String> {
        let CopyItem { source, target, target_links } = item;
        let links = if self.recursive { SymlinkPolicy::Keep } else { SymlinkPolicy::Follow };
        match inspect(source, links).await.map_err(|error| source.failure("read", &error))? {
            FileKind::File(metadata) => {
                self.progress.expect_bytes(metadata.size);
                let permits =
                    u32::try_from(metadata.size / PERMIT_BYTES + 1).unwrap_or(MEMORY_PERMITS).min(MEMORY_PERMITS);
                let _memory = self.memory.acquire_many(permits).await.map_err(|error| error.to_string())?;
                copy_file(source, target, *target_links, &metadata, self.permissions, &self.progress).await?;
                Ok(ItemOutcome::default())
            }
            FileKind::Link(link_target) => {
                copy_link(source, target, &link_target).await?;
                Ok(ItemOutcome::default())
            }
            FileKind::Directory(metadata) if self.recursive => {
                if self.is_a_target(source, &metadata).await {
                    return Err(format!("left out {source}: it is the target of this copy"));
                }
                self.copy_directory(item, metadata).await
            }
            FileKind::Directory(_) => Err(format!("{source} is a directory; copy it with -r")),
            FileKind::Special(_) if self.recursive => {
                Err(format!("left out {source}: it is neither file, directory nor link"))
            }
            FileKind::Special(_) => Err(format!("cannot read {source}: it is not a file")),
        }
    }

    /// Whether a directory in the source is the target of this copy, even if source and target name the same machine
    /// in two ways. Copying such a directory would never end.
    async fn is_a_target(&self, source: &HostPath, metadata: &FileMetadata) -> bool {
        for target in self.targets.iter().filter(|target| target.path == source.path) {
            if let Ok(FileKind::Directory(found)) = inspect(target, SymlinkPolicy::Keep).await
                && found.created_at_ms == metadata.created_at_ms
                && is_same_directory(source, target).await
            {
                return true;
            }
        }
        false
    }

    async fn copy_directory(&self, item: &CopyItem, metadata: FileMetadata) -> Result<ItemOutcome, String> {
        let CopyItem { source, target, target_links } = item;
        // The source is listed before the target is made, because the target may be inside of the source without our
        // knowledge: a machine or a directory can have two names.
        let names = source.names().await.map_err(|error| source.failure("list", &error))?;
        let keeps_its_mode =
            self.permissions == PermissionPolicy::Umask && inspect(target, SymlinkPolicy::Follow).await.is_ok();
        let cannot_make = |error| target.failure("make the directory", &error);
        let uri = target.uri().map_err(cannot_make)?;
        let follow_symlinks = *target_links == SymlinkPolicy::Follow;
        let options = CreateDirectoryOptions { follow_symlinks, ..CreateDirectoryOptions::default() };
        target.host.files.create_directory(&uri, &options).await.map_err(cannot_make)?;
        // What is in this directory is copied without following links, and then a link anywhere in a target path is
        // an error. So those links of the path that may be followed are resolved now.
        let made = if follow_symlinks { target.without_links().await.map_err(cannot_make)? } else { target.clone() };
        let mode = match self.permissions {
            PermissionPolicy::Exact => metadata.mode,
            PermissionPolicy::Umask if keeps_its_mode => None,
            PermissionPolicy::Umask => {
                let found = inspect(target, SymlinkPolicy::Follow).await.map_err(cannot_make)?;
                let made_mode = if let FileKind::Directory(found) = found { found.mode } else { None };
                metadata.mode.zip(made_mode).map(|(source, made)| mode_of_new_directory(source, made))
            }
        };
        let inside = |name: &OsString| CopyItem {
            source: source.join(name),
            target: made.join(name),
            target_links: SymlinkPolicy::Keep,
        };
        let inside = names.iter().map(inside).collect();
        let new = NewMetadata { mode, mtime: metadata.mtime, follow_symlinks: false, ..NewMetadata::default() };
        Ok(ItemOutcome { inside, directory: Some((made, new)), has_failed: false })
    }

    /// Sets mode and time of a directory. Returns false if that fails.
    async fn finish_directory(&self, path: &HostPath, metadata: &NewMetadata) -> bool {
        // A server that cannot set modes cannot set times either. The user was told so before the copy began.
        if (metadata.mode.is_none() && metadata.mtime.is_none()) || !path.host.has_modes() {
            return true;
        }
        let set = async { path.host.files.set_metadata(&path.uri()?, metadata).await };
        set.await.map_err(|error| self.progress.report(&path.failure("set mode and time of", &error))).is_ok()
    }
}

/// The mode of the copy of a directory whose mode is `source`. The copy was made with all permission bits, so the
/// bits that are missing in its mode `made` are those that the umask removes. A set-group-ID bit that the copy has
/// inherited from its parent stays.
fn mode_of_new_directory(source: u32, made: u32) -> u32 {
    const STICKY: u32 = 0o1000;
    const SET_GROUP_ID: u32 = 0o2000;
    (source & 0o777 & made) | (source & STICKY) | (made & SET_GROUP_ID)
}
