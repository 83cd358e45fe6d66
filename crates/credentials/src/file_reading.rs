//! Reads small files with secrets. The files may be on a file system that hangs, so they are read on a thread of
//! their own, and with a timeout. Start with [`read_in_time`].

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::sync::oneshot;
use zeroize::Zeroizing;

use crate::error::CredentialError;

/// A file that cannot be read in this time counts as unreadable. A network file system can hang for ever.
const FILE_PATIENCE: Duration = Duration::from_secs(10);

/// Who may have written or read the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileTrust {
    /// A file of another program, which decides about its permissions.
    Foreign,
    /// A file of this program: a regular file of this user or root, no link, that no other user can read or write.
    Private,
}

/// Runs work on a thread of its own, with a timeout. The thread goes on if the future is dropped.
pub(crate) async fn on_thread_in_time<T: Send + 'static>(
    what: &Path,
    work: impl FnOnce() -> Result<T, CredentialError> + Send + 'static,
) -> Result<T, CredentialError> {
    let (done, result) = oneshot::channel();
    let thread = std::thread::Builder::new().name("credential file".to_owned());
    let started = thread.spawn(move || {
        // Fails if nobody waits any more.
        let _ignored = done.send(work());
    });
    started.map_err(|error| CredentialError::Machine { reason: format!("no thread can be started ({error})") })?;
    match tokio::time::timeout(FILE_PATIENCE, result).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err(CredentialError::Machine { reason: "a thread has panicked".to_owned() }),
        Err(_) => Err(CredentialError::file(what, "could not be read in time; its file system may hang")),
    }
}

/// Reads a file of another program. `None` if it does not exist.
pub(crate) async fn read_in_time(
    path: PathBuf,
    max_bytes: u64,
) -> Result<Option<Zeroizing<Vec<u8>>>, CredentialError> {
    let read_path = path.clone();
    on_thread_in_time(&path, move || read(&read_path, max_bytes, FileTrust::Foreign)).await
}

/// Reads a regular file of at most `max_bytes`. `None` if it does not exist. Other kinds of files are refused, so a
/// FIFO does not block the call.
pub(crate) fn read(
    path: &Path,
    max_bytes: u64,
    trust: FileTrust,
) -> Result<Option<Zeroizing<Vec<u8>>>, CredentialError> {
    let fault = |problem: String| CredentialError::file(path, problem);
    let file = match open(path, trust) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) && trust == FileTrust::Private => {
            return Err(fault("is a symbolic link; put the file itself there".to_owned()));
        }
        Err(error) => return Err(fault(format!("cannot be opened: {}", error.kind()))),
    };
    let metadata = file.metadata().map_err(|error| fault(format!("cannot be examined: {}", error.kind())))?;
    if !metadata.is_file() {
        return Err(fault("is no regular file".to_owned()));
    }
    if trust == FileTrust::Private {
        if metadata.mode() & 0o077 != 0 {
            let advice = format!("can be used by other users of this machine; run `chmod 600 {}`", path.display());
            return Err(fault(advice));
        }
        if ![0, rustix::process::geteuid().as_raw()].contains(&metadata.uid()) {
            return Err(fault("belongs to another user of this machine".to_owned()));
        }
    }
    // The exact capacity, because a buffer that grows leaves copies of the secret behind.
    let capacity = metadata.len().min(max_bytes) + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(capacity).unwrap_or_default()));
    file.take(max_bytes + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| fault(format!("cannot be read: {}", error.kind())))?;
    if bytes.len() as u64 > max_bytes {
        return Err(fault(format!("is larger than {max_bytes} bytes")));
    }
    Ok(Some(bytes))
}

fn open(path: &Path, trust: FileTrust) -> io::Result<File> {
    let link = if trust == FileTrust::Private { OFlags::NOFOLLOW } else { OFlags::empty() };
    // Opening a FIFO would otherwise wait for a writer.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | link;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn problem(path: &Path, trust: FileTrust) -> String {
        let error = read(path, 10, trust).unwrap_err().to_string();
        error.strip_prefix(&format!("{} ", path.display())).unwrap().to_owned()
    }

    #[test]
    fn a_small_regular_file_is_read_and_a_missing_one_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        assert_eq!(read(&path, 10, FileTrust::Foreign).unwrap(), None);
        fs::write(&path, "0123456789").unwrap();
        assert_eq!(**read(&path, 10, FileTrust::Foreign).unwrap().unwrap(), *b"0123456789");
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(read(&link, 10, FileTrust::Foreign).unwrap().is_some());
        fs::write(&path, "0123456789x").unwrap();
        assert_eq!(problem(&path, FileTrust::Foreign), "is larger than 10 bytes");
    }

    #[test]
    fn a_file_that_is_not_regular_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
        for path in [&fifo, folder.path(), Path::new("/dev/zero")] {
            assert_eq!(problem(path, FileTrust::Foreign), "is no regular file", "{path:?}");
        }
        let looping = folder.path().join("loop");
        symlink(&looping, &looping).unwrap();
        assert!(problem(&looping, FileTrust::Foreign).starts_with("cannot be opened: "));
    }

    #[test]
    fn a_private_file_is_no_link_and_no_other_user_can_use_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        fs::write(&path, "key").unwrap();
        for (mode, is_private) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o620, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(&path, 10, FileTrust::Private).is_ok(), is_private, "{mode:o}");
        }
        let advice = format!("can be used by other users of this machine; run `chmod 600 {}`", path.display());
        assert_eq!(problem(&path, FileTrust::Private), advice);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        assert_eq!(problem(&link, FileTrust::Private), "is a symbolic link; put the file itself there");
    }
}
