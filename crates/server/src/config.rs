//! Every limit and duration of the server, with its default. The command line gives each a flag of the same name.

use std::path::PathBuf;
use std::time::Duration;

/// How a server behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// Connections at once; further ones wait until one ends.
    pub max_connections: usize,
    /// Connections at once that have not shown yet who they are; a further one takes the place of an older one.
    pub max_handshakes: usize,
    /// Sessions at once, detached ones included. With so many, one that nobody uses makes room for a new one.
    pub max_sessions: usize,
    /// Processes of one session, closed ones that are still readable included.
    pub max_processes: usize,
    /// Closed processes of one session that are kept beyond `process_retention` for a client that asked for it.
    pub max_kept_processes: usize,
    /// Requests of one connection that are not answered yet.
    pub max_requests: usize,
    /// Bytes of one message, both ways.
    pub max_message_bytes: usize,
    /// Bytes of argv and environment of one process.
    pub max_start_bytes: usize,
    /// Bytes of a process id or write id.
    pub max_id_bytes: usize,
    /// Bytes that wait for a process to read its stdin.
    pub max_queued_stdin: usize,
    /// The same for all processes together.
    pub max_queued_stdin_total: usize,
    /// Files and uploads of one session that are open.
    pub max_file_handles: usize,
    /// Operations on files that one session has under way; further ones wait.
    pub max_file_operations: usize,
    /// Searches that all sessions together have under way; further ones wait. A session has a quarter of them.
    pub max_searches: usize,
    /// Bytes of answers about files that have more than 4 MiB each and are being made or sent, of all connections; further ones wait.
    /// A connection has one at a time, which counts as at most a quarter.
    pub max_large_answers: usize,
    /// Watches of one session.
    pub max_watches: usize,
    /// HTTP requests of one connection that are under way, streamed bodies included.
    pub max_http_requests: usize,
    /// Bytes of HTTP answers that are being collected or sent, in all. A session has a quarter of them.
    pub max_buffered_http: usize,
    /// The longest a read waits, whatever it asks for.
    pub max_wait: Duration,
    /// Output retained per process.
    pub retain_bytes: usize,
    /// Memory for the output retained of all processes together, with what its chunks cost beside their bytes.
    pub retain_total_bytes: usize,
    /// How long a closed process stays readable.
    pub process_retention: Duration,
    /// How long a session outlives its connection.
    pub session_ttl: Duration,
    /// The longest a client may ask its session to be kept.
    pub max_session_ttl: Duration,
    /// How long the output of a detached session waits for its client before the oldest is dropped instead.
    pub detached_hold: Duration,
    /// How often a quiet peer is asked whether it is there.
    pub ping_interval: Duration,
    /// How long a peer may stay silent after it was asked.
    pub pong_deadline: Duration,
    /// How long the old connection of a resumed session has to show that it is alive.
    pub takeover_after: Duration,
    /// How long processes have to end themselves at shutdown.
    pub shutdown_grace: Duration,
    /// How long killed processes may take to be gone before an error is reported.
    pub kill_patience: Duration,
    /// The server ends by itself after so long without a connection and a session; none means never.
    pub exit_when_idle: Option<Duration>,
    /// The program that cleans up if the server is killed; none means nobody does.
    pub guard: Option<(PathBuf, Vec<String>)>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_connections: 1024,
            max_handshakes: 128,
            max_sessions: 1024,
            max_processes: 4096,
            max_kept_processes: 64,
            max_requests: 2048,
            max_message_bytes: 64 << 20,
            max_start_bytes: 2 << 20,
            max_id_bytes: 1024,
            max_queued_stdin: 1 << 20,
            max_queued_stdin_total: 64 << 20,
            max_file_handles: 128,
            max_file_operations: 32,
            max_searches: 16,
            max_large_answers: 256 << 20,
            max_watches: 64,
            max_http_requests: 256,
            max_buffered_http: 256 << 20,
            max_wait: Duration::from_secs(600),
            retain_bytes: 1 << 20,
            retain_total_bytes: 256 << 20,
            process_retention: Duration::from_secs(30),
            session_ttl: Duration::from_secs(30),
            max_session_ttl: Duration::from_secs(7 * 24 * 3600),
            // A client gives up after 25 s; until then it may come back and must find everything.
            detached_hold: Duration::from_secs(25),
            ping_interval: Duration::from_secs(25),
            pong_deadline: Duration::from_secs(20),
            takeover_after: Duration::from_secs(2),
            shutdown_grace: Duration::from_secs(5),
            kill_patience: Duration::from_secs(10),
            exit_when_idle: None,
            guard: None,
        }
    }
}
