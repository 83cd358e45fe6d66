//! Which limit a process has reached. The kernel tells it by the signal that ended the process, and by the counters of
//! its cgroup. What the kernel does not tell is not guessed: a process that gets no more memory because of `RLIMIT_AS`,
//! or no more descriptors, is told so by an error number and ends as it likes.

use std::time::Duration;

use rustix::process::Pid;

use super::{LimitKind, LimitPlan, ReachedLimit};
use crate::cgroup::CgroupCounts;
use crate::child::ChildExitStatus;
use crate::procfs;

/// The kernel enforces the limit of CPU time by its clock ticks, and `/proc` reports a more exact time, which can be
/// a few ticks lower.
const TICK_SLACK: Duration = Duration::from_millis(100);

/// The limits whose effect can be recognised when the process has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchedLimits {
    /// The CPU time after which the kernel kills the process.
    cpu_kill_seconds: Option<u64>,
    has_file_size: bool,
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
        }
    }

    /// Whether [`Self::reached`] needs the CPU time of a process that ended in this way.
    pub(crate) fn needs_cpu_time(&self, status: ChildExitStatus) -> bool {
        self.cpu_kill_seconds.is_some() && status == ChildExitStatus::Signaled(libc::SIGKILL)
    }

    /// `own_cpu` is the CPU time of the process without its descendants, because each process has its own limit.
    pub(crate) fn reached(
        &self,
        status: ChildExitStatus,
        own_cpu: Option<Duration>,
        counts: CgroupCounts,
    ) -> Option<ReachedLimit> {
        let ended_by = |limit| Some(ReachedLimit { limit, has_ended_process: true });
        let is_cpu_used_up = || {
            let limit = self.cpu_kill_seconds.map(Duration::from_secs);
            own_cpu.zip(limit).is_some_and(|(used, limit)| used + TICK_SLACK >= limit)
        };
        match status {
            ChildExitStatus::Signaled(libc::SIGXCPU) if self.cpu_kill_seconds.is_some() => {
                ended_by(LimitKind::CpuTime)
            }
            ChildExitStatus::Signaled(libc::SIGKILL) if is_cpu_used_up() => ended_by(LimitKind::CpuTime),
            ChildExitStatus::Signaled(libc::SIGXFSZ) if self.has_file_size => ended_by(LimitKind::FileSize),
            _ if counts.oom_kills > 0 => {
                let has_ended_process = status == ChildExitStatus::Signaled(libc::SIGKILL);
                Some(ReachedLimit { limit: LimitKind::Memory, has_ended_process })
            }
            _ if counts.refused_forks > 0 => Some(ReachedLimit { limit: LimitKind::Pids, has_ended_process: false }),
            _ => None,
        }
    }
}

/// The CPU time of a process that has ended and has not been reaped. None if `/proc` cannot be read.
pub(crate) fn own_cpu_time(pid: Pid) -> Option<Duration> {
    procfs::stat(pid).ok().flatten().map(|stat| stat.cpu_time())
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

    fn reached(
        watched: WatchedLimits,
        status: ChildExitStatus,
        cpu_ms: u64,
        counts: CgroupCounts,
    ) -> Option<(LimitKind, bool)> {
        let reached = watched.reached(status, Some(Duration::from_millis(cpu_ms)), counts);
        reached.map(|reached| (reached.limit, reached.has_ended_process))
    }

    #[test]
    fn a_kill_counts_as_the_limit_of_cpu_time_only_if_the_time_is_used_up() {
        let cpu = watched(SpawnLimits { cpu_seconds: Some(1), ..SpawnLimits::default() });
        let none = CgroupCounts::default();
        assert_eq!(reached(cpu, KILLED, 1_500, none), None);
        assert_eq!(reached(cpu, KILLED, 1_950, none), Some((LimitKind::CpuTime, true)));
        assert_eq!(reached(cpu, ChildExitStatus::Signaled(libc::SIGXCPU), 0, none), Some((LimitKind::CpuTime, true)));
        assert_eq!(reached(cpu, ChildExitStatus::Exited(152), 5_000, none), None);
        assert!(cpu.needs_cpu_time(KILLED) && !cpu.needs_cpu_time(ChildExitStatus::Exited(0)));
    }

    #[test]
    fn a_signal_of_a_limit_that_was_not_asked_for_says_nothing() {
        let none = watched(SpawnLimits::default());
        for signal in [libc::SIGXCPU, libc::SIGXFSZ, libc::SIGKILL] {
            let status = ChildExitStatus::Signaled(signal);
            assert_eq!(reached(none, status, 9_000, CgroupCounts::default()), None, "{signal}");
        }
        let files = watched(SpawnLimits { file_size_bytes: Some(1), ..SpawnLimits::default() });
        let status = ChildExitStatus::Signaled(libc::SIGXFSZ);
        assert_eq!(reached(files, status, 0, CgroupCounts::default()), Some((LimitKind::FileSize, true)));
    }

    #[test]
    fn the_counters_of_the_cgroup_tell_about_memory_and_about_refused_forks() {
        let any = watched(SpawnLimits::default());
        let oom = CgroupCounts { oom_kills: 1, refused_forks: 3, ..CgroupCounts::default() };
        assert_eq!(reached(any, KILLED, 0, oom), Some((LimitKind::Memory, true)));
        assert_eq!(reached(any, ChildExitStatus::Exited(1), 0, oom), Some((LimitKind::Memory, false)));
        let forks = CgroupCounts { refused_forks: 3, ..CgroupCounts::default() };
        assert_eq!(reached(any, ChildExitStatus::Exited(0), 0, forks), Some((LimitKind::Pids, false)));
    }
}
