//! The limit of open files. The function of `rustix` panics if a filter around the server forbids the system call.

use std::ptr;

/// Used if the limit cannot be read: the limit that most systems set.
const USUAL_LIMIT: u64 = 1024;

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
