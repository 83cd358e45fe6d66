//! Which processor runs what. Left to itself the kernel runs a client and its server on one processor or on two, as it happens, and
//! waking a processor that sleeps can take longer than everything that is compared.

use anyhow::{Context as _, Result};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// This thread and some processes, each on a processor of its choice. Dropped, this thread may run anywhere again.
pub(crate) struct Placed {
    before: CpuSet,
}

impl Placed {
    /// This thread on one processor and the processes on another; none if there is only one.
    pub(crate) fn apart(processes: &[u32]) -> Result<Option<Self>> {
        let before = sched_getaffinity(None)?;
        match processors(&before)[..] {
            [first, second, ..] => Ok(Some(Self::place(before, first, processes, second)?)),
            _ => Ok(None),
        }
    }

    /// All on one.
    pub(crate) fn together(processes: &[u32]) -> Result<Self> {
        let before = sched_getaffinity(None)?;
        let first = *processors(&before).first().context("there is no processor")?;
        Self::place(before, first, processes, first)
    }

    fn place(before: CpuSet, here: usize, processes: &[u32], there: usize) -> Result<Self> {
        sched_setaffinity(None, &only(here))?;
        let placed = Self { before };
        for process in processes {
            for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
                let number = thread?.file_name().to_string_lossy().parse().context("a thread has a number")?;
                sched_setaffinity(Pid::from_raw(number), &only(there))?;
            }
        }
        Ok(placed)
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        let _it_was_so_before = sched_setaffinity(None, &self.before);
    }
}

fn processors(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU).filter(|number| set.is_set(*number)).collect()
}

fn only(number: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(number);
    set
}
