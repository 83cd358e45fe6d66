//! A lock between the processes of one user. Its file has the mode 0600, because whoever can open a file can lock it
//! and let others wait for ever. This module does not know what the lock protects. Start with
//! [`PrivateLock::acquire`].

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::error::CredentialError;

/// A lock that only processes of this user can hold. Dropping this value releases it. The file stays: a process that
/// waits may have opened it already, and a lock on a file without a path would keep nobody out.
#[derive(Debug)]
pub(crate) struct PrivateLock {
    _file: File,
}

impl PrivateLock {
    /// Makes the file at `path` if it is missing, and waits until no other process holds its lock. Fails after `timeout`,
    /// and if other users can open the file.
    pub(crate) fn acquire(path: &Path, timeout: Duration) -> Result<Self, CredentialError> {
        let fault = |problem: String| CredentialError::file(path, problem);
        let failed = |error: io::Error| fault(format!("cannot be locked: {error}"));
        let file = open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(fault("is no regular file".to_owned()));
        }
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(fault("belongs to another user of this machine; remove it".to_owned()));
        }
        if metadata.mode() & 0o077 != 0 {
            let advice = "can be used by other users of this machine; remove it while no other command uses it";
            return Err(fault(advice.to_owned()));
        }
        // The thread is left behind after the timeout. It releases the lock as soon as it gets it.
        let (done, result) = mpsc::channel();
        let thread = std::thread::Builder::new().name("credential lock".to_owned());
        let locking = move || {
            let locked = loop {
                match flock(&file, FlockOperation::LockExclusive) {
                    Err(rustix::io::Errno::INTR) => {}
                    other => break other,
                }
            };
            let _nobody_waits_any_more = done.send(locked.map(|()| file));
        };
        thread.spawn(locking).map_err(failed)?;
        match result.recv_timeout(timeout) {
            Ok(Ok(file)) => Ok(Self { _file: file }),
            Ok(Err(error)) => Err(failed(error.into())),
            Err(_) => Err(fault(format!(
                "has been locked by another process for {} s; end that process, for example another `exec-server login`, \
                 and try again",
                timeout.as_secs()
            ))),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    // A link could lead to a file that others can open. Opening a device could wait.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(flags.bits().cast_signed()).open(path)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn problem(path: &Path) -> String {
        let error = PrivateLock::acquire(path, Duration::ZERO).unwrap_err().to_string();
        error.strip_prefix(&format!("{} ", path.display())).unwrap().to_owned()
    }

    #[test]
    fn a_lock_that_is_held_is_waited_for_and_not_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let lock = PrivateLock::acquire(&path, LONG).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert!(problem(&path).starts_with("has been locked by another process for 0 s; end that process"));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| PrivateLock::acquire(&path, LONG).unwrap());
            drop(lock);
            waiting.join().unwrap();
        });
        // The thread that was left behind has not kept the lock.
        PrivateLock::acquire(&path, LONG).unwrap();
    }

    #[test]
    fn a_file_that_others_can_open_is_no_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        drop(PrivateLock::acquire(&path, LONG).unwrap());
        for mode in [0o640, 0o604, 0o620, 0o602] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(problem(&path).starts_with("can be used by other users of this machine"), "{mode:o}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(problem(&link).starts_with("cannot be locked: "));
        let fifo = folder.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
        assert_eq!(problem(&fifo), "is no regular file");
    }
}
