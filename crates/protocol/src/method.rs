//! The one table of methods: name on the wire, family, what a request must wait for, params and result. The names of
//! notifications stand below the table.
//!
//! The server dispatches by this table and the client calls by it. The table does not know how a method is handled. To add a
//! method, add a line to `methods!`.

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
    InitializeParams, InitializeResult, SessionKeepParams,
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
}

impl MethodFamily {
    /// The published words for "…" in "client must call initialize before using … methods".
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
    /// Waits only for an unfinished start of the same process. It does not wait for other requests, so a long `process/read`
    /// delays nothing.
    AfterStart,
    /// Like `AfterStart`, and also waits for earlier `Stdin` requests of the same process, so that input keeps its order.
    Stdin,
    /// Waits for earlier requests about the same file handle: a block waits for `fs/open` or `fs/create`, and `fs/commit` and
    /// `fs/close` wait for everything before them.
    Handle,
}

macro_rules! methods {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $family:ident, $order:ident, $params:ty => $result:ty;)*) => {
        /// A request that a client can send.
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

            /// Checks that two JSON texts decode as the params and the result of this method. For tests of documented examples.
            pub fn check_example(self, params: &str, result: &str) -> Result<(), serde_json::Error> {
                fn decodes<T: Serialize + for<'de> Deserialize<'de>>(json: &str) -> Result<(), serde_json::Error> {
                    serde_json::from_str::<T>(json).map(drop)
                }
                match self {
                    $(Self::$variant => decodes::<$params>(params).and_then(|()| decodes::<$result>(result)),)*
                }
            }
        }
    };
}

methods! {
    /// Opens a new session or resumes one. Must be the first request of a connection.
    Initialize = "initialize", Handshake, Inline, InitializeParams => InitializeResult;
    /// Starts a process on pipes or on a terminal.
    ProcessStart = "process/start", Exec, Start, StartParams => StartResult;
    /// Reads retained output, and waits for some if the params ask for it.
    ProcessRead = "process/read", Exec, AfterStart, ReadParams => ReadResult;
    /// Writes to the stdin of a process.
    ProcessWrite = "process/write", Exec, Stdin, WriteParams => WriteResult;
    /// Sends a signal to the process group of a process.
    ProcessSignal = "process/signal", Exec, AfterStart, SignalParams => NoResult;
    /// Kills a process and all its descendants, and answers when they are gone.
    ProcessTerminate = "process/terminate", Exec, AfterStart, ProcessIdParams => TerminateResult;
    /// Changes the size of the terminal of a process.
    ProcessResize = "process/resize", Exec, AfterStart, ResizeParams => NoResult;
    /// Closes stdin after the input that is queued. A terminal gets its end-of-file character instead.
    ProcessCloseStdin = "process/closeStdin", Exec, Stdin, ProcessIdParams => NoResult;
    /// Pauses or resumes the events of one process on this connection.
    ProcessFlow = "process/flow", Exec, AfterStart, ProcessFlowParams => NoResult;
    /// Lists every process that the session knows.
    ProcessList = "process/list", Exec, Unordered, () => ListResult;
    /// Changes how long the session is kept after its connection is lost.
    SessionKeep = "session/keep", Exec, Unordered, SessionKeepParams => NoResult;
    /// Returns shell, directories and capabilities of the server.
    EnvironmentInfo = "environment/info", EnvironmentInfo, Unordered, () => EnvironmentInfo;
    /// Returns whether the environment is ready, which a server that answers always is.
    EnvironmentStatus = "environment/status", EnvironmentStatus, Unordered, () => EnvironmentStatus;
    /// Returns the values of some keys in the configuration files of the environment.
    EnvironmentConfigRead = "environmentConfig/read", EnvironmentConfig, Unordered, ConfigReadParams => ConfigReadResult;
    /// Finds plugins and skills below directories, and returns their files.
    CapabilityRootsDiscover = "capabilityRoots/discoverV1", CapabilityDiscovery, Unordered, DiscoverParams => DiscoverResult;
    /// Reads a whole file in one answer.
    FsReadFile = "fs/readFile", Filesystem, Unordered, FileParams => ReadFileResult;
    /// Opens a file that `fs/readBlock` reads.
    FsOpen = "fs/open", Filesystem, Handle, OpenParams => HandleResult;
    /// Reads a block of an open file.
    FsReadBlock = "fs/readBlock", Filesystem, Handle, ReadBlockParams => ReadBlockResult;
    /// Returns where an open file has data, so that holes need not be read.
    FsExtents = "fs/extents", Filesystem, Handle, ExtentsParams => ExtentsResult;
    /// Closes an open file, or cancels an upload.
    FsClose = "fs/close", Filesystem, Handle, CloseParams => NoResult;
    /// Writes a whole file in place, without protection against a half-written file.
    FsWriteFile = "fs/writeFile", Filesystem, Unordered, WriteFileParams => NoResult;
    /// Begins an upload, which replaces the file in one step at `fs/commit`.
    FsCreate = "fs/create", Filesystem, Handle, CreateParams => HandleResult;
    /// Writes a block of an upload.
    FsWriteBlock = "fs/writeBlock", Filesystem, Handle, WriteBlockParams => NoResult;
    /// Moves a complete upload to its path in one step.
    FsCommit = "fs/commit", Filesystem, Handle, CommitParams => NoResult;
    /// Creates a directory, and by default its parents.
    FsCreateDirectory = "fs/createDirectory", Filesystem, Unordered, CreateDirectoryParams => NoResult;
    /// Returns type, size, times and permissions of a file.
    FsGetMetadata = "fs/getMetadata", Filesystem, Unordered, FileParams => FileMetadata;
    /// Changes the permissions or the modification time of a file.
    FsSetMetadata = "fs/setMetadata", Filesystem, Unordered, SetMetadataParams => NoResult;
    /// Returns a path with every symbolic link resolved.
    FsCanonicalize = "fs/canonicalize", Filesystem, Unordered, PathParams => PathResult;
    /// Lists the entries of one directory.
    FsReadDirectory = "fs/readDirectory", Filesystem, Unordered, ReadDirectoryParams => ReadDirectoryResult;
    /// Lists a directory tree within limits.
    FsWalk = "fs/walk", Filesystem, Unordered, WalkParams => WalkResult;
    /// Removes a file, or a directory with everything in it.
    FsRemove = "fs/remove", Filesystem, Unordered, RemoveParams => NoResult;
    /// Copies a file, or a directory with everything in it.
    FsCopy = "fs/copy", Filesystem, Unordered, CopyParams => NoResult;
    /// Moves a file or a directory within one file system in one step.
    FsRename = "fs/rename", Filesystem, Unordered, RenameParams => NoResult;
    /// Returns the target of a symbolic link as the link states it.
    FsReadLink = "fs/readLink", Filesystem, Unordered, PathParams => LinkTarget;
    /// Creates a symbolic link.
    FsSymlink = "fs/symlink", Filesystem, Unordered, SymlinkParams => NoResult;
    /// Begins to report changes of a file or a directory tree with `fs/changed`.
    FsWatch = "fs/watch", Filesystem, Unordered, WatchParams => NoResult;
    /// Ends a watch that `fs/watch` began.
    FsUnwatch = "fs/unwatch", Filesystem, Unordered, UnwatchParams => NoResult;
    /// Searches lines or file names, and reports matches with `fs/found`.
    FsSearch = "fs/search", Filesystem, Unordered, SearchParams => SearchResult;
    /// Cancels a search that is running or waiting.
    FsCancelSearch = "fs/cancelSearch", Filesystem, Unordered, CancelSearchParams => NoResult;
    /// Makes an HTTP request from the machine of the server.
    HttpRequest = "http/request", Http, Unordered, HttpRequestParams => HttpResponse;
    /// Cancels an HTTP request, or the body it streams.
    HttpCancel = "http/cancel", Http, Unordered, HttpCancelParams => NoResult;
    /// Pauses or resumes the streamed body of an HTTP request.
    HttpFlow = "http/flow", Http, Unordered, HttpFlowParams => NoResult;
    /// Starts a process, in the form of the first published protocol.
    LegacyExec = "command/exec", Exec, Start, LegacyExecParams => LegacyExecResult;
    /// Writes to the stdin of a process, in the form of the first published protocol.
    LegacyWrite = "command/exec/write", Exec, Stdin, LegacyWriteParams => LegacyWriteResult;
    /// Kills a process and all its descendants, in the form of the first published protocol.
    LegacyTerminate = "command/exec/terminate", Exec, AfterStart, LegacyTerminateParams => TerminateResult;
}

/// Names of notifications, as they stand in the member `method`.
pub mod notification {
    /// Client to server: the handshake is complete. The only notification that a client sends.
    pub const INITIALIZED: &str = "initialized";
    /// Server to client: a chunk of output of a process.
    pub const PROCESS_OUTPUT: &str = "process/output";
    /// Server to client: a process has exited.
    pub const PROCESS_EXITED: &str = "process/exited";
    /// Server to client: a process has exited and its streams have ended.
    pub const PROCESS_CLOSED: &str = "process/closed";
    /// Server to client: another connection has taken the session over. The connection ends after it. Sent only over transports that have no
    /// close codes; a WebSocket is closed with 4010 instead.
    pub const SESSION_TAKEN_OVER: &str = "session/takenOver";
    /// Server to client: changes that a watch has seen.
    pub const FS_CHANGED: &str = "fs/changed";
    /// Server to client: matches of a search.
    pub const FS_FOUND: &str = "fs/found";
    /// Server to client: a piece of a streamed HTTP body.
    pub const HTTP_BODY_DELTA: &str = "http/request/bodyDelta";
    /// Server to client: output of a `command/exec` process.
    pub const LEGACY_OUTPUT: &str = "command/exec/outputDelta";
    /// Server to client: a `command/exec` process has exited.
    pub const LEGACY_EXITED: &str = "command/exec/exited";
}
