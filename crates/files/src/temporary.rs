//! A file that has no name yet, or one that nobody looks for, until it takes its place.

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::fs::{
    Access, AtFlags, CWD, Mode, OFlags, RenameFlags, accessat, fchmod, linkat, openat, renameat, renameat_with,
    unlinkat,
};
use rustix::io::Errno;

use crate::place::Place;
use crate::stat::{permissions, stat_open};

/// What most file systems allow for a name, less what is put around it.
const LONGEST_STEM: usize = 255 - "..0123456789abcdef.partial".len();
/// A name that is taken although it is random is followed by another, so often.
const TRIES: usize = 16;

/// A file in the directory where it is to get its name. It goes with the value.
#[derive(Debug)]
pub(crate) struct Temporary {
    pub(crate) file: OwnedFd,
    /// The permission bits that the umask leaves a new file here.
    pub(crate) allowed_mode: Mode,
    place: Place,
    hidden_name: Option<OsString>,
}

impl Temporary {
    /// Without a name where the file system can do that, so that even a crash leaves nothing behind.
    pub(crate) fn create(place: Place) -> Result<Self, Errno> {
        match Self::create_nameless(&place) {
            Ok((file, allowed_mode)) => Ok(Self { file, allowed_mode, place, hidden_name: None }),
            Err(_) => Self::create_hidden(place),
        }
    }

    fn create_nameless(place: &Place) -> Result<(OwnedFd, Mode), Errno> {
        // The way by which it gets its name later.
        accessat(CWD, "/proc/self/fd", Access::EXEC_OK, AtFlags::empty())?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = openat(&place.directory, c".", flags, Mode::from_raw_mode(0o777))?;
        let mode = Mode::from_raw_mode(permissions(&stat_open(&file)?));
        Ok((file, mode))
    }

    pub(crate) fn create_hidden(place: Place) -> Result<Self, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (name, file) =
            with_hidden_name(&place.name, |name| openat(&place.directory, name, flags, Mode::from_raw_mode(0o777)))?;
        let mut temporary = Self { file, allowed_mode: Mode::empty(), place, hidden_name: Some(name) };
        temporary.allowed_mode = Mode::from_raw_mode(permissions(&stat_open(&temporary.file)?));
        // Nobody may see what is going to be in a file that only its owner may read.
        fchmod(&temporary.file, Mode::from_raw_mode(0o600))?;
        Ok(temporary)
    }

    /// Gives the file its name, in one step, over whatever has it if `replace`.
    pub(crate) fn take_place(&mut self, replace: bool) -> Result<(), Errno> {
        if self.hidden_name.is_none() {
            let source = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let link = |name: &OsStr| linkat(CWD, &*source, &self.place.directory, name, AtFlags::SYMLINK_FOLLOW);
            if !replace {
                return link(&self.place.name);
            }
            let (name, ()) = with_hidden_name(&self.place.name, link)?;
            self.hidden_name = Some(name);
        }
        let Some(hidden) = &self.hidden_name else { return Ok(()) };
        let directory = &self.place.directory;
        if replace {
            renameat(directory, hidden, directory, &self.place.name)?;
        } else {
            match renameat_with(directory, hidden, directory, &self.place.name, RenameFlags::NOREPLACE) {
                // A second name is refused where there is one, and the first goes with the value.
                Err(Errno::NOSYS | Errno::INVAL) => {
                    return linkat(directory, hidden, directory, &self.place.name, AtFlags::empty());
                }
                renamed => renamed?,
            }
        }
        self.hidden_name = None;
        Ok(())
    }

    /// Where it is to stand.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Removes the file, if it has a name that nobody looks for.
    pub(crate) fn discard(&mut self) {
        if let Some(name) = self.hidden_name.take() {
            let _ = unlinkat(&self.place.directory, name, AtFlags::empty());
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        self.discard();
    }
}

/// Does something under a name next to `name` that is not taken.
fn with_hidden_name<T>(
    name: &OsStr,
    mut make: impl FnMut(&OsStr) -> Result<T, Errno>,
) -> Result<(OsString, T), Errno> {
    for _ in 0..TRIES {
        let hidden = hidden_name(name);
        match make(&hidden) {
            Err(Errno::EXIST) => {}
            made => return Ok((hidden, made?)),
        }
    }
    Err(Errno::EXIST)
}

fn hidden_name(name: &OsStr) -> OsString {
    let stem = &name.as_bytes()[..name.len().min(LONGEST_STEM)];
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

    /// As where the file system knows no files without a name.
    fn hidden(path: &Path) -> Temporary {
        let temporary = Temporary::create_hidden(Place::find(path, Follow::Yes).unwrap().unwrap()).unwrap();
        write_at(&temporary.file, 0, b"new").unwrap();
        temporary
    }

    fn names(directory: &Path) -> Vec<OsString> {
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_hidden_file_takes_its_place_or_goes() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a");
        let temporary = hidden(&path);
        let name = names(root.path()).remove(0).into_string().unwrap();
        assert!(name.starts_with(".a.") && name.ends_with(".partial"), "{name}");
        assert_eq!(stat_open(&temporary.file).unwrap().stx_mode & 0o777, 0o600);
        drop(temporary);
        assert!(names(root.path()).is_empty());

        hidden(&path).take_place(false).unwrap();
        fs::write(&path, "old").unwrap();
        assert_eq!(hidden(&path).take_place(false), Err(Errno::EXIST));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        hidden(&path).take_place(true).unwrap();
        assert_eq!((fs::read(&path).unwrap(), names(root.path())), (b"new".to_vec(), vec!["a".into()]));

        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(hidden(&path).take_place(true), Err(Errno::ISDIR));
        assert_eq!(names(root.path()), ["a"]);
    }

    #[test]
    fn a_hidden_name_is_never_too_long() {
        for length in [1, 228, 229, 230, 255] {
            assert!(hidden_name(OsStr::from_bytes(&vec![b'x'; length])).len() <= 255);
        }
    }
}
