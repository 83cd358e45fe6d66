//! A tree from one place to another, several things at a time. What cannot be copied is told and left out; the rest goes on.

use std::ffi::OsString;
use std::sync::Arc;

use client::{CreateDirectoryOptions, FileMetadata, NewMetadata};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::super::progress::ProgressLine;
use super::copy_file::{Modes, copy_file, copy_link};
use super::found::{Found, Links, look};
use super::place::Place;
use super::same_directory::is_same_directory;

/// Things under way at once.
const AT_ONCE: usize = 32;
/// How much of files may be in memory at once: small files go side by side, large ones one after the other.
const ROOM_UNITS: u32 = 16;
const UNIT_BYTES: u64 = 128 << 10;

/// Something to copy.
pub(crate) struct Item {
    pub(crate) source: Place,
    pub(crate) target: Place,
    /// What becomes of a link at the target. Below the target that was typed, an earlier copy may have left one that leads elsewhere.
    pub(crate) target_links: Links,
}

/// What a copy is about.
pub(crate) struct Copying {
    pub(crate) recursive: bool,
    modes: Modes,
    pub(crate) progress: Arc<ProgressLine>,
    room: Semaphore,
    /// Where it all goes.
    targets: Vec<Place>,
}

/// What came of an item.
#[derive(Default)]
struct Outcome {
    /// What is in it.
    inside: Vec<Item>,
    /// A directory that was copied, and the mode and time that it gets in the end.
    directory: Option<(Place, NewMetadata)>,
    has_failed: bool,
}

impl Copying {
    pub(crate) fn new(recursive: bool, modes: Modes, progress: Arc<ProgressLine>, targets: Vec<Place>) -> Arc<Self> {
        Arc::new(Self { recursive, modes, progress, room: Semaphore::new(ROOM_UNITS as usize), targets })
    }

    /// Copies everything. False: something was left out. Dropped, it stops, and nothing half stays behind.
    pub(crate) async fn run(self: &Arc<Self>, items: Vec<Item>) -> bool {
        let mut waiting = items;
        let mut under_way: JoinSet<Outcome> = JoinSet::new();
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
            let outcome = outcome.unwrap_or(Outcome { has_failed: true, ..Outcome::default() });
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

    async fn copy(&self, item: Item) -> Outcome {
        match self.try_copy(&item).await {
            Ok(outcome) => outcome,
            Err(sentence) => {
                self.progress.complain(&sentence);
                Outcome { has_failed: true, ..Outcome::default() }
            }
        }
    }

    async fn try_copy(&self, item: &Item) -> Result<Outcome, String> {
        let Item { source, target, target_links } = item;
        let links = if self.recursive { Links::Keep } else { Links::Follow };
        match look(source, links).await.map_err(|error| source.complaint("read", &error))? {
            Found::File(metadata) => {
                self.progress.expect_bytes(metadata.size);
                let units = u32::try_from(metadata.size / UNIT_BYTES + 1).unwrap_or(ROOM_UNITS).min(ROOM_UNITS);
                let _room = self.room.acquire_many(units).await.map_err(|error| error.to_string())?;
                copy_file(source, target, *target_links, &metadata, self.modes, &self.progress).await?;
                Ok(Outcome::default())
            }
            Found::Link(says) => {
                copy_link(target, &says).await?;
                Ok(Outcome::default())
            }
            Found::Directory(metadata) if self.recursive => {
                if self.is_a_target(source, &metadata).await {
                    return Err(format!("left out {source}: it is the copy itself"));
                }
                self.copy_directory(item, metadata).await
            }
            Found::Directory(_) => Err(format!("{source} is a directory; copy it with -r")),
            Found::Special(_) if self.recursive => {
                Err(format!("left out {source}: it is neither file, directory nor link"))
            }
            Found::Special(_) => Err(format!("cannot read {source}: it is not a file")),
        }
    }

    /// Whether a directory of the source is the copy that is being made, perhaps by another name of the same machine.
    async fn is_a_target(&self, source: &Place, metadata: &FileMetadata) -> bool {
        for target in self.targets.iter().filter(|target| target.path == source.path) {
            if let Ok(Found::Directory(found)) = look(target, Links::Keep).await
                && found.created_at_ms == metadata.created_at_ms
                && is_same_directory(source, target).await
            {
                return true;
            }
        }
        false
    }

    async fn copy_directory(&self, item: &Item, metadata: FileMetadata) -> Result<Outcome, String> {
        let Item { source, target, target_links } = item;
        // Before the target is made, which may be in it by another name.
        let names = source.names().await.map_err(|error| source.complaint("list", &error))?;
        let is_there = self.modes == Modes::Umask && look(target, Links::Follow).await.is_ok();
        let unmakable = |error| target.complaint("make the directory", &error);
        let uri = target.uri().map_err(unmakable)?;
        let follow_symlinks = *target_links == Links::Follow;
        let options = CreateDirectoryOptions { follow_symlinks, ..CreateDirectoryOptions::default() };
        target.site.files.create_directory(&uri, &options).await.map_err(unmakable)?;
        // From here on no part of a path may be a link, so those on the way to the target are resolved.
        let made = if follow_symlinks { target.without_links().await.map_err(unmakable)? } else { target.clone() };
        let mode = match self.modes {
            Modes::Exact => metadata.mode,
            Modes::Umask if is_there => None,
            Modes::Umask => {
                let made = look(target, Links::Follow).await.map_err(unmakable)?;
                let made = if let Found::Directory(made) = made { made.mode } else { None };
                metadata.mode.zip(made).map(|(source, made)| mode_of_new_directory(source, made))
            }
        };
        let inside =
            |name: &OsString| Item { source: source.join(name), target: made.join(name), target_links: Links::Keep };
        let inside = names.iter().map(inside).collect();
        let new = NewMetadata { mode, mtime: metadata.mtime, follow_symlinks: false, ..NewMetadata::default() };
        Ok(Outcome { inside, directory: Some((made, new)), has_failed: false })
    }

    async fn finish_directory(&self, place: &Place, new: &NewMetadata) -> bool {
        // Where modes cannot be set, the person was told before the copy began.
        if (new.mode.is_none() && new.mtime.is_none()) || !place.site.has_modes() {
            return true;
        }
        let set = async { place.site.files.set_metadata(&place.uri()?, new).await };
        set.await.map_err(|error| self.progress.complain(&place.complaint("set mode and time of", &error))).is_ok()
    }
}

/// The permission bits of a copied directory. It was made with all of them, so the ones that `made` lacks are those that the umask takes. A
/// set-group-ID bit that a directory has from the one above it stays.
fn mode_of_new_directory(source: u32, made: u32) -> u32 {
    const STICKY: u32 = 0o1000;
    const SET_GROUP_ID: u32 = 0o2000;
    (source & 0o777 & made) | (source & STICKY) | (made & SET_GROUP_ID)
}
