//! The settings of a server. Every limit that a user can change is one entry of the list below. From each entry come a field of [`Config`]
//! with its default, a flag, an environment variable, a line of `--help-limits` and a row of `docs/limits.md`.
//!
//! The macro `adjustable_limits` in `config/limit.rs` explains the form of an entry. The command line makes its flags from
//! [`ADJUSTABLE_LIMITS`], so this module does not parse them. Limits that no flag changes are in `limits/fixed.rs`.

mod document;
mod limit;

use std::path::PathBuf;
use std::time::Duration;

pub use document::limits_document;
use limit::adjustable_limits;
pub use limit::{Limit, Minimum};

// The first line of an entry is the help text of its flag. The further lines say what happens at the limit.
adjustable_limits! {
    /// How long a session outlives its connection.
    /// After this time its processes are killed, and a request to resume the session is refused with -32600.
    session_ttl: Duration = Duration::from_secs(30), Milliseconds;

    /// Output kept per process, for a client that reads it later or reconnects.
    /// While a client is sent the output of the process, the process waits until the client has received the oldest output.
    /// Otherwise the oldest output is dropped.
    retain_bytes: usize = 1 << 20, Bytes, Minimum::Refused {
        below: 1,
        because: "a process that may retain no output could never write any; give at least 1",
    };

    /// Output kept for all processes together.
    /// The memory that the output occupies is counted. Output that clients have received is dropped first, then output of closed processes
    /// that was sent, then the oldest output of every process. Each running process keeps up to 64 KiB of output that its client has not
    /// received. A closed process that its client has paused keeps no more than an equal part of the limit.
    retain_total_bytes: usize = 256 << 20, Bytes;

    /// Connections at once.
    /// A further client waits until a connection ends. While `--max-handshakes` clients wait, the next one is closed with code 1013.
    /// Health pages and metrics are always answered.
    max_connections: usize = 1024, Count;

    /// Connections at once that have not finished their handshake, that is, have sent no token yet.
    /// A new connection closes an older one: the oldest connection of the address that has the most unfinished handshakes.
    max_handshakes: usize = 128, Count;

    /// Sessions at once, including detached sessions, which have no connection.
    /// A new session replaces a detached session that has no running process. That session must also have no closed
    /// process, open file or watch, or its `--session-ttl` must be over. If there is no such session, `initialize` is
    /// refused with -32600.
    max_sessions: usize = 1024, Count;

    /// Processes per session, including closed processes that can still be read.
    /// A closed process that is kept beyond `--process-retention` is forgotten to start a new one. If there is no such process,
    /// `process/start` is refused with -32600.
    max_processes: usize = 4096, Count;

    /// Closed processes per session that are kept beyond `--process-retention`.
    /// The process that closed first is forgotten. A process with events that a connected client must still be sent is not forgotten.
    max_kept_processes: usize = 64, Count;

    /// Unanswered requests per connection.
    /// A further request is refused with -32600.
    max_requests: usize = 2048, Count;

    /// Size of a message, in both directions.
    /// A larger request is refused with -32600. Instead of a larger answer, the client gets an error that names the limit.
    max_message_bytes: usize = 64 << 20, Bytes;

    /// Size of argv and environment of a process.
    /// A larger start is refused with -32602.
    max_start_bytes: usize = 2 << 20, Bytes;

    /// Size of a process id, write id or request id.
    /// A longer process id or write id is refused with -32602, a longer request id with -32600 in an error with id -1.
    max_id_bytes: usize = 1 << 10, Bytes;

    /// Bytes of input that wait until a process reads its stdin.
    /// A further write is answered when the process has read enough. All waiting writes of a connection together may have four times this
    /// size; a write beyond that is refused with -32600 and `inputCrowded`.
    max_queued_stdin: usize = 1 << 20, Bytes;

    /// Bytes of input that wait until processes read their stdin, of all processes together.
    /// A further write is refused with -32600 and `inputCrowded`, unless it has at most 64 KiB and nothing else waits for its process.
    max_queued_stdin_total: usize = 64 << 20, Bytes;

    /// Open files and uploads per session.
    /// Opening a further file is refused with -32600.
    max_file_handles: usize = 128, Count;

    /// File operations per session that run at once.
    /// A further operation waits until another operation of the session ends. An operation that takes much memory counts as a quarter of
    /// the limit.
    max_file_operations: usize = 32, Count;

    /// File operations of all sessions that run at once.
    /// A further operation waits until another one ends. Each operation can occupy a thread.
    max_file_operations_total: usize = 384, Count;

    /// Searches of all sessions that run at once; one session may run a quarter of them.
    /// A further search waits until another one ends.
    max_searches: usize = 16, Count;

    /// Bytes of unsent large answers about files, of all connections together; an answer of more than 4 MiB is large.
    /// A further large answer waits until it fits, and its file is read only then. A connection has one large answer at
    /// a time, which counts as at most a quarter of the limit.
    max_large_answers: usize = 256 << 20, Bytes;

    /// Watches per session.
    /// A further `fs/watch` is refused with -32600.
    max_watches: usize = 64, Count;

    /// Changes per watch that wait to be sent, and changes that are kept for a client that reconnects.
    /// If more changes wait, all of them are dropped and the client is sent `overflow`. If more changes are kept, the oldest is dropped.
    max_watch_changes: usize = 10_000, Count;

    /// HTTP requests under way per connection, streamed bodies included.
    /// A further `http/request` is refused with -32600.
    max_http_requests: usize = 256, Count;

    /// Bytes of HTTP answers that are not streamed, of all sessions together; one session may have a quarter of them.
    /// A request whose answer does not fit fails with -32603.
    max_buffered_http: usize = 256 << 20, Bytes;

    /// TCP streams to ports per connection.
    /// A further `tcp/connect` is refused with -32600 and `tooManyStreams`.
    max_port_streams: usize = 256, Count;

    /// TCP streams to ports, of all connections together.
    /// A further `tcp/connect` is refused with -32600 and `tooManyStreams`.
    max_port_streams_total: usize = 1024, Count;

    /// Bytes of clients that wait until TCP ports take them, of all connections together.
    /// A stream that is opened when less than 1 MiB is left gets a window of 64 KiB instead of 1 MiB.
    max_port_buffers: usize = 128 << 20, Bytes;

    /// How long it may take to open a TCP stream, including the look-up of the host name.
    /// After this time `tcp/connect` fails with -32603 and `timedOut`.
    port_connect_timeout: Duration = Duration::from_secs(10), Milliseconds;

    /// The longest time that a read waits for events, even if the client asks for a longer time.
    /// After this time the read is answered without events.
    max_wait: Duration = Duration::from_secs(600), Milliseconds;

    /// How long a closed process stays readable.
    /// After this time the process is forgotten, unless its client has asked to keep it, or is connected and was not sent all its events
    /// yet.
    process_retention: Duration = Duration::from_secs(30), Milliseconds;

    /// The longest time for which a client may ask to keep its session.
    /// A longer `keepForMs` counts as this time.
    max_session_ttl: Duration = Duration::from_secs(7 * 24 * 3600), Milliseconds;

    // A client tries to reconnect for 25 s. If it succeeds, no output may be missing.
    /// How long processes of a detached session keep all output for a client that may reconnect.
    /// During this time a process whose retained output is full waits. After this time its oldest output is dropped.
    detached_hold: Duration = Duration::from_secs(25), Milliseconds;

    /// How often a WebSocket client is pinged.
    /// The server sends the next ping.
    ping_interval: Duration = Duration::from_secs(25), Milliseconds, Minimum::Raised(1);

    /// How long a client may give no sign of life after a ping.
    /// After this time the connection is closed and its session is detached. A client that reads slowly gets up to three
    /// times this long in addition.
    pong_deadline: Duration = Duration::from_secs(20), Milliseconds, Minimum::Raised(1);

    /// How long the old connection of a resumed session has to show that it is alive.
    /// If the old connection answers in time, the resume is refused with -32010. Otherwise the new connection gets the session.
    takeover_after: Duration = Duration::from_secs(2), Milliseconds;

    /// How long processes have at shutdown to end by themselves.
    /// Processes that still run after this time are killed.
    shutdown_grace: Duration = Duration::from_secs(5), Milliseconds;

    /// How long the server waits until killed processes have ended.
    /// After this time the request that ends the processes fails, or an error is logged. The server goes on trying to
    /// kill the processes.
    kill_patience: Duration = Duration::from_secs(10), Milliseconds;

    /// The server exits after this time without any connection or session.
    /// The server shuts down and exits with code 0. An HTTP request counts as a connection.
    exit_when_idle: Option<Duration> = None, Milliseconds;
}
