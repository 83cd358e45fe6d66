//! Follows a path on the host, component by component, and notes every symbolic link on the way.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::placeholder::{is_placeholder, is_used};
use crate::file_id::{FileFacts, FileId};

/// The kernel's own limit of links in one path.
const MAX_LINKS: usize = 40;

/// Where a path leads.
#[derive(Debug)]
pub(super) struct FollowedPath {
    /// The path without links. If the path does not exist, the part after the first missing directory is as it was given.
    pub(super) real_path: PathBuf,
    pub(super) end: PathEnd,
    /// The links on the way, in order.
    pub(super) links: Vec<FoundLink>,
    /// Directories that a `..` in the target of a link leaves. If one of them were replaced by a link, the path would lead elsewhere.
    pub(super) left_by_dots: Vec<(PathBuf, FileId)>,
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
    /// Nothing. A placeholder counts as nothing.
    Missing {
        /// The first directory or file of the path that does not exist.
        first_missing: PathBuf,
        /// The placeholder that is there.
        placeholder: Option<FileId>,
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

/// Follows the paths of one plan. Facts about directories are remembered, because most paths of a policy have directories in common.
/// The launcher compares the files again with those that the plan means.
#[derive(Default)]
pub(super) struct HostPaths {
    directories: HashMap<PathBuf, FileFacts>,
    /// Paths that the policy allows to write. Directories there are taken for placeholders only if they are empty and another sandbox of
    /// this process uses them as placeholders. A command could give a directory the permissions of a placeholder, and what protects files
    /// in it would be left out of the next plan.
    writable: HashSet<PathBuf>,
}

impl HostPaths {
    /// Remembers a path that the policy allows to write, and the path to which its links lead.
    pub(super) fn follow_writable(&mut self, path: &Path) -> io::Result<()> {
        let mut remembered = path.to_owned();
        // A directory that was taken for a placeholder may count as existing once it is remembered, and then the path leads further. So the
        // path is followed again.
        for _ in 0..=MAX_LINKS {
            self.writable.insert(remembered);
            let real_path = self.follow(path)?.real_path;
            if self.writable.contains(&real_path) {
                break;
            }
            remembered = real_path;
        }
        Ok(())
    }

    /// What is at a path without links.
    fn facts(&mut self, path: &Path) -> Result<FileFacts, Errno> {
        if let Some(known) = self.directories.get(path) {
            return Ok(*known);
        }
        let facts = FileFacts::of_path(path)?;
        if facts.is_directory() {
            self.directories.insert(path.to_owned(), facts);
        }
        Ok(facts)
    }

    /// Follows a path that is absolute and has no `..`.
    pub(super) fn follow(&mut self, path: &Path) -> io::Result<FollowedPath> {
        let mut left = names(path);
        let mut real_path = PathBuf::from("/");
        let (mut links, mut left_by_dots) = (Vec::new(), Vec::new());
        let end = loop {
            let Some(name) = left.pop_front() else { break PathEnd::Existing(self.facts(&real_path)?) };
            if name == ".." {
                let facts = self.facts(&real_path)?;
                if !facts.is_directory() {
                    break PathEnd::BehindFile { file: real_path.clone(), id: facts.id };
                }
                if real_path != Path::new("/") {
                    left_by_dots.push((real_path.clone(), facts.id));
                }
                real_path.pop();
                continue;
            }
            let next = real_path.join(&name);
            let facts = match self.facts(&next) {
                Ok(facts) => facts,
                Err(Errno::NOENT) => break missing(next, None, &left, &mut real_path),
                Err(Errno::NOTDIR) => {
                    break PathEnd::BehindFile { id: self.facts(&real_path)?.id, file: real_path.clone() };
                }
                Err(Errno::ACCESS) => {
                    break PathEnd::Hidden { facts: self.facts(&real_path)?, directory: real_path.clone() };
                }
                Err(error) => return Err(error.into()),
            };
            if facts.kind == FileType::Symlink {
                if links.len() == MAX_LINKS {
                    break PathEnd::LinkLoop;
                }
                let target = std::fs::read_link(&next).map_err(|error| match error.kind() {
                    // Somebody has replaced the link meanwhile. The plan is made again.
                    io::ErrorKind::InvalidInput => io::ErrorKind::NotFound.into(),
                    _ => error,
                })?;
                if target.is_absolute() {
                    real_path = "/".into();
                }
                names(&target).into_iter().rev().for_each(|name| left.push_front(name));
                links.push(FoundLink { path: next, target, id: facts.id });
                continue;
            }
            let is_writable = self.writable.contains(&next);
            if is_placeholder(&next, &facts, left.is_empty() && !is_writable)
                && (!is_writable || is_used(&next, facts.id))
            {
                break missing(next, Some(facts.id), &left, &mut real_path);
            }
            real_path = next;
        };
        Ok(FollowedPath { real_path, end, links, left_by_dots })
    }
}

/// The end of a path whose next component does not exist. Sets `real_path` to the whole path; `left` are the components that follow.
fn missing(
    first_missing: PathBuf,
    placeholder: Option<FileId>,
    left: &VecDeque<OsString>,
    real_path: &mut PathBuf,
) -> PathEnd {
    *real_path = left.iter().fold(first_missing.clone(), |path, name| path.join(name));
    PathEnd::Missing { first_missing, placeholder }
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

    fn follow(path: &Path) -> FollowedPath {
        HostPaths::default().follow(path).unwrap()
    }

    fn find(directory: &tempfile::TempDir, name: &str) -> FollowedPath {
        follow(&directory.path().join(name))
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
        assert!(matches!(follow(Path::new("/")).end, PathEnd::Existing(_)));
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
            let PathEnd::Missing { first_missing, .. } = &found.end else { panic!("{found:?}") };
            assert_eq!((first_missing, &found.real_path), (&base.join(first), &base.join(real)));
        }
    }

    #[test]
    fn an_empty_placeholder_counts_as_missing_and_a_filled_one_does_not() {
        let directory = tree();
        let place = directory.path().join("a/place");
        let mut placeholder = super::super::Placeholders::default();
        placeholder.add(&place, None, &mut super::super::placeholder::LastParent::default()).unwrap();
        assert!(
            matches!(find(&directory, "a/place").end, PathEnd::Missing { first_missing, .. } if first_missing == place)
        );
        assert!(
            matches!(find(&directory, "a/place/x").end, PathEnd::Missing { first_missing, .. } if first_missing == place)
        );
        drop(placeholder);
        assert!(!place.exists());
        fs::create_dir_all(place.join("filled")).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o1555)).unwrap();
        assert!(matches!(find(&directory, "a/place").end, PathEnd::Existing(_)));
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_writable_directory_with_the_permissions_of_a_placeholder_exists() {
        let directory = tree();
        let place = directory.path().join("a/place");
        fs::create_dir(&place).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o1555)).unwrap();
        symlink("a/place", directory.path().join("link")).unwrap();
        for name in ["a/place", "link"] {
            let mut host = HostPaths::default();
            host.follow_writable(&directory.path().join(name)).unwrap();
            let found = host.follow(&place.join(".git")).unwrap();
            assert!(
                matches!(&found.end, PathEnd::Missing { first_missing, .. } if *first_missing == place.join(".git")),
                "{found:?}"
            );
        }
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
