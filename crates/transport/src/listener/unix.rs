//! The file of a Unix socket: which users may connect, and when the file may be replaced or removed. Start reading at
//! [`UnixSocketFile::bind`]. A lock file beside the socket makes sure that only one server uses the path.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, os::fd::OwnedFd};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, sleep};

use super::{BindError, OtherUser};
use crate::listen_url::ListenUrl;

/// How many connections the kernel queues at most until they are accepted; the value that tokio uses for TCP.
pub const BACKLOG: i32 = 1024;
/// User id of root.
const ROOT: u32 = 0;

/// How long a server waits for the lock while the holder of the lock does not listen. Such a holder is just starting
/// or stopping.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two attempts to take the lock. A holder that is starting binds its socket in well under a
/// millisecond.
const LOCK_INTERVAL: Duration = Duration::from_millis(5);

/// A listening socket and its file.
pub(super) struct UnixSocketFile {
    listener: UnixListener,
    path: PathBuf,
    identity: InodeIdentity,
    /// Dropped last: after the socket file was removed and the listener was closed.
    _lock: LockFile,
}

/// The right to bind, replace and remove the socket at a path: an exclusive lock on a file beside the socket. A
/// server holds it for as long as it listens. Without the lock, two servers could find the same stale socket, and the
/// slower one could remove the socket that the faster one has just bound. The kernel releases the lock of a server
/// that was killed; the lock file then stays, and the next server locks it.
struct LockFile {
    locked: OwnedFd,
    path: PathBuf,
    identity: InodeIdentity,
}

/// Device and inode number of a file. They distinguish the file from another one that is created at the same path later.
#[derive(Clone, Copy, PartialEq, Eq)]
struct InodeIdentity {
    device: u64,
    inode: u64,
}

impl UnixSocketFile {
    /// Binds the socket. Replaces the socket file of a server that has ended, and no other file.
    pub(super) async fn bind(path: &Path) -> Result<Self, BindError> {
        let lock = LockFile::acquire(path).await?;
        let refused = |source| BindError::Refused { url: ListenUrl::Unix(path.into()), source };
        let socket = match bind_private(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                remove_stale(path).await?;
                bind_private(path).map_err(refused)?
            }
            bound => bound.map_err(refused)?,
        };
        let listener = UnixListener::from_std(socket.into()).map_err(refused)?;
        let identity = InodeIdentity::of(path).map_err(refused)?;
        Ok(Self { listener, path: path.into(), identity, _lock: lock })
    }

    /// Accepts the next connection and returns it with the uid of its peer. Returns [`OtherUser`] for a peer that is not allowed to
    /// connect.
    pub(super) async fn accept(&self) -> io::Result<Result<(UnixStream, u32), OtherUser>> {
        let (stream, _) = self.listener.accept().await?;
        let uid = stream.peer_cred().ok().map(|credentials| credentials.uid());
        let own_uid = rustix::process::geteuid().as_raw();
        Ok(match uid {
            Some(uid) if may_connect(uid, own_uid) => Ok((stream, uid)),
            _ => Err(OtherUser { uid }),
        })
    }
}

impl Drop for UnixSocketFile {
    fn drop(&mut self) {
        if self.identity.is_at(&self.path)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket file");
        }
    }
}

impl LockFile {
    /// Takes the lock for the socket at path `socket`. Fails if the server that holds the lock listens, or does not
    /// release the lock within [`LOCK_TIMEOUT`].
    async fn acquire(socket: &Path) -> Result<Self, BindError> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            match Self::try_acquire(&path) {
                Ok(Some(lock)) => return Ok(lock),
                Ok(None) if Instant::now() >= deadline || is_listening(socket).await => {
                    return Err(BindError::UnixInUse(socket.into()));
                }
                Ok(None) => sleep(LOCK_INTERVAL).await,
                // The folder does not exist, so the socket cannot be bound either. The user need not hear about the
                // lock.
                Err(source) if source.kind() == io::ErrorKind::NotFound => {
                    return Err(BindError::Refused { url: ListenUrl::Unix(socket.into()), source });
                }
                Err(source) => return Err(BindError::Lock { socket: socket.into(), lock: path, source }),
            }
        }
    }

    /// Takes the lock without waiting. Returns `None` if another server has it.
    fn try_acquire(path: &Path) -> io::Result<Option<Self>> {
        loop {
            let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
            // The previous holder of the lock may have removed the file after it was opened here. The next server
            // would then create and lock a new file, and two servers would hold a lock. So a lock counts only if the
            // locked file is still at the path.
            let identity = InodeIdentity::of_open(&file)?;
            if identity.is_at(path) {
                return Ok(Some(Self { locked: file, path: path.into(), identity }));
            }
        }
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // The file is removed while the lock is held, so the file at the path cannot be one that another server has locked.
        if self.identity.is_at(&self.path)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the lock file");
        }
        // The lock is released explicitly: closing the descriptor does not release the lock while a copy of it is open, for example in a
        // child process that has not called exec yet.
        if let Err(error) = rustix::fs::flock(&self.locked, FlockOperation::Unlock) {
            tracing::warn!(path = %self.path.display(), %error, "cannot unlock the lock file");
        }
    }
}

impl InodeIdentity {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino() })
    }

    /// Whether this file is at `path` now.
    fn is_at(self, path: &Path) -> bool {
        Self::of(path).is_ok_and(|now| now == self)
    }

    fn of_open(file: &OwnedFd) -> io::Result<Self> {
        let stat = rustix::fs::fstat(file)?;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino })
    }
}

/// Only the user of this process and root may connect. Root is allowed because it could control this process anyway.
fn may_connect(peer_uid: u32, own_uid: u32) -> bool {
    peer_uid == own_uid || peer_uid == ROOT
}

/// Binds and listens with mode 0600. Linux gives the file the mode of the socket, so with the mode set before `bind` there is no moment in
/// which other users could connect.
fn bind_private(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Removes the socket at `path`. Fails if a process listens on it, or if the file is not a socket.
async fn remove_stale(path: &Path) -> Result<(), BindError> {
    let refused = |source| BindError::Refused { url: ListenUrl::Unix(path.into()), source };
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata.map_err(refused)?,
    };
    if !metadata.file_type().is_socket() {
        return Err(BindError::NotASocket(path.into()));
    }
    if is_listening(path).await {
        return Err(BindError::UnixInUse(path.into()));
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(refused),
    }
}

/// Whether a server accepts connections at `path`. A socket that cannot be tried, such as one of another user, counts as listening.
async fn is_listening(path: &Path) -> bool {
    match UnixStream::connect(path).await {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of servers that compete for the same path.
    const RIVALS: usize = 8;

    /// How often each of these servers tries to bind. Each attempt connects at most once to a socket that listens, so
    /// all connections together fit into the queue of one socket. The test could not connect to a socket with a full
    /// queue.
    const ATTEMPTS: usize = BACKLOG as usize / RIVALS;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn only_one_of_several_servers_binds_a_stale_socket() {
        let folder = tempfile::tempdir().unwrap();
        for round in 0..100 {
            let path = folder.path().join(format!("socket-{round}"));
            drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
            let start = std::sync::Arc::new(tokio::sync::Barrier::new(RIVALS));
            let rivals: Vec<_> = (0..RIVALS)
                .map(|_| {
                    let (start, path) = (start.clone(), path.clone());
                    tokio::spawn(async move {
                        start.wait().await;
                        UnixSocketFile::bind(&path).await
                    })
                })
                .collect();
            let mut listening = Vec::new();
            for rival in rivals {
                match rival.await.unwrap() {
                    Ok(socket) => listening.push(socket),
                    Err(BindError::UnixInUse(_)) => {}
                    Err(error) => panic!("round {round}: {error}"),
                }
            }
            assert_eq!(listening.len(), 1, "round {round}");
            UnixStream::connect(&path).await.unwrap();
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no socket and no lock file is left");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn servers_that_start_while_others_stop_never_share_a_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listening = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let rivals: Vec<_> = (0..RIVALS)
            .map(|_| {
                let (path, listening) = (path.clone(), listening.clone());
                tokio::spawn(async move {
                    for _ in 0..ATTEMPTS {
                        if let Ok(socket) = UnixSocketFile::bind(&path).await {
                            let others = listening.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                            assert_eq!(others, 0, "two servers listen at the same path");
                            UnixStream::connect(&path).await.unwrap();
                            listening.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                            drop(socket);
                        }
                    }
                })
            })
            .collect();
        for rival in rivals {
            rival.await.unwrap();
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no socket and no lock file is left");
    }

    /// How long the test checks that a second server leaves the stale socket alone while another server has the lock.
    /// Shorter than `LOCK_TIMEOUT`.
    const OBSERVATION_TIME: Duration = Duration::from_secs(1);

    /// Starts to bind the path of a stale socket. Returns the unfinished bind after a check that it waits for the
    /// lock.
    async fn waiting_bind(path: &Path) -> impl Future<Output = Result<UnixSocketFile, BindError>> {
        let stale = InodeIdentity::of(path).unwrap();
        let mut bind = Box::pin(UnixSocketFile::bind(path));
        let bound = tokio::time::timeout(OBSERVATION_TIME, &mut bind).await;
        assert!(bound.is_err(), "a socket was bound although another server has the lock");
        assert!(stale.is_at(path), "the stale socket was replaced although another server has the lock");
        bind
    }

    #[tokio::test(start_paused = true)]
    async fn a_stale_socket_is_left_alone_until_the_lock_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let lock = LockFile::acquire(&path).await.unwrap();
        let bind = waiting_bind(&path).await;
        drop(lock);
        let socket = bind.await.unwrap();
        UnixStream::connect(&path).await.unwrap();
        drop(socket);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no socket and no lock file is left");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_waits_for_the_lock_is_refused_when_the_holder_of_the_lock_listens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let _lock = LockFile::acquire(&path).await.unwrap();
        let bind = waiting_bind(&path).await;
        remove_stale(&path).await.unwrap();
        let _listening = bind_private(&path).unwrap();
        let listening_socket = InodeIdentity::of(&path).unwrap();
        let refused = bind.await.err().expect("a second server was bound to the path");
        assert!(matches!(&refused, BindError::UnixInUse(taken) if *taken == path), "{refused}");
        assert!(listening_socket.is_at(&path), "the socket of the server that listens was replaced");
        UnixStream::connect(&path).await.unwrap();
    }

    #[tokio::test]
    async fn the_lock_file_of_a_dead_server_is_locked_again_and_a_symlink_in_its_place_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let lock = folder.path().join("socket.lock");
        fs::write(&lock, "").unwrap();
        drop(UnixSocketFile::bind(&path).await.unwrap());
        assert!(!lock.exists());

        let precious = folder.path().join("precious");
        fs::write(&precious, "data").unwrap();
        std::os::unix::fs::symlink(&precious, &lock).unwrap();
        let Err(error) = UnixSocketFile::bind(&path).await else { panic!("a link was followed") };
        assert!(error.to_string().contains("cannot lock"), "{error}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "data");
    }

    #[test]
    fn only_the_same_user_and_root_may_connect() {
        assert!(may_connect(1000, 1000) && may_connect(ROOT, 1000));
        assert!(!may_connect(1001, 1000) && !may_connect(1000, ROOT));
    }
}
