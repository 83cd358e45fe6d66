//! The limit of open files. The function of `rustix` panics if a filter around the server forbids the system call.

use std::ptr;

/// Used if the limit cannot be read: the limit that most systems set.
const USUAL_LIMIT: u64 = 1024;

/// Raises the soft limit of open files of this process to the hard limit, if that is possible.
pub(crate) fn raise_open_files_limit() {
    let mut limits = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: as in `open_files_limit`, and the second time the other way round.
    unsafe {
        if libc::prlimit64(0, libc::RLIMIT_NOFILE, ptr::null(), &mut limits) == 0 {
            limits.rlim_cur = limits.rlim_max;
            libc::prlimit64(0, libc::RLIMIT_NOFILE, &limits, ptr::null_mut());
        }
    }
}

/// How many files this process may have open. None: any number.
pub fn open_files_limit() -> Option<u64> {
    let mut limits = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a null new limit means only to read, and the pointer to the old one is valid for writes.
    let code = unsafe { libc::prlimit64(0, libc::RLIMIT_NOFILE, ptr::null(), &mut limits) };
    match (code, limits.rlim_cur) {
        (0, libc::RLIM64_INFINITY) => None,
        (0, limit) => Some(limit),
        _ => Some(USUAL_LIMIT),
    }
}
