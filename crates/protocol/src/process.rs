//! Params and results of `process/*` and the events of a process.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{Base64Bytes, PathUri, ProcessId, ShellInfo, WriteId};

/// Params of `process/start`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(expecting = "struct ExecParams", rename_all = "camelCase")]
pub struct StartParams {
    /// Chosen by the client, unique within the session.
    pub process_id: ProcessId,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Where it starts.
    pub cwd: PathUri,
    /// The child's environment, or what is laid over the result of `envPolicy`.
    pub env: BTreeMap<String, String>,
    /// A terminal instead of pipes.
    pub tty: bool,
    /// A pipe for stdin instead of `/dev/null`; a terminal always takes input.
    #[serde(default)]
    pub pipe_stdin: bool,
    /// What the child sees as its own name.
    #[serde(default)]
    pub arg0: Option<String>,
    /// How to derive the child's environment from the server's; none means `env` alone.
    #[serde(default)]
    pub env_policy: Option<EnvPolicy>,
    /// Extension `processResize`: the first size of the terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<WindowSize>,
    /// Extension `processTimeout`: kill the process after so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Extension `processUmask`: the permissions that files of the process do not get, at most 0o777; those of the server if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub umask: Option<u32>,
    /// Extension `processFlow`: its events wait from the first one on, for another client of the session or until they are released.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// The sandbox the client requires. Kept as it came; present means required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Box<RawValue>>,
    /// Whether network access must go through the managed proxy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub enforce_managed_network: bool,
    /// Facts about the managed network for the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_network: Option<Box<RawValue>>,
    /// A proxy to launch for the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_proxy: Option<Box<RawValue>>,
    /// Restore the state that the profile of a shell leaves, instead of running the profile again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell_snapshot: Option<ShellSnapshot>,
}

impl StartParams {
    /// A process on pipes, without stdin, in the server's own environment.
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

/// A state of a shell that several starts share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShellSnapshot {
    /// Chosen by the client: starts with the same one may share.
    pub scope_id: String,
    /// Whose state it is.
    pub shell: ShellInfo,
}

/// Rows and columns of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub cols: u16,
}

/// How the child's environment is derived from the server's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvPolicy {
    /// What to start from.
    pub inherit: EnvInherit,
    /// Keep names that look like secrets (`*KEY*`, `*SECRET*`, `*TOKEN*`).
    pub ignore_default_excludes: bool,
    /// Patterns of names to drop.
    pub exclude: Vec<String>,
    /// Variables to add.
    pub set: BTreeMap<String, String>,
    /// If not empty, only names that match one of these stay.
    pub include_only: Vec<String>,
}

impl EnvPolicy {
    /// Everything the server itself has in its environment, but for what it always keeps to itself.
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

/// What of the server's environment a child starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EnvInherit {
    /// The few variables every program expects.
    Core,
    /// Everything.
    All,
    /// Nothing.
    None,
}

/// Result of `process/start`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartResult {
    /// As given.
    pub process_id: ProcessId,
    /// How the process is confined; an old server does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_type: Option<SandboxType>,
}

/// What confines a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SandboxType {
    /// Nothing.
    None,
    /// The sandbox of macOS.
    MacosSeatbelt,
    /// Namespaces and seccomp.
    LinuxSeccomp,
    /// A restricted token.
    WindowsRestrictedToken,
}

/// Where output came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// The pipe at file descriptor 1.
    Stdout,
    /// The pipe at file descriptor 2.
    Stderr,
    /// The terminal.
    Pty,
}

impl Stream {
    /// Its word on the wire.
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
    /// Which process.
    pub process_id: ProcessId,
    /// Only events after this one; none means from the beginning.
    #[serde(default)]
    pub after_seq: Option<u64>,
    /// Stop before a chunk that would exceed this; the first chunk always comes.
    #[serde(default)]
    pub max_bytes: Option<u64>,
    /// How long to wait for something to return.
    #[serde(default)]
    pub wait_ms: Option<u64>,
    /// Extension `readParts`: the first chunk may come in part, so that `max_bytes` holds for it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<ChunkPart>,
}

impl ReadParams {
    /// Everything that is retained after this event, now.
    pub fn after(process_id: ProcessId, seq: u64) -> Self {
        Self { process_id, after_seq: Some(seq), max_bytes: None, wait_ms: Some(0), part: None }
    }
}

/// How much of a chunk a reader has already. `{0, 0}`: nothing of any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkPart {
    /// Which chunk. It counts only if this is the first chunk that is retained after `afterSeq`.
    pub seq: u64,
    /// So many of its bytes are left out.
    pub offset: u64,
}

/// A piece of output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputChunk {
    /// Its place among the events of the process.
    pub seq: u64,
    /// Where it came from.
    pub stream: Stream,
    /// The bytes.
    pub chunk: Base64Bytes,
}

/// Result of `process/read`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadResult {
    /// Retained output after `afterSeq`, in order.
    pub chunks: Vec<OutputChunk>,
    /// `nextSeq - 1` is the next `afterSeq`.
    pub next_seq: u64,
    /// Whether the process has exited.
    pub exited: bool,
    /// Its exit code, if so.
    pub exit_code: Option<i32>,
    /// Whether its streams have ended too: nothing will follow.
    pub closed: bool,
    /// Never set by a server; clients put a lost connection here.
    pub failure: Option<String>,
    /// Whether the sandbox refused something; an old server does not say.
    #[serde(default)]
    pub sandbox_denied: bool,
    /// Extension `readGaps`: the oldest output still retained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_seq: Option<u64>,
    /// Extension `readGaps`: the place of the exit among the events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_seq: Option<u64>,
    /// Extension `processTimeout`: the server ended the process because its time was over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// Extension `readGaps`: output after `afterSeq` is no longer retained.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gap: bool,
    /// Extension `readGaps`, with `gap`: how many bytes of output stood before `oldestSeq`. A reader that holds n
    /// bytes has lost the difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_bytes: Option<u64>,
    /// Extension `readParts`: the only chunk is not whole, and `nextSeq` is its own number.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// Params of `process/write`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteParams {
    /// Which process.
    pub process_id: ProcessId,
    /// What to write.
    pub chunk: Base64Bytes,
    /// Given, a repetition of the same write is ignored.
    #[serde(default)]
    pub write_id: Option<WriteId>,
}

/// Result of `process/write`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteResult {
    /// What became of it.
    pub status: WriteStatus,
    /// The write had been taken before, under the same id, and was not taken again. Extension `processWriteQuery`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WriteStatus {
    /// It goes to the process, or already did.
    Accepted,
    /// There is no such process.
    UnknownProcess,
    /// The process is being started; other servers say this.
    Starting,
    /// The process has no stdin, or can no longer take any.
    StdinClosed,
}

/// Params of `process/signal`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignalParams {
    /// Which process.
    pub process_id: ProcessId,
    /// Which signal.
    pub signal: Signal,
}

/// Signals by name; all but `interrupt` are the extension `processSignals`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Signal {
    /// SIGINT.
    Interrupt,
    /// SIGHUP.
    Hangup,
    /// SIGQUIT.
    Quit,
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
    /// SIGUSR1.
    User1,
    /// SIGUSR2.
    User2,
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    Continue,
}

/// Params of methods that only name a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "struct TerminateParams", rename_all = "camelCase")]
pub struct ProcessIdParams {
    /// Which process.
    pub process_id: ProcessId,
}

/// Result of `process/terminate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminateResult {
    /// Whether the process had not exited yet.
    pub running: bool,
}

/// Params of `process/resize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResizeParams {
    /// Which process.
    pub process_id: ProcessId,
    /// The new size.
    #[serde(flatten)]
    pub size: WindowSize,
}

/// Params of `process/flow`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessFlowParams {
    /// Which process.
    pub process_id: ProcessId,
    /// Whether its events wait.
    pub paused: bool,
}

/// The empty object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoResult {}

/// Result of `process/list`. An object, so that members can be added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListResult {
    /// Every process of the session, in the order of their starts.
    pub processes: Vec<ProcessSummary>,
}

/// One entry of `process/list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessSummary {
    /// As given at its start.
    pub process_id: ProcessId,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The operating system's number for it, once it has been started.
    pub pid: Option<u32>,
    /// When it was started, in milliseconds since 1970.
    pub started_at_ms: u64,
    /// How far it has come.
    pub state: ProcessState,
    /// Once it has exited.
    pub exit_code: Option<i32>,
    /// The next event's number.
    pub next_seq: u64,
    /// How many bytes it has written so far.
    pub output_bytes: u64,
    /// The oldest output still retained, if any is.
    pub oldest_seq: Option<u64>,
    /// Whether it has a terminal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tty: bool,
}

/// How far a process has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProcessState {
    /// Being started.
    Starting,
    /// Running.
    Running,
    /// Exited, but something still holds its streams.
    Exited,
    /// Exited, and its streams have ended.
    Closed,
}

/// Params of the notification `process/exited`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExitedNotification {
    /// Which process.
    pub process_id: ProcessId,
    /// Its place among the events of the process.
    pub seq: u64,
    /// 128+N after signal N.
    pub exit_code: i32,
    /// Whether the sandbox refused something; an old server does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_denied: Option<bool>,
    /// Extension `processTimeout`: the server ended it because its time was over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
}

/// Params of the notification `process/closed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClosedNotification {
    /// Which process.
    pub process_id: ProcessId,
    /// Always the last.
    pub seq: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_answer_tells_unknown_from_unsandboxed() {
        let unknown: StartResult = serde_json::from_str(r#"{"processId":"p"}"#).unwrap();
        let none: StartResult = serde_json::from_str(r#"{"processId":"p","sandboxType":"none"}"#).unwrap();
        assert_eq!((unknown.sandbox_type, none.sandbox_type), (None, Some(SandboxType::None)));
    }

    #[test]
    fn an_old_exit_event_does_not_say_whether_it_was_denied() {
        let exited: ExitedNotification = serde_json::from_str(r#"{"processId":"p","seq":1,"exitCode":0}"#).unwrap();
        assert_eq!(exited.sandbox_denied, None);
    }

    #[test]
    fn start_params_keep_proxy_and_network_facts_apart() {
        let json = r#"{"processId":"p","argv":["a"],"cwd":"file:///","env":{},"tty":false,
            "managedNetwork":{"loopbackPorts":[1]},"networkProxy":{"proxy":{}}}"#;
        let params: StartParams = serde_json::from_str(json).unwrap();
        let again = serde_json::to_string(&params).unwrap();
        assert!(again.contains(r#""managedNetwork":{"loopbackPorts":[1]}"#), "{again}");
        assert!(again.contains(r#""networkProxy":{"proxy":{}}"#), "{again}");
        let bare = StartParams { managed_network: None, network_proxy: None, ..params };
        assert!(!serde_json::to_string(&bare).unwrap().contains("network"));
    }
}
