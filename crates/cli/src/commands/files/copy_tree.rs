//! A tree from one place to another, several things at a time. What cannot be copied is told and left out; the rest goes on.

use std::ffi::OsString;
use std::sync::Arc;

use client::{CreateDirectoryOptions, FileMetadata, NewMetadata};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::super::progress::ProgressLine;
use super::copy_file::{CopyModes, copy_file, copy_link};
use super::file_hosts::HostPath;
use super::file_kind::{FileKind, SymlinkPolicy, inspect};
use super::same_directory::is_same_directory;

/// Things under way at once.
const AT_ONCE: usize = 32;
/// How much of files may be in memory at once: small files go side by side, large ones one after the other.
const ROOM_UNITS: u32 = 16;
const UNIT_BYTES: u64 = 128 << 10;

/// Something to copy.
pub(crate) struct CopyItem {
    pub(crate) source: HostPath,
    pub(crate) target: HostPath,
    /// What becomes of a link at the target. Below the target that was typed, an earlier copy may have left one that leads elsewhere.
    pub(crate) target_links: SymlinkPolicy,
}

/// What a copy is about.
pub(crate) struct TreeCopy {
    pub(crate) recursive: bool,
    modes: CopyModes,
    pub(crate) progress: Arc<ProgressLine>,
    room: Semaphore,
    /// Where it all goes.
    targets: Vec<HostPath>,
}

/// What came of an item.
#[derive(Default)]
struct ItemOutcome {
    /// What is in it.
    inside: Vec<CopyItem>,
    /// A directory that was copied, and the mode and time that it gets in the end.
    directory: Option<(HostPath, NewMetadata)>,
    has_failed: bool,
}

impl TreeCopy {
    pub(crate) fn new(
        recursive: bool,
        modes: CopyModes,
        progress: Arc<ProgressLine>,
        targets: Vec<HostPath>,
    ) -> Arc<Self> {
        Arc::new(Self { recursive, modes, progress, room: Semaphore::new(ROOM_UNITS as usize), targets })
    }

    /// Copies everything. False: something was left out. Dropped, it stops, and nothing half stays behind.
    pub(crate) async fn run(self: &Arc<Self>, items: Vec<CopyItem>) -> bool {
        let mut waiting = items;
        let mut under_way: JoinSet<ItemOutcome> = JoinSet::new();
        let mut directories = Vec::new();
        let mut all_done = true;
        loop {
            // The latest first: a tree is finished branch by branch, so that little waits.
            while under_way.len() < AT_ONCE
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
        // What is made in a directory changes its time, and one that may not be written to could not be filled.
        for (place, new) in directories.into_iter().rev() {
            all_done &= self.finish_directory(&place, &new).await;
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
        match inspect(source, links).await.map_err(|error| source.complaint("read", &error))? {
            FileKind::File(metadata) => {
                self.progress.expect_bytes(metadata.size);
                let units = u32::try_from(metadata.size / UNIT_BYTES + 1).unwrap_or(ROOM_UNITS).min(ROOM_UNITS);
                let _room = self.room.acquire_many(units).await.map_err(|error| error.to_string())?;
                copy_file(source, target, *target_links, &metadata, self.modes, &self.progress).await?;
                Ok(ItemOutcome::default())
            }
            FileKind::Link(says) => {
                copy_link(target, &says).await?;
                Ok(ItemOutcome::default())
            }
            FileKind::Directory(metadata) if self.recursive => {
                if self.is_a_target(source, &metadata).await {
                    return Err(format!("left out {source}: it is the copy itself"));
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

    /// Whether a directory of the source is the copy that is being made, perhaps by another name of the same machine.
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
        // Before the target is made, which may be in it by another name.
        let names = source.names().await.map_err(|error| source.complaint("list", &error))?;
        let is_there = self.modes == CopyModes::Umask && inspect(target, SymlinkPolicy::Follow).await.is_ok();
        let unmakable = |error| target.complaint("make the directory", &error);
        let uri = target.uri().map_err(unmakable)?;
        let follow_symlinks = *target_links == SymlinkPolicy::Follow;
        let options = CreateDirectoryOptions { follow_symlinks, ..CreateDirectoryOptions::default() };
        target.host.files.create_directory(&uri, &options).await.map_err(unmakable)?;
        // From here on no part of a path may be a link, so those on the way to the target are resolved.
        let made = if follow_symlinks { target.without_links().await.map_err(unmakable)? } else { target.clone() };
        let mode = match self.modes {
            CopyModes::Exact => metadata.mode,
            CopyModes::Umask if is_there => None,
            CopyModes::Umask => {
                let made = inspect(target, SymlinkPolicy::Follow).await.map_err(unmakable)?;
                let made = if let FileKind::Directory(made) = made { made.mode } else { None };
                metadata.mode.zip(made).map(|(source, made)| mode_of_new_directory(source, made))
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

    async fn finish_directory(&self, place: &HostPath, new: &NewMetadata) -> bool {
        // Where modes cannot be set, the person was told before the copy began.
        if (new.mode.is_none() && new.mtime.is_none()) || !place.host.has_modes() {
            return true;
        }
        let set = async { place.host.files.set_metadata(&place.uri()?, new).await };
        set.await.map_err(|error| self.progress.report(&place.complaint("set mode and time of", &error))).is_ok()
    }
}

/// The permission bits of a copied directory. It was made with all of them, so the ones that `made` lacks are those that the umask takes. A
/// set-group-ID bit that a directory has from the one above it stays.
fn mode_of_new_directory(source: u32, made: u32) -> u32 {
    const STICKY: u32 = 0o1000;
    const SET_GROUP_ID: u32 = 0o2000;
    (source & 0o777 & made) | (source & STICKY) | (made & SET_GROUP_ID)
}
