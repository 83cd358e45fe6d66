//! The flags of the server. Each, except for those that print help, has an environment variable of its name. The
//! flags for limits are in [`limit_flags`](crate::limit_flags), the commands and their flags in
//! [`commands::args`](crate::commands::args).

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::builder::{ArgPredicate, Resettable};
use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use transport::{DEFAULT_LISTEN_URL, ListenUrl};

use crate::commands::args::Command;
use crate::limit_flags::LimitArgs;
use crate::remote_args::RemoteArgs;

/// The description in the manual page. `--help` shows one sentence instead, the doc comment of [`Args`].
const LONG_ABOUT: &str = "\
exec-server runs and controls processes on this machine for a program that is somewhere else.

Without a command it is the server. As soon as clients can connect, it prints the URL of each address on a line of \
its own, unless it serves stdio. It writes its log to stderr. SIGTERM or SIGINT ends it after it has ended every \
process that it has started; a second signal kills these processes at once. On SIGHUP it reads the token file again.

With a command it is a client. The command works in an environment: a machine on which such a server runs, or is started for the command. \
The flags -e, --connect and --ssh choose the environment; without one of them it is the default of environments.toml, or else this \
machine. A kept session (--session) and the processes in it outlive the command that has started the session.";

/// The text about `--listen` in the manual page. `--help` shows a shorter one.
const LISTEN_HELP: &str = "An address to listen on: ws://IP:PORT, wss://IP:PORT, unix:///PATH, or stdio for stdin and stdout. Port 0 is \
a free port. The flag can be repeated. With --remote the default is to listen on no address.";
/// The text about `--token-file` in the manual page. `--help` shows a shorter one.
const TOKEN_FILE_HELP: &str = "A file with the bearer tokens to accept, one on each line, as TOKEN or as NAME: TOKEN; the name is for \
the log. The file is read again on SIGHUP. An address that other machines can reach needs \
such a file, or --insecure-no-auth.";

/// Run and control processes on this machine for a program that is somewhere else
#[derive(Parser, Debug)]
#[command(
    name = "exec-server",
    version = env!("EXEC_SERVER_VERSION"),
    long_about = LONG_ABOUT,
    max_term_width = 100,
    disable_help_flag = true,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    after_help = "Each flag has an environment variable of its name, such as EXEC_SERVER_SESSION_TTL. Examples:
  exec-server                             serve on a free loopback port and print its URL
  exec-server --listen wss://0.0.0.0:7000 --tls-cert cert.pem --tls-key key.pem --token-file tokens"
)]
pub(crate) struct Args {
    /// ws://IP:PORT, wss://, unix:///PATH or stdio
    #[arg(long, long_help = LISTEN_HELP, env = "EXEC_SERVER_LISTEN", hide_env = true, value_name = "URL", value_delimiter = ',', default_value = DEFAULT_LISTEN_URL, default_value_if("remote", ArgPredicate::IsPresent, None))]
    pub(crate) listen: Vec<ListenUrl>,

    /// PEM file with the certificate chain for wss://
    #[arg(long, env = "EXEC_SERVER_TLS_CERT", hide_env = true, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// PEM file with the private key for wss://
    #[arg(long, env = "EXEC_SERVER_TLS_KEY", hide_env = true, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Bearer tokens to accept, one on each line; read again on SIGHUP
    #[arg(long, long_help = TOKEN_FILE_HELP, env = "EXEC_SERVER_TOKEN_FILE", hide_env = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// Let anybody who can reach the address run commands
    #[arg(long, env = "EXEC_SERVER_INSECURE_NO_AUTH", hide_env = true)]
    pub(crate) insecure_no_auth: bool,

    /// Accept this name as the Host of requests on loopback; repeatable
    #[arg(
        long,
        env = "EXEC_SERVER_ALLOW_HOST",
        hide_env = true,
        hide_short_help = true,
        value_name = "NAME",
        value_delimiter = ','
    )]
    pub(crate) allow_host: Vec<String>,

    /// Do not let clients reach TCP ports through this machine
    #[arg(long, env = "EXEC_SERVER_NO_PORT_FORWARD", hide_env = true, hide_short_help = true)]
    pub(crate) no_port_forward: bool,

    #[command(flatten)]
    pub(crate) remote: RemoteArgs,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    /// Accepted for compatibility and ignored: requests are always served concurrently
    #[arg(long, env = "EXEC_SERVER_CONCURRENT_REQUESTS", value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..), hide = true)]
    pub(crate) concurrent_requests: Option<u64>,

    /// List every limit with its flag and default
    #[arg(long)]
    pub(crate) help_limits: bool,

    /// Print this help
    // `-h` and `--help` both print the short help, because the long help does not fit a screen.
    #[arg(short, long, action = clap::ArgAction::HelpShort, global = true)]
    help: Option<bool>,

    /// `None`: the program is a server.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// The names of the environment variables that a server reads for flags that are not given.
pub(crate) fn server_variables() -> Vec<OsString> {
    Args::command().get_arguments().filter_map(|argument| argument.get_env().map(OsString::from)).collect()
}

impl Args {
    /// Parses the command line of this process. With a command, and with `--help-limits`, the environment variables for
    /// the flags of a server are not read, so that a wrong value in one of these variables does not make them fail.
    pub(crate) fn of_this_process() -> Self {
        // The flags of the server exclude a command, so only the first word can be a command.
        let first = std::env::args_os().nth(1);
        let is_client = first.is_some_and(|first| !first.as_encoded_bytes().starts_with(b"-"));
        let prints_limits = std::env::args_os().any(|argument| argument == "--help-limits");
        let mut command = Self::command();
        if is_client || prints_limits {
            command = command.mut_args(|argument| argument.env(Resettable::Reset));
        }
        let matches = command.try_get_matches().unwrap_or_else(|error| exit_with(&error));
        Self::from_arg_matches(&matches).unwrap_or_else(|error| exit_with(&error))
    }
}

/// Prints the help, the version or an error about the command line, and exits. A text that cannot be written is an
/// error, unless the reader of stdout has closed the pipe.
fn exit_with(error: &clap::Error) -> ! {
    let printed = error.print().and_then(|()| io::stdout().flush());
    match printed {
        Err(failure) if !error.use_stderr() && failure.kind() != io::ErrorKind::BrokenPipe => {
            crate::report_error(&anyhow::Error::new(failure).context("cannot write the output"));
            std::process::exit(crate::OUR_FAILURE.into())
        }
        _ => std::process::exit(error.exit_code()),
    }
}

#[cfg(test)]
mod tests {
    use server::Config;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_default_limits_are_those_of_the_server_library() {
        let ours = Args::parse_from(["exec-server"]).limits.config;
        assert_eq!(format!("{ours:?}"), format!("{:?}", Config::default()));
    }

    /// Flags that say which executor this machine is. A server must not become one by a variable that it inherits, and
    /// `EXEC_SERVER_REMOTE` is a variable of clients.
    const FLAGS_WITHOUT_VARIABLE: [&str; 5] =
        ["remote", "environment-id", "name", "identity-file", "use-agent-identity-auth"];

    #[test]
    fn every_flag_that_does_not_print_help_has_an_environment_variable_of_its_name() {
        for argument in
            Args::command().get_arguments().filter(|argument| !argument.get_id().as_str().starts_with("help"))
        {
            let Some(long) = argument.get_long() else { continue };
            if FLAGS_WITHOUT_VARIABLE.contains(&long) {
                assert_eq!(argument.get_env(), None, "--{long}");
                continue;
            }
            let expected = format!("EXEC_SERVER_{}", long.replace('-', "_").to_uppercase());
            assert_eq!(argument.get_env().and_then(|name| name.to_str()), Some(expected.as_str()), "--{long}");
        }
    }

    #[test]
    fn help_has_at_most_48_lines() {
        let help = Args::command().render_help().to_string();
        assert!(help.lines().count() <= 48, "{help}");
    }

    #[test]
    fn help_texts_have_no_line_break_in_a_sentence_and_no_indented_line_over_100_characters() {
        for command in std::iter::once(Args::command()).chain(Args::command().get_subcommands().cloned()) {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let is_broken = |line: &&str| !line.is_empty() && !line.starts_with(' ') && !line.ends_with(['.', ':']);
            assert_eq!(text.lines().find(is_broken), None, "{}", command.get_name());
            let is_wide = |line: &&str| line.starts_with(' ') && line.chars().count() > 100;
            assert_eq!(text.lines().find(is_wide), None, "{}", command.get_name());
        }
    }

    #[test]
    fn concurrent_requests_must_be_at_least_one() {
        assert!(Args::try_parse_from(["exec-server", "--concurrent-requests", "0"]).is_err());
        assert!(Args::try_parse_from(["exec-server", "--concurrent-requests", "32"]).is_ok());
    }
}
