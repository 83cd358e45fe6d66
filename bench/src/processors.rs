//! Pins client and server to processors. If they are not pinned, the kernel sometimes runs both on one processor and
//! sometimes on two, and waking an idle processor can take longer than the work that is measured.

use anyhow::{Context as _, Result};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// While this value exists, this thread and some other processes are pinned to processors. Dropping the value lets
/// this thread run on its earlier processors again; the processes stay pinned.
pub(crate) struct CpuPinning {
    /// Processors on which this thread could run before.
    before: CpuSet,
}

impl CpuPinning {
    /// Pins this thread to one processor and the processes to another. `None` if this thread may use only one.
    pub(crate) fn pin_apart(processes: &[u32]) -> Result<Option<Self>> {
        let before = sched_getaffinity(None)?;
        match processors(&before)[..] {
            [first, second, ..] => Ok(Some(Self::pin(before, first, processes, second)?)),
            _ => Ok(None),
        }
    }

    /// Pins this thread and the processes to the same processor.
    pub(crate) fn pin_together(processes: &[u32]) -> Result<Self> {
        let before = sched_getaffinity(None)?;
        let first = *processors(&before).first().context("there is no processor")?;
        Self::pin(before, first, processes, first)
    }

    fn pin(before: CpuSet, own_processor: usize, processes: &[u32], their_processor: usize) -> Result<Self> {
        sched_setaffinity(None, &set_of_one(own_processor))?;
        let pinning = Self { before };
        for process in processes {
            for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
                let number = thread?.file_name().to_string_lossy().parse().context("a thread id is not a number")?;
                sched_setaffinity(Pid::from_raw(number), &set_of_one(their_processor))?;
            }
        }
        Ok(pinning)
    }
}

impl Drop for CpuPinning {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.before);
    }
}

fn processors(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU).filter(|number| set.is_set(*number)).collect()
}

fn set_of_one(number: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(number);
    set
}
