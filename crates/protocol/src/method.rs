//! The one table of methods: name on the wire, family, what it must wait for, and its params and result.

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

/// The words an error uses for the group a method belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodFamily {
    /// Needs no handshake.
    Handshake,
    /// Everything about processes.
    Exec,
    /// `environment/info`.
    EnvironmentInfo,
    /// `environment/status`.
    EnvironmentStatus,
    /// `environmentConfig/read`.
    EnvironmentConfig,
    /// `capabilityRoots/discoverV1`.
    CapabilityDiscovery,
    /// Everything about files.
    Filesystem,
    /// Requests made from the environment.
    Http,
}

impl MethodFamily {
    /// As it stands in "client must call initialize before using … methods".
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

/// What a request must wait for. Requests about different processes never wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOrder {
    /// Runs before the next message is looked at, because it changes what later ones may do.
    Inline,
    /// Waits for nothing.
    Unordered,
    /// Takes its process id at once; later requests about that id wait until it is done.
    Start,
    /// Waits for an unfinished start of the same process only, so a long poll delays nothing.
    AfterStart,
    /// As `AfterStart`, and one after the other with other stdin requests of the process.
    Stdin,
    /// Waits for what came before it about the same file handle: blocks for its opening, the end of a handle for all.
    Handle,
}

macro_rules! methods {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $family:ident, $order:ident, $params:ty => $result:ty;)*) => {
        /// A method this protocol serves.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Method {
            $($(#[$doc])* $variant,)*
        }

        impl Method {
            /// Every method, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The method of that name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Its name on the wire.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The group it belongs to.
            pub const fn family(self) -> MethodFamily {
                match self {
                    $(Self::$variant => MethodFamily::$family,)*
                }
            }

            /// What it must wait for.
            pub const fn order(self) -> RequestOrder {
                match self {
                    $(Self::$variant => RequestOrder::$order,)*
                }
            }

            /// Whether `params` and `result` are what the table promises for this method.
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
    /// Opens or resumes a session.
    Initialize = "initialize", Handshake, Inline, InitializeParams => InitializeResult;
    /// Starts a process.
    ProcessStart = "process/start", Exec, Start, StartParams => StartResult;
    /// Reads retained output, waiting for some if asked to.
    ProcessRead = "process/read", Exec, AfterStart, ReadParams => ReadResult;
    /// Writes to stdin.
    ProcessWrite = "process/write", Exec, Stdin, WriteParams => WriteResult;
    /// Sends a signal.
    ProcessSignal = "process/signal", Exec, AfterStart, SignalParams => NoResult;
    /// Kills a process and everything it started.
    ProcessTerminate = "process/terminate", Exec, AfterStart, ProcessIdParams => TerminateResult;
    /// Changes the size of a terminal.
    ProcessResize = "process/resize", Exec, AfterStart, ResizeParams => NoResult;
    /// Ends stdin.
    ProcessCloseStdin = "process/closeStdin", Exec, Stdin, ProcessIdParams => NoResult;
    /// Lets the events of a process wait, or go on.
    ProcessFlow = "process/flow", Exec, AfterStart, ProcessFlowParams => NoResult;
    /// Lists the processes of the session.
    ProcessList = "process/list", Exec, Unordered, () => ListResult;
    /// Changes how long the session outlives its connection.
    SessionKeep = "session/keep", Exec, Unordered, SessionKeepParams => NoResult;
    /// Tells about the environment.
    EnvironmentInfo = "environment/info", EnvironmentInfo, Unordered, () => EnvironmentInfo;
    /// Tells whether the environment is ready.
    EnvironmentStatus = "environment/status", EnvironmentStatus, Unordered, () => EnvironmentStatus;
    /// Reads keys of the configuration files.
    EnvironmentConfigRead = "environmentConfig/read", EnvironmentConfig, Unordered, ConfigReadParams => ConfigReadResult;
    /// Finds plugins and skills.
    CapabilityRootsDiscover = "capabilityRoots/discoverV1", CapabilityDiscovery, Unordered, DiscoverParams => DiscoverResult;
    /// Reads a whole file.
    FsReadFile = "fs/readFile", Filesystem, Unordered, FileParams => ReadFileResult;
    /// Opens a file that is read in blocks.
    FsOpen = "fs/open", Filesystem, Handle, OpenParams => HandleResult;
    /// Reads a block of an open file.
    FsReadBlock = "fs/readBlock", Filesystem, Handle, ReadBlockParams => ReadBlockResult;
    /// Tells where an open file has data.
    FsExtents = "fs/extents", Filesystem, Handle, ExtentsParams => ExtentsResult;
    /// Closes an open file, or gives an upload up.
    FsClose = "fs/close", Filesystem, Handle, CloseParams => NoResult;
    /// Writes a whole file in place.
    FsWriteFile = "fs/writeFile", Filesystem, Unordered, WriteFileParams => NoResult;
    /// Begins an upload.
    FsCreate = "fs/create", Filesystem, Handle, CreateParams => HandleResult;
    /// Writes a block of an upload.
    FsWriteBlock = "fs/writeBlock", Filesystem, Handle, WriteBlockParams => NoResult;
    /// Puts an upload in its place.
    FsCommit = "fs/commit", Filesystem, Handle, CommitParams => NoResult;
    /// Makes a directory.
    FsCreateDirectory = "fs/createDirectory", Filesystem, Unordered, CreateDirectoryParams => NoResult;
    /// Tells about a file.
    FsGetMetadata = "fs/getMetadata", Filesystem, Unordered, FileParams => FileMetadata;
    /// Changes what is known about a file.
    FsSetMetadata = "fs/setMetadata", Filesystem, Unordered, SetMetadataParams => NoResult;
    /// Resolves links.
    FsCanonicalize = "fs/canonicalize", Filesystem, Unordered, PathParams => PathResult;
    /// Lists a directory.
    FsReadDirectory = "fs/readDirectory", Filesystem, Unordered, ReadDirectoryParams => ReadDirectoryResult;
    /// Lists a tree.
    FsWalk = "fs/walk", Filesystem, Unordered, WalkParams => WalkResult;
    /// Removes a file or a tree.
    FsRemove = "fs/remove", Filesystem, Unordered, RemoveParams => NoResult;
    /// Copies a file or a tree.
    FsCopy = "fs/copy", Filesystem, Unordered, CopyParams => NoResult;
    /// Renames.
    FsRename = "fs/rename", Filesystem, Unordered, RenameParams => NoResult;
    /// Tells where a link points.
    FsReadLink = "fs/readLink", Filesystem, Unordered, PathParams => LinkTarget;
    /// Makes a link.
    FsSymlink = "fs/symlink", Filesystem, Unordered, SymlinkParams => NoResult;
    /// Begins to tell what changes.
    FsWatch = "fs/watch", Filesystem, Unordered, WatchParams => NoResult;
    /// Ends that.
    FsUnwatch = "fs/unwatch", Filesystem, Unordered, UnwatchParams => NoResult;
    /// Searches files.
    FsSearch = "fs/search", Filesystem, Unordered, SearchParams => SearchResult;
    /// Ends a search.
    FsCancelSearch = "fs/cancelSearch", Filesystem, Unordered, CancelSearchParams => NoResult;
    /// Makes an HTTP request.
    HttpRequest = "http/request", Http, Unordered, HttpRequestParams => HttpResponse;
    /// Ends an HTTP request.
    HttpCancel = "http/cancel", Http, Unordered, HttpCancelParams => NoResult;
    /// Lets a streamed body wait, or go on.
    HttpFlow = "http/flow", Http, Unordered, HttpFlowParams => NoResult;
    /// Starts a process, first published form.
    LegacyExec = "command/exec", Exec, Start, LegacyExecParams => LegacyExecResult;
    /// Writes to stdin, first published form.
    LegacyWrite = "command/exec/write", Exec, Stdin, LegacyWriteParams => LegacyWriteResult;
    /// Kills a process, first published form.
    LegacyTerminate = "command/exec/terminate", Exec, AfterStart, LegacyTerminateParams => TerminateResult;
}

/// Names of notifications.
pub mod notification {
    /// Client to server: the handshake is complete.
    pub const INITIALIZED: &str = "initialized";
    /// Server to client: output.
    pub const PROCESS_OUTPUT: &str = "process/output";
    /// Server to client: the process has exited.
    pub const PROCESS_EXITED: &str = "process/exited";
    /// Server to client: the process has exited and its streams have ended.
    pub const PROCESS_CLOSED: &str = "process/closed";
    /// Server to client: something that is watched has changed.
    pub const FS_CHANGED: &str = "fs/changed";
    /// Server to client: something that was searched for.
    pub const FS_FOUND: &str = "fs/found";
    /// Server to client: a piece of a streamed body.
    pub const HTTP_BODY_DELTA: &str = "http/request/bodyDelta";
    /// Server to client: output of a `command/exec` process.
    pub const LEGACY_OUTPUT: &str = "command/exec/outputDelta";
    /// Server to client: a `command/exec` process has exited.
    pub const LEGACY_EXITED: &str = "command/exec/exited";
}
