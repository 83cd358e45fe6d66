//! `posix_spawn` itself: a child in a session of its own, with every signal at its default and none blocked. It shares our memory
//! until it executes, so the cost does not grow with the size of the server, and a failed `exec` is our return value.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, c_short};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::image::CStringArray;

/// What the child does to its descriptors before it executes.
pub(crate) struct FileActions(libc::posix_spawn_file_actions_t);

// SAFETY: the value owns all it points to, and a shared reference to it only lets it be read.
unsafe impl Send for FileActions {}
// SAFETY: as above.
unsafe impl Sync for FileActions {}

impl FileActions {
    pub(crate) fn new() -> io::Result<Self> {
        let mut actions = MaybeUninit::uninit();
        // SAFETY: the pointer is valid for writes, and init fills in the whole value when it returns 0. The value holds a pointer
        // to the heap and none into itself, so it may be moved.
        unsafe {
            check(libc::posix_spawn_file_actions_init(actions.as_mut_ptr()))?;
            Ok(Self(actions.assume_init()))
        }
    }

    pub(crate) fn change_directory(&mut self, directory: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: `self.0` is initialised; the descriptor is only a number here and is looked up in the child.
        check(unsafe { libc::posix_spawn_file_actions_addfchdir_np(&mut self.0, directory.as_raw_fd()) })
    }

    pub(crate) fn open(&mut self, target: c_int, path: &CStr, flags: c_int) -> io::Result<()> {
        // SAFETY: `self.0` is initialised and the path is a C string, of which a copy is taken.
        check(unsafe { libc::posix_spawn_file_actions_addopen(&mut self.0, target, path.as_ptr(), flags, 0) })
    }

    pub(crate) fn duplicate(&mut self, source: c_int, target: c_int) -> io::Result<()> {
        // SAFETY: `self.0` is initialised; the descriptors are only numbers here and are looked up in the child.
        check(unsafe { libc::posix_spawn_file_actions_adddup2(&mut self.0, source, target) })
    }
}

impl Drop for FileActions {
    fn drop(&mut self) {
        // SAFETY: `self.0` was initialised by `new` and is not used again.
        unsafe { libc::posix_spawn_file_actions_destroy(&mut self.0) };
    }
}

/// Starts the program at `path`, meant from the directory the child changes to.
pub(crate) fn posix_spawn(
    path: &CStr,
    argv: &CStringArray,
    env: &CStringArray,
    actions: &FileActions,
) -> Result<Pid, Errno> {
    let attributes = Attributes::new()?;
    let mut pid = 0;
    // SAFETY: path is a C string, argv and env are null-terminated arrays of C strings that outlive the call, and actions and
    // attributes are initialised. The child runs only code of libc before it executes.
    let code =
        unsafe { libc::posix_spawn(&mut pid, path.as_ptr(), &actions.0, &attributes.0, argv.as_ptr(), env.as_ptr()) };
    if code != 0 {
        return Err(Errno::from_raw_os_error(code));
    }
    Pid::from_raw(pid).ok_or(Errno::SRCH)
}

struct Attributes(libc::posix_spawnattr_t);

impl Attributes {
    fn new() -> Result<Self, Errno> {
        let mut attributes = MaybeUninit::uninit();
        let mut none = MaybeUninit::uninit();
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the pointers are valid for writes; each init function fills in its value before it is read, and the calls on
        // initialised values cannot fail.
        unsafe {
            let code = libc::posix_spawnattr_init(attributes.as_mut_ptr());
            if code != 0 {
                return Err(Errno::from_raw_os_error(code));
            }
            let mut attributes = Self(attributes.assume_init());
            libc::sigemptyset(none.as_mut_ptr());
            // sigfillset leaves out the two signals that glibc keeps for itself, and the child would start with them ignored.
            all.as_mut_ptr().write_bytes(0xFF, 1);
            libc::posix_spawnattr_setsigmask(&mut attributes.0, none.as_ptr());
            libc::posix_spawnattr_setsigdefault(&mut attributes.0, all.as_ptr());
            let flags = libc::POSIX_SPAWN_SETSID
                | libc::POSIX_SPAWN_SETSIGMASK as c_short
                | libc::POSIX_SPAWN_SETSIGDEF as c_short;
            libc::posix_spawnattr_setflags(&mut attributes.0, flags);
            Ok(attributes)
        }
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: `self.0` was initialised by `new` and is not used again.
        unsafe { libc::posix_spawnattr_destroy(&mut self.0) };
    }
}

/// These functions return the error number instead of setting `errno`.
fn check(code: c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}
