//! Follows a path on the host, component by component, and notes every symbolic link on the way.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::placeholder::is_placeholder;
use crate::file_id::{FileFacts, FileId};

/// The kernel follows as many links in one path.
const MAX_LINKS: usize = 40;

/// Where a path leads.
#[derive(Debug)]
pub(super) struct FollowedPath {
    /// The path without links. If the path does not exist, the part after the first missing directory is as it was given.
    pub(super) real_path: PathBuf,
    pub(super) end: PathEnd,
    /// The links on the way, in order.
    pub(super) links: Vec<FoundLink>,
}

/// A symbolic link on the way.
#[derive(Clone, Debug)]
pub(super) struct FoundLink {
    /// The path of the link itself. No component before the last is a link.
    pub(super) path: PathBuf,
    pub(super) target: PathBuf,
    pub(super) id: FileId,
}

/// What is at the end of a path.
#[derive(Clone, Debug)]
pub(super) enum PathEnd {
    /// A file or directory.
    Existing(FileFacts),
    /// Nothing. A [`Placeholder`](super::Placeholder) counts as nothing.
    Missing {
        /// The first directory or file of the path that does not exist.
        first_missing: PathBuf,
    },
    /// A file is where the path needs a directory.
    BehindFile {
        /// The path of the file.
        file: PathBuf,
        id: FileId,
    },
    /// This user may not look into a directory of the path.
    Hidden {
        /// The path of the directory.
        directory: PathBuf,
        facts: FileFacts,
    },
    /// Links lead to each other without end.
    LinkLoop,
}

impl FollowedPath {
    /// `path` is absolute and has no `..`.
    pub(super) fn find(path: &Path) -> io::Result<Self> {
        let mut left = names(path);
        let mut real_path = PathBuf::from("/");
        let mut links = Vec::new();
        let end = loop {
            let Some(name) = left.pop_front() else { break PathEnd::Existing(FileFacts::of_path(&real_path)?) };
            if name == ".." {
                let facts = FileFacts::of_path(&real_path)?;
                if !facts.is_directory() {
                    break PathEnd::BehindFile { file: real_path.clone(), id: facts.id };
                }
                real_path.pop();
                continue;
            }
            let next = real_path.join(&name);
            let facts = match FileFacts::of_path(&next) {
                Ok(facts) => facts,
                Err(Errno::NOENT) => break missing(next, &left, &mut real_path),
                Err(Errno::NOTDIR) => {
                    break PathEnd::BehindFile { id: FileFacts::of_path(&real_path)?.id, file: real_path.clone() };
                }
                Err(Errno::ACCESS) => {
                    break PathEnd::Hidden { facts: FileFacts::of_path(&real_path)?, directory: real_path.clone() };
                }
                Err(error) => return Err(error.into()),
            };
            if facts.kind == FileType::Symlink {
                if links.len() == MAX_LINKS {
                    break PathEnd::LinkLoop;
                }
                let target = std::fs::read_link(&next)?;
                if target.is_absolute() {
                    real_path = "/".into();
                }
                names(&target).into_iter().rev().for_each(|name| left.push_front(name));
                links.push(FoundLink { path: next, target, id: facts.id });
                continue;
            }
            if is_placeholder(&next, &facts) {
                break missing(next, &left, &mut real_path);
            }
            real_path = next;
        };
        Ok(Self { real_path, end, links })
    }
}

fn missing(first_missing: PathBuf, left: &VecDeque<OsString>, real_path: &mut PathBuf) -> PathEnd {
    *real_path = left.iter().fold(first_missing.clone(), |path, name| path.join(name));
    PathEnd::Missing { first_missing }
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn tree() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("a/b")).unwrap();
        fs::write(directory.path().join("a/file"), "").unwrap();
        directory
    }

    fn find(directory: &tempfile::TempDir, name: &str) -> FollowedPath {
        FollowedPath::find(&directory.path().join(name)).unwrap()
    }

    #[test]
    fn existing_files_are_found_with_their_identity() {
        let directory = tree();
        let found = find(&directory, "a/file");
        let PathEnd::Existing(facts) = found.end else { panic!("{found:?}") };
        assert_eq!(
            facts.id,
            FileFacts::of_open(fs::File::open(directory.path().join("a/file")).unwrap()).unwrap().id
        );
        assert!(found.links.is_empty() && found.real_path == directory.path().join("a/file"));
        assert!(matches!(FollowedPath::find(Path::new("/")).unwrap().end, PathEnd::Existing(_)));
    }

    #[test]
    fn links_are_followed_and_noted_where_they_really_are() {
        let directory = tree();
        let base = directory.path();
        symlink("a", base.join("relative")).unwrap();
        symlink(base.join("relative"), base.join("absolute")).unwrap();
        symlink("../b/..", base.join("a/b/up")).unwrap();
        symlink("/", base.join("root")).unwrap();
        let found = find(&directory, "absolute/b/up/file");
        assert_eq!(found.real_path, base.join("a/file"));
        let links: Vec<_> =
            found.links.iter().map(|link| link.path.strip_prefix(base).unwrap().to_str().unwrap()).collect();
        assert_eq!(links, ["absolute", "relative", "a/b/up"]);
        assert_eq!(find(&directory, "root").real_path, Path::new("/"));
    }

    #[test]
    fn the_first_missing_part_is_named() {
        let directory = tree();
        let base = directory.path();
        symlink("a/nowhere/x", base.join("dangling")).unwrap();
        for (name, first, real) in [("a/x/y", "a/x", "a/x/y"), ("dangling/y", "a/nowhere", "a/nowhere/x/y")] {
            let found = find(&directory, name);
            let PathEnd::Missing { first_missing } = &found.end else { panic!("{found:?}") };
            assert_eq!((first_missing, &found.real_path), (&base.join(first), &base.join(real)));
        }
    }

    #[test]
    fn an_empty_placeholder_counts_as_missing_and_a_filled_one_does_not() {
        let directory = tree();
        let place = directory.path().join("a/place");
        let placeholder = super::super::Placeholder::make(&place, None).unwrap();
        assert!(
            matches!(find(&directory, "a/place").end, PathEnd::Missing { first_missing } if first_missing == place)
        );
        assert!(
            matches!(find(&directory, "a/place/x").end, PathEnd::Missing { first_missing } if first_missing == place)
        );
        drop(placeholder);
        assert!(!place.exists());
        fs::create_dir_all(place.join("filled")).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o1555)).unwrap();
        assert!(matches!(find(&directory, "a/place").end, PathEnd::Existing(_)));
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn files_in_the_way_and_loops_are_told_apart() {
        let directory = tree();
        let base = directory.path();
        symlink("two", base.join("one")).unwrap();
        symlink("one", base.join("two")).unwrap();
        symlink("a/file/..", base.join("through")).unwrap();
        assert!(matches!(find(&directory, "one/x").end, PathEnd::LinkLoop));
        for name in ["a/file/x/y", "through"] {
            let found = find(&directory, name);
            assert!(
                matches!(&found.end, PathEnd::BehindFile { file, .. } if *file == base.join("a/file")),
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_directory_that_may_not_be_entered_is_named() {
        let directory = tree();
        let locked = directory.path().join("a/b");
        fs::create_dir(locked.join("c")).unwrap();
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
        let found = find(&directory, "a/b/c");
        if rustix::process::geteuid().is_root() {
            assert!(matches!(found.end, PathEnd::Existing(_)));
        } else {
            assert!(matches!(&found.end, PathEnd::Hidden { directory, .. } if *directory == locked), "{found:?}");
        }
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o755)).unwrap();
    }
}
