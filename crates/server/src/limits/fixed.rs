//! Limits that no flag changes: parts of the wire protocol, and details that a user has no reason to change. The limits of this crate are
//! defined in this file and in `fixed/policies.rs`. The limits of other crates are copied from there, so that `docs/limits.md` shows them too.
//!
//! A new limit that a user may want to change belongs in `config.rs` instead.

use std::time::Duration;

use super::FixedLimit;
use super::fixed_list::{fixed_limits, number};

mod policies;

pub(crate) use policies::*;

/// Every limit that no flag changes, in the order in which the documentation shows them.
pub const FIXED_LIMITS: [&[FixedLimit]; 2] = [LIMITS, policies::LIMITS];

fixed_limits! {
    "Connections and messages" {
        /// Time from accepting a TCP connection to its first complete HTTP request, and from one request to the next.
        /// The connection is closed.
        REQUEST_TIMEOUT: Duration = transport::limits::REQUEST_TIMEOUT, Milliseconds,
        "A working client needs far less time.";

        /// Bytes of the headers of an HTTP request.
        /// The request is answered with status 431.
        MAX_REQUEST_HEADER_BYTES: usize = transport::limits::MAX_HEADER_BYTES, Bytes,
        "The request for a WebSocket needs far less.";

        /// Connections to a Unix socket that wait to be accepted.
        /// A further client waits, or gets EAGAIN if its socket does not block.
        UNIX_BACKLOG: i32 = transport::limits::UNIX_BACKLOG, Count,
        "The server accepts at once; the kernel may have a lower limit.";

        /// Bytes that a client sends while it waits because `--max-connections` are open.
        /// The server reads further bytes only when a connection has ended, and until then does not notice that the client leaves.
        MAX_READ_AHEAD_BYTES: usize = 16 << 10, Bytes,
        "A client that waits has usually sent its first request only, and each waiting client can use this much memory.";

        /// JSON values of a message; keys are not counted.
        /// The message is refused with -32600.
        MAX_VALUES: usize = protocol::MAX_VALUES, Count,
        "Part of the protocol: a decoded value can take much more memory than its text.";

        /// Depth of nested arrays and objects in a message.
        /// The message is refused with -32600.
        MAX_DEPTH: usize = protocol::MAX_DEPTH, Count,
        "Part of the protocol: the JSON library that decodes params has this limit.";

        /// Bytes of the message of an error, and of the path in its `data`.
        /// The middle of the text is replaced by `…`.
        MAX_ERROR_TEXT_BYTES: usize = protocol::MAX_ERROR_TEXT_BYTES, Bytes,
        "A request with a huge text must not get a huge error; the longest path that the kernel opens is shorter.";

        /// Bytes of a host name in `tcp/connect`.
        /// The request is refused with -32602.
        MAX_HOST_NAME_BYTES: usize = 255, Bytes,
        "Names in DNS are not longer.";

        /// Bytes that a client may send on a TCP stream before the port takes them.
        /// The client waits for `tcp/flow`. If it does not wait, the stream is closed.
        PORT_WINDOW_BYTES: usize = 1 << 20, Bytes,
        "Keeps a stream fast if the round trip takes some 10 ms; `--max-port-buffers` limits the sum of all windows.";

        /// The same for a stream that is opened while less than 1 MiB of `--max-port-buffers` is free.
        /// The client waits for `tcp/flow`.
        SMALL_PORT_WINDOW_BYTES: usize = 64 << 10, Bytes,
        "Every stream must be able to make progress.";

        /// Bytes of a `tcp/data` message.
        /// The stream is closed.
        MAX_TCP_CHUNK_BYTES: usize = protocol::MAX_TCP_CHUNK_BYTES, Bytes,
        "Part of the protocol: a larger message would delay others.";

        /// Bytes of answers of a connection that wait to be sent.
        /// No further request of the connection is handled until fewer bytes wait.
        MAX_UNSENT_ANSWER_BYTES: usize = 4 << 20, Bytes,
        "Each connection can use this much memory, and `--max-connections` limits the sum.";

        /// Bytes of requests of a connection that have arrived while too many of its answers are unsent.
        /// The connection is not read any more. The message that reaches the limit is kept too.
        MAX_PARKED_BYTES: usize = 128 << 10, Bytes,
        "Up to this limit the server reads on, because pongs may come between the requests; keeping more requests would only fragment memory.";

        /// Bytes of file contents, search results, file changes and HTTP bodies that wait to be sent on a connection.
        /// An operation that has further bytes to send waits.
        MAX_PUSHED_BYTES: usize = 8 << 20, Bytes,
        "Each connection can use this much memory, and `--max-connections` limits the sum.";

        /// Answers to `process/read` that wait to be sent on a connection.
        /// A further `process/read` waits.
        MAX_UNSENT_READS: usize = 4, Count,
        "Each answer can be as large as the retained output of a process.";

        /// Pings of a connection that the client has not answered with a pong.
        /// A further ping replaces the newest unanswered ping.
        MAX_WAITING_PINGS: usize = session::limits::MAX_WAITING_PINGS, Count,
        "A pong acknowledges everything that was sent before its ping, so no acknowledgement is lost.";

        /// Time for answering the last requests of a client after the client has closed its sending side.
        /// The connection is closed without the remaining answers.
        LAST_ANSWERS_PATIENCE: Duration = Duration::from_secs(5), Milliseconds,
        "A longer time would delay the end of the processes: on stdio they are killed after the last answers.";

        /// Time that a client has to read the last messages and the close frame of its connection.
        /// The connection is closed.
        LONGEST_GOODBYE: Duration = Duration::from_secs(60), Milliseconds,
        "It must be shorter than the 90 s after which systemd kills a service that does not stop.";
    }

    "Processes" {
        /// Chunks of output that are retained for a process.
        /// The process waits, or the oldest chunk is dropped, as for `--retain-bytes`.
        MAX_RETAINED_CHUNKS: usize = session::limits::MAX_RETAINED_CHUNKS, Count,
        "Part of the protocol: an answer with all chunks must not have more JSON values than a message may have.";

        /// Write ids of a process that are remembered.
        /// The oldest id is forgotten. A client that then repeats the write with this id writes twice.
        MAX_REMEMBERED_WRITES: usize = session::limits::MAX_REMEMBERED_WRITES, Count,
        "A client repeats only unanswered writes, and does not have that many.";

        /// Bytes of writes of a connection that wait until processes read their stdin, as a multiple of `--max-queued-stdin`.
        /// A further write is refused with -32600 and `inputCrowded`.
        WAITING_STDIN_FACTOR: usize = 4, Count,
        "`--max-queued-stdin` changes this limit too.";

        /// Starts that hang, for example on a dead network mount, in all sessions together.
        /// A further start waits until one of them ends.
        MAX_HANGING_STARTS: usize = 64, Count,
        "Each hanging start occupies a thread, and on a working machine no start hangs.";

        /// Starts that hang in one session.
        /// A further start of the session waits until one of them ends.
        MAX_HANGING_STARTS_PER_SESSION: usize = MAX_HANGING_STARTS / 4, Count,
        "A quarter of the limit for all sessions, so that other sessions can still start processes.";

        /// Starts in sandboxes that take longer than 250 ms, in one session, because they hang or because their policy has much to search.
        /// A further start in a sandbox of the session waits until one of them ends.
        MAX_HANGING_SANDBOX_STARTS_PER_SESSION: usize = 4, Count,
        "A policy with many deny globs takes up to a second of CPU time for each start.";

        /// Time that `process/terminate` waits for the last output of the process to be sent.
        /// The request is answered before the output has been sent.
        DELIVERY_PATIENCE: Duration = Duration::from_secs(1), Milliseconds,
        "The output is not lost. It is sent after the answer.";

        /// Time that `process/terminate` waits for the start of the process.
        /// The start is cancelled.
        START_PATIENCE: Duration = Duration::from_secs(1), Milliseconds,
        "A start that takes longer is taken to hang.";

        /// Arguments of a process that `process/list` shows.
        /// Further arguments are shown as one `…`.
        MAX_SHOWN_ARGUMENTS: usize = 32, Count,
        "The arguments take memory for every process, and this many are enough to recognise a command.";
    }

    "Sandboxes" {
        /// Sandboxes of a session that exist at once. Requests with the same policy share one. Not counted: those of commands with a network proxy.
        /// The one that has been unused for the longest time is ended. If all are in use, the request is refused.
        MAX_SANDBOXES: usize = 16, Count,
        "A sandbox is a process and a few file systems in memory; few clients use more than two policies.";

        /// Commands of a session with a network proxy that run at once. Each of them has a sandbox of its own.
        /// A further start is refused with -32602.
        MAX_PROXY_SANDBOXES: usize = 64, Count,
        "A sandbox is a process and a few file systems in memory; a client that builds or tests in parallel needs fewer.";

        /// Empty directories that the sandboxes of a session have made as placeholders. At most a quarter of the descriptors of the server.
        /// Sandboxes that are not in use are ended. If that is not enough, the request is refused.
        MAX_PLACEHOLDERS: usize = sandbox::MAX_PLACEHOLDERS_OF_OWNER, Count,
        "Each of them takes a descriptor of the server. Two policies with a thousand writable directories each need fewer.";

        /// Time for which file operations reuse a sandbox before the files that the policy names are examined again.
        /// After this time the next operation examines whether such files were made, removed or replaced.
        POLICY_RECHECK_TIME: Duration = Duration::from_secs(1), Milliseconds,
        "Looking takes as long as a small file operation itself. Commands always look.";

        /// Different refused system calls of a process that are reported (`sandboxDenials`).
        /// Further ones are left out.
        MAX_SANDBOX_DENIALS: usize = 32, Count,
        "A client needs a few examples, not a full trace.";

        /// How long a sandbox exists that no process and no request uses.
        /// The sandbox is ended. The next request with its policy makes another one, which takes some milliseconds.
        SANDBOX_IDLE_TIME: Duration = Duration::from_secs(60), Milliseconds,
        "Long enough for the pauses of a client that works, short enough for one that has gone.";
    }

    "Shell snapshots" {
        /// Snapshots of a session. A snapshot is the state of a login shell after its profile has run.
        /// The least recently used snapshot is dropped.
        MAX_SNAPSHOTS: usize = 16, Count,
        "Part of the protocol.";

        /// Bytes of the scope of a snapshot, a name that the client chooses.
        /// The start is refused with -32602.
        MAX_SNAPSHOT_SCOPE_BYTES: usize = 256, Bytes,
        "Part of the protocol.";

        /// Bytes of the state that a shell reports.
        /// The command runs in a plain login shell instead.
        MAX_SNAPSHOT_BYTES: usize = 512 << 10, Bytes,
        "Part of the protocol.";

        /// Time that a shell has to run its profile and report its state.
        /// The command runs with the state that was reported in this time, or in a plain login shell.
        CAPTURE_PATIENCE: Duration = Duration::from_secs(10), Milliseconds,
        "Part of the protocol: the first command that uses a snapshot waits for the shell.";
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
        /// The answer contains the offset from which to continue.
        MAX_EXTENTS: usize = 4096, Count,
        "A client gets the further extents with another request.";

        /// Levels of directories that a client may ask `fs/walk` for.
        /// The request is refused with -32600.
        MAX_WALK_DEPTH: usize = files::limits::MAX_WALK_DEPTH, Count,
        "Part of the protocol.";

        /// Directories that a client may ask `fs/walk` for.
        /// The request is refused with -32600.
        MAX_WALK_DIRECTORIES: usize = files::limits::MAX_WALK_DIRECTORIES, Count,
        "Part of the protocol.";

        /// Names that a client may ask `fs/walk` for.
        /// The request is refused with -32600.
        MAX_WALK_ENTRIES: usize = files::limits::MAX_WALK_ENTRIES, Count,
        "Part of the protocol.";

        /// Bytes of the paths and errors in the answer of `fs/walk`; each path and each error counts 64 bytes more than its length.
        /// The walk ends and the answer has `truncated`.
        MAX_WALK_ANSWER_BYTES: usize = protocol::fs::MAX_WALK_ANSWER_BYTES, Bytes,
        "Part of the protocol.";

        /// File operations of a session that run at once and take as much memory as a whole message or as the threads of a search.
        /// A further such operation waits until another operation of the session ends.
        MAX_LARGE_FILE_OPERATIONS: u32 = 4, Count,
        "Each of them counts as a quarter of `--max-file-operations`.";

        /// Bytes of an answer about files that may be made while earlier answers fill the memory for unsent answers.
        /// A larger answer waits for this memory first, and the file is read afterwards.
        SMALL_ANSWER_BYTES: usize = 384 << 10, Bytes,
        "A session has at most `--max-file-operations` such answers.";

        /// Bytes above which an answer about files is large.
        /// A large answer also waits until it fits into `--max-large-answers`.
        LARGE_ANSWER_BYTES: usize = 4 << 20, Bytes,
        "Smaller answers are limited for each connection.";

        /// Symbolic links in a row that an upload follows.
        /// The upload fails with an error.
        MAX_UPLOAD_LINKS: usize = files::limits::MAX_UPLOAD_LINKS, Count,
        "The kernel has the same limit.";
    }

    "Watches" {
        /// Changes in one `fs/changed` message.
        /// The further changes are in the next message.
        MAX_CHANGES_PER_MESSAGE: usize = session::limits::MAX_CHANGES_PER_MESSAGE, Count,
        "With this many changes, a message stays far below `--max-message-bytes`, however long the paths are.";

        /// Events of the kernel that wait for a watch that is busy.
        /// All waiting events are dropped and the client is sent `overflow`.
        MAX_WATCH_EVENTS: usize = files::limits::MAX_WATCH_EVENTS, Count,
        "The queue of the kernel has this length by default.";
    }

    "Searches" {
        /// Threads of all searches together, beyond the first thread of each search.
        /// A search runs with fewer threads than it asked for.
        MAX_FURTHER_SEARCH_THREADS: usize = 32, Count,
        "Each thread can take 20 MiB of memory; `--max-searches` limits the first threads.";

        /// Threads of a search if the client gives no number of threads and the machine has more processors than this.
        /// The search runs with this many threads.
        MAX_DEFAULT_SEARCH_THREADS: usize = files::limits::MAX_DEFAULT_SEARCH_THREADS, Count,
        "More threads mostly wait for each other.";

        /// Bytes of a pattern.
        /// The search is refused with -32602.
        MAX_PATTERN_BYTES: usize = files::limits::MAX_PATTERN_BYTES, Bytes,
        "A longer pattern can take 90 MB before its compiled size is known.";

        /// Bytes of a compiled pattern.
        /// The search is refused with -32602.
        MAX_COMPILED_PATTERN_BYTES: usize = files::limits::MAX_COMPILED_PATTERN_BYTES, Bytes,
        "This size is enough for every pattern that a person writes.";

        /// Globs of a search.
        /// The search is refused with -32602.
        MAX_GLOBS: usize = files::limits::MAX_GLOBS, Count,
        "A compiled glob can take 30 KB of memory.";

        /// Bytes of all globs of a search.
        /// The search is refused with -32602.
        MAX_GLOB_BYTES: usize = files::limits::MAX_GLOB_BYTES, Bytes,
        "The compiled globs then take at most about 60 MB of memory.";

        /// Opening braces in a glob, or in a line of an ignore file.
        /// A search with such a glob is refused with -32602. The directory of such an ignore file is not searched.
        MAX_BRACES: usize = files::limits::MAX_BRACES, Count,
        "The glob parser is recursive: each brace takes a part of the stack of a thread.";

        /// Lines of context before or after a match.
        /// The search is refused with -32602.
        MAX_CONTEXT_LINES: u32 = files::limits::MAX_CONTEXT_LINES, Count,
        "A client that needs more lines can read the file.";

        /// Bytes of a line that is searched, or of a whole file if a match may span lines.
        /// The file is not searched further, and the answer lists an error for it.
        MAX_SEARCHED_BYTES: usize = files::limits::MAX_SEARCHED_BYTES, Bytes,
        "Every thread of every search may hold this much memory.";

        /// Bytes of a line in a result.
        /// The rest of the line is cut off.
        MAX_RESULT_LINE_BYTES: usize = files::limits::MAX_RESULT_LINE_BYTES, Bytes,
        "A file without line breaks would otherwise be one huge result.";

        /// Errors that the answer of a search lists.
        /// Further errors are only counted.
        MAX_SEARCH_ERRORS: usize = files::limits::MAX_SEARCH_ERRORS, Count,
        "The errors of a tree that cannot be read would otherwise fill a message.";

        /// Bytes of an ignore file.
        /// The directory of the ignore file is not searched, and the answer lists an error for it.
        MAX_IGNORE_FILE_BYTES: usize = files::limits::MAX_IGNORE_FILE_BYTES, Bytes,
        "Real ignore files are far smaller.";

        /// Lines of an ignore file.
        /// The directory of the ignore file is not searched, and the answer lists an error for it.
        MAX_IGNORE_FILE_LINES: usize = files::limits::MAX_IGNORE_FILE_LINES, Count,
        "A compiled line can take 10 KB of memory.";

        /// Ignore rules that apply to a directory, including the rules of the directories above it.
        /// The directory is not searched, and the answer lists an error for it.
        MAX_IGNORE_RULES: usize = files::limits::MAX_IGNORE_RULES, Count,
        "A compiled rule can take 10 KB of memory.";
    }

    "HTTP requests of clients" {
        /// Look-ups of host names by all sessions at once.
        /// A further look-up waits until another one ends.
        MAX_LOOKUPS: usize = fetch::limits::MAX_LOOKUPS, Count,
        "Each look-up occupies a thread until the resolver returns.";

        /// Look-ups of host names by a session at once.
        /// A further look-up of the session waits until another one ends.
        MAX_LOOKUPS_PER_SESSION: usize = fetch::limits::MAX_LOOKUPS_PER_CLIENT, Count,
        "A quarter of the limit for all sessions, so that a session whose look-ups hang leaves threads to other sessions.";

        /// Redirects of a request that are followed.
        /// The request fails with -32603.
        MAX_REDIRECTS: usize = fetch::limits::MAX_REDIRECTS, Count,
        "Part of the protocol.";

        /// Bytes of the headers of an HTTP answer.
        /// The request fails with -32603.
        MAX_HEAD_BYTES: usize = fetch::limits::MAX_HEAD_BYTES, Bytes,
        "Real servers send far less.";

        /// Headers of an HTTP answer.
        /// The request fails with -32603.
        MAX_HEADERS: usize = fetch::limits::MAX_HEADERS, Count,
        "Real servers send far fewer headers.";

        /// Idle connections of all sessions to web servers.
        /// The connection that was idle for longest is closed.
        MAX_IDLE_CONNECTIONS: usize = fetch::limits::MAX_IDLE_CONNECTIONS, Count,
        "Each connection holds a file descriptor.";

        /// Requests under way on an HTTP/2 connection.
        /// A further request gets another connection.
        MAX_STREAMS: usize = fetch::limits::MAX_STREAMS, Count,
        "The flow-control window of the connection has room for the windows of this many streams, so a body that is not read never delays another.";

        /// Bytes of an HTTP/2 body that have arrived and were not read yet.
        /// The sender of the body waits.
        MAX_UNREAD_BYTES: usize = fetch::limits::MAX_UNREAD_BYTES, Bytes,
        "Each request can use this much memory, and `--max-http-requests` limits their number.";

        /// Bytes that arrive on an HTTP/2 connection while no request gets a part of its answer.
        /// The connection is closed, and its requests fail with -32603.
        MAX_UNASKED_BYTES: usize = fetch::limits::MAX_UNASKED_BYTES, Bytes,
        "Twice as much as the flow-control windows allow, so only frames that belong to no answer can reach this limit.";
    }

    "Configuration, plugins and tokens" {
        /// Bytes of a configuration file.
        /// `environmentConfig/read` fails with an error that names the file.
        MAX_CONFIG_FILE_BYTES: u64 = 2 << 20, Bytes,
        "A file can take eighty times its size in memory while it is parsed.";

        /// Bytes of all configuration files of a request.
        /// `environmentConfig/read` fails with an error that names the file that exceeds the limit.
        MAX_CONFIG_TOTAL_BYTES: usize = 8 << 20, Bytes,
        "A project can have thousands of directories with a file each.";

        /// Bytes of the directory path in an `environmentConfig/read` request.
        /// The request is refused with -32602.
        MAX_CONFIG_PATH_BYTES: usize = 4096, Bytes,
        "The kernel does not open longer paths.";

        /// Bytes of a `.git` file that points to a repository.
        /// The file is treated as if it did not exist.
        MAX_GIT_POINTER_BYTES: u64 = 64 << 10, Bytes,
        "Such a file holds one path.";

        /// Bytes of `/etc/hosts`.
        /// The file is not used to find the domain of this machine.
        MAX_HOSTS_FILE_BYTES: u64 = 16 << 20, Bytes,
        "A longer list serves another purpose, such as blocking advertisements.";

        /// Capability roots, that is, directories with plugins, in a `capabilityRoots/discoverV1` request.
        /// The request is refused with -32600.
        MAX_CAPABILITY_ROOTS: usize = 128, Count,
        "Part of the protocol.";

        /// Capability roots of a request that are read at once.
        /// A further root waits until another root of the request is done.
        MAX_ROOTS_AT_ONCE: usize = 8, Count,
        "Part of the protocol.";

        /// Requests `capabilityRoots/discoverV1` of a session that are handled at once.
        /// A further request waits until another one is done.
        MAX_DISCOVERIES: usize = 2, Count,
        "Each request can take as much memory as a message.";

        /// Levels of directories of a capability root that are scanned.
        /// Deeper directories are left out, without a warning.
        MAX_SCAN_DEPTH: usize = 6, Count,
        "Part of the protocol.";

        /// Directories of a capability root that are scanned.
        /// Further directories are left out, and the answer has a warning.
        MAX_SCAN_DIRECTORIES: usize = 2_000, Count,
        "Part of the protocol.";

        /// Names of a capability root that are scanned.
        /// Further names are left out, and the answer has a warning.
        MAX_SCAN_ENTRIES: usize = 20_000, Count,
        "Part of the protocol.";

        /// Bytes of the names of a capability root that are scanned; each name counts 64 bytes more than its length.
        /// Further names are left out, and the answer has a warning.
        MAX_SCAN_NAME_BYTES: usize = 4 << 20, Bytes,
        "Part of the protocol.";

        /// Bytes of a file of a capability root.
        /// The file is left out, and the answer has a warning.
        MAX_CAPABILITY_FILE_BYTES: u64 = 1 << 20, Bytes,
        "Part of the protocol.";

        /// Bytes of all files of a capability root.
        /// A file that exceeds the limit is left out, and the answer has a warning.
        MAX_CAPABILITY_ROOT_BYTES: u64 = 16 << 20, Bytes,
        "Part of the protocol.";

        /// Bytes of a token file.
        /// The server does not start; after a SIGHUP it keeps the old tokens.
        MAX_TOKEN_FILE_BYTES: u64 = 1 << 20, Bytes,
        "This size is enough for 10,000 long tokens.";
    }
}
