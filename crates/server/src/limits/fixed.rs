//! Limits that no flag changes: part of the wire contract, or a detail that a user has no reason to change. The server's own are defined
//! here and used from here. Those of other crates are taken from their `limits` modules, so that `docs/limits.md` shows them too.
//!
//! A new limit that a user may want to change belongs into `config.rs` instead.

use std::time::Duration;

use super::{FixedLimit, LimitUnit, Quantity};

/// Makes constants, and `FIXED_LIMITS`, from groups of entries of the form `/// what is limited`, `/// sentences about what happens at the limit`,
/// `NAME: type = value, unit, "why it is fixed";`.
macro_rules! fixed_limits {
    ($(
        $group:literal {$(
            #[doc = $what:literal]
            $(#[doc = $at_limit:literal])+
            $name:ident: $type:ty = $value:expr, $unit:ident, $reason:literal;
        )+}
    )+) => {
        $($(
            #[doc = $what]
            $(#[doc = $at_limit])+
            #[doc = concat!(" ", $reason)]
            pub(crate) const $name: $type = $value;
        )+)+

        /// Every limit that no flag changes, in the order in which the documentation shows them.
        pub const FIXED_LIMITS: &[FixedLimit] = &[$($(
            FixedLimit {
                group: $group,
                what: $what.trim_ascii(),
                at_limit: concat!($($at_limit),+).trim_ascii(),
                reason: $reason,
                value: Quantity { number: number!($unit, $name), unit: LimitUnit::$unit },
            },
        )+)+];
    };
}

macro_rules! number {
    (Milliseconds, $name:ident) => {
        $name.as_millis() as u64
    };
    ($unit:ident, $name:ident) => {
        $name as u64
    };
}

fixed_limits! {
    "Connections and messages" {
        /// Time from accepting a TCP connection to its first complete HTTP request, and from one request to the next.
        /// The connection is closed.
        REQUEST_TIMEOUT: Duration = transport::limits::REQUEST_TIMEOUT, Milliseconds,
        "A client that works needs far less.";

        /// Bytes of the headers of an HTTP request.
        /// The request is answered with status 431.
        MAX_REQUEST_HEADER_BYTES: usize = transport::limits::MAX_HEADER_BYTES, Bytes,
        "An upgrade needs far less.";

        /// Connections to a Unix socket that wait to be accepted.
        /// The kernel refuses a further one.
        UNIX_BACKLOG: i32 = transport::limits::UNIX_BACKLOG, Count,
        "The server accepts at once; the kernel may have a lower limit.";

        /// JSON values of a message; keys are not counted.
        /// The message is refused with -32600.
        MAX_VALUES: usize = protocol::MAX_VALUES, Count,
        "Part of the protocol: a decoded value can take much more memory than its text.";

        /// Arrays and objects of a message that are inside each other.
        /// The message is refused with -32600.
        MAX_DEPTH: usize = protocol::MAX_DEPTH, Count,
        "Part of the protocol: the JSON library that decodes params has this limit.";

        /// Bytes of answers of a connection that wait to be sent.
        /// No further request of the connection is handled until less is waiting.
        MAX_UNSENT_ANSWER_BYTES: usize = 4 << 20, Bytes,
        "It is memory of each connection; `--max-connections` limits their sum.";

        /// Bytes of requests of a connection that have arrived while it has too many unsent answers.
        /// The connection is not read any more. The message that reaches the limit is kept too.
        MAX_PARKED_BYTES: usize = 128 << 10, Bytes,
        "Pongs are recognised between the parked requests; more would only fragment memory.";

        /// Bytes of contents of files, search results, changes and HTTP bodies that wait to be sent on a connection.
        /// The operation that has more of them waits.
        MAX_PUSHED_BYTES: usize = 8 << 20, Bytes,
        "It is memory of each connection; `--max-connections` limits their sum.";

        /// Answers of a connection with retained output that wait to be sent.
        /// A further `process/read` waits.
        MAX_UNSENT_READS: usize = 4, Count,
        "Each can be as large as the retained output of a process.";

        /// Pings of a connection whose pongs have not come.
        /// A further ping replaces the youngest.
        MAX_WAITING_PINGS: usize = session::limits::MAX_WAITING_PINGS, Count,
        "One pong acknowledges everything before it, so nothing is lost.";

        /// Time that the last requests of a client have to be answered after it has closed its sending side.
        /// The connection is closed without the remaining answers.
        LAST_ANSWERS_PATIENCE: Duration = Duration::from_secs(5), Milliseconds,
        "On stdio the session, with its processes, ends only after this time.";

        /// Time that a client has at shutdown to read its last messages and the goodbye.
        /// The connection is closed.
        LONGEST_GOODBYE: Duration = Duration::from_secs(60), Milliseconds,
        "It must be shorter than the 90 s after which a service manager kills a server.";
    }

    "Processes" {
        /// Chunks of output that are retained for a process.
        /// The process waits, or the oldest chunk is dropped, as for `--retain-bytes`.
        MAX_RETAINED_CHUNKS: usize = session::limits::MAX_RETAINED_CHUNKS, Count,
        "Part of the protocol: a read of all of them must not have more JSON values than a message may.";

        /// Write ids of a process that are remembered.
        /// The oldest is forgotten, so a write that is repeated after so many others is written twice.
        MAX_REMEMBERED_WRITES: usize = session::limits::MAX_REMEMBERED_WRITES, Count,
        "A client does not have that many unanswered writes.";

        /// Writes of a connection that wait for room, as a multiple of `--max-queued-stdin`.
        /// A further write is refused with -32600 and `inputCrowded`.
        WAITING_QUEUES: usize = 4, Count,
        "It follows `--max-queued-stdin`.";

        /// Starts of all sessions that hang, for example on a dead network mount.
        /// A further start waits until one of them ends.
        MAX_HANGING_STARTS: usize = 64, Count,
        "Each occupies a thread, and none hangs on a machine that works.";

        /// Starts of a session that hang.
        /// A further start of the session waits until one of them ends.
        MAX_HANGING_STARTS_PER_SESSION: usize = MAX_HANGING_STARTS / 4, Count,
        "A quarter of all, so that other sessions can still start processes.";

        /// Time that `process/terminate` waits for the last output of the process to be sent.
        /// The request is answered before the output was sent.
        DELIVERY_PATIENCE: Duration = Duration::from_secs(1), Milliseconds,
        "The output is not lost, it only comes after the answer.";

        /// Time that `process/terminate` waits for the start of the process.
        /// The start is cancelled.
        START_PATIENCE: Duration = Duration::from_secs(1), Milliseconds,
        "A start that takes longer hangs.";

        /// Arguments of a process that `process/list` shows.
        /// The further ones are shown as `…`.
        MAX_SHOWN_ARGUMENTS: usize = 32, Count,
        "They are kept for every process, and this many are enough to recognise a command.";
    }

    "Shell snapshots" {
        /// Snapshots of a session.
        /// The one that was not used for the longest time is dropped.
        MAX_SNAPSHOTS: usize = 16, Count,
        "Part of the protocol.";

        /// Bytes of the scope of a snapshot.
        /// The start is refused with -32602.
        MAX_SNAPSHOT_SCOPE_BYTES: usize = 256, Bytes,
        "Part of the protocol.";

        /// Bytes of the state that a shell reports.
        /// The command runs in a plain login shell instead.
        MAX_SNAPSHOT_BYTES: usize = 512 << 10, Bytes,
        "Part of the protocol.";

        /// Time that a shell has to run its profile and report its state.
        /// The command runs with what was reported by then, or in a plain login shell.
        CAPTURE_PATIENCE: Duration = Duration::from_secs(10), Milliseconds,
        "Part of the protocol: the first command of a session waits for this.";
    }

    "Files" {
        /// Bytes of a file that `fs/readFile` reads.
        /// The request is refused with -32600.
        MAX_READ_FILE_BYTES: u64 = 512 << 20, Bytes,
        "Part of the protocol; larger files are read in blocks.";

        /// Bytes of a block of `fs/readBlock` or `fs/writeBlock`.
        /// The request is refused with -32600.
        MAX_BLOCK_BYTES: usize = 1 << 20, Bytes,
        "Part of the protocol.";

        /// Bytes of the id of a file handle, a watch or a search.
        /// The request is refused with -32600.
        MAX_HANDLE_ID_BYTES: usize = 32, Bytes,
        "Part of the protocol.";

        /// Names of a directory that `fs/readDirectory` returns.
        /// The request fails with an error.
        MAX_DIRECTORY_ENTRIES: usize = 50_000, Count,
        "Part of the protocol.";

        /// Extents of a file in one answer of `fs/extents`.
        /// The answer says where to continue.
        MAX_EXTENTS: usize = 4096, Count,
        "A client asks again, so it loses nothing.";

        /// Levels of directories that `fs/walk` may be asked for.
        /// The request is refused with -32600.
        MAX_WALK_DEPTH: usize = files::limits::MAX_WALK_DEPTH, Count,
        "Part of the protocol.";

        /// Directories that `fs/walk` may be asked for.
        /// The request is refused with -32600.
        MAX_WALK_DIRECTORIES: usize = files::limits::MAX_WALK_DIRECTORIES, Count,
        "Part of the protocol.";

        /// Names that `fs/walk` may be asked for.
        /// The request is refused with -32600.
        MAX_WALK_ENTRIES: usize = files::limits::MAX_WALK_ENTRIES, Count,
        "Part of the protocol.";

        /// Bytes of the paths and errors in the answer of `fs/walk`, with 64 for each.
        /// The walk ends and the answer has `truncated`.
        MAX_WALK_ANSWER_BYTES: usize = protocol::fs::MAX_WALK_ANSWER_BYTES, Bytes,
        "Part of the protocol.";

        /// File operations of a session at once that take much memory: those whose answer may have the size of a whole message.
        /// A further one waits until one of the session ends.
        MAX_LARGE_FILE_OPERATIONS: u32 = 4, Count,
        "It divides `--max-file-operations`.";

        /// Bytes of an answer that is made before there is room to send it.
        /// For a larger answer, room is taken first and the file is read afterwards.
        SMALL_ANSWER_BYTES: usize = 384 << 10, Bytes,
        "A session has at most `--max-file-operations` of them.";

        /// Bytes above which an answer is large.
        /// A large answer waits for room of `--max-large-answers`.
        LARGE_ANSWER_BYTES: usize = 4 << 20, Bytes,
        "Smaller answers are limited for each connection.";

        /// Symbolic links in a row that an upload follows.
        /// The upload fails with an error.
        MAX_UPLOAD_LINKS: usize = files::limits::MAX_UPLOAD_LINKS, Count,
        "The kernel follows as many.";
    }

    "Watches" {
        /// Changes in one `fs/changed` message.
        /// The further changes are in the next message.
        MAX_CHANGES_PER_MESSAGE: usize = session::limits::MAX_CHANGES_PER_MESSAGE, Count,
        "A message stays far below the size of a message, however long the paths are.";

        /// Events of the kernel that wait for a watch that is busy.
        /// They are dropped and the client is sent `overflow`.
        MAX_WATCH_EVENTS: usize = files::limits::MAX_WATCH_EVENTS, Count,
        "The kernel queues as many by default.";
    }

    "Searches" {
        /// Threads of all searches beside the first thread of each.
        /// A search runs with fewer threads.
        MAX_FURTHER_SEARCH_THREADS: usize = 32, Count,
        "Each can take 20 MiB; `--max-searches` limits the first threads.";

        /// Threads of a search that is asked for without a number of threads, on a machine with more processors.
        /// The search runs with this many.
        MAX_DEFAULT_SEARCH_THREADS: usize = files::limits::MAX_DEFAULT_SEARCH_THREADS, Count,
        "More threads mostly wait for each other.";

        /// Bytes of a pattern.
        /// The search is refused with -32602.
        MAX_PATTERN_BYTES: usize = files::limits::MAX_PATTERN_BYTES, Bytes,
        "A longer pattern can take 90 MB before its compiled size is known.";

        /// Bytes of a compiled pattern.
        /// The search is refused with -32602.
        MAX_COMPILED_PATTERN_BYTES: usize = files::limits::MAX_COMPILED_PATTERN_BYTES, Bytes,
        "It is enough for every pattern that a person writes.";

        /// Globs of a search.
        /// The search is refused with -32602.
        MAX_GLOBS: usize = files::limits::MAX_GLOBS, Count,
        "Each can take 30 KB when it is compiled.";

        /// Bytes of all globs of a search.
        /// The search is refused with -32602.
        MAX_GLOB_BYTES: usize = files::limits::MAX_GLOB_BYTES, Bytes,
        "Compiled, they take at most about 60 MB.";

        /// Opening braces of a glob, or of a line of an ignore file.
        /// The search is refused with -32602, or the directory of the ignore file is not searched.
        MAX_BRACES: usize = files::limits::MAX_BRACES, Count,
        "The parser of globs calls itself for each brace, and the stack of a thread is limited.";

        /// Lines of context before or after a match.
        /// The search is refused with -32602.
        MAX_CONTEXT_LINES: u32 = files::limits::MAX_CONTEXT_LINES, Count,
        "A client that needs more reads the file.";

        /// Bytes of a line that is searched, or of a file if a match may span lines.
        /// The file is not searched further, and the answer lists an error for it.
        MAX_SEARCHED_BYTES: usize = files::limits::MAX_SEARCHED_BYTES, Bytes,
        "Every thread of every search may hold this much memory.";

        /// Bytes of a line in a result.
        /// The rest of the line is cut off.
        MAX_RESULT_LINE_BYTES: usize = files::limits::MAX_RESULT_LINE_BYTES, Bytes,
        "A file without line ends must not be one huge result.";

        /// Errors that the answer of a search lists.
        /// Further errors are only counted.
        MAX_SEARCH_ERRORS: usize = files::limits::MAX_SEARCH_ERRORS, Count,
        "A tree that cannot be read must not fill a message.";

        /// Bytes of an ignore file.
        /// Its directory is not searched, and the answer lists an error for it.
        MAX_IGNORE_FILE_BYTES: usize = files::limits::MAX_IGNORE_FILE_BYTES, Bytes,
        "Real ones are far smaller.";

        /// Lines of an ignore file.
        /// Its directory is not searched, and the answer lists an error for it.
        MAX_IGNORE_FILE_LINES: usize = files::limits::MAX_IGNORE_FILE_LINES, Count,
        "Each line can take 10 KB when it is compiled.";

        /// Ignore rules that apply to a directory, those of the directories above it included.
        /// The directory is not searched, and the answer lists an error for it.
        MAX_IGNORE_RULES: usize = files::limits::MAX_IGNORE_RULES, Count,
        "Each rule can take 10 KB when it is compiled.";
    }

    "HTTP requests of clients" {
        /// Look-ups of names that all sessions have under way.
        /// A further look-up waits until one ends.
        MAX_LOOKUPS: usize = fetch::limits::MAX_LOOKUPS, Count,
        "Each occupies a thread until the resolver returns.";

        /// Look-ups of names that a session has under way.
        /// A further look-up of the session waits until one ends.
        MAX_LOOKUPS_PER_SESSION: usize = fetch::limits::MAX_LOOKUPS_PER_CLIENT, Count,
        "A quarter of all, so that a name server that does not answer one session leaves threads to others.";

        /// Redirects of a request that are followed.
        /// The request fails with -32603.
        MAX_REDIRECTS: usize = fetch::limits::MAX_REDIRECTS, Count,
        "Part of the protocol.";

        /// Bytes of the headers of an HTTP answer.
        /// The request fails with -32603.
        MAX_HEAD_BYTES: usize = fetch::limits::MAX_HEAD_BYTES, Bytes,
        "Servers send far less.";

        /// Headers of an HTTP answer.
        /// The request fails with -32603.
        MAX_HEADERS: usize = fetch::limits::MAX_HEADERS, Count,
        "Servers send far fewer.";
    }

    "Configuration, plugins and tokens" {
        /// Bytes of a configuration file.
        /// `environmentConfig/read` fails with an error that names the file.
        MAX_CONFIG_FILE_BYTES: u64 = 2 << 20, Bytes,
        "While it is parsed, a file can take eighty times its size.";

        /// Bytes of all configuration files of a request.
        /// `environmentConfig/read` fails with an error that names the file that is too much.
        MAX_CONFIG_TOTAL_BYTES: usize = 8 << 20, Bytes,
        "A project can have thousands of directories with a file each.";

        /// Bytes of the directory of an `environmentConfig/read`.
        /// The request is refused with -32602.
        MAX_CONFIG_PATH_BYTES: usize = 4096, Bytes,
        "The kernel opens no longer path.";

        /// Bytes of a `.git` file that points to a repository.
        /// The file is treated as if it did not exist.
        MAX_GIT_POINTER_BYTES: u64 = 64 << 10, Bytes,
        "Such a file holds one path.";

        /// Bytes of `/etc/hosts`.
        /// The file is not used to find the domain of this machine.
        MAX_HOSTS_FILE_BYTES: u64 = 16 << 20, Bytes,
        "A longer list serves another purpose, such as blocking advertisements.";

        /// Roots of a `capabilityRoots/discoverV1`.
        /// The request is refused with -32600.
        MAX_CAPABILITY_ROOTS: usize = 128, Count,
        "Part of the protocol.";

        /// Roots of a request that are read at once.
        /// A further root waits.
        MAX_ROOTS_AT_ONCE: usize = 8, Count,
        "Part of the protocol.";

        /// Discoveries of a session at once.
        /// A further one waits.
        MAX_DISCOVERIES: usize = 2, Count,
        "Each can hold the texts of a whole message.";

        /// Levels of directories of a capability root that are scanned.
        /// The rest is left out, and the answer has a warning.
        MAX_SCAN_DEPTH: usize = 6, Count,
        "Part of the protocol.";

        /// Directories of a capability root that are scanned.
        /// The rest is left out, and the answer has a warning.
        MAX_SCAN_DIRECTORIES: usize = 2_000, Count,
        "Part of the protocol.";

        /// Names of a capability root that are scanned.
        /// The rest is left out, and the answer has a warning.
        MAX_SCAN_ENTRIES: usize = 20_000, Count,
        "Part of the protocol.";

        /// Bytes of the names of a capability root that are scanned, with 64 for each name.
        /// The rest is left out, and the answer has a warning.
        MAX_SCAN_NAME_BYTES: usize = 4 << 20, Bytes,
        "Part of the protocol.";

        /// Bytes of a file of a capability root.
        /// The file is left out, and the answer has a warning.
        MAX_CAPABILITY_FILE_BYTES: u64 = 1 << 20, Bytes,
        "Part of the protocol.";

        /// Bytes of all files of a capability root.
        /// The file that is too much is left out, and the answer has a warning.
        MAX_CAPABILITY_ROOT_BYTES: u64 = 16 << 20, Bytes,
        "Part of the protocol.";

        /// Bytes of a token file.
        /// The server does not start; after a SIGHUP it keeps the old tokens.
        MAX_TOKEN_FILE_BYTES: u64 = 1 << 20, Bytes,
        "It is enough for 10,000 long tokens.";
    }
}
