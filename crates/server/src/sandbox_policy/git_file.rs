//! Finds the directories in which git keeps the hooks and settings of a workspace, if they are not in its `.git`: worktrees and
//! submodules have a file `.git` that names another directory, and that directory can have a file `commondir` that names a third one.
//! Programs outside the sandbox run what is in these directories, so a policy protects them.
//!
//! Paths are resolved as git does it, by the kernel. A path with `..` after a name (`a/../b`) is refused: a command could replace the
//! directory with that name by a link, and `..` would then lead elsewhere.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use files::{FileError, FileRoot, Follow};
use rustix::io::Errno;

use crate::limits::MAX_GIT_FILE_BYTES;

/// The directories that belong to the `.git` at this path and are elsewhere. The error says why they cannot be found. Without
/// protection a command could change them. A `.git` of another user leads to no error, because git does not use it, and because anybody can
/// make one in `/tmp`.
pub(super) fn git_directories_of(git_file: &Path) -> Result<Vec<PathBuf>, String> {
    let found = find(git_file);
    let is_own = || git_file.symlink_metadata().is_ok_and(|file| file.uid() == rustix::process::geteuid().as_raw());
    match found {
        Err(_) if !is_own() => Ok(Vec::new()),
        other => other,
    }
}

fn find(git_file: &Path) -> Result<Vec<PathBuf>, String> {
    let Some(workspace) = git_file.parent() else { return Ok(Vec::new()) };
    let mut directories = match read(git_file) {
        Ok(Some(contents)) => match contents.strip_prefix(b"gitdir:") {
            Some(named) => resolve(workspace, named.trim_ascii_start())?,
            None => Vec::new(),
        },
        Ok(None) if git_file.is_dir() => vec![git_file.to_owned()],
        Ok(None) => Vec::new(),
        // git does not use such a file either.
        Err(error) if error.size_limit().is_some() => Vec::new(),
        Err(error) => return Err(error.to_string()),
    };
    if let Some(git_directory) = directories.last().cloned() {
        let common = read(&git_directory.join("commondir")).map_err(|error| error.to_string())?;
        directories.extend(common.map(|named| resolve(&git_directory, &named)).transpose()?.unwrap_or_default());
    }
    directories.retain(|directory| directory != git_file);
    Ok(directories)
}

/// The contents of a file without white space at the end. None if there is no file, or something that git does not read either.
fn read(file: &Path) -> Result<Option<Vec<u8>>, FileError> {
    match files::read_file(FileRoot::host(), file, Follow::Yes, MAX_GIT_FILE_BYTES) {
        Ok(contents) => Ok(Some(contents.trim_ascii_end().to_owned())),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidInput => Ok(None),
            // Links that lead to each other.
            _ if error.io().raw_os_error() == Some(Errno::LOOP.raw_os_error()) => Ok(None),
            _ => Err(error),
        },
    }
}

/// The directory that a file in `base` names. If the name is relative and `base` leads through a link, these are two paths: one that begins
/// with `base`, and one that begins with the real path of `base`.
fn resolve(base: &Path, named: &[u8]) -> Result<Vec<PathBuf>, String> {
    let named = Path::new(OsStr::from_bytes(named));
    if named.as_os_str().is_empty() {
        return Ok(Vec::new());
    }
    let mut names = named.components().skip_while(|component| !matches!(component, Component::Normal(_)));
    if names.any(|component| component == Component::ParentDir) {
        return Err(format!("it names {}, with `..` after a name; write the path without it", named.display()));
    }
    let real_base = match base.canonicalize() {
        Ok(real_base) => real_base,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.to_string()),
    };
    let mut paths = vec![base.join(named), real_base.join(named)];
    paths.dedup();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_directories_that_git_files_name_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        let git_file = base.join(".git");
        let named = |contents: &[u8]| {
            std::fs::write(&git_file, contents).unwrap();
            git_directories_of(&git_file)
        };
        assert_eq!(named(b"gitdir: ../main/.git\n"), Ok(vec![base.join("../main/.git")]));
        assert_eq!(named(b"gitdir:/x \xFF\r\n"), Ok(vec![PathBuf::from(OsStr::from_bytes(b"/x \xFF"))]));
        let nothing: [&[u8]; 3] =
            [b"gitdir:\n", b"something else", &[b"gitdir: ".as_slice(), &vec![b'x'; 2 << 20]].concat()];
        for contents in nothing {
            assert_eq!(named(contents), Ok(Vec::new()));
        }
        for detour in ["gitdir: x/../store", "gitdir: /a/../b", "gitdir: ../a/.."] {
            assert!(named(detour.as_bytes()).unwrap_err().contains("`..` after a name"), "{detour}");
        }
        std::fs::remove_file(&git_file).unwrap();
        assert_eq!(git_directories_of(&git_file), Ok(Vec::new()), "missing");
        std::fs::create_dir(&git_file).unwrap();
        assert_eq!(git_directories_of(&git_file), Ok(Vec::new()), "a directory");
        std::fs::write(git_file.join("commondir"), "../common\n").unwrap();
        assert_eq!(git_directories_of(&git_file), Ok(vec![git_file.join("../common")]));
        // git reads this file however long it is.
        std::fs::write(git_file.join("commondir"), ["../common".as_bytes(), &vec![b'\n'; 2 << 20]].concat()).unwrap();
        git_directories_of(&git_file).unwrap_err();
    }

    #[test]
    fn a_common_directory_and_a_workspace_behind_a_link_are_followed() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("main/.git/worktrees/tree")).unwrap();
        std::fs::create_dir(base.join("tree")).unwrap();
        std::fs::write(base.join("main/.git/worktrees/tree/commondir"), "../..\n").unwrap();
        std::fs::write(base.join("tree/.git"), "gitdir: ../main/.git/worktrees/tree\n").unwrap();
        let git_directory = base.join("tree/../main/.git/worktrees/tree");
        assert_eq!(
            git_directories_of(&base.join("tree/.git")),
            Ok(vec![git_directory.clone(), git_directory.join("../.."), base.join("main/.git/worktrees/tree/../..")])
        );
        symlink("tree", base.join("link")).unwrap();
        let found = git_directories_of(&base.join("link/.git")).unwrap();
        assert!(found.contains(&git_directory), "{found:?}");
    }

    #[test]
    fn a_git_file_that_cannot_be_read_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let git_file = directory.path().join(".git");
        std::fs::write(&git_file, "gitdir: store").unwrap();
        // A command can do the same: while it has a lease on a file, the kernel lets nobody else open the file at once.
        let script = "import fcntl, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = open(sys.argv[1])
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print(flush=True)
sys.stdin.read()";
        let mut holder = std::process::Command::new("/usr/bin/python3")
            .args(["-c", script])
            .arg(&git_file)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        git_directories_of(&git_file).unwrap_err();
        drop(holder.stdin.take());
        assert!(holder.wait().unwrap().success());
        assert_eq!(git_directories_of(&git_file).unwrap().len(), 1);
    }
}
