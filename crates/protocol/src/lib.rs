//! Everything that travels on the wire: envelope, method table, params and results, file URIs, error codes.
//!
//! The crate has values and their encoding only. It opens no socket, reads no clock and starts no process, so client and server
//! share it unchanged. Limits that a server can configure are checked by the server, not here.
//!
//! Start with the method table in `method.rs`: it names the params and the result of every method. `envelope.rs`
//! decodes and encodes messages. `output.rs`, `fs/block.rs` and `tcp/data.rs` have faster code for the messages that
//! carry most bytes: output of processes, blocks of files and bytes of TCP streams.
//!
//! The *published protocol* is that of `codex exec-server`. An *extension* is a method or a member that only this
//! implementation has; [`Capabilities`] tells a client which extensions the server offers.
#![forbid(unsafe_code)]

mod base64_bytes;
mod capability;
mod config;
mod envelope;
mod environment;
mod error;
pub mod fs;
mod http;
mod id;
mod initialize;
mod legacy;
mod limits;
mod method;
mod network_policy;
mod object_only;
mod output;
mod process;
mod pushed;
mod sandbox;
mod sandbox_denial;
mod shortened;
mod tcp;
mod uri;

pub use base64_bytes::{Base64Bytes, decode_base64, decode_base64_into, encode_base64_into, encoded_len};
pub use capability::{
    CapabilityFile, CapabilityRoot, DiscoverParams, DiscoverResult, DiscoveredPlugin, DiscoveredRoot, DiscoveredSkill,
};
pub use config::{ConfigLayer, ConfigLayers, ConfigReadParams, ConfigReadResult};
pub use envelope::{
    DecodeError, Incoming, MAX_DEPTH, MAX_VALUES, Notification, Request, Response, check_json, decode, decode_params,
    encode_base64_response, encode_error, encode_notification, encode_request, encode_response, sniff_id,
    sniff_method,
};
pub use environment::{Capabilities, EnvironmentInfo, EnvironmentStatus, ShellInfo};
pub use error::{ErrorCode, ErrorData, MAX_ERROR_TEXT_BYTES, WireError, error_kind};
pub use http::{
    BodyDelta, HttpCancelParams, HttpFlowParams, HttpHeader, HttpRequestParams, HttpResponse, PushedBodyDelta,
    RedirectPolicy,
};
pub use id::{ProcessId, RequestId, SessionId, WriteId};
pub use initialize::{InitializeParams, InitializeResult, SessionKeepParams, TakenOverNotification};
pub use legacy::{
    LegacyExecParams, LegacyExecResult, LegacyExited, LegacyTerminateParams, LegacyWriteParams, LegacyWriteResult,
};
pub use limits::{ExitResources, LimitName, LimitReached, MemoryScope, ProcessLimits, ProcessUsage};
pub use method::{Method, MethodFamily, Repeat, RequestOrder, TypedMethod, methods, notification, server_request};
pub use network_policy::{
    DomainPermission, MAX_POLICY_CLIENT_BYTES, MAX_POLICY_HOST_BYTES, MAX_POLICY_METHOD_BYTES,
    MAX_POLICY_PROCESS_ID_BYTES, MAX_POLICY_REASON_BYTES, MAX_POLICY_TIMESTAMP_BYTES, ManagedNetwork,
    NetworkAuditMetadata, NetworkDecision, NetworkDecisionNotification, NetworkDecisionScope, NetworkDecisionSource,
    NetworkMode, NetworkPolicyParams, NetworkPolicyRequest, NetworkPolicyResult, NetworkPolicyVerdict,
    NetworkProtocol, NetworkProxyConfig, NetworkProxyLaunch, UnixSocketPermission,
};
pub use output::{OutputEvent, ProcessIdJson, recognise_output};
pub use process::{
    ChunkPart, ClosedNotification, EnvInherit, EnvPolicy, ExitedNotification, ListResult, NoResult, OutputChunk,
    ProcessFlowParams, ProcessIdParams, ProcessState, ProcessSummary, ReadParams, ReadResult, ResizeParams,
    SandboxType, ShellSnapshot, Signal, SignalParams, StartParams, StartResult, Stream, TerminateResult, WindowSize,
    WriteParams, WriteResult, WriteStatus,
};
pub use pushed::{PushedClose, PushedOutput};
pub use sandbox::{
    FileSystemPermissions, MissingPathBehavior, NetworkAccess, PathAccess, PermissionEntry, PermissionPath,
    Permissions, ProxySettingsMode, SandboxContext, SpecialPath, WindowsSandboxLevel,
};
pub use sandbox_denial::SandboxDenial;
pub use shortened::shortened;
pub use tcp::{
    MAX_TCP_CHUNK_BYTES, PushedTcpData, ReceivedBytes, SendCredit, StreamIdJson, StreamViolation,
    TcpCloseNotification, TcpConnectParams, TcpConnectResult, TcpData, TcpFlowNotification, recognise_tcp_data,
};
pub use uri::{PathUri, PathUriError};
