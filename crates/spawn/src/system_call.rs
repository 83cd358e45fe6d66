//! Makes system calls without the C library. A preloaded library (`LD_PRELOAD`) can replace every function of the C library, `syscall`
//! included. Its code may allocate or take locks, which a child that shares the memory of the server must not do.

use std::arch::asm;
use std::ffi::{c_int, c_long};

/// The kernel returns an error as its negated error number. Values from this one to -1 are errors.
const LOWEST_ERROR: isize = -4095;

/// Makes a system call with up to five arguments; pass 0 for the unused ones. The error is an error number such as `EBADF`.
///
/// # Safety
/// The arguments must fulfil the requirements of the system call.
pub(crate) unsafe fn system_call(number: c_long, arguments: [usize; 5]) -> Result<usize, c_int> {
    // SAFETY: as promised by the caller.
    let returned = unsafe { enter_kernel(number, arguments) };
    match returned {
        LOWEST_ERROR..=-1 => Err(-returned as c_int),
        _ => Ok(returned.cast_unsigned()),
    }
}

#[cfg(target_arch = "x86_64")]
unsafe fn enter_kernel(number: c_long, [first, second, third, fourth, fifth]: [usize; 5]) -> isize {
    let mut register = number as isize;
    // SAFETY: these are the registers that the kernel reads and those that it changes. The caller is responsible for
    // what the system call does to memory.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") register,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") fourth,
            in("r8") fifth,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    register
}

#[cfg(target_arch = "aarch64")]
unsafe fn enter_kernel(number: c_long, [first, second, third, fourth, fifth]: [usize; 5]) -> isize {
    let mut register = first.cast_signed();
    // SAFETY: these are the registers that the kernel reads and those that it changes. The caller is responsible for
    // what the system call does to memory.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") register,
            in("x1") second,
            in("x2") third,
            in("x3") fourth,
            in("x4") fifth,
            options(nostack),
        );
    }
    register
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_reach_the_kernel_and_results_and_errors_are_returned() {
        // SAFETY: the first call takes no argument. The others fail because of an invalid argument before they change
        // anything.
        unsafe {
            assert_eq!(system_call(libc::SYS_getpid, [0; 5]), Ok(std::process::id() as usize));
            assert_eq!(system_call(libc::SYS_close, [usize::MAX, 0, 0, 0, 0]), Err(libc::EBADF));
            let arguments = [usize::MAX, 0, 0, 0, 7];
            assert_eq!(system_call(libc::SYS_fchownat, arguments), Err(libc::EINVAL), "the fifth argument is passed");
        }
    }
}
