//! System calls that do not touch the error number of the C library. For processes that share the memory of the launcher
//! and run beside it: there the error number is that of a thread of the launcher, and this thread may even have ended.

use std::os::fd::RawFd;

/// Makes a system call. Returns its result, or the error number of the kernel.
///
/// # Safety
///
/// As the system call: pointers must be valid for what the kernel does with them.
pub(super) unsafe fn raw_call(number: libc::c_long, arguments: [usize; 5]) -> Result<usize, i32> {
    let [first, second, third, fourth, fifth] = arguments;
    let result: isize;
    // SAFETY: the registers are those of the calling convention of the kernel, which changes none but the named ones.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
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
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") first as isize => result,
            in("x1") second,
            in("x2") third,
            in("x3") fourth,
            in("x4") fifth,
            options(nostack),
        );
    }
    if result < 0 { Err(-result as i32) } else { Ok(result as usize) }
}

/// Closes every descriptor of this process from `first` on, except those in `kept`. Sorts `kept`.
pub(super) fn close_all_but(first: RawFd, kept: &mut [RawFd]) {
    kept.sort_unstable();
    let mut next = first;
    for number in kept.iter().copied().filter(|number| *number >= first) {
        close_range(next, number - 1);
        next = number + 1;
    }
    close_range(next, RawFd::MAX);
}

fn close_range(first: RawFd, last: RawFd) {
    if first <= last {
        // SAFETY: takes numbers. The caller does not use these descriptors any more.
        let _cannot_fail = unsafe { raw_call(libc::SYS_close_range, [first as usize, last as usize, 0, 0, 0]) };
    }
}
