//! Extension `processLimits`: what a process may use, what it has used, and which limit it has reached.

use serde::{Deserialize, Serialize};

use crate::object_only::objects_only;

/// The member `limits` of `process/start`. Every limit is at least 1; absent or null: no limit. A server that cannot enforce a limit
/// refuses the start. Even without any limit, the exit event then carries the usage of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct ProcessLimits {
    /// Bytes of memory: of the process and its descendants together, or of the address space of each of them. `memoryLimitScope`
    /// in the answer says which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Seconds of CPU time of each process. After that it gets SIGXCPU, and one second of CPU time later SIGKILL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<u64>,
    /// Number of processes and threads that the process and its descendants may be at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    /// Number of descriptors that each process may have open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// Bytes that each file may have that a process writes. A write beyond that gets SIGXFSZ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_size_bytes: Option<u64>,
}

/// What `memoryBytes` limits on the machine of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MemoryScope {
    /// The memory of the process and all its descendants together.
    Tree,
    /// The address space of the process, and of each descendant on its own.
    Process,
    /// Something that this version does not know.
    #[serde(other)]
    Unknown,
}

/// What a process has used until it exited. Descendants are included if a process of them was waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessUsage {
    /// Microseconds of CPU time in programs.
    #[serde(default)]
    pub user_micros: u64,
    /// Microseconds of CPU time in the kernel.
    #[serde(default)]
    pub system_micros: u64,
    /// The most memory that a single process had resident. Absent if it is not known, as for processes that had less than the server
    /// itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_resident_bytes: Option<u64>,
    /// Page faults that needed no IO.
    #[serde(default)]
    pub minor_faults: u64,
    /// Page faults that needed IO.
    #[serde(default)]
    pub major_faults: u64,
    /// Bytes read from block devices, which leaves out what was cached.
    #[serde(default)]
    pub block_read_bytes: u64,
    /// Bytes written to block devices.
    #[serde(default)]
    pub block_written_bytes: u64,
    /// How many times a process waited for something.
    #[serde(default)]
    pub voluntary_switches: u64,
    /// How many times a process had to let another one run.
    #[serde(default)]
    pub involuntary_switches: u64,
    /// The most memory that the process and all its descendants had together. Absent if `memoryBytes` and `pids` were not limited
    /// or the machine does not count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_tree_bytes: Option<u64>,
    /// The most processes and threads that there were together. Absent as `peakTreeBytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_tree_pids: Option<u64>,
}

/// One of the members of [`ProcessLimits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LimitName {
    /// The member `memoryBytes`.
    MemoryBytes,
    /// The member `cpuSeconds`.
    CpuSeconds,
    /// The member `pids`.
    Pids,
    /// The member `openFiles`.
    OpenFiles,
    /// The member `fileSizeBytes`.
    FileSizeBytes,
    /// A limit that this version does not know.
    #[serde(other)]
    Unknown,
}

impl LimitName {
    /// The name of the member.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MemoryBytes => "memoryBytes",
            Self::CpuSeconds => "cpuSeconds",
            Self::Pids => "pids",
            Self::OpenFiles => "openFiles",
            Self::FileSizeBytes => "fileSizeBytes",
            Self::Unknown => "unknown",
        }
    }
}

/// The limit that a process has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitReached {
    /// Which limit it was.
    pub limit: LimitName,
    /// True if the limit ended the process. False if something was refused to the process or a descendant, and the process
    /// ended in another way.
    pub ended: bool,
}

/// The part of an exit that belongs to the limits of the process. It travels as the members `usage` and `limitReached`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExitResources {
    /// What the process has used. None if it was started without `limits`.
    pub usage: Option<ProcessUsage>,
    /// The limit that the process has reached. None if it has reached none, or if that is not known.
    pub limit_reached: Option<LimitReached>,
}

impl ExitResources {
    /// The exit of a process that was started without `limits`.
    pub const NONE: Self = Self { usage: None, limit_reached: None };
}

objects_only!(ProcessLimits);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_were_not_given_are_absent_and_null_means_the_same() {
        let limits: ProcessLimits = serde_json::from_str(r#"{"pids":null,"cpuSeconds":2,"new":true}"#).unwrap();
        assert_eq!(limits, ProcessLimits { cpu_seconds: Some(2), ..ProcessLimits::default() });
        assert_eq!(serde_json::to_string(&limits).unwrap(), r#"{"cpuSeconds":2}"#);
        for wrong in [r#"{"pids":-1}"#, r#"{"pids":1.5}"#, r#"{"pids":"1"}"#, r#"{"pids":18446744073709551616}"#] {
            assert!(serde_json::from_str::<ProcessLimits>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_limit_of_a_later_server_can_be_read() {
        let reached: LimitReached = serde_json::from_str(r#"{"limit":"diskBytes","ended":true}"#).unwrap();
        assert_eq!(reached, LimitReached { limit: LimitName::Unknown, ended: true });
        for name in [LimitName::MemoryBytes, LimitName::CpuSeconds, LimitName::Pids, LimitName::FileSizeBytes] {
            assert_eq!(serde_json::to_value(name).unwrap(), name.as_str());
        }
    }
}
