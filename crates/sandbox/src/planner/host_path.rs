//! Follows a path on the host, component by component, and notes every symbolic link on the way.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use super::placeholder::is_placeholder;
use crate::plan::FileId;

/// The kernel follows as many links in one path.
const MAX_LINKS: usize = 40;

/// Where a path leads.
#[derive(Debug)]
pub(super) struct HostPath {
    /// The path without links. If the path does not exist, the part after the first missing directory is as it was given.
    pub(super) real_path: PathBuf,
    pub(super) kind: FoundKind,
    /// None if the path does not exist.
    pub(super) id: Option<FileId>,
    /// The links on the way: where each of them really is, its target, and the link itself.
    pub(super) links: Vec<(PathBuf, PathBuf, FileId)>,
    /// Whether the path is a directory that looks like a [`Placeholder`](super::Placeholder).
    pub(super) is_placeholder: bool,
}

/// What is at the end of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FoundKind {
    Directory,
    /// Everything but a directory.
    File,
    Missing {
        /// The first directory or file of the path that does not exist.
        first_missing: PathBuf,
    },
}

impl HostPath {
    /// `path` is absolute and has no `..`.
    pub(super) fn find(path: &Path) -> io::Result<Self> {
        let mut left: VecDeque<OsString> = names(path);
        let mut found = Self {
            real_path: "/".into(),
            kind: FoundKind::Directory,
            id: None,
            links: Vec::new(),
            is_placeholder: false,
        };
        while let Some(name) = left.pop_front() {
            if name == ".." {
                found.real_path.pop();
                continue;
            }
            let next = found.real_path.join(&name);
            let metadata = match std::fs::symlink_metadata(&next) {
                Ok(metadata) => metadata,
                Err(error) if is_missing(&error) => {
                    found.real_path = left.iter().fold(next.clone(), |path, name| path.join(name));
                    found.kind = FoundKind::Missing { first_missing: next };
                    found.id = None;
                    return Ok(found);
                }
                Err(error) => return Err(error),
            };
            let id = FileId { device: metadata.dev(), inode: metadata.ino() };
            if metadata.is_symlink() {
                if found.links.len() == MAX_LINKS {
                    return Err(io::Error::from_raw_os_error(libc::ELOOP));
                }
                let target = std::fs::read_link(&next)?;
                if target.is_absolute() {
                    found.real_path = "/".into();
                }
                for name in names(&target).into_iter().rev() {
                    left.push_front(name);
                }
                found.links.push((next, target, id));
                continue;
            }
            found.kind = if metadata.is_dir() { FoundKind::Directory } else { FoundKind::File };
            found.is_placeholder = is_placeholder(&metadata);
            found.id = Some(id);
            found.real_path = next;
        }
        if found.id.is_none() || matches!(found.kind, FoundKind::Directory) {
            found.id = Some(id_of(&found.real_path)?);
        }
        Ok(found)
    }
}

/// Device and inode of the file at a path, or of the link if it is one.
pub(super) fn id_of(path: &Path) -> io::Result<FileId> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok(FileId { device: metadata.dev(), inode: metadata.ino() })
}

/// A file where a directory is expected is as good as nothing. A directory that this user may not enter is one in which no command of this
/// user can make anything.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied)
}

fn names(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}
