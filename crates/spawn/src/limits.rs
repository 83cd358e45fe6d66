//! Limits on what a process may use. [`SpawnLimits`] is the request. A [`LimitPlan`] says how it is enforced: by
//! resource limits that the child sets itself, and by a cgroup for what resource limits cannot do. A limit that cannot be
//! enforced is refused with an [`UnenforceableLimit`], and never replaced by a weaker one. This module starts nothing;
//! `verdict` finds out which limit a process has reached.

mod verdict;

use std::fmt;

pub(crate) use verdict::{CpuTimeAtEnd, WatchedLimits};

use crate::cgroup::{CgroupLimits, Controllers};
use crate::rlimit::{self, ResourceLimit};
use crate::usage::ResourceUsage;

/// Limits for a process and its descendants. `None` means that there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpawnLimits {
    /// Bytes of memory. In a cgroup this is the memory of the whole tree. Otherwise it is the address space of each process.
    pub memory_bytes: Option<u64>,
    /// Seconds of CPU time of each process. After that the process gets `SIGXCPU`, and one second later `SIGKILL`.
    pub cpu_seconds: Option<u64>,
    /// Number of processes and threads of the tree at any time. Needs a cgroup.
    pub pids: Option<u64>,
    /// Each descriptor of a process has a number below this.
    pub open_files: Option<u64>,
    /// Bytes of each file that a process writes. A write beyond that gets `SIGXFSZ`.
    pub file_size_bytes: Option<u64>,
}

/// One of the limits of [`SpawnLimits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// The limit [`SpawnLimits::memory_bytes`] of memory.
    Memory,
    /// The limit [`SpawnLimits::cpu_seconds`] of CPU time.
    CpuTime,
    /// The limit [`SpawnLimits::pids`] of processes and threads.
    Pids,
    /// The limit [`SpawnLimits::open_files`] of descriptors.
    OpenFiles,
    /// The limit [`SpawnLimits::file_size_bytes`] of files.
    FileSize,
}

impl fmt::Display for LimitKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Memory => "memory",
            Self::CpuTime => "CPU time",
            Self::Pids => "processes",
            Self::OpenFiles => "open files",
            Self::FileSize => "file size",
        })
    }
}

/// What [`SpawnLimits::memory_bytes`] limits on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimitScope {
    /// The memory of all processes of the tree together, by a cgroup.
    Tree,
    /// The address space of each process on its own, by `RLIMIT_AS`.
    EachProcess,
}

/// A limit that a process has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReachedLimit {
    /// Which limit it was.
    pub limit: LimitKind,
    /// True if the limit has ended the process. False if the process was refused something and ended in another way.
    pub has_ended_process: bool,
}

/// What a process has used, and which of its limits it has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitAccount {
    /// What the process and its descendants have used.
    pub usage: ResourceUsage,
    /// The limit that the process has reached, as far as that is known.
    pub reached: Option<ReachedLimit>,
}

/// A limit that this server cannot enforce, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit of {limit} {reason}")]
pub struct UnenforceableLimit {
    /// The limit that was asked for.
    pub limit: LimitKind,
    /// Why the server cannot enforce it, and what to do.
    pub reason: LimitRefusal,
}

/// Why a limit cannot be enforced. The text follows the name of the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitRefusal {
    /// The limit is 0, which no process could keep.
    Zero,
    /// The kernel does not know numbers of this size for this limit.
    TooLarge {
        /// The largest number that can be enforced.
        most: u64,
    },
    /// The server itself has a hard limit that is lower, and a child cannot have a higher one.
    AboveHardLimit {
        /// The number that was asked for.
        asked: u64,
        /// The hard limit of the server.
        hard: u64,
        /// The name of the hard limit, as in `getrlimit(2)`.
        resource: &'static str,
    },
    /// The limit needs a cgroup, and the server cannot use cgroups for the reason in the text.
    NoCgroup(String),
}

impl fmt::Display for LimitRefusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero => formatter.write_str("must be at least 1"),
            Self::TooLarge { most } => write!(formatter, "must be at most {most}"),
            Self::AboveHardLimit { asked, hard, resource } => write!(
                formatter,
                "{asked} is above the hard limit {hard} of the server ({resource}); ask for at most {hard}, or start the \
                 server with a higher hard limit"
            ),
            Self::NoCgroup(problem) => write!(formatter, "cannot be enforced without cgroup v2: {problem}"),
        }
    }
}

/// Far more than any process uses. The kernel counts CPU time in nanoseconds and lets much larger limits overflow.
const MOST_CPU_SECONDS: u64 = 1_000_000_000;
/// The largest number of processes that a Linux kernel can have (`PID_MAX_LIMIT`). It refuses a higher `pids.max`.
const MOST_PIDS: u64 = 4 << 20;
/// File sizes and addresses are signed numbers in the kernel, and the largest unsigned number means "unlimited".
const MOST_BYTES: u64 = i64::MAX as u64;
/// Seconds from `SIGXCPU`, which a process can catch to end in order, to `SIGKILL`.
const CPU_GRACE_SECONDS: u64 = 1;

/// How limits are enforced. Plain data, so that it can be sent to the process that starts the child.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitPlan {
    /// Limits that the child sets before it executes.
    pub(crate) resources: Vec<ResourceLimit>,
    /// Limits of the cgroup that the child enters before it executes. None: the child needs no cgroup.
    pub(crate) cgroup: Option<CgroupLimits>,
}

impl LimitPlan {
    /// Decides how to enforce the limits. `cgroups` are the controllers of the server's cgroup, and `problem` says why some
    /// are missing. Fails if a limit cannot be enforced.
    pub(crate) fn new(limits: &SpawnLimits, cgroups: Controllers, problem: &str) -> Result<Self, UnenforceableLimit> {
        let mut plan = Self::default();
        let mut in_cgroup = CgroupLimits::default();
        if let Some(bytes) = in_range(LimitKind::Memory, limits.memory_bytes, MOST_BYTES)? {
            if cgroups.memory {
                in_cgroup.memory_bytes = Some(bytes);
            } else {
                plan.add(LimitKind::Memory, libc::RLIMIT_AS, bytes, bytes)?;
            }
        }
        if let Some(seconds) = in_range(LimitKind::CpuTime, limits.cpu_seconds, MOST_CPU_SECONDS)? {
            plan.add(LimitKind::CpuTime, libc::RLIMIT_CPU, seconds, seconds + CPU_GRACE_SECONDS)?;
        }
        if let Some(bytes) = in_range(LimitKind::FileSize, limits.file_size_bytes, MOST_BYTES)? {
            plan.add(LimitKind::FileSize, libc::RLIMIT_FSIZE, bytes, bytes)?;
        }
        if let Some(files) = in_range(LimitKind::OpenFiles, limits.open_files, MOST_BYTES)? {
            plan.add(LimitKind::OpenFiles, libc::RLIMIT_NOFILE, files, files)?;
        }
        if let Some(pids) = in_range(LimitKind::Pids, limits.pids, MOST_PIDS)? {
            if !cgroups.pids {
                let reason = LimitRefusal::NoCgroup(problem.to_owned());
                return Err(UnenforceableLimit { limit: LimitKind::Pids, reason });
            }
            in_cgroup.pids = Some(pids);
        }
        plan.cgroup = (in_cgroup != CgroupLimits::default()).then_some(in_cgroup);
        Ok(plan)
    }

    /// Adds a limit that the child sets itself. Soft and hard limit are both set, because a process may raise its soft
    /// limit up to the hard one.
    fn add(
        &mut self,
        limit: LimitKind,
        resource: libc::__rlimit_resource_t,
        soft: u64,
        hard: u64,
    ) -> Result<(), UnenforceableLimit> {
        let most = rlimit::hard_limit_for_children(resource);
        if soft > most {
            let reason = LimitRefusal::AboveHardLimit { asked: soft, hard: most, resource: rlimit::name(resource) };
            return Err(UnenforceableLimit { limit, reason });
        }
        let values = libc::rlimit64 { rlim_cur: soft, rlim_max: hard.min(most) };
        self.resources.push(ResourceLimit { resource, values });
        Ok(())
    }
}

fn in_range(limit: LimitKind, asked: Option<u64>, most: u64) -> Result<Option<u64>, UnenforceableLimit> {
    let reason = match asked {
        Some(0) => LimitRefusal::Zero,
        Some(number) if number > most => LimitRefusal::TooLarge { most },
        _ => return Ok(asked),
    };
    Err(UnenforceableLimit { limit, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_CGROUP: Controllers = Controllers { memory: false, pids: false };
    const CGROUP: Controllers = Controllers { memory: true, pids: true };

    fn plan(limits: SpawnLimits, cgroups: Controllers) -> Result<LimitPlan, UnenforceableLimit> {
        LimitPlan::new(&limits, cgroups, "there is no cgroup2")
    }

    fn refusal(limits: SpawnLimits, cgroups: Controllers) -> UnenforceableLimit {
        plan(limits, cgroups).unwrap_err()
    }

    #[test]
    fn memory_and_pids_are_limited_by_a_cgroup_and_without_one_only_the_address_space() {
        let limits = SpawnLimits { memory_bytes: Some(1 << 20), pids: Some(7), ..SpawnLimits::default() };
        let in_cgroup = plan(limits, CGROUP).unwrap();
        assert_eq!(in_cgroup.cgroup, Some(CgroupLimits { memory_bytes: Some(1 << 20), pids: Some(7) }));
        assert!(in_cgroup.resources.is_empty());

        let refused = refusal(limits, NO_CGROUP);
        assert_eq!(refused.limit, LimitKind::Pids);
        assert_eq!(
            refused.to_string(),
            "the limit of processes cannot be enforced without cgroup v2: there is no cgroup2"
        );

        let without = plan(SpawnLimits { pids: None, ..limits }, NO_CGROUP).unwrap();
        assert!(without.cgroup.is_none());
        let [limit] = without.resources[..] else { panic!("{without:?}") };
        assert_eq!(
            (limit.resource, limit.values.rlim_cur, limit.values.rlim_max),
            (libc::RLIMIT_AS, 1 << 20, 1 << 20)
        );
    }

    #[test]
    fn cpu_time_has_a_second_between_the_signal_that_can_be_caught_and_the_kill() {
        let limits = SpawnLimits { cpu_seconds: Some(3), ..SpawnLimits::default() };
        let values = plan(limits, NO_CGROUP).unwrap().resources[0].values;
        assert_eq!((values.rlim_cur, values.rlim_max), (3, 4));
    }

    #[test]
    fn zero_and_numbers_that_the_kernel_takes_for_something_else_are_refused() {
        let none = SpawnLimits::default();
        for (limits, limit, most) in [
            (SpawnLimits { memory_bytes: Some(u64::MAX), ..none }, LimitKind::Memory, MOST_BYTES),
            (SpawnLimits { cpu_seconds: Some(u64::MAX), ..none }, LimitKind::CpuTime, MOST_CPU_SECONDS),
            (SpawnLimits { pids: Some(MOST_PIDS + 1), ..none }, LimitKind::Pids, MOST_PIDS),
            (SpawnLimits { file_size_bytes: Some(1 << 63), ..none }, LimitKind::FileSize, MOST_BYTES),
        ] {
            assert_eq!(
                refusal(limits, CGROUP),
                UnenforceableLimit { limit, reason: LimitRefusal::TooLarge { most } }
            );
        }
        let zero = refusal(SpawnLimits { open_files: Some(0), ..none }, CGROUP);
        assert_eq!(zero, UnenforceableLimit { limit: LimitKind::OpenFiles, reason: LimitRefusal::Zero });
    }

    #[test]
    fn a_limit_above_the_hard_limit_of_the_server_is_refused_by_name() {
        let hard = rlimit::hard_limit_for_children(libc::RLIMIT_NOFILE);
        let refused = refusal(SpawnLimits { open_files: Some(hard + 1), ..SpawnLimits::default() }, NO_CGROUP);
        assert!(refused.to_string().contains(&format!("above the hard limit {hard} of the server (RLIMIT_NOFILE)")));
    }
}
