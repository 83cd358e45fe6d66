//! The null device as standard stream of a command. The server opens `/dev/null` on the host for a command without input. With such a
//! descriptor, a command of root could change the permissions and times of the host's device. Opened in the sandbox, the device is on a
//! read-only mount, so a command can only read and write it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, major, minor, openat2};
use rustix::io::Errno;

/// The null device of a sandbox, if a standard stream is the null device. `root` is the root directory of the sandbox. If the policy denies the
/// device, stdin (`is_input`) becomes an empty pipe, and for another stream there is no substitute.
pub(crate) fn replaced(stream: BorrowedFd<'_>, root: BorrowedFd<'_>, is_input: bool) -> io::Result<Option<OwnedFd>> {
    if !is_null_device(stream) {
        return Ok(None);
    }
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
    match openat2(root, c"dev/null", flags, Mode::empty(), resolve) {
        Ok(device) if is_null_device(device.as_fd()) => Ok(Some(device)),
        _ if is_input => Ok(Some(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?.0)),
        Ok(_) => Err(Errno::NODEV.into()),
        Err(error) => Err(error.into()),
    }
}

fn is_null_device(descriptor: BorrowedFd<'_>) -> bool {
    fstat(descriptor).is_ok_and(|found| {
        FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice
            && (major(found.st_rdev), minor(found.st_rdev)) == (1, 3)
    })
}
