//! The table of all methods. Each line has the name of a method on the wire, its family, which earlier requests it
//! waits for, whether a client may repeat it, its params and its result. The names of notifications stand below the
//! table.
//!
//! The server dispatches requests by this table. The client makes calls with the types in [`methods`], one for each
//! line of the table. The table does not know how a method is handled. To add a method, add a line to `methods!`.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::fs::{
    CancelSearchParams, CloseParams, CommitParams, CopyParams, CreateDirectoryParams, CreateParams, ExtentsParams,
    ExtentsResult, FileMetadata, FileParams, HandleResult, LinkTarget, OpenParams, PathParams, PathResult,
    ReadBlockParams, ReadBlockResult, ReadDirectoryParams, ReadDirectoryResult, ReadFileResult, RemoveParams,
    RenameParams, SearchParams, SearchResult, SetMetadataParams, SymlinkParams, UnwatchParams, WalkParams,
    WalkResult, WatchParams, WriteBlockParams, WriteFileParams,
};
use crate::http::{HttpCancelParams, HttpFlowParams, HttpRequestParams, HttpResponse};
use crate::legacy::{
    LegacyExecParams, LegacyExecResult, LegacyTerminateParams, LegacyWriteParams, LegacyWriteResult,
};
use crate::process::{
    ListResult, NoResult, ProcessFlowParams, ProcessIdParams, ReadParams, ReadResult, ResizeParams, SignalParams,
    StartParams, StartResult, TerminateResult, WriteParams, WriteResult,
};
use crate::{
    ConfigReadParams, ConfigReadResult, DiscoverParams, DiscoverResult, EnvironmentInfo, EnvironmentStatus,
    InitializeParams, InitializeResult, SessionKeepParams, TcpConnectParams, TcpConnectResult,
};

/// The group a method belongs to. It decides the words in the error for a request that comes before the handshake is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodFamily {
    /// `initialize`, the only method that is allowed before the handshake.
    Handshake,
    /// `process/*`, `session/keep` and `command/exec*`.
    Exec,
    /// Only `environment/info`, which has its own words in errors.
    EnvironmentInfo,
    /// Only `environment/status`, which has its own words in errors.
    EnvironmentStatus,
    /// Only `environmentConfig/read`, which has its own words in errors.
    EnvironmentConfig,
    /// Only `capabilityRoots/discoverV1`, which has its own words in errors.
    CapabilityDiscovery,
    /// All methods that begin with `fs/`.
    Filesystem,
    /// All methods that begin with `http/`.
    Http,
    /// All methods that begin with `tcp/`.
    Tcp,
}

impl MethodFamily {
    /// The words for "…" in "client must call initialize before using … methods", a text that the published protocol
    /// fixes.
    pub const fn name_in_errors(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Exec => "exec",
            Self::EnvironmentInfo => "environment info",
            Self::EnvironmentStatus => "environment status",
            Self::EnvironmentConfig => "environment config",
            Self::CapabilityDiscovery => "capability discovery",
            Self::Filesystem => "filesystem",
            Self::Http => "http",
            Self::Tcp => "tcp",
        }
    }
}

/// Which earlier requests a request must wait for. Requests about different processes never wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOrder {
    /// Finishes before the next message is handled, because it changes what later requests may do.
    Inline,
    /// Waits for no other request.
    Unordered,
    /// Reserves its process id at once. Later requests about that id wait until the start is done.
    Start,
    /// Waits only for an unfinished start of the same process. No request waits for an `AfterStart` request, so a
    /// long `process/read` delays nothing.
    AfterStart,
    /// Like `AfterStart`, and also waits for earlier `Stdin` requests of the same process, so that input keeps its order.
    Stdin,
    /// Waits for earlier requests about the same file handle: a request for a block or for extents waits only for
    /// `fs/open` or `fs/create`; `fs/commit` and `fs/close` wait for every earlier request.
    Handle,
}

/// Whether a client may send a request again over its next connection, after the connection was lost between the
/// request and the answer. The client then does not know whether the server has handled the first request. A request
/// of which no byte was sent is always sent again, whatever this value says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// The client repeats the request: the method only reads, or two requests have the same effect and the same
    /// answer as one.
    Safe,
    /// The client does not repeat the request, because the second request would not have the same effect and answer
    /// as the first: it would send a second signal, fail because the first request succeeded, or answer about a state
    /// that the first request changed. The caller gets an error and decides.
    Never,
    /// The client repeats the request if the function in parentheses, which follows this word in the table, returns
    /// true for the params.
    IfParams,
}

/// A line of the table as a type, so that params and result of a call cannot be mixed up. The types are in [`methods`].
pub trait TypedMethod {
    /// The method that this type stands for.
    const METHOD: Method;
    /// What the client sends in the member `params`.
    type Params: Serialize;
    /// What a successful answer has in the member `result`.
    type Result: DeserializeOwned;

    /// Whether the client may send these params again after a lost connection. See [`Repeat`].
    fn may_repeat(params: &Self::Params) -> bool;
}

macro_rules! methods {
    // `@allows` yields the function that decides from the params whether a request may be repeated. A line of the
    // table without a function gets one that says no.
    (@allows) => { |_| false };
    (@allows $allows:expr) => { $allows };
    ($(
        $(#[$doc:meta])*
        $variant:ident = $name:literal, $family:ident, $order:ident, $repeat:ident $(($allows:expr))?, $params:ty => $result:ty;
    )*) => {
        /// A method that a client can call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Method {
            $($(#[$doc])* $variant,)*
        }

        impl Method {
            /// Every method, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The method with this name on the wire. None for any other name; upper and lower case differ.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The value of the member `method` in a request.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The group that decides the words of errors before the handshake.
            pub const fn family(self) -> MethodFamily {
                match self {
                    $(Self::$variant => MethodFamily::$family,)*
                }
            }

            /// Which earlier requests the server must finish before it handles this one.
            pub const fn order(self) -> RequestOrder {
                match self {
                    $(Self::$variant => RequestOrder::$order,)*
                }
            }

            /// Whether a client may send this request again after a lost connection.
            pub const fn repeat(self) -> Repeat {
                match self {
                    $(Self::$variant => Repeat::$repeat,)*
                }
            }

            /// Checks that two JSON texts decode as the params and the result of this method. For tests of documented examples.
            pub fn check_example(self, params: &str, result: &str) -> Result<(), serde_json::Error> {
                fn try_decode<T: Serialize + for<'de> Deserialize<'de>>(json: &str) -> Result<(), serde_json::Error> {
                    serde_json::from_str::<T>(json).map(drop)
                }
                match self {
                    $(Self::$variant => try_decode::<$params>(params).and_then(|()| try_decode::<$result>(result)),)*
                }
            }
        }

        /// The lines of the method table as types. See [`TypedMethod`].
        pub mod methods {
            $($(#[$doc])* #[derive(Clone, Copy, Debug)] pub struct $variant;)*
        }

        $(impl TypedMethod for methods::$variant {
            const METHOD: Method = Method::$variant;
            type Params = $params;
            type Result = $result;

            fn may_repeat(params: &Self::Params) -> bool {
                let allows: fn(&Self::Params) -> bool = methods!(@allows $($allows)?);
                match Method::$variant.repeat() {
                    Repeat::Safe => true,
                    Repeat::Never => false,
                    Repeat::IfParams => allows(params),
                }
            }
        })*
    };
}

methods! {
    /// Opens a new session or resumes one. Must be the first request of a connection.
    Initialize = "initialize", Handshake, Inline, Never, InitializeParams => InitializeResult;
    /// Starts a process on pipes or on a terminal.
    ProcessStart = "process/start", Exec, Start, Never, StartParams => StartResult;
    /// Reads retained output. If there is none, waits for events for as long as the params say.
    ProcessRead = "process/read", Exec, AfterStart, Safe, ReadParams => ReadResult;
    /// Writes to the stdin of a process. The server recognises a repeated write by its `writeId`.
    ProcessWrite = "process/write", Exec, Stdin, IfParams(|write| write.write_id.is_some()), WriteParams => WriteResult;
    /// Sends a signal to the process group of a process, or to the foreground job of its terminal.
    ProcessSignal = "process/signal", Exec, AfterStart, Never, SignalParams => NoResult;
    /// Kills a process and all its descendants, and answers when they are gone. A repeated request would answer that the process was not
    /// running.
    ProcessTerminate = "process/terminate", Exec, AfterStart, Never, ProcessIdParams => TerminateResult;
    /// Changes the size of the terminal of a process.
    ProcessResize = "process/resize", Exec, AfterStart, Safe, ResizeParams => NoResult;
    /// Closes stdin after the input that is queued. A terminal gets its end-of-file character instead.
    ProcessCloseStdin = "process/closeStdin", Exec, Stdin, Safe, ProcessIdParams => NoResult;
    /// Pauses or resumes the events of one process on this connection.
    ProcessFlow = "process/flow", Exec, AfterStart, Safe, ProcessFlowParams => NoResult;
    /// Lists every process that the session knows.
    ProcessList = "process/list", Exec, Unordered, Safe, () => ListResult;
    /// Changes how long the session is kept after its connection is lost.
    SessionKeep = "session/keep", Exec, Unordered, Safe, SessionKeepParams => NoResult;
    /// Returns shell, directories and capabilities of the server.
    EnvironmentInfo = "environment/info", EnvironmentInfo, Unordered, Safe, () => EnvironmentInfo;
    /// Returns whether the server is ready. A server that answers is always ready.
    EnvironmentStatus = "environment/status", EnvironmentStatus, Unordered, Safe, () => EnvironmentStatus;
    /// Returns the values of some keys in the configuration files on the machine of the server.
    EnvironmentConfigRead = "environmentConfig/read", EnvironmentConfig, Unordered, Safe, ConfigReadParams => ConfigReadResult;
    /// Finds plugins and skills below the directories in the params, and returns the files that describe them.
    CapabilityRootsDiscover = "capabilityRoots/discoverV1", CapabilityDiscovery, Unordered, Safe, DiscoverParams => DiscoverResult;
    /// Reads a whole file in one answer.
    FsReadFile = "fs/readFile", Filesystem, Unordered, Safe, FileParams => ReadFileResult;
    /// Opens a file that `fs/readBlock` reads. A repeated request would fail because the handle id is in use.
    FsOpen = "fs/open", Filesystem, Handle, Never, OpenParams => HandleResult;
    /// Reads a block of an open file.
    FsReadBlock = "fs/readBlock", Filesystem, Handle, Safe, ReadBlockParams => ReadBlockResult;
    /// Returns where an open file has data, so that holes need not be read.
    FsExtents = "fs/extents", Filesystem, Handle, Safe, ExtentsParams => ExtentsResult;
    /// Closes an open file, or cancels an upload.
    FsClose = "fs/close", Filesystem, Handle, Safe, CloseParams => NoResult;
    /// Writes a whole file in place, without protection against a half-written file.
    FsWriteFile = "fs/writeFile", Filesystem, Unordered, Safe, WriteFileParams => NoResult;
    /// Begins an upload, which replaces the file in one step at `fs/commit`. A repeated request would fail because the handle id is in use.
    FsCreate = "fs/create", Filesystem, Handle, Never, CreateParams => HandleResult;
    /// Writes a block of an upload.
    FsWriteBlock = "fs/writeBlock", Filesystem, Handle, Safe, WriteBlockParams => NoResult;
    /// Moves a complete upload to its path in one step.
    FsCommit = "fs/commit", Filesystem, Handle, Safe, CommitParams => NoResult;
    /// Creates a directory. Only a request with `recursive`, which is the default, creates missing parents, and
    /// succeeds if the directory exists.
    FsCreateDirectory = "fs/createDirectory", Filesystem, Unordered, IfParams(|create| create.recursive), CreateDirectoryParams => NoResult;
    /// Returns type, size, times and permissions of a file.
    FsGetMetadata = "fs/getMetadata", Filesystem, Unordered, Safe, FileParams => FileMetadata;
    /// Changes the permissions or the modification time of a file.
    FsSetMetadata = "fs/setMetadata", Filesystem, Unordered, Safe, SetMetadataParams => NoResult;
    /// Returns a path with every symbolic link resolved.
    FsCanonicalize = "fs/canonicalize", Filesystem, Unordered, Safe, PathParams => PathResult;
    /// Lists the entries of one directory.
    FsReadDirectory = "fs/readDirectory", Filesystem, Unordered, Safe, ReadDirectoryParams => ReadDirectoryResult;
    /// Lists a directory tree within limits.
    FsWalk = "fs/walk", Filesystem, Unordered, Safe, WalkParams => WalkResult;
    /// Removes a file, or a directory and by default everything in it. Only a request with `force`, which is the
    /// default, succeeds if the path does not exist.
    FsRemove = "fs/remove", Filesystem, Unordered, IfParams(|remove| remove.force), RemoveParams => NoResult;
    /// Copies a file, or a directory with everything in it.
    FsCopy = "fs/copy", Filesystem, Unordered, Never, CopyParams => NoResult;
    /// Moves a file or a directory within one file system in one step.
    FsRename = "fs/rename", Filesystem, Unordered, Never, RenameParams => NoResult;
    /// Returns the target of a symbolic link as the link states it.
    FsReadLink = "fs/readLink", Filesystem, Unordered, Safe, PathParams => LinkTarget;
    /// Creates a symbolic link.
    FsSymlink = "fs/symlink", Filesystem, Unordered, Never, SymlinkParams => NoResult;
    /// Begins to report changes of a file or a directory tree with `fs/changed`. With `afterSeq` it continues a watch that exists.
    FsWatch = "fs/watch", Filesystem, Unordered, IfParams(|watch| watch.after_seq.is_some()), WatchParams => NoResult;
    /// Ends a watch that `fs/watch` began.
    FsUnwatch = "fs/unwatch", Filesystem, Unordered, Safe, UnwatchParams => NoResult;
    /// Searches lines or file names, and reports matches with `fs/found`. A search ends with its connection.
    FsSearch = "fs/search", Filesystem, Unordered, Never, SearchParams => SearchResult;
    /// Cancels a search that is running or waiting.
    FsCancelSearch = "fs/cancelSearch", Filesystem, Unordered, Safe, CancelSearchParams => NoResult;
    /// Makes an HTTP request from the machine of the server.
    HttpRequest = "http/request", Http, Unordered, Never, HttpRequestParams => HttpResponse;
    /// Cancels an HTTP request, or the body it streams.
    HttpCancel = "http/cancel", Http, Unordered, Safe, HttpCancelParams => NoResult;
    /// Pauses or resumes the streamed body of an HTTP request.
    HttpFlow = "http/flow", Http, Unordered, Safe, HttpFlowParams => NoResult;
    /// Opens a stream to a TCP port. The stream belongs to the connection, so it is not opened again on a new
    /// connection.
    TcpConnect = "tcp/connect", Tcp, Unordered, Never, TcpConnectParams => TcpConnectResult;
    /// Starts a process, in the form of the first published protocol.
    LegacyExec = "command/exec", Exec, Start, Never, LegacyExecParams => LegacyExecResult;
    /// Writes to the stdin of a process, in the form of the first published protocol.
    LegacyWrite = "command/exec/write", Exec, Stdin, Never, LegacyWriteParams => LegacyWriteResult;
    /// Kills a process and all its descendants, in the form of the first published protocol.
    LegacyTerminate = "command/exec/terminate", Exec, AfterStart, Never, LegacyTerminateParams => TerminateResult;
}

/// Names of notifications, as they stand in the member `method`.
pub mod notification {
    /// Client to server: the handshake is complete.
    pub const INITIALIZED: &str = "initialized";
    /// In both directions: bytes of a TCP stream, and the end of a direction.
    pub const TCP_DATA: &str = "tcp/data";
    /// In both directions: gives the receiver of the notification credit to send more bytes on a TCP stream.
    pub const TCP_FLOW: &str = "tcp/flow";
    /// In both directions: ends a TCP stream in both directions at once, or confirms such an end.
    pub const TCP_CLOSE: &str = "tcp/close";
    /// Server to client: a chunk of output of a process.
    pub const PROCESS_OUTPUT: &str = "process/output";
    /// Server to client: a process has exited.
    pub const PROCESS_EXITED: &str = "process/exited";
    /// Server to client: a process has exited and its streams have ended.
    pub const PROCESS_CLOSED: &str = "process/closed";
    /// Server to client: another connection has taken the session over. The server ends the connection after this
    /// notification. It is sent only over a Unix socket with one JSON message a line, which has no close codes; a
    /// WebSocket is closed with 4010 instead.
    pub const SESSION_TAKEN_OVER: &str = "session/takenOver";
    /// Server to client: changes that a watch has seen.
    pub const FS_CHANGED: &str = "fs/changed";
    /// Server to client: matches of a search.
    pub const FS_FOUND: &str = "fs/found";
    /// Server to client: a piece of a streamed HTTP body.
    pub const HTTP_BODY_DELTA: &str = "http/request/bodyDelta";
    /// Server to client: the proxy of a process has decided about a request.
    pub const NETWORK_POLICY_DECISION: &str = "network/policyDecision";
    /// Server to client: output of a `command/exec` process.
    pub const LEGACY_OUTPUT: &str = "command/exec/outputDelta";
    /// Server to client: a `command/exec` process has exited.
    pub const LEGACY_EXITED: &str = "command/exec/exited";
}

/// Names of the requests that a server sends to its client, as they stand in the member `method`.
pub mod server_request {
    /// Asks whether a process may reach a host that its proxy does not know.
    pub const NETWORK_POLICY_REQUEST: &str = "network/policyRequest";
}
