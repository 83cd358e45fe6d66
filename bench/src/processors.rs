//! Pins client and server to processors. Without that, the kernel sometimes runs both on one processor and sometimes on two, and waking an
//! idle processor can take longer than the work that is measured.

use anyhow::{Context as _, Result};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// This thread and some processes are pinned to processors. Dropping the value lets this thread run on any processor again.
pub(crate) struct CpuPinning {
    before: CpuSet,
}

impl CpuPinning {
    /// Pins this thread to one processor and the processes to another. `None` if the machine has only one.
    pub(crate) fn apart(processes: &[u32]) -> Result<Option<Self>> {
        let before = sched_getaffinity(None)?;
        match processors(&before)[..] {
            [first, second, ..] => Ok(Some(Self::place(before, first, processes, second)?)),
            _ => Ok(None),
        }
    }

    /// Pins this thread and the processes to the same processor.
    pub(crate) fn together(processes: &[u32]) -> Result<Self> {
        let before = sched_getaffinity(None)?;
        let first = *processors(&before).first().context("there is no processor")?;
        Self::place(before, first, processes, first)
    }

    fn place(before: CpuSet, own: usize, processes: &[u32], others: usize) -> Result<Self> {
        sched_setaffinity(None, &only(own))?;
        let pinning = Self { before };
        for process in processes {
            for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
                let number = thread?.file_name().to_string_lossy().parse().context("a thread has a number")?;
                sched_setaffinity(Pid::from_raw(number), &only(others))?;
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

fn only(number: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(number);
    set
}
