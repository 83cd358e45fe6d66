//! Params and results of the `process/*` methods, and the events of a process except its output.
//!
//! Start with [`StartParams`] and [`ReadResult`]. Output notifications are written by `output.rs`, because they are
//! the hot path, and decoded by `pushed.rs`. This file says what members a message has and what an absent member
//! means. The server's handlers check the values. A member of an *extension* may be used only if the server offers
//! that extension in `environment/info`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::object_only::objects_only;
use crate::sandbox_denial::kept_denials;
use crate::{
    Base64Bytes, ExitResources, LimitReached, ManagedNetwork, MemoryScope, NetworkProxyLaunch, PathUri, ProcessId,
    ProcessLimits, ProcessUsage, SandboxDenial, ShellInfo, WriteId,
};

/// Params of `process/start`.
#[derive(Clone, Debug, Serialize, Deserialize)]
// `expecting` is the name of this type in errors about params that do not decode, as the published protocol has it.
#[serde(expecting = "struct ExecParams", rename_all = "camelCase")]
pub struct StartParams {
    /// Chosen by the client. Unique within the session for as long as the server knows the process: until it has closed and its
    /// retention time is over. A second start with the same id is refused.
    pub process_id: ProcessId,
    /// The program and its arguments; must not be empty. A program name without a slash is searched on the child's `PATH`.
    pub argv: Vec<String>,
    /// Working directory of the process. The start fails if the directory cannot be opened.
    pub cwd: PathUri,
    /// Without `envPolicy`, the whole environment of the child. With `envPolicy`, these variables are added to the
    /// variables that the policy selects, and override them.
    pub env: BTreeMap<String, String>,
    /// True: the process gets a terminal for stdin, stdout and stderr. False: it gets pipes.
    pub tty: bool,
    /// True: stdin is a pipe that `process/write` fills. False, or absent: stdin is `/dev/null`. Has no effect with `tty`,
    /// because a terminal always takes input.
    #[serde(default)]
    pub pipe_stdin: bool,
    /// The `argv[0]` that the program sees. Absent or null: the first element of `argv`.
    #[serde(default)]
    pub arg0: Option<String>,
    /// How to derive the child's environment from the server's. Absent or null: nothing is inherited, and `env` is the whole
    /// environment.
    #[serde(default)]
    pub env_policy: Option<EnvPolicy>,
    /// Extension `processResize`: the initial size of the terminal. Absent: 24 rows and 80 columns. Has no effect without
    /// `tty`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<WindowSize>,
    /// Extension `processTimeout`: milliseconds after which the server kills the process and its descendants. Must not be 0.
    /// Absent: no timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Extension `processLimits`: what the process and its descendants may use. Absent: no limits, and the exit carries no usage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ProcessLimits>,
    /// Extension `processUmask`: the umask of the process, at most `0o777`. Absent: the umask of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub umask: Option<u32>,
    /// Extension `processFlow`: true starts the process with its events paused. They are sent after `process/flow`
    /// with `paused: false`, or over the next connection that resumes the session. A connection that only observes
    /// the session (`observe` of `initialize`) must set this to true.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// The sandbox that the client requires, as JSON of a [`SandboxContext`](crate::SandboxContext). The handler decodes it,
    /// and refuses the start if it cannot enforce the sandbox. Absent: no sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Box<RawValue>>,
    /// Whether all network access of the process must go through the managed network: a proxy that decides which
    /// hosts the process may reach. The server refuses true without `networkProxy`. Absent: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub enforce_managed_network: bool,
    /// What the sandbox must know about the managed network, for example the ports of its proxy. The server accepts
    /// this and does not use it. Absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_network: Option<ManagedNetwork>,
    /// Configuration of a network proxy that the server launches for the process. It needs a sandbox. Absent: no proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_proxy: Option<NetworkProxyLaunch>,
    /// Capability `shellSnapshotV2`: run the command with the state that a login shell's profile leaves, captured once, instead
    /// of running the profile again. Applies only to commands of the form `[shell, "-lc", command, …]`. Absent: the command
    /// runs as given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell_snapshot: Option<ShellSnapshot>,
}

impl StartParams {
    /// A process on pipes, with `/dev/null` as stdin, that inherits the server's environment.
    pub fn new(
        process_id: impl Into<ProcessId>,
        argv: impl IntoIterator<Item = impl Into<String>>,
        cwd: PathUri,
    ) -> Self {
        Self {
            process_id: process_id.into(),
            argv: argv.into_iter().map(Into::into).collect(),
            cwd,
            env: BTreeMap::new(),
            tty: false,
            pipe_stdin: false,
            arg0: None,
            env_policy: Some(EnvPolicy::inherit_all()),
            size: None,
            timeout_ms: None,
            limits: None,
            umask: None,
            paused: false,
            sandbox: None,
            enforce_managed_network: false,
            managed_network: None,
            network_proxy: None,
            shell_snapshot: None,
        }
    }
}

/// Which captured shell state a start may share with other starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct ShellSnapshot {
    /// Chosen by the client, 1 to 256 bytes. Only starts with the same scope, shell, `cwd` and `envPolicy` share a snapshot.
    pub scope_id: String,
    /// The shell whose profile is captured. Its `name` must be `bash`, `zsh` or `sh`.
    pub shell: ShellInfo,
}

/// Size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct WindowSize {
    /// Number of lines.
    pub rows: u16,
    /// Number of characters in a line.
    pub cols: u16,
}

/// How the child's environment is derived from the server's. All members are required, and they apply in this order: `inherit`,
/// the excludes, `set`, `includeOnly`. Patterns know `*` and `?`, ignore case and match whole names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct EnvPolicy {
    /// Which variables of the server the child starts with.
    pub inherit: EnvInherit,
    /// True keeps variables whose names look like secrets: `*KEY*`, `*SECRET*` and `*TOKEN*`. False removes them.
    pub ignore_default_excludes: bool,
    /// Patterns of names to remove. Empty: nothing more is removed.
    pub exclude: Vec<String>,
    /// Variables to add after the excludes. They override inherited ones.
    pub set: BTreeMap<String, String>,
    /// Patterns of names to keep; every other variable is removed, also those of `set`. Empty: all are kept.
    pub include_only: Vec<String>,
}

impl EnvPolicy {
    /// The server's whole environment, except the few variables, mostly credentials, that the server gives to no
    /// child.
    pub fn inherit_all() -> Self {
        Self {
            inherit: EnvInherit::All,
            ignore_default_excludes: true,
            exclude: Vec::new(),
            set: BTreeMap::new(),
            include_only: Vec::new(),
        }
    }
}

/// Which variables of the server a child starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EnvInherit {
    /// `PATH`, `SHELL`, `TMPDIR`, `TEMP`, `TMP`, `HOME`, `LANG`, `LC_ALL`, `LC_CTYPE`, `LOGNAME` and `USER`.
    Core,
    /// Every variable of the server, except the few that the server gives to no child.
    All,
    /// No variable of the server.
    None,
}

/// Result of `process/start`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartResult {
    /// The id from the request.
    pub process_id: ProcessId,
    /// What confines the process. Absent if an older server answers: then the client cannot know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_type: Option<SandboxType>,
    /// Extension `processLimits`: what `limits.memoryBytes` applies to. Absent if the memory is not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_scope: Option<MemoryScope>,
}

/// Which mechanism confines a process. This server answers only `none` and `linuxSeccomp`, the latter also for Landlock; the
/// others come from other implementations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SandboxType {
    /// Nothing confines the process.
    None,
    /// The Seatbelt sandbox of macOS.
    MacosSeatbelt,
    /// Namespaces and a seccomp filter on Linux.
    LinuxSeccomp,
    /// A restricted token on Windows.
    WindowsRestrictedToken,
}

/// Where a piece of output came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// The pipe at file descriptor 1 of the process.
    Stdout,
    /// The pipe at file descriptor 2 of the process.
    Stderr,
    /// The terminal, which carries stdout and stderr together.
    Pty,
}

impl Stream {
    /// The value of the member `stream`: `stdout`, `stderr` or `pty`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Pty => "pty",
        }
    }
}

/// Params of `process/read`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadParams {
    /// The process to read. One that the session does not know is an error of the kind `unknownProcess`.
    pub process_id: ProcessId,
    /// Number of the last event that the client has; only later output is returned. Absent or null: 0, which returns
    /// all output that is retained.
    #[serde(default)]
    pub after_seq: Option<u64>,
    /// Limit for the bytes of output in the answer. The answer ends before the chunk that would exceed it, but always has at
    /// least one chunk if there is any. Absent or null: no limit but the size of a message.
    #[serde(default)]
    pub max_bytes: Option<u64>,
    /// Milliseconds to wait for output, exit or close if there is nothing to return yet. The server waits for its `--max-wait`
    /// at most. Absent, null or 0: answer at once.
    #[serde(default)]
    pub wait_ms: Option<u64>,
    /// Extension `readParts`: allows the server to return a part of the first chunk, so that `maxBytes` holds for that chunk
    /// too. Absent: chunks are returned whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<ChunkPart>,
}

impl ReadParams {
    /// Reads everything that is retained after the event `seq`, without waiting.
    pub fn after(process_id: ProcessId, seq: u64) -> Self {
        Self { process_id, after_seq: Some(seq), max_bytes: None, wait_ms: Some(0), part: None }
    }
}

/// How much of a chunk a reader already has. Both members are 0 if the reader has no part of any chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct ChunkPart {
    /// Number of the chunk. The whole `part` has no effect unless this is the first retained chunk after `afterSeq`.
    pub seq: u64,
    /// Number of bytes at the start of the chunk that the reader has. The answer leaves them out.
    pub offset: u64,
}

/// A chunk of output in the answer to `process/read`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputChunk {
    /// Sequence number of this event. Output, exit and close of a process share one sequence, which starts at 1.
    pub seq: u64,
    /// The stream that the process wrote to.
    pub stream: Stream,
    /// The bytes that the process wrote. With `partial`, some of them.
    pub chunk: Base64Bytes,
}

/// Result of `process/read`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadResult {
    /// Retained output after `afterSeq`, in the order of `seq`. Empty if there is none.
    pub chunks: Vec<OutputChunk>,
    /// The next read passes `nextSeq - 1` as `afterSeq`. If the size of the answer is limited, by `maxBytes` or
    /// because more output is retained than fits into a message, and the answer has chunks, this is the number after
    /// the last chunk. Otherwise it is the number after the last event so far, exit and close included.
    pub next_seq: u64,
    /// Whether the process has exited. Descendants may still hold its streams.
    pub exited: bool,
    /// Exit code of the process, or 128+N after signal N. Null until the process has exited.
    pub exit_code: Option<i32>,
    /// Whether the process has exited and its streams have ended, so that no event follows.
    pub closed: bool,
    /// A server always sends null. Clients put the reason of a lost connection here for their own callers.
    pub failure: Option<String>,
    /// Whether the sandbox refused something. An older server does not send this member; then it is read as false.
    #[serde(default)]
    pub sandbox_denied: bool,
    /// Extension `sandboxDenials`: what the sandbox has refused until the exit, as far as the server knows. Absent: nothing is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "kept_denials")]
    pub sandbox_denials: Vec<SandboxDenial>,
    /// Extension `readGaps`: number of the oldest output that is still retained. Absent if none is, or from an older server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_seq: Option<u64>,
    /// Extension `readGaps`: sequence number of the exit. Absent until the process has exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_seq: Option<u64>,
    /// Extension `processTimeout`: true if the server killed the process because its `timeoutMs` was over. Absent: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// Extension `processLimits`: what the process has used. Absent until the process has exited, and if it was started without `limits`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<ProcessUsage>,
    /// Extension `processLimits`: the limit that the process has reached, as far as the server knows. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_reached: Option<LimitReached>,
    /// Extension `readGaps`: true if some output after `afterSeq` is no longer retained. Absent: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gap: bool,
    /// Extension `readGaps`, only with `gap`: number of bytes that the process wrote before the output `oldestSeq`. A
    /// reader that has received n bytes of them has lost `droppedBytes - n` bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_bytes: Option<u64>,
    /// Extension `readParts`: true if the only chunk of the answer is not complete. `nextSeq` is then the number of that chunk.
    /// Absent: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

impl ReadResult {
    /// The members of the extension `processLimits`.
    pub fn resources(&self) -> ExitResources {
        ExitResources { usage: self.usage, limit_reached: self.limit_reached }
    }
}

/// Params of `process/write`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteParams {
    /// The process to write to. One that the session does not know is answered with the status `unknownProcess`.
    pub process_id: ProcessId,
    /// Bytes for stdin. With the extension `processWriteQuery`, an empty chunk writes nothing and asks whether `writeId` was
    /// taken.
    pub chunk: Base64Bytes,
    /// Makes the write safe to repeat: the server takes a write with the same id only once. Must not be empty. Absent or null:
    /// every request is a new write.
    #[serde(default)]
    pub write_id: Option<WriteId>,
}

/// Result of `process/write`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteResult {
    /// Whether the server took the bytes.
    pub status: WriteStatus,
    /// Extension `processWriteQuery`: true if an earlier request with the same `writeId` was taken, so that this one wrote
    /// nothing. Absent: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

/// What the server did with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WriteStatus {
    /// The bytes are queued for the process, now or by an earlier request with the same `writeId`.
    Accepted,
    /// The session has no process of this id.
    UnknownProcess,
    /// The process is still being started. Only other servers answer this; ours lets the write wait for the start.
    Starting,
    /// The process has no stdin, has closed it or has exited, or an earlier request has closed it.
    StdinClosed,
}

/// Params of `process/signal`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignalParams {
    /// The process to signal. One that is unknown or has exited is no error.
    pub process_id: ProcessId,
    /// The signal to send. [`Signal`] says which processes get it.
    pub signal: Signal,
}

/// Signals by their names on the wire. All but `interrupt` are the extension `processSignals`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Signal {
    /// `SIGINT` to the process group, or with a terminal to the foreground job of the terminal.
    Interrupt,
    /// `SIGHUP` to the process group.
    Hangup,
    /// `SIGQUIT` to the process group, or with a terminal to the foreground job of the terminal.
    Quit,
    /// `SIGTERM` to the process group.
    Terminate,
    /// `SIGKILL` to the process group. `process/terminate` also reaches descendants that have left the group.
    Kill,
    /// `SIGUSR1` to the process group.
    User1,
    /// `SIGUSR2` to the process group.
    User2,
    /// `SIGSTOP` to the process group.
    Stop,
    /// `SIGCONT` to the process group.
    Continue,
}

/// Params of `process/terminate` and `process/closeStdin`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct TerminateParams", rename_all = "camelCase")]
pub struct ProcessIdParams {
    /// The process that the request is about. If it is unknown, `process/terminate` answers that it was not running, and
    /// `process/closeStdin` fails.
    pub process_id: ProcessId,
}

/// Result of `process/terminate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminateResult {
    /// Whether the process had not exited yet when the request was handled, or the request cancelled its start. False
    /// for an unknown process.
    pub running: bool,
}

/// Params of `process/resize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResizeParams {
    /// The process whose terminal changes its size. A process without a terminal is an error.
    pub process_id: ProcessId,
    /// The new size of the terminal. On the wire, `rows` and `cols` stand beside `processId`.
    #[serde(flatten)]
    pub size: WindowSize,
}

/// Params of `process/flow`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessFlowParams {
    /// The process whose events are paused or resumed. One that the session does not know is an error.
    pub process_id: ProcessId,
    /// True: the server sends no further event of this process over this connection. False: it sends the events that it held back, and
    /// continues.
    pub paused: bool,
}

/// The empty object `{}`, for methods that answer only whether they succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoResult {}

/// Result of `process/list`. It is an object and not an array, so that members can be added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListResult {
    /// Every process that the session still knows, in the order of their starts.
    pub processes: Vec<ProcessSummary>,
}

/// A process as `process/list` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessSummary {
    /// The id from its start.
    pub process_id: ProcessId,
    /// The command, shortened for display: at most 32 arguments of at most 200 bytes each. `…` stands for what was
    /// left out.
    pub argv: Vec<String>,
    /// Process id in the operating system. Null while the process is being started.
    pub pid: Option<u32>,
    /// When the process was started, in milliseconds since 1970.
    pub started_at_ms: u64,
    /// How far the process has come.
    pub state: ProcessState,
    /// Exit code, or 128+N after signal N. Null until the process has exited.
    pub exit_code: Option<i32>,
    /// Sequence number that the next event of the process will have.
    pub next_seq: u64,
    /// Number of bytes that the process has written so far, retained or not.
    pub output_bytes: u64,
    /// Sequence number of the oldest retained output. Null if none is retained.
    pub oldest_seq: Option<u64>,
    /// Whether the process has a terminal. Absent: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tty: bool,
}

/// How far a process has come, from its start to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProcessState {
    /// The process is being started and has no pid yet.
    Starting,
    /// The program runs.
    Running,
    /// The process has exited, but a descendant still holds its streams.
    Exited,
    /// The process has exited and its streams have ended.
    Closed,
}

/// Params of the notification `process/exited`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExitedNotification {
    /// The process that has exited.
    pub process_id: ProcessId,
    /// Sequence number of this event among the events of the process.
    pub seq: u64,
    /// Exit code of the process, or 128+N after signal N.
    pub exit_code: i32,
    /// Whether the sandbox refused something. Absent from an older server: then the client cannot know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_denied: Option<bool>,
    /// Extension `sandboxDenials`: what the sandbox has refused until the exit, as far as the server knows. Absent: nothing is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "kept_denials")]
    pub sandbox_denials: Vec<SandboxDenial>,
    /// Extension `processTimeout`: true if the server killed the process because its `timeoutMs` was over. Absent: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// Extension `processLimits`: what the process has used. Absent if it was started without `limits`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<ProcessUsage>,
    /// Extension `processLimits`: the limit that the process has reached, as far as the server knows. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_reached: Option<LimitReached>,
}

impl ExitedNotification {
    /// The members of the extension `processLimits`.
    pub fn resources(&self) -> ExitResources {
        ExitResources { usage: self.usage, limit_reached: self.limit_reached }
    }
}

/// Params of the notification `process/closed`: the process has exited and its streams have ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClosedNotification {
    /// The process that has closed.
    pub process_id: ProcessId,
    /// Sequence number of this event, which is always the last of the process.
    pub seq: u64,
}

objects_only!(ShellSnapshot, WindowSize, EnvPolicy, ChunkPart);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_sandbox_type_differs_from_the_type_none() {
        let unknown: StartResult = serde_json::from_str(r#"{"processId":"p"}"#).unwrap();
        let none: StartResult = serde_json::from_str(r#"{"processId":"p","sandboxType":"none"}"#).unwrap();
        assert_eq!((unknown.sandbox_type, none.sandbox_type), (None, Some(SandboxType::None)));
    }

    #[test]
    fn an_exit_event_of_an_old_server_does_not_say_whether_the_sandbox_refused_something() {
        let exited: ExitedNotification = serde_json::from_str(r#"{"processId":"p","seq":1,"exitCode":0}"#).unwrap();
        assert_eq!(exited.sandbox_denied, None);
    }

    #[test]
    fn managed_network_and_network_proxy_are_separate_members() {
        let json = r#"{"processId":"p","argv":["a"],"cwd":"file:///","env":{},"tty":false,
            "managedNetwork":{"loopbackPorts":[1]},"networkProxy":{"proxy":{}}}"#;
        let params: StartParams = serde_json::from_str(json).unwrap();
        let again = serde_json::to_string(&params).unwrap();
        assert!(again.contains(r#""managedNetwork":{"loopbackPorts":[1],"#), "{again}");
        assert!(again.contains(r#""networkProxy":{"proxy":{"enabled":false,"#), "{again}");
        let bare = StartParams { managed_network: None, network_proxy: None, ..params };
        assert!(!serde_json::to_string(&bare).unwrap().to_lowercase().contains("network"));
    }
}
