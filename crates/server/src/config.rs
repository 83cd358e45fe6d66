//! The settings of a server. Every limit that a user can change is one entry of the list below: the entry is the field of [`Config`], its
//! default, its flag, its environment variable, its line in `--help-limits` and its row in `docs/limits.md`.
//!
//! What an entry means is in `config/limit.rs`. The command line makes its flags from [`ADJUSTABLE_LIMITS`], so this module knows nothing of
//! how they are parsed. Limits that no flag changes are in `limits/fixed.rs`.

mod document;
mod limit;

use std::path::PathBuf;
use std::time::Duration;

pub use document::limits_document;
use limit::adjustable_limits;
pub use limit::{Limit, Minimum};

// The first sentence of an entry is the help text of its flag. The further sentences say what happens at the limit.
adjustable_limits! {
    /// How long a session outlives its connection.
    /// Then its processes are killed, and resuming the session is refused with -32600.
    session_ttl: Duration = Duration::from_secs(30), Milliseconds;

    /// Output kept per process until its client is back.
    /// While a client follows the process, the process waits until the client has received the oldest output.
    /// Otherwise the oldest output is dropped.
    retain_bytes: usize = 1 << 20, Bytes, Minimum::Refused {
        below: 1,
        because: "a process that may retain no output could never write any; give at least 1",
    };

    /// Output kept for all processes together.
    /// The memory that the output occupies is counted. Output of closed processes that was sent is dropped first, then output that was
    /// received, then the oldest output of every process. 64 KiB that were not received yet are left to each process.
    retain_total_bytes: usize = 256 << 20, Bytes;

    /// Connections at once.
    /// A further client waits until a connection ends. While `--max-handshakes` clients wait, the next one is closed with code 1013.
    /// Health pages and metrics are always answered.
    max_connections: usize = 1024, Count;

    /// Connections at once that have not finished their handshake, that is, have sent no token yet.
    /// The oldest one of the address that has the most is closed in favour of a new one.
    max_handshakes: usize = 128, Count;

    /// Sessions at once, detached ones included.
    /// A detached session without a running process makes room for a new one: one that holds nothing, or one whose `--session-ttl` is
    /// over. If there is none, `initialize` is refused with -32600.
    max_sessions: usize = 1024, Count;

    /// Processes per session, closed ones that are still readable included.
    /// A closed process that is kept beyond `--process-retention` makes room. If there is none, `process/start` is refused with -32600.
    max_processes: usize = 4096, Count;

    /// Closed processes per session that are kept beyond `--process-retention`.
    /// The process that closed first is forgotten.
    max_kept_processes: usize = 64, Count;

    /// Unanswered requests per connection.
    /// A further request is refused with -32600.
    max_requests: usize = 2048, Count;

    /// Size of a message, both ways.
    /// A larger request is refused with -32600. A larger answer becomes an error that says so.
    max_message_bytes: usize = 64 << 20, Bytes;

    /// Size of argv and environment of a process.
    /// A larger start is refused with -32602.
    max_start_bytes: usize = 2 << 20, Bytes;

    /// Size of a process id, write id or request id.
    /// A longer process id or write id is refused with -32602, a longer request id with -32600 under the id -1.
    max_id_bytes: usize = 1 << 10, Bytes;

    /// Bytes that wait for a process to read its stdin.
    /// The answer to a further write waits. All waiting writes of a connection may have four times this size; more are refused with
    /// -32600 and `inputCrowded`.
    max_queued_stdin: usize = 1 << 20, Bytes;

    /// Bytes that wait for all processes together to read their stdin.
    /// A further write is refused with -32600 and `inputCrowded`, unless it has at most 64 KiB and nothing else waits for its process.
    max_queued_stdin_total: usize = 64 << 20, Bytes;

    /// Open files and uploads per session.
    /// Opening a further one is refused with -32600.
    max_file_handles: usize = 128, Count;

    /// File operations per session that run at once.
    /// A further operation waits until one of the session ends. An operation that takes much memory counts as a quarter of them.
    max_file_operations: usize = 32, Count;

    /// File operations of all sessions that run at once.
    /// A further operation waits until one ends. Each can occupy a thread.
    max_file_operations_total: usize = 384, Count;

    /// Searches of all sessions that run at once; a session has a quarter of them.
    /// A further search waits until one ends.
    max_searches: usize = 16, Count;

    /// Bytes of large answers about files, in all; an answer of more than 4 MiB is large.
    /// A further large answer waits, and its file is not read before. A connection has one at a time, which counts as at most a quarter.
    max_large_answers: usize = 256 << 20, Bytes;

    /// Watches per session.
    /// A further `fs/watch` is refused with -32600.
    max_watches: usize = 64, Count;

    /// Changes per watch that wait to be sent, and changes that are kept for a client that reconnects.
    /// If more changes wait, all of them are dropped and the client is sent `overflow`. The oldest kept change is dropped.
    max_watch_changes: usize = 10_000, Count;

    /// HTTP requests under way per connection, streamed bodies included.
    /// A further `http/request` is refused with -32600.
    max_http_requests: usize = 256, Count;

    /// Bytes of HTTP answers that are not streamed, in all; a session has a quarter of them.
    /// An answer that does not fit fails with -32603.
    max_buffered_http: usize = 256 << 20, Bytes;

    /// The longest a read waits, whatever it asks for.
    /// Then the read is answered without news.
    max_wait: Duration = Duration::from_secs(600), Milliseconds;

    /// How long a closed process stays readable.
    /// Then the process is forgotten, unless its client has asked to keep it.
    process_retention: Duration = Duration::from_secs(30), Milliseconds;

    /// The longest a client may ask its session to be kept.
    /// A longer `keepForMs` counts as this time.
    max_session_ttl: Duration = Duration::from_secs(7 * 24 * 3600), Milliseconds;

    // A client gives up after 25 s; until then it may come back and must find everything.
    /// How long output of a detached session waits before the oldest is dropped.
    /// Until then a process whose retained output is full waits for its client.
    detached_hold: Duration = Duration::from_secs(25), Milliseconds;

    /// How often a quiet peer is pinged.
    /// A connection on which nothing arrives for this long is sent a ping.
    ping_interval: Duration = Duration::from_secs(25), Milliseconds, Minimum::Raised(1);

    /// How long a peer may stay silent after a ping.
    /// Then the connection is closed and its session is detached. A peer that reads slowly gets up to three
    /// times this long in addition.
    pong_deadline: Duration = Duration::from_secs(20), Milliseconds, Minimum::Raised(1);

    /// How long the old connection of a resumed session has to show that it is alive.
    /// If it does, the resume is refused with -32010. If it does not, the new connection gets the session.
    takeover_after: Duration = Duration::from_secs(2), Milliseconds;

    /// How long processes have to end themselves at shutdown.
    /// Then they are killed.
    shutdown_grace: Duration = Duration::from_secs(5), Milliseconds;

    /// How long killed processes may take to be gone.
    /// Then the request fails or the log says so, and the server goes on trying to kill them.
    kill_patience: Duration = Duration::from_secs(10), Milliseconds;

    /// End after so long without a connection and a session.
    /// The server shuts down and exits with code 0. An HTTP request counts as a connection.
    exit_when_idle: Option<Duration> = None, Milliseconds;
}
