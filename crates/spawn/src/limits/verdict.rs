//! Which limit a process has reached. The kernel tells it by the signal that ended the process, and by the counters of
//! its cgroup. What the kernel does not tell is not guessed: a process that gets no more memory because of `RLIMIT_AS`,
//! or no more descriptors, is told so by an error number and ends as it likes.

use std::time::Duration;

use rustix::process::Pid;

use super::{LimitKind, LimitPlan, ReachedLimit};
use crate::cgroup::{CgroupCounts, CgroupLimits};
use crate::child::ChildExitStatus;
use crate::procfs;
use crate::rlimit;

/// What is known about the CPU time of a process that was killed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuTimeAtEnd {
    /// CPU time of the process without its descendants, because each process has its own limit.
    used: Duration,
    /// The soft limit when the process ended. The kernel raises it by a second each time it sends `SIGXCPU`.
    soft_limit_seconds: u64,
}

impl CpuTimeAtEnd {
    /// Reads it for a process that has ended and has not been reaped. None if that is not possible.
    pub(crate) fn of(pid: Pid) -> Option<Self> {
        let used = procfs::stat(pid).ok().flatten()?.cpu_time();
        Some(Self { used, soft_limit_seconds: rlimit::soft_limit(pid, libc::RLIMIT_CPU)? })
    }

    /// Whether the kernel has killed the process at this hard limit. The kernel compares the limit with a count of clock ticks,
    /// which on a busy machine can be a quarter above the exact time in `/proc`. So this checks that the kernel has raised the
    /// soft limit up to the hard limit. A process can raise it itself, so at least half of the time must be used up too.
    fn is_used_up(&self, hard_limit_seconds: u64) -> bool {
        self.soft_limit_seconds >= hard_limit_seconds && self.used * 2 >= Duration::from_secs(hard_limit_seconds)
    }
}

/// The limits whose effect can be recognised when the process has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchedLimits {
    /// The CPU time after which the kernel kills the process.
    cpu_kill_seconds: Option<u64>,
    has_file_size: bool,
    /// What the cgroup of the tree limits. Nothing without a cgroup.
    cgroup: CgroupLimits,
}

impl WatchedLimits {
    pub(crate) fn new(plan: &LimitPlan) -> Self {
        let hard_limit = |resource| {
            let mut limits = plan.resources.iter();
            limits.find(|limit| limit.resource == resource).map(|limit| limit.values.rlim_max)
        };
        Self {
            cpu_kill_seconds: hard_limit(libc::RLIMIT_CPU),
            has_file_size: hard_limit(libc::RLIMIT_FSIZE).is_some(),
            cgroup: plan.cgroup.unwrap_or_default(),
        }
    }

    /// Whether [`Self::reached`] needs the CPU time of a process that ended in this way.
    pub(crate) fn needs_cpu_time(&self, status: ChildExitStatus) -> bool {
        self.cpu_kill_seconds.is_some() && status == ChildExitStatus::Signaled(libc::SIGKILL)
    }

    /// `cpu_time` is needed only if [`Self::needs_cpu_time`] says so.
    pub(crate) fn reached(
        &self,
        status: ChildExitStatus,
        cpu_time: Option<CpuTimeAtEnd>,
        counts: CgroupCounts,
    ) -> Option<ReachedLimit> {
        let ended_by = |limit| Some(ReachedLimit { limit, has_ended_process: true });
        let is_cpu_used_up = || cpu_time.zip(self.cpu_kill_seconds).is_some_and(|(time, hard)| time.is_used_up(hard));
        match status {
            ChildExitStatus::Signaled(libc::SIGXCPU) if self.cpu_kill_seconds.is_some() => {
                ended_by(LimitKind::CpuTime)
            }
            ChildExitStatus::Signaled(libc::SIGKILL) if is_cpu_used_up() => ended_by(LimitKind::CpuTime),
            ChildExitStatus::Signaled(libc::SIGXFSZ) if self.has_file_size => ended_by(LimitKind::FileSize),
            _ if self.has_used_up_memory(counts) => {
                let has_ended_process = status == ChildExitStatus::Signaled(libc::SIGKILL);
                Some(ReachedLimit { limit: LimitKind::Memory, has_ended_process })
            }
            _ if self.has_used_up_pids(counts) => {
                Some(ReachedLimit { limit: LimitKind::Pids, has_ended_process: false })
            }
            _ => None,
        }
    }

    /// Whether the kernel has killed a process because of this limit. The kernel also counts a kill here if the whole machine, or a
    /// cgroup above that of the tree, has run out of memory.
    fn has_used_up_memory(&self, counts: CgroupCounts) -> bool {
        self.cgroup.memory_bytes.is_some() && counts.own_ooms > 0 && counts.oom_kills > 0
    }

    /// Whether a process was refused because of this limit. Kernels before 6.11 also count a refusal here if a cgroup above that of
    /// the tree has reached its limit. Then the tree has never had as many processes as its own limit allows.
    fn has_used_up_pids(&self, counts: CgroupCounts) -> bool {
        let is_reached = |limit| counts.peak_pids.is_none_or(|peak| peak >= limit);
        counts.refused_forks > 0 && self.cgroup.pids.is_some_and(is_reached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Controllers;
    use crate::limits::SpawnLimits;

    const KILLED: ChildExitStatus = ChildExitStatus::Signaled(libc::SIGKILL);

    fn watched(limits: SpawnLimits) -> WatchedLimits {
        WatchedLimits::new(&LimitPlan::new(&limits, Controllers { memory: true, pids: true }, "").unwrap())
    }

    /// The CPU time is in milliseconds, and the soft limit in seconds.
    fn reached(
        watched: WatchedLimits,
        status: ChildExitStatus,
        (cpu_ms, soft): (u64, u64),
        counts: CgroupCounts,
    ) -> Option<(LimitKind, bool)> {
        let time = CpuTimeAtEnd { used: Duration::from_millis(cpu_ms), soft_limit_seconds: soft };
        watched.reached(status, Some(time), counts).map(|reached| (reached.limit, reached.has_ended_process))
    }

    #[test]
    fn a_kill_counts_as_the_limit_of_cpu_time_only_if_the_time_is_used_up() {
        let cpu = watched(SpawnLimits { cpu_seconds: Some(1), ..SpawnLimits::default() });
        let none = CgroupCounts::default();
        assert_eq!(reached(cpu, KILLED, (1_900, 1), none), None, "the kernel has not sent SIGXCPU");
        assert_eq!(reached(cpu, KILLED, (900, 2), none), None, "the process has raised its soft limit itself");
        // The kernel has counted two seconds in clock ticks.
        assert_eq!(reached(cpu, KILLED, (1_700, 2), none), Some((LimitKind::CpuTime, true)));
        let signalled = ChildExitStatus::Signaled(libc::SIGXCPU);
        assert_eq!(reached(cpu, signalled, (0, 1), none), Some((LimitKind::CpuTime, true)));
        assert_eq!(reached(cpu, ChildExitStatus::Exited(152), (5_000, 2), none), None);
        assert!(cpu.needs_cpu_time(KILLED) && !cpu.needs_cpu_time(ChildExitStatus::Exited(0)));
    }

    #[test]
    fn a_signal_of_a_limit_that_was_not_asked_for_says_nothing() {
        let none = watched(SpawnLimits::default());
        for signal in [libc::SIGXCPU, libc::SIGXFSZ, libc::SIGKILL] {
            let status = ChildExitStatus::Signaled(signal);
            assert_eq!(reached(none, status, (9_000, 9), CgroupCounts::default()), None, "{signal}");
        }
        let files = watched(SpawnLimits { file_size_bytes: Some(1), ..SpawnLimits::default() });
        let status = ChildExitStatus::Signaled(libc::SIGXFSZ);
        assert_eq!(reached(files, status, (0, 0), CgroupCounts::default()), Some((LimitKind::FileSize, true)));
    }

    #[test]
    fn the_counters_of_the_cgroup_tell_about_memory_and_about_refused_forks() {
        let both = watched(SpawnLimits { memory_bytes: Some(1 << 20), pids: Some(9), ..SpawnLimits::default() });
        let oom = CgroupCounts { own_ooms: 1, oom_kills: 1, refused_forks: 3, ..CgroupCounts::default() };
        assert_eq!(reached(both, KILLED, (0, 0), oom), Some((LimitKind::Memory, true)));
        assert_eq!(reached(both, ChildExitStatus::Exited(1), (0, 0), oom), Some((LimitKind::Memory, false)));
        let forks = CgroupCounts { refused_forks: 3, ..CgroupCounts::default() };
        assert_eq!(reached(both, ChildExitStatus::Exited(0), (0, 0), forks), Some((LimitKind::Pids, false)));
        let at_limit = CgroupCounts { peak_pids: Some(9), ..forks };
        assert_eq!(reached(both, ChildExitStatus::Exited(0), (0, 0), at_limit), Some((LimitKind::Pids, false)));
    }

    #[test]
    fn memory_and_processes_that_have_run_out_elsewhere_are_no_limit_of_the_tree() {
        let memory = watched(SpawnLimits { memory_bytes: Some(1 << 30), ..SpawnLimits::default() });
        let pids = watched(SpawnLimits { pids: Some(50), ..SpawnLimits::default() });
        // The memory of the machine or of an enclosing cgroup.
        let killed = CgroupCounts { oom_kills: 1, ..CgroupCounts::default() };
        assert_eq!(reached(memory, KILLED, (0, 0), killed), None);
        let limit_of_the_process = CgroupCounts { own_ooms: 1, ..killed };
        assert_eq!(reached(pids, KILLED, (0, 0), limit_of_the_process), None, "the memory was not limited");
        // The `pids.max` of an enclosing cgroup.
        let refused = CgroupCounts { refused_forks: 3, peak_pids: Some(25), ..CgroupCounts::default() };
        assert_eq!(reached(pids, ChildExitStatus::Exited(0), (0, 0), refused), None);
        assert_eq!(reached(memory, ChildExitStatus::Exited(0), (0, 0), refused), None, "pids were not limited");
    }
}
