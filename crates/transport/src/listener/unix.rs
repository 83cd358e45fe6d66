//! A Unix socket in the file system: who may connect, whose file it is, and when it may be replaced or removed.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::{fs, os::fd::OwnedFd};

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::{UnixListener, UnixStream};

use super::BindError;
use crate::listen_url::ListenUrl;

/// The connections that may wait to be accepted, the same as for TCP.
const BACKLOG: i32 = 1024;
const ROOT: u32 = 0;

/// A listening socket and its file.
pub(super) struct UnixSocketFile {
    listener: UnixListener,
    path: PathBuf,
    identity: Identity,
}

/// Device and inode: a file made later at the same path has another.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity(u64, u64);

impl UnixSocketFile {
    /// Binds, replacing a file that a dead server left behind, and nothing else.
    pub(super) async fn bind(path: &Path) -> Result<Self, BindError> {
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
        Ok(Self { listener, path: path.into(), identity })
    }

    /// The next connection, or `None` if it came from another user.
    pub(super) async fn accept(&self) -> io::Result<Option<UnixStream>> {
        let (stream, _) = self.listener.accept().await?;
        let peer = stream.peer_cred().map(|credentials| credentials.uid());
        match peer {
            Ok(uid) if may_connect(uid, rustix::process::geteuid().as_raw()) => Ok(Some(stream)),
            peer => {
                tracing::warn!(?peer, path = %self.path.display(), "turned away a connection from another user");
                Ok(None)
            }
        }
    }
}

impl Drop for UnixSocketFile {
    fn drop(&mut self) {
        if Identity::of(&self.path).is_ok_and(|now| now == self.identity)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket file");
        }
    }
}

impl Identity {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(Self(metadata.dev(), metadata.ino()))
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
    match UnixStream::connect(path).await {
        // A full backlog is a sign of life too.
        Ok(_) => Err(BindError::UnixInUse(path.into())),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(BindError::UnixInUse(path.into())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(refused),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(refused(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_user_and_root_may_connect() {
        assert!(may_connect(1000, 1000) && may_connect(ROOT, 1000));
        assert!(!may_connect(1001, 1000) && !may_connect(1000, ROOT));
    }
}
