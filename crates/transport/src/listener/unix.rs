//! A Unix socket in the file system: who may connect, whose file it is, and when it may be replaced or removed.

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

/// The connections that may wait to be accepted, the same as for TCP.
const BACKLOG: i32 = 1024;
const ROOT: u32 = 0;

/// How long a server waits for the lock of another one that does not listen: that one is just starting or leaving.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// How often it looks meanwhile. Starting takes well under a millisecond.
const LOCK_INTERVAL: Duration = Duration::from_millis(5);

/// A listening socket and its file.
pub(super) struct UnixSocketFile {
    listener: UnixListener,
    path: PathBuf,
    identity: Identity,
    /// Released last, when the socket file is gone.
    _lock: LockFile,
}

/// The right to bind, replace and remove the socket at a path: an exclusive lock on a file beside it, held for as long as the server
/// listens. Without it, two servers that find the same stale socket could each remove the socket that the other one has just bound.
/// The kernel releases the lock of a server that was killed; the file then stays and the next server locks it.
struct LockFile {
    locked: OwnedFd,
    path: PathBuf,
    identity: Identity,
}

/// Device and inode: a file made later at the same path has another.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity(u64, u64);

impl UnixSocketFile {
    /// Binds, replacing a file that a dead server left behind, and nothing else.
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
        let identity = Identity::of(path).map_err(refused)?;
        Ok(Self { listener, path: path.into(), identity, _lock: lock })
    }

    /// The next connection, or who was turned away.
    pub(super) async fn accept(&self) -> io::Result<Result<UnixStream, OtherUser>> {
        let (stream, _) = self.listener.accept().await?;
        let uid = stream.peer_cred().ok().map(|credentials| credentials.uid());
        let is_welcome = uid.is_some_and(|uid| may_connect(uid, rustix::process::geteuid().as_raw()));
        Ok(if is_welcome { Ok(stream) } else { Err(OtherUser { uid }) })
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
    /// Takes the lock for the socket at `socket`, unless another server has it and listens.
    async fn acquire(socket: &Path) -> Result<Self, BindError> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let deadline = Instant::now() + LOCK_PATIENCE;
        loop {
            match Self::try_acquire(&path) {
                Ok(Some(lock)) => return Ok(lock),
                Ok(None) if Instant::now() >= deadline || is_listening(socket).await => {
                    return Err(BindError::UnixInUse(socket.into()));
                }
                Ok(None) => sleep(LOCK_INTERVAL).await,
                Err(source) if source.kind() == io::ErrorKind::NotFound => {
                    return Err(BindError::Refused { url: ListenUrl::Unix(socket.into()), source });
                }
                Err(source) => return Err(BindError::Lock { socket: socket.into(), lock: path, source }),
            }
        }
    }

    /// None: another server has it.
    fn try_acquire(path: &Path) -> io::Result<Option<Self>> {
        loop {
            let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
            // The last holder may have removed the file after it was opened here. The next server would then lock a new file
            // and hold a lock as well, so only a lock on the file that is at the path counts.
            let identity = Identity::of_open(&file)?;
            if identity.is_at(path) {
                return Ok(Some(Self { locked: file, path: path.into(), identity }));
            }
        }
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // Removed while the lock is still held: nobody else can hold a lock on the file that is at the path.
        if self.identity.is_at(&self.path)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the lock file");
        }
        // Closing would not release it while a copy of the descriptor is open, such as in a child that has not executed yet.
        if let Err(error) = rustix::fs::flock(&self.locked, FlockOperation::Unlock) {
            tracing::warn!(path = %self.path.display(), %error, "cannot unlock the lock file");
        }
    }
}

impl Identity {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(Self(metadata.dev(), metadata.ino()))
    }

    /// Whether the file is the one at `path` now.
    fn is_at(self, path: &Path) -> bool {
        Self::of(path).is_ok_and(|now| now == self)
    }

    fn of_open(file: &OwnedFd) -> io::Result<Self> {
        let stat = rustix::fs::fstat(file)?;
        Ok(Self(stat.st_dev, stat.st_ino))
    }
}

/// Root could read our memory anyway, so nothing is kept from it.
fn may_connect(peer: u32, own: u32) -> bool {
    peer == own || peer == ROOT
}

/// Linux gives the file the mode of the socket, so a mode set before `bind` leaves no moment in which others could connect.
fn bind_private(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Removes the socket at `path` if nobody listens on it.
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

/// Whether a server accepts connections at `path`. What cannot be tried, such as the socket of another user, counts as such a server.
async fn is_listening(path: &Path) -> bool {
    match UnixStream::connect(path).await {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Servers that find the same stale socket at the same moment.
    const RIVALS: usize = 8;

    /// How often each of them tries. All attempts together fit into the queue of one socket: a socket whose queue is full answers nobody,
    /// and the server that has just bound it could not reach it either.
    const ATTEMPTS: usize = BACKLOG as usize / RIVALS;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn of_servers_that_race_for_a_stale_socket_one_has_it() {
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
    async fn of_servers_that_come_while_others_leave_one_at_a_time_has_it() {
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
                            assert_eq!(others, 0, "two servers have the socket");
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

    #[tokio::test]
    async fn a_lock_file_that_a_dead_server_left_is_locked_again_and_a_link_is_not_followed() {
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
