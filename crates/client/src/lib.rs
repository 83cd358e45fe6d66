//! The client of exec-server. [`ExecServerClient`] stays usable when its connection is lost: it reconnects, resumes its session, and goes on
//! with processes, files and watches. The order in which the modules may import each other is in `ARCHITECTURE.md`.
//!
//! ```no_run
//! # async fn example() -> Result<(), client::ExecServerError> {
//! use client::{ExecServerClient, RemoteExecServerConnectArgs, StartParams};
//!
//! let args = RemoteExecServerConnectArgs::new("ws://127.0.0.1:7000", "my-harness");
//! let client = ExecServerClient::connect_websocket(args).await?;
//! let process = client.start(StartParams::new("p1", ["uname", "-a"], "file:///".parse().unwrap())).await?;
//! let output = process.wait_with_output().await?;
//! assert!(output.status.success());
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod accepted;
mod client;
mod client_core;
mod connector;
mod discovery;
mod environments;
mod error;
mod file_calls;
mod files;
mod handshake;
mod http;
mod inbound;
mod job_runner;
mod jobs;
mod metadata_flights;
mod options;
mod path_map;
mod ports;
mod process;
mod records;
mod rpc;
mod sandbox_policy;
mod search;
mod shared_environments;
mod supervisor;
mod unified;
mod watch;

pub use accepted::{AcceptedSockets, accepted};
pub use client::ExecServerClient;
pub use client_core::ConnectionState;
pub use connector::{
    ChildConnector, Companion, Connecting, RelayConnector, RelayConnectorError, ServerConnection, ServerConnector,
    SshConnector, UrlConnector,
};
pub use environments::{
    EntryProblem, EnvironmentLocation, EnvironmentSpec, Environments, EnvironmentsError, EnvironmentsSource,
    HomeAndVariables, Problem, RemoteCredential, RemoteLocation,
};
pub use error::ExecServerError;
pub use files::{
    CopyOptions, CreateDirectoryOptions, ExecutorFileSystem, ExtentReader, FileChunk, FileFuture, FileOptions,
    FileReader, FileSystemError, FileWriter, LocalFileSystem, NewMetadata, RemoteFileSystem, RemoveOptions,
    RenameOptions, SandboxedFileSystem, WriteStreamOptions,
};
pub use http::{HttpAnswering, HttpClient, HttpResponseBodyStream};
pub use options::{ExecServerClientConnectOptions, RemoteExecServerConnectArgs};
pub use path_map::{PathMap, PathMapError};
pub use ports::{PortReader, PortStream, PortWriter};
pub use process::{EventsLagged, ExecProcess, ExecProcessEventReceiver, ProcessEvents, ProcessReader, ProcessStdin};
pub use protocol::fs::{
    ChangeKind, DirectoryEntry, FileChange, FileMetadata, FileTime, FoundFile, FoundLine, MatchRange, SearchCase,
    SearchError, SearchParams, SearchResult, WalkEntry, WalkFailure, WalkKind, WalkOptions, WalkResult,
};
pub use protocol::{
    Capabilities, CapabilityFile, CapabilityRoot, ConfigLayer, ConfigLayers, ConfigReadParams, ConfigReadResult,
    DiscoveredPlugin, DiscoveredRoot, DiscoveredSkill, DomainPermission, EnvInherit, EnvPolicy, EnvironmentInfo,
    EnvironmentStatus, ExitResources, HttpHeader, HttpRequestParams, HttpResponse, LimitName, LimitReached,
    ManagedNetwork, MemoryScope, NetworkAuditMetadata, NetworkDecision, NetworkDecisionNotification,
    NetworkDecisionScope, NetworkDecisionSource, NetworkMode, NetworkPolicyRequest, NetworkPolicyVerdict,
    NetworkProtocol, NetworkProxyConfig, NetworkProxyLaunch, PathUri, ProcessId, ProcessLimits, ProcessState,
    ProcessSummary, ProcessUsage, ReadParams, ReadResult, RedirectPolicy, SandboxContext, SandboxType, SessionId,
    Signal, StartParams, StartResult, Stream, TerminateResult, UnixSocketPermission, WindowSize, WriteId,
    WriteResult, WriteStatus,
};
// The same types under the names that the published client of Codex has for them.
pub use protocol::{
    ReadResult as ReadResponse, StartParams as ExecParams, StartResult as ExecResponse, WriteResult as WriteResponse,
};
pub use records::{
    Changes, DecidingNetwork, ExecProcessEvent, ExitStatus, NetworkPolicyDecider, ProcessOutput, ProcessOutputChunk,
};
pub use recovery::{Backoff, WhenRecovering};
pub use remote::{
    ConnectionPath, DirectPolicy, Harness, HarnessError, HarnessSettings, Registry, RegistryError,
    UnknownDirectPolicy,
};
pub use sandbox_policy::{RelativePolicyPath, SandboxPolicy};
pub use search::Search;
pub use shared_environments::{
    InvalidReport, ProvisioningReport, ReportEffect, SharedEnvironment, SharedEnvironmentStatus, SharedEnvironments,
};
pub use transport::{ConnectOptions, MessageStream, TlsRoots};
pub use unified::{
    Abridged, Approval, ApprovalDecider, ApprovalRequest, CommandCompletion, CommandSpec, Completions, Deciding,
    ExecCommandRequest, ExecCommandResponse, ExecSessionId, HeadTail, StdinOutcome, UnifiedExec, UnifiedExecError,
    UnifiedExecOptions, WriteStdinRequest,
};
pub use watch::Watch;
