//! Waits for a child and reads the resources that it has used, in one system call. The C library has no wrapper for this
//! form of `waitid`.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;
use std::{fs, io};

use rustix::io::Errno;

use crate::child::ChildExitStatus;

/// Resources that a process and those of its descendants that were waited for have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    /// CPU time in the program.
    pub user_cpu: Duration,
    /// CPU time in the kernel.
    pub system_cpu: Duration,
    /// The most memory that one process of them had resident. None if it is not known: the kernel counts the memory of
    /// the server for a new child, so a number that is not above the peak of the server says nothing.
    pub max_resident_bytes: Option<u64>,
    /// Page faults without IO.
    pub minor_faults: u64,
    /// Page faults that had to read from a file or from swap.
    pub major_faults: u64,
    /// Bytes read from block devices.
    pub block_read_bytes: u64,
    /// Bytes written to block devices.
    pub block_written_bytes: u64,
    /// How often a process has waited for something.
    pub voluntary_switches: u64,
    /// How often a process had to let another one run.
    pub involuntary_switches: u64,
    /// The most memory that the whole tree had at one time. None without a cgroup.
    pub peak_tree_bytes: Option<u64>,
    /// The most processes and threads that the whole tree had at one time. None without a cgroup.
    pub peak_tree_pids: Option<u64>,
}

/// How a child has ended, and what it has used. With [`AfterWait::KeepZombie`] the child is not reaped yet.
pub(crate) struct Reaped {
    pub(crate) status: ChildExitStatus,
    pub(crate) usage: ResourceUsage,
}

/// Whether [`wait_without_blocking`] leaves the child as a zombie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterWait {
    Reap,
    KeepZombie,
}

/// The kernel counts block IO in sectors of this size, whatever the device uses.
const SECTOR_BYTES: u64 = 512;

/// How a child has ended, and what it has used. None if it has not ended.
pub(crate) fn wait_without_blocking(pidfd: BorrowedFd<'_>, after: AfterWait) -> Result<Option<Reaped>, Errno> {
    let keep = if after == AfterWait::KeepZombie { libc::WNOWAIT } else { 0 };
    // SAFETY: for both structs all zeros are valid values.
    let (mut info, mut used): (libc::siginfo_t, libc::rusage) = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | keep;
    // SAFETY: both pointers are valid for writes of the structs that the kernel fills in.
    let code = unsafe {
        libc::syscall(libc::SYS_waitid, libc::P_PIDFD, pidfd.as_raw_fd(), &raw mut info, options, &raw mut used)
    };
    if code < 0 {
        return Err(io::Error::last_os_error().raw_os_error().map_or(Errno::INVAL, Errno::from_raw_os_error));
    }
    // SAFETY: the kernel has filled in the fields of a child, or left zeros.
    let (pid, number) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Ok(None);
    }
    let status = match info.si_code {
        libc::CLD_EXITED => ChildExitStatus::Exited(number),
        _ => ChildExitStatus::Signaled(number),
    };
    Ok(Some(Reaped { status, usage: ResourceUsage::from_kernel(&used) }))
}

impl ResourceUsage {
    fn from_kernel(used: &libc::rusage) -> Self {
        let count = |number: libc::c_long| u64::try_from(number).unwrap_or(0);
        Self {
            user_cpu: duration(used.ru_utime),
            system_cpu: duration(used.ru_stime),
            max_resident_bytes: Some(count(used.ru_maxrss) * 1024),
            minor_faults: count(used.ru_minflt),
            major_faults: count(used.ru_majflt),
            block_read_bytes: count(used.ru_inblock) * SECTOR_BYTES,
            block_written_bytes: count(used.ru_oublock) * SECTOR_BYTES,
            voluntary_switches: count(used.ru_nvcsw),
            involuntary_switches: count(used.ru_nivcsw),
            peak_tree_bytes: None,
            peak_tree_pids: None,
        }
    }

    /// Removes a `max_resident_bytes` that may be that of the server. Until it executes its program, a child uses the server's
    /// memory, and the kernel counts the server's peak as the child's. So a value up to the server's peak says nothing.
    pub(crate) fn without_memory_of_server(self) -> Self {
        let server_peak = own_peak_resident_bytes();
        let is_of_process = |bytes: &u64| server_peak.is_some_and(|peak| *bytes > peak);
        Self { max_resident_bytes: self.max_resident_bytes.filter(is_of_process), ..self }
    }
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}

/// The most memory that this process had resident. `getrusage` would count the memory of its parent too.
fn own_peak_resident_bytes() -> Option<u64> {
    peak_in_status(&fs::read_to_string("/proc/self/status").ok()?)
}

fn peak_in_status(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_the_server_is_not_reported_as_that_of_a_process() {
        let peak = own_peak_resident_bytes().unwrap();
        assert!(peak > 1 << 16, "{peak}");
        let usage = |bytes| ResourceUsage { max_resident_bytes: Some(bytes), ..ResourceUsage::default() };
        assert_eq!(usage(peak).without_memory_of_server().max_resident_bytes, None);
        // The peak of this process can grow meanwhile, but not by this much.
        let large = peak + (1 << 40);
        assert_eq!(usage(large).without_memory_of_server().max_resident_bytes, Some(large));
    }

    #[test]
    fn the_peak_is_read_from_the_text_of_the_kernel() {
        assert_eq!(peak_in_status("VmPeak:\t  99 kB\nVmHWM:\t    12 kB\n"), Some(12 * 1024));
        assert_eq!(peak_in_status("Name:\tx\n"), None);
    }
}
