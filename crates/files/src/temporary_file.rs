//! A new file that other programs see under its final name only when it is complete. Until then it has no name
//! (`O_TMPFILE`) or, where that is not possible, a hidden name. `upload` decides about its contents and permissions.

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, fchmod};
use rustix::io::Errno;

use crate::FileRoot;
use crate::resolve::NameInDirectory;
use crate::root::{EnteredRoot, EntryAt, check_proc_fd, link_opened_file, open_self};
use crate::stat::{permissions, stat_open};

/// Bytes of the final name that fit into a hidden name, since most file systems allow 255 bytes.
const MAX_STEM_BYTES: usize = 255 - "..0123456789abcdef.partial".len();
/// Random hidden names that are tried before creating the file fails with `EEXIST`.
const MAX_NAME_TRIES: usize = 16;

/// A file in the directory where it will get its final name. Dropping it before [`publish`](Self::publish) removes it.
#[derive(Debug)]
pub(crate) struct TemporaryFile {
    root: FileRoot,
    pub(crate) file: OwnedFd,
    /// The permission bits that the umask allows for a new file in this directory.
    pub(crate) allowed_mode: Mode,
    target: NameInDirectory,
    /// `None` while the file has no name, and after it has got its final name.
    hidden_name: Option<OsString>,
}

impl TemporaryFile {
    /// Creates the file, without a name where that is possible, so that even a crash leaves no file behind.
    /// `target` must be in this root, which the thread must have entered.
    pub(crate) fn create(root: &FileRoot, target: NameInDirectory) -> Result<Self, Errno> {
        match Self::create_nameless(&target) {
            Ok((file, allowed_mode)) => {
                Ok(Self { root: root.clone(), file, allowed_mode, target, hidden_name: None })
            }
            Err(_) => Self::create_hidden(root, target),
        }
    }

    fn create_nameless(target: &NameInDirectory) -> Result<(OwnedFd, Mode), Errno> {
        // `publish` needs this directory to give the file its name.
        check_proc_fd()?;
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let file = open_self(&target.directory, flags, Mode::from_raw_mode(0o777))?;
        let mode = Mode::from_raw_mode(permissions(&stat_open(&file)?));
        Ok((file, mode))
    }

    pub(crate) fn create_hidden(root: &FileRoot, target: NameInDirectory) -> Result<Self, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let (name, file) = try_hidden_names(&target.name, |name| {
            EntryAt::new(&target.directory, name).open(flags, Mode::from_raw_mode(0o777))
        })?;
        let mut temporary =
            Self { root: root.clone(), file, allowed_mode: Mode::empty(), target, hidden_name: Some(name) };
        temporary.allowed_mode = Mode::from_raw_mode(permissions(&stat_open(&temporary.file)?));
        // The complete file may be readable only for its owner, so other users must not read the hidden one either.
        fchmod(&temporary.file, Mode::from_raw_mode(0o600))?;
        Ok(temporary)
    }

    /// Gives the file its final name atomically. Without `replace`, an existing file of that name fails with `EEXIST`.
    pub(crate) fn publish(&mut self, inside: &EnteredRoot<'_>, replace: bool) -> Result<(), Errno> {
        if self.hidden_name.is_none() {
            let link = |name: &OsStr| link_opened_file(&self.file, EntryAt::new(&self.target.directory, name));
            if !replace {
                return link(&self.target.name);
            }
            let (name, ()) = try_hidden_names(&self.target.name, link)?;
            self.hidden_name = Some(name);
        }
        let Some(hidden) = &self.hidden_name else { return Ok(()) };
        let (hidden, target) = (EntryAt::new(&self.target.directory, hidden), self.target.entry());
        if replace {
            inside.rename(hidden, target, RenameFlags::empty())?;
        } else {
            match inside.rename(hidden, target, RenameFlags::NOREPLACE) {
                // The kernel or the file system does not know the flag. A hard link fails if the name exists, and `drop` removes the
                // hidden name.
                Err(Errno::NOSYS | Errno::INVAL) => return inside.link(hidden, target),
                renamed => renamed?,
            }
        }
        self.hidden_name = None;
        Ok(())
    }

    /// The final name and its directory.
    pub(crate) fn target(&self) -> &NameInDirectory {
        &self.target
    }

    /// Removes the hidden name, if there is one.
    pub(crate) fn discard(&mut self) {
        if let Some(name) = self.hidden_name.take() {
            let hidden = EntryAt::new(&self.target.directory, &name);
            // Nobody waits for the result. What remains has a name that tells what it is.
            let _ignored = self.root.enter().and_then(|inside| inside.unlink(hidden, AtFlags::empty()));
        }
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        self.discard();
    }
}

/// Calls `make` with random hidden names for `name` until it does not fail with `EEXIST`. Returns the hidden name
/// with the result of `make`.
fn try_hidden_names<T>(
    name: &OsStr,
    mut make: impl FnMut(&OsStr) -> Result<T, Errno>,
) -> Result<(OsString, T), Errno> {
    for _ in 0..MAX_NAME_TRIES {
        let hidden = hidden_name(name);
        match make(&hidden) {
            Err(Errno::EXIST) => {}
            made => return Ok((hidden, made?)),
        }
    }
    Err(Errno::EXIST)
}

fn hidden_name(name: &OsStr) -> OsString {
    let stem = &name.as_bytes()[..name.len().min(MAX_STEM_BYTES)];
    let random = RandomState::new().build_hasher().finish();
    OsString::from_vec([b".", stem, format!(".{random:016x}.partial").as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::Follow;
    use crate::write::write_at;

    fn inside() -> EnteredRoot<'static> {
        FileRoot::host().enter().unwrap()
    }

    /// Creates a file in the way that is used on a file system without `O_TMPFILE`, and writes `new` to it.
    fn create_hidden(path: &Path) -> TemporaryFile {
        let target = NameInDirectory::resolve(&inside(), path, Follow::Yes).unwrap().unwrap();
        let temporary = TemporaryFile::create_hidden(FileRoot::host(), target).unwrap();
        write_at(&temporary.file, 0, b"new").unwrap();
        temporary
    }

    fn names_in(directory: &Path) -> Vec<OsString> {
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_hidden_file_is_private_and_gets_its_final_name_or_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a");
        let temporary = create_hidden(&path);
        let name = names_in(root.path()).remove(0).into_string().unwrap();
        assert!(name.starts_with(".a.") && name.ends_with(".partial"), "{name}");
        assert_eq!(stat_open(&temporary.file).unwrap().stx_mode & 0o777, 0o600);
        drop(temporary);
        assert!(names_in(root.path()).is_empty());

        create_hidden(&path).publish(&inside(), false).unwrap();
        fs::write(&path, "old").unwrap();
        assert_eq!(create_hidden(&path).publish(&inside(), false), Err(Errno::EXIST));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        create_hidden(&path).publish(&inside(), true).unwrap();
        assert_eq!((fs::read(&path).unwrap(), names_in(root.path())), (b"new".to_vec(), vec!["a".into()]));

        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(create_hidden(&path).publish(&inside(), true), Err(Errno::ISDIR));
        assert_eq!(names_in(root.path()), ["a"]);
    }

    #[test]
    fn a_hidden_name_is_never_too_long() {
        for length in [1, 228, 229, 230, 255] {
            assert!(hidden_name(OsStr::from_bytes(&vec![b'x'; length])).len() <= 255);
        }
    }
}
