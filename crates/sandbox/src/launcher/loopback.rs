//! The network of a sandbox whose commands reach the outside only through a proxy in the server: the loopback interface
//! of a network namespace, and a socket that listens there. The server gets the socket and accepts connections on it, so
//! no process has to pass bytes from one namespace to the other.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketAddrV4, SocketFlags, SocketType, bind, listen as listen_on, socket_with};

use super::failure;
use crate::message::{BuildFailure, BuildStep};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// The request of the kernel that changes the flags of an interface, and its argument.
#[repr(C)]
struct InterfaceFlags {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    _rest: [u8; 22],
}

/// Switches the loopback interface on, and listens on a free port.
pub(super) fn listen() -> Result<OwnedFd, BuildFailure> {
    listen_inside().map_err(|error| failure(BuildStep::Loopback, error, ""))
}

fn listen_inside() -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let mut request =
        InterfaceFlags { name: [0; libc::IFNAMSIZ], flags: libc::IFF_UP as libc::c_short, _rest: [0; 22] };
    request.name[..2].copy_from_slice(b"lo");
    // SAFETY: the structure has the layout that the request demands, and lives during the call.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) } != 0 {
        return Err(io::Error::last_os_error());
    }
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    listen_on(&socket, BACKLOG)?;
    Ok(socket)
}
