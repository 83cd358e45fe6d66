//! The command line. Every flag has an environment variable; sizes and durations read like `1MiB` and `30s`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::Resettable;
use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use server::Config;
use transport::{DEFAULT_LISTEN_URL, ListenUrl};

use crate::commands::args::Command;
use crate::units::{Bytes, Span, at_least_one_byte, count};

/// The heading under which limits are kept, apart from what a person needs every day.
pub(crate) const LIMITS: &str = "Limits";

/// Run and control processes on this machine for a program that is somewhere else.
#[derive(Parser, Debug)]
#[command(
    name = "exec-server",
    version = env!("EXEC_SERVER_VERSION"),
    max_term_width = 100,
    disable_help_flag = true,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    after_help = "Each flag has an environment variable of its name, such as EXEC_SERVER_SESSION_TTL. Examples:
  exec-server                             serve on a free loopback port and print its URL
  exec-server --listen wss://0.0.0.0:7000 --tls-cert cert.pem --tls-key key.pem --token-file tokens"
)]
pub(crate) struct Args {
    /// ws://IP:PORT, wss://IP:PORT, unix:///PATH or stdio; repeatable
    #[arg(long, env = "EXEC_SERVER_LISTEN", hide_env = true, value_name = "URL", value_delimiter = ',', default_value = DEFAULT_LISTEN_URL)]
    pub(crate) listen: Vec<ListenUrl>,

    /// Certificate chain for wss://, PEM
    #[arg(long, env = "EXEC_SERVER_TLS_CERT", hide_env = true, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Private key for wss://, PEM
    #[arg(long, env = "EXEC_SERVER_TLS_KEY", hide_env = true, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Bearer tokens to accept, a line each: TOKEN or NAME: TOKEN; read again on SIGHUP
    #[arg(long, env = "EXEC_SERVER_TOKEN_FILE", hide_env = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// Let anybody who can reach the address run commands
    #[arg(long, env = "EXEC_SERVER_INSECURE_NO_AUTH", hide_env = true)]
    pub(crate) insecure_no_auth: bool,

    /// Answer requests for this host on loopback too; repeatable
    #[arg(long, env = "EXEC_SERVER_ALLOW_HOST", hide_env = true, value_name = "NAME", value_delimiter = ',')]
    pub(crate) allow_host: Vec<String>,

    /// How long a session outlives its connection
    #[arg(long, env = "EXEC_SERVER_SESSION_TTL", hide_env = true, value_name = "TIME", default_value = "30s")]
    pub(crate) session_ttl: Span,

    /// Output kept per process until its client is back
    #[arg(long, env = "EXEC_SERVER_RETAIN_BYTES", hide_env = true, value_name = "SIZE", value_parser = at_least_one_byte, default_value = "1MiB")]
    pub(crate) retain_bytes: Bytes,

    /// Output kept for all processes together
    #[arg(
        long,
        env = "EXEC_SERVER_RETAIN_TOTAL_BYTES",
        hide_env = true,
        value_name = "SIZE",
        default_value = "256MiB"
    )]
    pub(crate) retain_total_bytes: Bytes,

    /// Accepted for compatibility; requests are always served concurrently
    #[arg(long, env = "EXEC_SERVER_CONCURRENT_REQUESTS", value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..), hide = true)]
    pub(crate) concurrent_requests: Option<u64>,

    /// List every limit with its flag and default
    #[arg(long)]
    pub(crate) help_limits: bool,

    /// Print help
    // The compact form for both spellings: it fits a screen.
    #[arg(short, long, action = clap::ArgAction::HelpShort, global = true)]
    help: Option<bool>,

    #[command(flatten)]
    pub(crate) limits: Limits,

    /// None: serve.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Bounds that rarely need to be changed.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = LIMITS)]
pub(crate) struct Limits {
    /// Connections at once; further ones wait
    #[arg(long, env = "EXEC_SERVER_MAX_CONNECTIONS", value_name = "COUNT", value_parser = count, default_value_t = 1024, hide = true)]
    max_connections: usize,
    /// Connections at once that have sent no token yet; a further one takes the place of an older one
    #[arg(long, env = "EXEC_SERVER_MAX_HANDSHAKES", value_name = "COUNT", value_parser = count, default_value_t = 128, hide = true)]
    max_handshakes: usize,
    /// Sessions at once, detached ones included
    #[arg(long, env = "EXEC_SERVER_MAX_SESSIONS", value_name = "COUNT", value_parser = count, default_value_t = 1024, hide = true)]
    max_sessions: usize,
    /// Processes per session, closed ones that are still readable included
    #[arg(long, env = "EXEC_SERVER_MAX_PROCESSES", value_name = "COUNT", value_parser = count, default_value_t = 4096, hide = true)]
    max_processes: usize,
    /// Closed processes per session that are kept beyond --process-retention
    #[arg(long, env = "EXEC_SERVER_MAX_KEPT_PROCESSES", value_name = "COUNT", value_parser = count, default_value_t = 64, hide = true)]
    max_kept_processes: usize,
    /// Unanswered requests per connection
    #[arg(long, env = "EXEC_SERVER_MAX_REQUESTS", value_name = "COUNT", value_parser = count, default_value_t = 2048, hide = true)]
    max_requests: usize,
    /// Size of a message, both ways
    #[arg(long, env = "EXEC_SERVER_MAX_MESSAGE_BYTES", value_name = "SIZE", default_value = "64MiB", hide = true)]
    max_message_bytes: Bytes,
    /// Size of argv and environment of a process
    #[arg(long, env = "EXEC_SERVER_MAX_START_BYTES", value_name = "SIZE", default_value = "2MiB", hide = true)]
    max_start_bytes: Bytes,
    /// Size of a process id or write id
    #[arg(long, env = "EXEC_SERVER_MAX_ID_BYTES", value_name = "SIZE", default_value = "1KiB", hide = true)]
    max_id_bytes: Bytes,
    /// Bytes that wait for a process to read its stdin
    #[arg(long, env = "EXEC_SERVER_MAX_QUEUED_STDIN", value_name = "SIZE", default_value = "1MiB", hide = true)]
    max_queued_stdin: Bytes,
    /// The same for all processes together
    #[arg(
        long,
        env = "EXEC_SERVER_MAX_QUEUED_STDIN_TOTAL",
        value_name = "SIZE",
        default_value = "64MiB",
        hide = true
    )]
    max_queued_stdin_total: Bytes,
    /// Open files and uploads per session
    #[arg(long, env = "EXEC_SERVER_MAX_FILE_HANDLES", value_name = "COUNT", value_parser = count, default_value_t = 128, hide = true)]
    max_file_handles: usize,
    /// File operations per session that run at once; further ones wait
    #[arg(long, env = "EXEC_SERVER_MAX_FILE_OPERATIONS", value_name = "COUNT", value_parser = count, default_value_t = 32, hide = true)]
    max_file_operations: usize,
    /// Searches that run at once, in all; a session has a quarter of them
    #[arg(long, env = "EXEC_SERVER_MAX_SEARCHES", value_name = "COUNT", value_parser = count, default_value_t = 16, hide = true)]
    max_searches: usize,
    /// Bytes of large answers about files, in all; an answer of more than 4 MiB is large, and further ones wait
    #[arg(long, env = "EXEC_SERVER_MAX_LARGE_ANSWERS", value_name = "SIZE", default_value = "256MiB", hide = true)]
    max_large_answers: Bytes,
    /// Watches per session
    #[arg(long, env = "EXEC_SERVER_MAX_WATCHES", value_name = "COUNT", value_parser = count, default_value_t = 64, hide = true)]
    max_watches: usize,
    /// HTTP requests under way per connection
    #[arg(long, env = "EXEC_SERVER_MAX_HTTP_REQUESTS", value_name = "COUNT", value_parser = count, default_value_t = 256, hide = true)]
    max_http_requests: usize,
    /// Bytes of HTTP answers that are not streamed, in all; a session has a quarter of them
    #[arg(long, env = "EXEC_SERVER_MAX_BUFFERED_HTTP", value_name = "SIZE", default_value = "256MiB", hide = true)]
    max_buffered_http: Bytes,
    /// The longest a read waits, whatever it asks for
    #[arg(long, env = "EXEC_SERVER_MAX_WAIT", value_name = "TIME", default_value = "10m", hide = true)]
    max_wait: Span,
    /// How long a closed process stays readable
    #[arg(long, env = "EXEC_SERVER_PROCESS_RETENTION", value_name = "TIME", default_value = "30s", hide = true)]
    process_retention: Span,
    /// The longest a client may ask its session to be kept
    #[arg(long, env = "EXEC_SERVER_MAX_SESSION_TTL", value_name = "TIME", default_value = "7d", hide = true)]
    max_session_ttl: Span,
    /// How long output of a detached session waits before the oldest is dropped
    #[arg(long, env = "EXEC_SERVER_DETACHED_HOLD", value_name = "TIME", default_value = "25s", hide = true)]
    detached_hold: Span,
    /// How often a quiet peer is pinged
    #[arg(long, env = "EXEC_SERVER_PING_INTERVAL", value_name = "TIME", default_value = "25s", hide = true)]
    ping_interval: Span,
    /// How long a peer may stay silent after a ping
    #[arg(long, env = "EXEC_SERVER_PONG_DEADLINE", value_name = "TIME", default_value = "20s", hide = true)]
    pong_deadline: Span,
    /// How long the old connection of a resumed session has to show that it is alive
    #[arg(long, env = "EXEC_SERVER_TAKEOVER_AFTER", value_name = "TIME", default_value = "2s", hide = true)]
    takeover_after: Span,
    /// How long processes have to end themselves at shutdown
    #[arg(long, env = "EXEC_SERVER_SHUTDOWN_GRACE", value_name = "TIME", default_value = "5s", hide = true)]
    shutdown_grace: Span,
    /// How long killed processes may take to be gone
    #[arg(long, env = "EXEC_SERVER_KILL_PATIENCE", value_name = "TIME", default_value = "10s", hide = true)]
    kill_patience: Span,
    /// End after so long without a connection and a session
    #[arg(long, env = "EXEC_SERVER_EXIT_WHEN_IDLE", value_name = "TIME", hide = true)]
    exit_when_idle: Option<Span>,
}

/// The names of the variables that a server reads instead of its flags.
pub(crate) fn server_variables() -> Vec<OsString> {
    Args::command().get_arguments().filter_map(|argument| argument.get_env().map(OsString::from)).collect()
}

impl Args {
    /// The command line of this process. For a command of a client, variables that are meant for a server are not looked at: a mistake in
    /// one of them is no reason to refuse the command.
    pub(crate) fn of_this_process() -> Self {
        // Flags of the server cannot stand in front of a command, so a command is always the first word.
        let first = std::env::args_os().nth(1);
        let is_client = first.is_some_and(|first| !first.as_encoded_bytes().starts_with(b"-"));
        let mut command = Self::command();
        if is_client {
            command = command.mut_args(|argument| argument.env(Resettable::Reset));
        }
        Self::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
    }

    /// The server's settings, without a guard.
    pub(crate) fn config(&self) -> Config {
        let limits = &self.limits;
        Config {
            max_connections: limits.max_connections,
            max_handshakes: limits.max_handshakes,
            max_sessions: limits.max_sessions,
            max_processes: limits.max_processes,
            max_kept_processes: limits.max_kept_processes,
            max_requests: limits.max_requests,
            max_message_bytes: limits.max_message_bytes.0,
            max_start_bytes: limits.max_start_bytes.0,
            max_id_bytes: limits.max_id_bytes.0,
            max_queued_stdin: limits.max_queued_stdin.0,
            max_queued_stdin_total: limits.max_queued_stdin_total.0,
            max_file_handles: limits.max_file_handles,
            max_file_operations: limits.max_file_operations,
            max_searches: limits.max_searches,
            max_large_answers: limits.max_large_answers.0,
            max_watches: limits.max_watches,
            max_http_requests: limits.max_http_requests,
            max_buffered_http: limits.max_buffered_http.0,
            max_wait: limits.max_wait.0,
            retain_bytes: self.retain_bytes.0,
            retain_total_bytes: self.retain_total_bytes.0,
            process_retention: limits.process_retention.0,
            session_ttl: self.session_ttl.0,
            max_session_ttl: limits.max_session_ttl.0,
            detached_hold: limits.detached_hold.0,
            ping_interval: limits.ping_interval.0.max(Duration::from_millis(1)),
            pong_deadline: limits.pong_deadline.0.max(Duration::from_millis(1)),
            takeover_after: limits.takeover_after.0,
            shutdown_grace: limits.shutdown_grace.0,
            kill_patience: limits.kill_patience.0,
            exit_when_idle: limits.exit_when_idle.map(|time| time.0),
            guard: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_defaults_are_those_of_the_server() {
        let ours = Args::parse_from(["exec-server"]).config();
        assert_eq!(format!("{ours:?}"), format!("{:?}", Config::default()));
    }

    #[test]
    fn every_flag_has_an_environment_variable_of_its_name() {
        for argument in
            Args::command().get_arguments().filter(|argument| !argument.get_id().as_str().starts_with("help"))
        {
            let Some(long) = argument.get_long() else { continue };
            let expected = format!("EXEC_SERVER_{}", long.replace('-', "_").to_uppercase());
            assert_eq!(argument.get_env().and_then(|name| name.to_str()), Some(expected.as_str()), "--{long}");
        }
    }

    #[test]
    fn help_fits_a_screen() {
        let help = Args::command().render_help().to_string();
        assert!(help.lines().count() <= 40, "{help}");
    }

    #[test]
    fn a_sentence_of_a_help_text_is_broken_by_the_terminal_only() {
        for command in std::iter::once(Args::command()).chain(Args::command().get_subcommands().cloned()) {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let broken = |line: &&str| !line.is_empty() && !line.starts_with(' ') && !line.ends_with(['.', ':']);
            assert_eq!(text.lines().find(broken), None, "{}", command.get_name());
            let is_wide = |line: &&str| line.starts_with(' ') && line.chars().count() > 100;
            assert_eq!(text.lines().find(is_wide), None, "{}", command.get_name());
        }
    }

    #[test]
    fn zero_concurrent_requests_is_an_error() {
        assert!(Args::try_parse_from(["exec-server", "--concurrent-requests", "0"]).is_err());
        assert!(Args::try_parse_from(["exec-server", "--concurrent-requests", "32"]).is_ok());
    }
}
