//! Converts the limits of a process between the wire (`protocol`) and the operating system (`spawn`), which do not import each
//! other. It enforces nothing itself.

use std::time::Duration;

use protocol::{ExitResources, LimitName, LimitReached, MemoryScope, ProcessLimits, ProcessUsage, WireError};
use spawn::{
    ExitAccount, LimitKind, MemoryLimitScope, ReachedLimit, ResourceUsage, SpawnLimits, Spawner, UnenforceableLimit,
};

/// The limits of a request, as the spawner takes them.
pub(crate) fn spawn_limits(limits: &ProcessLimits) -> SpawnLimits {
    let ProcessLimits { memory_bytes, cpu_seconds, pids, open_files, file_size_bytes } = *limits;
    SpawnLimits { memory_bytes, cpu_seconds, pids, open_files, file_size_bytes }
}

/// The answer to a request for a limit that cannot be enforced here.
pub(crate) fn limit_error(error: &UnenforceableLimit) -> WireError {
    WireError::invalid_params(format!("limits.{} {}", limit_name(error.limit).as_str(), error.reason))
}

/// What a limit of memory applies to on this machine.
pub(crate) fn memory_scope(spawner: &Spawner) -> MemoryScope {
    match spawner.memory_limit_scope() {
        MemoryLimitScope::Tree => MemoryScope::Tree,
        MemoryLimitScope::EachProcess => MemoryScope::Process,
    }
}

/// What the exit event says about a process that was started with limits.
pub(crate) fn exit_resources(account: ExitAccount) -> ExitResources {
    let limit_reached = account.reached.map(|ReachedLimit { limit, has_ended_process }| LimitReached {
        limit: limit_name(limit),
        ended: has_ended_process,
    });
    ExitResources { usage: Some(process_usage(&account.usage)), limit_reached }
}

fn limit_name(limit: LimitKind) -> LimitName {
    match limit {
        LimitKind::Memory => LimitName::MemoryBytes,
        LimitKind::CpuTime => LimitName::CpuSeconds,
        LimitKind::Pids => LimitName::Pids,
        LimitKind::OpenFiles => LimitName::OpenFiles,
        LimitKind::FileSize => LimitName::FileSizeBytes,
    }
}

fn process_usage(usage: &ResourceUsage) -> ProcessUsage {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    ProcessUsage {
        user_micros: micros(usage.user_cpu),
        system_micros: micros(usage.system_cpu),
        max_resident_bytes: usage.max_resident_bytes,
        minor_faults: usage.minor_faults,
        major_faults: usage.major_faults,
        block_read_bytes: usage.block_read_bytes,
        block_written_bytes: usage.block_written_bytes,
        voluntary_switches: usage.voluntary_switches,
        involuntary_switches: usage.involuntary_switches,
        peak_tree_bytes: usage.peak_tree_bytes,
        peak_tree_pids: usage.peak_tree_pids,
    }
}
