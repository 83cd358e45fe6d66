//! The flags that limit what a command may use, and the sentence for a command that has reached a limit. The server enforces
//! the limits.

use clap::Args;
use client::{Capabilities, LimitName, LimitReached, ProcessLimits};

use crate::units::{SizeArg, parse_count};

/// Limits for a command and everything it starts.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Limits")]
pub(crate) struct ProcessLimitArgs {
    /// Memory of the whole command (without cgroup v2: of each process)
    #[arg(long, value_name = "SIZE")]
    pub(crate) limit_memory: Option<SizeArg>,
    /// CPU time of each process, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_count)]
    pub(crate) limit_cpu: Option<usize>,
    /// Processes and threads at the same time (needs cgroup v2)
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) limit_pids: Option<usize>,
    /// Open files of each process
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) limit_open_files: Option<usize>,
    /// Size of each file that is written
    #[arg(long, value_name = "SIZE")]
    pub(crate) limit_file_size: Option<SizeArg>,
}

impl ProcessLimitArgs {
    /// The limits to ask the server for. None if no flag is given. Fails if the server cannot limit processes: it would ignore the
    /// limits.
    pub(crate) fn limits(&self, server: &Capabilities) -> anyhow::Result<Option<ProcessLimits>> {
        let number = |value: usize| value as u64;
        let limits = ProcessLimits {
            memory_bytes: self.limit_memory.map(|size| number(size.0)),
            cpu_seconds: self.limit_cpu.map(number),
            pids: self.limit_pids.map(number),
            open_files: self.limit_open_files.map(number),
            file_size_bytes: self.limit_file_size.map(|size| number(size.0)),
        };
        if limits == ProcessLimits::default() {
            return Ok(None);
        }
        anyhow::ensure!(
            server.process_limits,
            "this server cannot limit what a command uses; leave out the flags that begin with --limit"
        );
        Ok(Some(limits))
    }
}

/// A sentence about the limit that a command has reached.
pub(crate) fn sentence_about(reached: LimitReached) -> String {
    let (what, flag) = match reached.limit {
        LimitName::MemoryBytes => ("limit of memory", "--limit-memory"),
        LimitName::CpuSeconds => ("limit of CPU time", "--limit-cpu"),
        LimitName::Pids => ("limit of processes", "--limit-pids"),
        LimitName::OpenFiles => ("limit of open files", "--limit-open-files"),
        LimitName::FileSizeBytes => ("limit of file sizes", "--limit-file-size"),
        LimitName::Unknown => return "the command has reached a limit that this version does not know".to_owned(),
    };
    if reached.ended {
        format!("the command was ended by its {what} ({flag})")
    } else {
        format!("the command has reached its {what} ({flag})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_limits_is_refused_only_if_a_limit_is_asked_for() {
        let none = ProcessLimitArgs::default();
        assert_eq!(none.limits(&Capabilities::default()).unwrap(), None);
        let some = ProcessLimitArgs { limit_pids: Some(3), ..ProcessLimitArgs::default() };
        assert!(some.limits(&Capabilities::default()).is_err());
        let able = Capabilities { process_limits: true, ..Capabilities::default() };
        assert_eq!(some.limits(&able).unwrap(), Some(ProcessLimits { pids: Some(3), ..ProcessLimits::default() }));
    }
}
