//! Finds the git checkout that contains a folder, without running git. If a user trusts a checkout, the configuration
//! files in it count. A linked worktree (`git worktree add`) shares the trust of its main checkout. The `.git` of a
//! linked worktree is a file that points to the main repository; this pointer counts only if the repository points
//! back.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::limits::MAX_GIT_POINTER_BYTES;
use files::{FileRoot, Follow};

const DOT_GIT: &str = ".git";

/// A git checkout.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Checkout {
    /// The folder that contains `.git`. The path is a prefix of the working directory, so it may contain symbolic
    /// links.
    pub(super) folder: PathBuf,
    /// The canonical path of the main checkout, if this is a linked worktree.
    pub(super) main: Option<PathBuf>,
}

impl Checkout {
    /// The nearest checkout at or above `cwd`. None if there is none, or if the nearest `.git` is a file that does
    /// not belong to a linked worktree: the file of a submodule, or a file that was forged to get the trust of
    /// another repository.
    pub(super) fn around(cwd: &Path) -> Option<Self> {
        cwd.ancestors().find_map(|folder| {
            let checkout = |main| Self { folder: folder.to_owned(), main };
            match kind_of_dot_git(folder) {
                DotGit::None => None,
                DotGit::Repository => Some(Some(checkout(None))),
                DotGit::Pointer => Some(main_checkout(folder).map(|main| checkout(Some(main)))),
            }
        })?
    }

    /// The folder whose trust the checkout shares.
    pub(super) fn root(&self) -> &Path {
        self.main.as_deref().unwrap_or(&self.folder)
    }
}

/// The kinds of `.git` in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DotGit {
    /// Missing, inaccessible, or a directory that is no repository.
    None,
    /// A directory with a repository.
    Repository,
    /// Something that is not a directory: a file that may point to a repository.
    Pointer,
}

/// The kind of `.git` in `folder`.
pub(super) fn kind_of_dot_git(folder: &Path) -> DotGit {
    let dot_git = folder.join(DOT_GIT);
    match files::metadata(FileRoot::host(), &dot_git, Follow::Yes) {
        Ok(metadata) if !metadata.is_directory => DotGit::Pointer,
        Ok(_) if files::metadata(FileRoot::host(), &dot_git.join("HEAD"), Follow::Yes).is_ok() => DotGit::Repository,
        _ => DotGit::None,
    }
}

/// The main checkout of the linked worktree in `folder`, if the worktree and the repository point to each other.
fn main_checkout(folder: &Path) -> Option<PathBuf> {
    let dot_git = folder.join(DOT_GIT);
    // The directory `.git/worktrees/NAME` of the main repository.
    let administrative = pointed_to(&dot_git)?;
    if !std::fs::symlink_metadata(&administrative).ok()?.is_dir() {
        return None;
    }
    let administrative = files::canonicalize(FileRoot::host(), &administrative).ok()?;
    let worktrees = administrative.parent().filter(|parent| parent.ends_with("worktrees"))?;
    // The repository that the main checkout and all its linked worktrees share. Git calls it the common directory.
    let common = worktrees.parent()?;
    // The path in a file of the administrative directory.
    let named_in = |file: &str| {
        let path = resolve_path(&contents(&administrative.join(file))?, &administrative);
        files::canonicalize(FileRoot::host(), &path).ok()
    };
    let points_back = named_in("gitdir")? == files::canonicalize(FileRoot::host(), &dot_git).ok()?;
    let is_part_of_common = named_in("commondir")? == common;
    let main = common.parent()?;
    let main_dot_git = main.join(DOT_GIT);
    // The `.git` of the main checkout may be a file too, that points to a repository in another place.
    let repository = match files::metadata(FileRoot::host(), &main_dot_git, Follow::Yes).ok()? {
        metadata if metadata.is_directory => main_dot_git,
        _ => pointed_to(&main_dot_git)?,
    };
    let belongs_to_main = files::canonicalize(FileRoot::host(), &repository).ok()? == common;
    (points_back && is_part_of_common && belongs_to_main).then(|| main.to_owned())
}

/// The directory that a `.git` file points to. None if `.git` is a symbolic link, which could lead to the `.git` file of another user.
fn pointed_to(dot_git: &Path) -> Option<PathBuf> {
    if files::metadata(FileRoot::host(), dot_git, Follow::Yes).ok()?.is_symlink {
        return None;
    }
    let contents = contents(dot_git)?;
    Some(resolve_path(contents.strip_prefix(b"gitdir:")?, dot_git.parent()?))
}

fn contents(path: &Path) -> Option<Vec<u8>> {
    files::read_file(FileRoot::host(), path, Follow::Yes, MAX_GIT_POINTER_BYTES).ok()
}

/// The path in the contents of a file. A relative path is relative to `base`.
fn resolve_path(contents: &[u8], base: &Path) -> PathBuf {
    base.join(OsStr::from_bytes(contents.trim_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repository with a linked worktree, as `git worktree add` makes it.
    struct Repository {
        folder: tempfile::TempDir,
    }

    impl Repository {
        fn with_worktree() -> Self {
            let repository = Self { folder: tempfile::tempdir().unwrap() };
            repository.write("main/.git/HEAD", "ref: refs/heads/main\n");
            let administrative = repository.at("main/.git/worktrees/w");
            repository.write("w/.git", format!("gitdir: {}\n", administrative.display()));
            repository.write("main/.git/worktrees/w/gitdir", format!("{}\n", repository.at("w/.git").display()));
            repository.write("main/.git/worktrees/w/commondir", "../..\n");
            repository.write("w/deep/file", "");
            repository
        }

        fn at(&self, path: &str) -> PathBuf {
            self.folder.path().canonicalize().unwrap().join(path)
        }

        fn write(&self, path: &str, contents: impl AsRef<[u8]>) {
            std::fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
            std::fs::write(self.at(path), contents).unwrap();
        }

        fn checkout(&self, path: &str) -> Option<Checkout> {
            Checkout::around(&self.at(path))
        }
    }

    #[test]
    fn a_linked_worktree_belongs_to_its_main_checkout() {
        let repository = Repository::with_worktree();
        let expected = Checkout { folder: repository.at("w"), main: Some(repository.at("main")) };
        assert_eq!(repository.checkout("w/deep/file"), Some(expected));
        let main = Checkout { folder: repository.at("main"), main: None };
        assert_eq!(repository.checkout("main/not/there"), Some(main));
        // Newer versions of git write relative paths.
        repository.write("w/.git", "gitdir: ../main/.git/worktrees/w");
        repository.write("main/.git/worktrees/w/gitdir", "../../../../w/.git\n");
        assert_eq!(repository.checkout("w").unwrap().root(), repository.at("main"));
    }

    #[test]
    fn a_dot_git_directory_without_head_is_ignored() {
        let repository = Repository::with_worktree();
        std::fs::create_dir_all(repository.at("main/below/.git")).unwrap();
        assert_eq!(repository.checkout("main/below").unwrap().folder, repository.at("main"));
        assert_eq!(Checkout::around(Path::new("/")), None);
    }

    #[test]
    fn a_dot_git_file_that_is_not_of_a_valid_linked_worktree_gives_no_checkout() {
        let second_checkout =
            |repository: &Repository| repository.write("other/.git", "gitdir: ../main/.git/worktrees/w\n");
        type Damage = Box<dyn Fn(&Repository)>;
        let damages: Vec<(&str, &str, Damage)> = vec![
            ("a second checkout that claims the same worktree", "other", Box::new(second_checkout)),
            ("no pointer", "w", Box::new(|r| r.write("w/.git", "gitdir main"))),
            ("a pointer to the repository itself", "w", Box::new(|r| r.write("w/.git", "gitdir: ../main/.git"))),
            (
                "no pointer back",
                "w",
                Box::new(|r| std::fs::remove_file(r.at("main/.git/worktrees/w/gitdir")).unwrap()),
            ),
            (
                "a pointer back to another checkout",
                "w",
                Box::new(|r| r.write("main/.git/worktrees/w/gitdir", "/nowhere/.git")),
            ),
            ("another common directory", "w", Box::new(|r| r.write("main/.git/worktrees/w/commondir", ".."))),
            ("no common directory", "w", Box::new(|r| r.write("main/.git/worktrees/w/commondir", "nowhere"))),
            ("no main checkout", "w", Box::new(|r| std::fs::rename(r.at("main/.git"), r.at("main/git")).unwrap())),
            ("a long pointer", "w", Box::new(|r| r.write("w/.git", format!("gitdir: {}", "./".repeat(40_000))))),
            (
                "a submodule",
                "main/sub",
                Box::new(|r| {
                    r.write("main/.git/modules/sub/HEAD", "");
                    r.write("main/sub/.git", "gitdir: ../.git/modules/sub");
                }),
            ),
            (
                "a symbolic link",
                "w",
                Box::new(|r| {
                    std::fs::rename(r.at("w/.git"), r.at("w/git")).unwrap();
                    std::os::unix::fs::symlink("git", r.at("w/.git")).unwrap();
                }),
            ),
        ];
        for (what, cwd, damage) in damages {
            let repository = Repository::with_worktree();
            damage(&repository);
            assert_eq!(repository.checkout(cwd), None, "{what}");
        }
    }

    #[test]
    fn the_main_checkout_may_have_a_dot_git_file_too() {
        let repository = Repository::with_worktree();
        std::fs::rename(repository.at("main/.git"), repository.at("main/store")).unwrap();
        repository.write("main/.git", "gitdir: store\n");
        repository.write("w/.git", "gitdir: ../main/store/worktrees/w\n");
        assert_eq!(repository.checkout("w").unwrap().main, Some(repository.at("main")));
    }
}
