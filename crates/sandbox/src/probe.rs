//! Checks whether the kernel accepts a seccomp filter. A thread cannot remove its filter, so the check runs on a thread of its
//! own, which ends afterwards. The other threads stay as they are.

use std::io;
use std::thread;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::plan::SandboxNetwork;
use crate::seccomp::{self, Refusal};

/// Checks whether commands can get a seccomp filter that forbids network sockets. The error says what is in the way and what to do.
pub fn check_system_call_filter() -> Result<(), String> {
    on_own_thread(|| {
        let refused = |error: io::Error| {
            format!(
                "the kernel refuses seccomp filters ({error}); boot a kernel with CONFIG_SECCOMP_FILTER, or run the server outside of its container"
            )
        };
        rustix::thread::set_no_new_privs(true).map_err(|error| format!("cannot set no_new_privs: {error}"))?;
        install(&seccomp::filter(SandboxNetwork::None, Refusal::Fails)).map_err(refused)?;
        match rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None) {
            Err(Errno::PERM) => Ok(()),
            Err(error) => Err(format!("cannot check whether a seccomp filter has an effect: {error}")),
            Ok(_) => Err("a seccomp filter has no effect; run the server on the kernel itself, without an emulation of system calls".to_owned()),
        }
    })
}

fn install(filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the program has the given length, and the kernel copies it. Only this thread gets the filter.
    let code = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn on_own_thread(attempt: impl FnOnce() -> Result<(), String> + Send + 'static) -> Result<(), String> {
    let thread = thread::Builder::new().spawn(attempt).map_err(|error| format!("cannot start a thread: {error}"))?;
    thread.join().unwrap_or_else(|_panic| Err("the check of seccomp filters panicked; please report this".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_works_and_this_thread_keeps_its_sockets() {
        check_system_call_filter().unwrap();
        rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    }
}
