//! System calls that the seccomp filter of a command refuses. The kernel asks the server about most of them, through the
//! filter's listener descriptor (`SECCOMP_RET_USER_NOTIF`). The server always answers `EPERM`; it only wants to know that the
//! call was made. The module `seccomp` says which calls fail without a question.

use std::os::fd::{AsFd, AsRawFd as _};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::seccomp;

/// A call that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedCall {
    /// The name of the system call, such as `socket`.
    pub operation: &'static str,
    /// For sockets the address family, such as `AF_INET`, and for `ioctl` the request, such as `TIOCSTI`. None for other calls.
    pub target: Option<String>,
    /// Whether a command that fails afterwards probably failed because of this call. False for optional calls: programs go on without them.
    pub is_telling: bool,
}

/// The request of the kernel, as `seccomp(2)` defines it.
#[repr(C)]
#[derive(Default)]
struct CallReport {
    id: u64,
    pid: u32,
    flags: u32,
    call: CallData,
}

#[repr(C)]
#[derive(Default)]
struct CallData {
    number: i32,
    architecture: u32,
    instruction: u64,
    arguments: [u64; 6],
}

/// The answer, as `seccomp(2)` defines it.
#[repr(C)]
struct CallVerdict {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

const RECEIVE: libc::c_ulong = request(0, 3, size_of::<CallReport>());
const SEND: libc::c_ulong = request(1, 3, size_of::<CallVerdict>());

/// The number of an `ioctl` of seccomp: direction, size, the letter `!`, number.
const fn request(number: libc::c_ulong, direction: libc::c_ulong, size: usize) -> libc::c_ulong {
    (direction << 30) | ((size as libc::c_ulong) << 16) | ((b'!' as libc::c_ulong) << 8) | number
}

/// Whether a call waits for [`refuse_next_call`].
pub fn has_reported_call(filter: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&filter, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(rustix::event::poll(&mut polled, Some(&now)), Ok(1)) && polled[0].revents().contains(PollFlags::IN)
}

/// Receives a call from the descriptor of a filter, passes it to `note`, and refuses it. The process goes on, and may end, only after `note` has
/// returned. Call this only if [`has_reported_call`]; then it does not block. If the process was killed meanwhile, nothing is noted.
pub fn refuse_next_call(filter: impl AsFd, note: impl FnOnce(RefusedCall)) -> Result<(), Errno> {
    let filter = filter.as_fd().as_raw_fd();
    let mut notification = CallReport::default();
    // SAFETY: the structure has the size that the request says, is zero as the kernel demands, and lives during the call.
    let received = unsafe { libc::ioctl(filter, RECEIVE, &raw mut notification) };
    if received != 0 {
        return match last_error() {
            Errno::NOENT => Ok(()),
            error => Err(error),
        };
    }
    note(describe(&notification.call));
    let answer = CallVerdict { id: notification.id, value: 0, error: -libc::EPERM, flags: 0 };
    // SAFETY: as above. The call fails if the process was killed meanwhile, and then no answer is needed.
    unsafe { libc::ioctl(filter, SEND, &raw const answer) };
    Ok(())
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

fn describe(call: &CallData) -> RefusedCall {
    let number = i64::from(call.number);
    let operation = seccomp::name_of(number).unwrap_or("system call");
    let is_socket = number == libc::SYS_socket || number == libc::SYS_socketpair;
    // The kernel looks at the lower half of the argument only.
    let family = call.arguments[0] as u32 as i32;
    let target = match number {
        _ if is_socket => Some(family_name(family)),
        libc::SYS_ioctl => terminal_request_name(call.arguments[1]),
        _ => None,
    };
    // Programs list network interfaces by netlink, and the C library asks a daemon for user names by a Unix socket. They work without
    // these sockets, so a refusal does not explain why a command has failed.
    let is_optional =
        (is_socket && matches!(family, libc::AF_NETLINK | libc::AF_UNIX)) || number == libc::SYS_connect;
    let is_telling = !is_optional;
    RefusedCall { operation, target, is_telling }
}

/// The name of an `ioctl` request that the filter refuses.
fn terminal_request_name(request: u64) -> Option<String> {
    // The kernel looks at the lower half of the argument only.
    match libc::Ioctl::from(request as u32) {
        libc::TIOCSTI => Some("TIOCSTI".to_owned()),
        libc::TIOCLINUX => Some("TIOCLINUX".to_owned()),
        _ => None,
    }
}

fn family_name(family: i32) -> String {
    match family {
        libc::AF_UNIX => "AF_UNIX".to_owned(),
        libc::AF_INET => "AF_INET".to_owned(),
        libc::AF_INET6 => "AF_INET6".to_owned(),
        libc::AF_NETLINK => "AF_NETLINK".to_owned(),
        libc::AF_PACKET => "AF_PACKET".to_owned(),
        libc::AF_VSOCK => "AF_VSOCK".to_owned(),
        other => format!("family {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_described_with_their_family() {
        let call = |number: i64, family: i32| CallData {
            number: number as i32,
            arguments: [family as u64 | 0xFFFF_0000_0000, 0, 0, 0, 0, 0],
            ..CallData::default()
        };
        let described = describe(&call(libc::SYS_socket, libc::AF_INET));
        assert_eq!((described.operation, described.target.as_deref()), ("socket", Some("AF_INET")));
        assert!(described.is_telling);
        assert!(!describe(&call(libc::SYS_socket, libc::AF_NETLINK)).is_telling);
        assert!(!describe(&call(libc::SYS_connect, 0)).is_telling);
        assert_eq!(describe(&call(libc::SYS_mount, 0)).operation, "mount");
    }

    #[test]
    fn terminal_requests_are_described_with_their_name() {
        let target = |request: u64| {
            let arguments = [0, request, 0, 0, 0, 0];
            describe(&CallData { number: libc::SYS_ioctl as i32, arguments, ..CallData::default() }).target
        };
        assert_eq!(target(0x5412).as_deref(), Some("TIOCSTI"));
        assert_eq!(target(0x541C).as_deref(), Some("TIOCLINUX"));
        assert_eq!(target(0x541C | 0x5A5A << 32).as_deref(), Some("TIOCLINUX"));
        assert_eq!(target(0x5413), None);
    }

    #[test]
    fn the_requests_have_the_numbers_of_the_kernel() {
        assert_eq!((RECEIVE, SEND), (0xC050_2100, 0xC018_2101));
    }
}
