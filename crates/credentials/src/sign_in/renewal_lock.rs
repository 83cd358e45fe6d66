//! Keeps two exec-server processes from renewing the tokens of one file at the same time. Other programs do not use
//! this lock. Start with [`RenewalLock::acquire`].

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::file_reading::on_thread_in_time;

/// Time between two attempts to take the lock.
const PAUSE: Duration = Duration::from_millis(100);

/// After this time the tokens are renewed without the lock, because the process that holds it may hang. Longer than the
/// timeout of one renewal.
const LOCK_TIMEOUT: Duration = Duration::from_secs(40);

/// The lock of a file with tokens. Dropping this value releases it.
pub(super) struct RenewalLock {
    _file: File,
}

impl RenewalLock {
    /// Waits until no other process renews the tokens in this file, and takes the lock. `None` if the file cannot be
    /// locked, for example on a file system without locks, or if the wait has lasted [`LOCK_TIMEOUT`].
    pub(super) async fn acquire(path: &Path) -> Option<Self> {
        let attempts = async {
            loop {
                let target = path.to_owned();
                match on_thread_in_time(path, move || Ok(try_to_lock(&target))).await {
                    Ok(LockAttempt::Locked(file)) => return Some(Self { _file: file }),
                    Ok(LockAttempt::Busy) => tokio::time::sleep(PAUSE).await,
                    Ok(LockAttempt::Impossible) | Err(_) => return None,
                }
            }
        };
        tokio::time::timeout(LOCK_TIMEOUT, attempts).await.ok().flatten()
    }
}

enum LockAttempt {
    Locked(File),
    /// Another process has the lock, or the file was replaced.
    Busy,
    Impossible,
}

fn try_to_lock(path: &Path) -> LockAttempt {
    let Ok(file) = File::open(path) else { return LockAttempt::Impossible };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return LockAttempt::Busy,
        Err(_) => return LockAttempt::Impossible,
    }
    // A process that renews the tokens replaces the file. A lock on the old file, which has no path any more, is
    // useless.
    let is_same = |metadata: std::fs::Metadata| {
        file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (metadata.dev(), metadata.ino()))
    };
    if std::fs::metadata(path).is_ok_and(is_same) { LockAttempt::Locked(file) } else { LockAttempt::Busy }
}
