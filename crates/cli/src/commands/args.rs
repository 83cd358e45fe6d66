//! The commands and what they take.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::files::args::{
    CAT_HELP, CP_HELP, CatArgs, CpArgs, LS_HELP, LsArgs, MKDIR_HELP, MkdirArgs, RM_HELP, RmArgs,
};
use super::ps::quoted;
use crate::units::TimeArg;

const RUN_HELP: &str = "\
The exit code is the command's, or:
  124  its time was over
  125  exec-server failed, for instance to connect, or was not told how the command ended
  126  it cannot be executed
  127  it was not found
  141  nobody reads our output any more

With -t, keys go to the command as they are. After Enter, `~.` hangs up, or leaves a command of a kept session running, \
and `~~` sends one tilde.

On this machine, a command in a kept session gets the variables, directory and umask of your shell, but the limits \
(ulimit) of the server in the background.

Examples:
  exec-server run -- make test
  exec-server run --ssh build-host --cwd /srv/app -- git pull
  tar c src | exec-server run --connect ws://10.0.0.5:7000 -- tar x
  exec-server run -t --connect unix:///run/user/1000/exec.sock -- htop
  exec-server run -d -- ./long-job      (then: exec-server attach)";

const SHELL_HELP: &str = "\
After Enter, `~.` hangs up, or leaves a shell of a kept session running, and `~~` sends one tilde. If stdin is no \
terminal, the shell reads its commands from there.

Examples:
  exec-server shell --ssh build-host
  exec-server shell --session work      (then: exec-server attach --session work)
  exec-server shell --connect ws://10.0.0.5:7000 < script.sh";

const ATTACH_HELP: &str = "\
Prints what is retained of the output, then goes on as if the command had been run here. It exits with the exit code \
of the process. After Enter, `~.` leaves the process running, and `~~` sends one tilde.

Examples:
  exec-server attach
  exec-server attach --session work 3";

const SEARCH_HELP: &str = "\
A place is PATH, or ENV:PATH for an environment of environments.toml; a relative path begins in the directory of the \
server. Without a place that directory is searched. What .gitignore names and what begins with a dot is left out.

It exits with 0 if something was found, 1 if nothing was, and 2 if something went wrong.

Examples:
  exec-server search -S 'todo|fixme' build-host:/srv/app
  exec-server search -l -g '*.rs' unwrap --ssh build-host :/srv/app
  exec-server search --files -g '*.toml' build-host:";

const WATCH_HELP: &str = "\
Prints one line for each file that is created, modified, removed or renamed, until Ctrl-C. `overflow` means that more \
has changed than could be told.

Examples:
  exec-server watch build-host:/srv/app/log
  exec-server watch --json --connect ws://10.0.0.5:7000 :/srv/app";

/// What to do in an environment.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a command in an environment, with our input, output, signals and its exit code
    #[command(after_help = RUN_HELP)]
    Run(RunArgs),
    /// Open an interactive shell in an environment
    #[command(after_help = SHELL_HELP)]
    Shell(ShellArgs),
    /// List the processes of a kept session
    Ps(PsArgs),
    /// End a process of a kept session and everything it has started, or send it a signal
    Kill(KillArgs),
    /// Print what a process of a kept session has written
    Logs(LogsArgs),
    /// Take up a process of a kept session in this terminal
    #[command(after_help = ATTACH_HELP)]
    Attach(AttachArgs),
    /// Search files of an environment, as ripgrep does
    #[command(after_help = SEARCH_HELP)]
    Search(SearchArgs),
    /// Print what changes in a directory of an environment
    #[command(after_help = WATCH_HELP)]
    Watch(WatchArgs),
    /// Copy files and trees between here and environments
    #[command(after_help = CP_HELP)]
    Cp(CpArgs),
    /// List files of an environment
    #[command(after_help = LS_HELP)]
    Ls(LsArgs),
    /// Print files of an environment
    #[command(after_help = CAT_HELP)]
    Cat(CatArgs),
    /// Remove files of an environment
    #[command(after_help = RM_HELP)]
    Rm(RmArgs),
    /// Make directories in an environment
    #[command(after_help = MKDIR_HELP)]
    Mkdir(MkdirArgs),
    /// Run an MCP server in an environment and bridge it to our stdio
    McpStdio(McpStdioArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),
}

/// Which environment is meant. None of these: the default one of environments.toml, or else this machine.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Where")]
pub(crate) struct TargetArgs {
    /// An environment of environments.toml
    #[arg(short = 'e', long, value_name = "NAME", conflicts_with_all = ["connect", "ssh"])]
    pub(crate) environment: Option<String>,
    /// A server that listens: ws://, wss:// or unix://
    #[arg(long, value_name = "URL", conflicts_with = "ssh")]
    pub(crate) connect: Option<String>,
    /// Start the server on this machine over ssh; it must let us in without a question
    #[arg(long, value_name = "HOST")]
    pub(crate) ssh: Option<String>,
    /// A directory here that has the same files as --remote-root there
    #[arg(long, value_name = "DIR", requires = "ssh", requires = "remote_root")]
    pub(crate) local_root: Option<PathBuf>,
    /// The directory there
    #[arg(long, value_name = "DIR", requires = "ssh", requires = "local_root")]
    pub(crate) remote_root: Option<PathBuf>,
    /// The server program there
    #[arg(long, value_name = "PATH", requires = "ssh", default_value = "exec-server")]
    pub(crate) program: String,
    /// A configuration file for ssh
    #[arg(long, value_name = "FILE", requires = "ssh")]
    pub(crate) ssh_config: Option<PathBuf>,
    /// Certificates to trust for wss:// instead of the system's, PEM
    #[arg(long, env = "EXEC_SERVER_CA_FILE", value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// A file with the token that the server wants
    #[arg(long, env = "EXEC_SERVER_CLIENT_TOKEN_FILE", value_name = "FILE")]
    pub(crate) client_token_file: Option<PathBuf>,
    /// How long the server that kept sessions start in the background, where none is configured, outlives the last of them [default: 60s]
    #[arg(long, env = "EXEC_SERVER_BACKGROUND_IDLE", value_name = "TIME", hide_short_help = true)]
    pub(crate) background_idle: Option<TimeArg>,
}

impl TargetArgs {
    /// The flag that chooses an environment, if one is given.
    pub(crate) fn flag(&self) -> Option<&'static str> {
        let given = [(&self.environment, "-e"), (&self.connect, "--connect"), (&self.ssh, "--ssh")];
        given.into_iter().find(|(value, _)| value.is_some()).map(|(_, flag)| flag)
    }

    /// A command line for the same environment, to be shown to a person. It reaches kept sessions only, so what is for ssh is left out.
    pub(crate) fn command_line(&self, verb: &str, rest: &[&str]) -> String {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.to_string_lossy().into_owned());
        let given = [
            ("-e", self.environment.clone()),
            ("--connect", self.connect.clone()),
            ("--ca-file", path(&self.ca_file)),
            ("--client-token-file", path(&self.client_token_file)),
        ];
        let given = given.into_iter().filter_map(|(flag, value)| Some(format!(" {flag} {}", quoted(&value?))));
        let rest = rest.iter().map(|word| format!(" {}", quoted(word)));
        format!("exec-server {verb}{}", given.chain(rest).collect::<String>())
    }
}

/// How long a session is kept when nobody is connected, if nothing else is said.
pub(crate) const DEFAULT_KEEP: Duration = Duration::from_secs(24 * 60 * 60);

/// Which kept session is meant.
#[derive(Args, Debug, Clone)]
pub(crate) struct SessionArgs {
    /// The session's name
    #[arg(short, long, value_name = "NAME", default_value = "default")]
    pub(crate) session: String,
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// Give the command a terminal
    #[arg(short, long)]
    pub(crate) tty: bool,
    /// The directory it runs in; left out, ours on this machine and below --local-root, else the server's
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Set a variable; only a name passes our own value on
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
    /// End it after this long; the exit code is then 124
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<TimeArg>,
    /// Run it in a kept session of this name, where others can find it
    #[arg(short, long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// Start it in a kept session (`default` if none is named), print its id and leave it
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// The id in the kept session, of characters that can be seen; a number if left out
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// How long the session, with all its commands, is kept when nobody is connected [default: 24h, or a longer time that an earlier --keep has set]
    #[arg(long, value_name = "TIME")]
    pub(crate) keep: Option<TimeArg>,
    /// One JSON object per event on stdout instead of the bare output
    #[arg(long, conflicts_with_all = ["tty", "detach"])]
    pub(crate) json: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ShellArgs {
    /// The directory it starts in; left out, ours on this machine and below --local-root, else the server's
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Set a variable; only a name passes our own value on
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
    /// Open it in a kept session of this name
    #[arg(short, long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// How long the session, with all its commands, is kept when nobody is connected [default: 24h, or a longer time that an earlier --keep has set]
    #[arg(long, value_name = "TIME")]
    pub(crate) keep: Option<TimeArg>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct PsArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct KillArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Only send this signal: interrupt, hangup, quit, terminate, kill, user1, user2, stop or continue
    #[arg(long, value_name = "NAME")]
    pub(crate) signal: Option<String>,
    /// Ids as `ps` shows them
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Go on until it ends; then exit with its code
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// One JSON object per event
    #[arg(long)]
    pub(crate) json: bool,
    /// Id as `ps` shows it
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

#[derive(Args, Debug)]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Id as `ps` shows it; the only one that runs if left out
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct SearchArgs {
    /// Case does not matter
    #[arg(short, long)]
    pub(crate) ignore_case: bool,
    /// Case matters only if the pattern has an upper-case letter
    #[arg(short = 'S', long)]
    pub(crate) smart_case: bool,
    /// The pattern is meant literally
    #[arg(short = 'F', long)]
    pub(crate) fixed_strings: bool,
    /// Only whole words
    #[arg(short, long)]
    pub(crate) word_regexp: bool,
    /// Only files whose names match; with `!` in front, only others
    #[arg(short, long, value_name = "GLOB")]
    pub(crate) glob: Vec<String>,
    /// So many lines after each match
    #[arg(short = 'A', long, value_name = "N")]
    pub(crate) after_context: Option<u32>,
    /// So many lines before each match
    #[arg(short = 'B', long, value_name = "N")]
    pub(crate) before_context: Option<u32>,
    /// Both
    #[arg(short = 'C', long, value_name = "N")]
    pub(crate) context: Option<u32>,
    /// Only the names of files with matches
    #[arg(short = 'l', long, conflicts_with = "json")]
    pub(crate) files_with_matches: bool,
    /// Only the names of files, whatever they hold; there is no pattern then
    #[arg(long)]
    pub(crate) files: bool,
    /// Names with a dot in front too
    #[arg(long)]
    pub(crate) hidden: bool,
    /// What .gitignore and its kin name too
    #[arg(long)]
    pub(crate) no_ignore: bool,
    /// At most so many lines of a file
    #[arg(short, long, value_name = "N")]
    pub(crate) max_count: Option<u64>,
    /// One JSON object per file with matches, or part of one, and one for the result
    #[arg(long)]
    pub(crate) json: bool,
    /// A regular expression, and where to look
    #[arg(value_name = "PATTERN [ENV:PATH]")]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct WatchArgs {
    /// Only what is directly in the directory
    #[arg(long)]
    pub(crate) no_recursive: bool,
    /// One JSON object per change
    #[arg(long)]
    pub(crate) json: bool,
    /// A file or a directory
    #[arg(value_name = "ENV:PATH")]
    pub(crate) place: String,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct McpStdioArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// The directory it runs in; left out, ours on this machine and below --local-root, else the server's
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Set a variable; only a name passes our own value on
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
    /// The MCP server and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}
