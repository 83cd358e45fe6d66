//! The commands and their arguments. The arguments of commands about files are in
//! [`files::args`](super::files::args), and the texts that `--help` prints below the flags are in [`help_texts`].
//!
//! An *environment* is a machine on which a server runs or is started for the command. A *kept session* outlives the
//! command that made it, and so do the processes in the session.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{Args, Subcommand, ValueHint};
use client::DirectPolicy;

use super::files::args::{CatArgs, CpArgs, LsArgs, MkdirArgs, RmArgs};
use super::flag_file::{FlagFile, FlagFileParser};
use super::help_texts;
use super::limit_args::ProcessLimitArgs;
use super::port::forward_spec::ForwardSpec;
use super::ps::quoted;
use super::sandbox_flags::SandboxArgs;
use crate::remote_args::RemoteArgs;
use crate::units::TimeArg;

/// A command for people. Without one, the program is a server.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a command in an environment; input, output, signals and exit code pass through
    #[command(after_help = help_texts::RUN)]
    Run(RunArgs),
    /// Open an interactive shell in an environment
    #[command(after_help = help_texts::SHELL)]
    Shell(ShellArgs),
    /// List the processes of a kept session
    #[command(after_help = help_texts::PS)]
    Ps(PsArgs),
    /// End a process of a kept session and everything it has started, or send it a signal
    #[command(after_help = help_texts::KILL)]
    Kill(KillArgs),
    /// Print the output of a process of a kept session
    #[command(after_help = help_texts::LOGS)]
    Logs(LogsArgs),
    /// Attach this terminal to a process of a kept session
    #[command(after_help = help_texts::ATTACH)]
    Attach(AttachArgs),
    /// List the environments, and with --check whether they can be reached
    #[command(after_help = help_texts::ENV)]
    Env(EnvArgs),
    /// Store a key for a service of remote mode
    #[command(after_help = help_texts::LOGIN)]
    Login(LoginArgs),
    /// Remove the stored key of a service
    #[command(after_help = help_texts::LOGOUT)]
    Logout(LogoutArgs),
    /// Say which credential a service would get, and why
    #[command(after_help = help_texts::WHOAMI)]
    Whoami(WhoamiArgs),
    /// Search files of an environment, as ripgrep does
    #[command(after_help = help_texts::SEARCH)]
    Search(SearchArgs),
    /// Print changes to files of an environment
    #[command(after_help = help_texts::WATCH)]
    Watch(WatchArgs),
    /// Forward ports of this machine to ports that an environment can reach
    #[command(after_help = help_texts::PORT)]
    Port(PortArgs),
    /// Copy files and trees between this machine and environments
    #[command(after_help = help_texts::CP)]
    Cp(CpArgs),
    /// List files of an environment
    #[command(after_help = help_texts::LS)]
    Ls(LsArgs),
    /// Print files of an environment
    #[command(after_help = help_texts::CAT)]
    Cat(CatArgs),
    /// Remove files of an environment
    #[command(after_help = help_texts::RM)]
    Rm(RmArgs),
    /// Make directories in an environment
    #[command(after_help = help_texts::MKDIR)]
    Mkdir(MkdirArgs),
    /// Run an MCP server in an environment, on the stdin and stdout of this command
    #[command(after_help = help_texts::MCP_STDIO)]
    McpStdio(McpStdioArgs),
    /// Say what the policy of a sandbox allows
    #[command(after_help = help_texts::SANDBOX, disable_help_subcommand = true)]
    Sandbox(SandboxCommandArgs),
    /// Pass clients of remote mode on to another server
    #[command(after_help = help_texts::FORWARD)]
    Forward(ForwardArgs),
    /// Check which sandboxes and limits this machine can enforce
    #[command(after_help = help_texts::DOCTOR)]
    Doctor(DoctorArgs),
    /// Print completions for a shell
    #[command(after_help = help_texts::COMPLETIONS)]
    Completions(CompletionsArgs),
    /// Print a manual page, or write all of them
    #[command(after_help = help_texts::MAN)]
    Man(ManArgs),
}

/// The flags that choose an environment. If none is given, the environment is the default of environments.toml, or
/// else this machine.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Which environment")]
pub(crate) struct TargetArgs {
    /// Name of an environment in environments.toml
    #[arg(short = 'e', long, value_name = "NAME", conflicts_with_all = ["connect", "ssh"])]
    pub(crate) environment: Option<String>,
    /// URL of a server: ws://, wss:// or unix://
    #[arg(long, value_name = "URL", conflicts_with = "ssh")]
    pub(crate) connect: Option<String>,
    /// Start the server on this host over ssh, which must not ask for a password
    #[arg(long, value_name = "HOST")]
    pub(crate) ssh: Option<String>,
    /// Directory of this machine with the same files as --remote-root
    #[arg(long, value_name = "DIR", requires = "ssh", requires = "remote_root")]
    pub(crate) local_root: Option<PathBuf>,
    /// Directory of the ssh host with the same files as --local-root
    #[arg(long, value_name = "DIR", requires = "ssh", requires = "local_root")]
    pub(crate) remote_root: Option<PathBuf>,
    /// Server program on the ssh host
    #[arg(long, value_name = "PATH", requires = "ssh", default_value = "exec-server")]
    pub(crate) program: String,
    /// Configuration file for ssh
    #[arg(long, value_name = "FILE", requires = "ssh")]
    pub(crate) ssh_config: Option<PathBuf>,
    /// PEM certificates to trust for wss:// instead of those of the system, in the chosen or the default environment
    #[arg(long, env = "EXEC_SERVER_CA_FILE", value_name = "FILE", value_parser = FlagFileParser, value_hint = ValueHint::AnyPath)]
    pub(crate) ca_file: Option<FlagFile>,
    /// File with the bearer token to send to the chosen or the default environment, and to no other
    #[arg(long, env = "EXEC_SERVER_CLIENT_TOKEN_FILE", value_name = "FILE", value_parser = FlagFileParser, value_hint = ValueHint::AnyPath)]
    pub(crate) client_token_file: Option<FlagFile>,
    /// Which addresses of an environment behind a relay to try for a direct path: private ones (`private`), public ones
    /// too (`on`), or none (`off`)
    #[arg(long, env = "EXEC_SERVER_DIRECT", value_name = "on|off|private", default_value_t = DirectPolicy::Private, hide_short_help = true)]
    pub(crate) direct: DirectPolicy,
    /// How long the server that is started in the background for kept sessions waits for the next session before it
    /// ends [default: 60s]
    #[arg(long, env = "EXEC_SERVER_BACKGROUND_IDLE", value_name = "TIME", hide_short_help = true)]
    pub(crate) background_idle: Option<TimeArg>,
}

impl TargetArgs {
    /// The flag that chooses the environment: `-e`, `--connect` or `--ssh`. `None` if none of them is given.
    pub(crate) fn flag(&self) -> Option<&'static str> {
        let given = [(&self.environment, "-e"), (&self.connect, "--connect"), (&self.ssh, "--ssh")];
        given.into_iter().find(|(value, _)| value.is_some()).map(|(_, flag)| flag)
    }

    /// The name of the flag for a token or for certificates that the user has typed, if there is one.
    pub(crate) fn typed_file_flag(&self) -> Option<&str> {
        let files = [&self.client_token_file, &self.ca_file];
        files.into_iter().flatten().find(|file| file.is_typed()).map(|file| file.setting.as_str())
    }

    /// A command line that a person can type to run the command `verb` in the same environment, with `rest` as its
    /// last words. It is for kept sessions. An environment over ssh cannot keep sessions, so the flags for ssh are
    /// left out.
    pub(crate) fn command_line(&self, verb: &str, rest: &[&str]) -> String {
        // The file of a variable is not repeated as a flag, because a flag applies to more environments.
        let path = |file: &Option<FlagFile>| {
            file.as_ref().filter(|file| file.is_typed()).map(|file| file.path.to_string_lossy().into_owned())
        };
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

/// How long a session is kept while no client is connected, unless `--keep` says otherwise.
pub(crate) const DEFAULT_KEEP: Duration = Duration::from_secs(24 * 60 * 60);

/// The flag that chooses a kept session, a session that outlives the command that made it.
#[derive(Args, Debug, Clone)]
pub(crate) struct SessionArgs {
    /// Name of the session
    #[arg(short, long, value_name = "NAME", default_value = "default")]
    pub(crate) session: String,
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// Give the command a terminal
    #[arg(short, long)]
    pub(crate) tty: bool,
    /// Working directory [default: the server's, or yours if the environment is this machine or you are below
    /// --local-root]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Set a variable; NAME alone passes your own value on
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
    /// End the command after this time, with exit code 124
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<TimeArg>,
    /// Run the command in the kept session of this name, where other commands can find it
    #[arg(short, long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// Start the command in a kept session (`default` without --session), print the id of the command and exit
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// Id of the command in the kept session [default: the next free number]
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// How long the session and its commands are kept while no client is connected [default: 24h, or longer if an
    /// earlier --keep said so]
    #[arg(long, value_name = "TIME")]
    pub(crate) keep: Option<TimeArg>,
    /// Print one JSON object per event instead of the output itself
    #[arg(long, conflicts_with_all = ["tty", "detach"])]
    pub(crate) json: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
    #[command(flatten)]
    pub(crate) limits: ProcessLimitArgs,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ShellArgs {
    /// Working directory [default: the server's, or yours if the environment is this machine or you are below
    /// --local-root]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Set a variable; NAME alone passes your own value on
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
    /// Open the shell in the kept session of this name
    #[arg(short, long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// How long the session and its commands are kept while no client is connected [default: 24h, or longer if an
    /// earlier --keep said so]
    #[arg(long, value_name = "TIME")]
    pub(crate) keep: Option<TimeArg>,
    /// Print no line at the start, and leave the prompt of the shell alone
    #[arg(long, env = "EXEC_SERVER_NO_HINT", value_parser = FalseyValueParser::new())]
    pub(crate) no_hint: bool,
    #[command(flatten)]
    pub(crate) limits: ProcessLimitArgs,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct PsArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Print a JSON array
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct KillArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Only send this signal: interrupt, hangup, quit, terminate, kill, user1, user2, stop or continue
    #[arg(long, value_name = "NAME")]
    pub(crate) signal: Option<String>,
    /// Ids as `exec-server ps` shows them
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Go on until the process ends, then exit with its exit code
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print one JSON object per event
    #[arg(long)]
    pub(crate) json: bool,
    /// Id as `exec-server ps` shows it
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Id as `exec-server ps` shows it [default: the only process that runs]
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(crate) struct EnvArgs {
    /// Connect to each environment, and print how fast it answers and what it offers
    #[arg(long)]
    pub(crate) check: bool,
    /// How long --check may take for one environment
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(crate) timeout: TimeArg,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// `None`: the environments are listed.
    #[command(subcommand)]
    pub(crate) command: Option<EnvCommand>,
}

/// Subcommands of `env`.
#[derive(Subcommand, Debug)]
pub(crate) enum EnvCommand {
    /// Print what is known about one environment, and the fingerprint of its key
    #[command(after_help = help_texts::ENV_SHOW)]
    Show(EnvShowArgs),
}

#[derive(Args, Debug)]
pub(crate) struct EnvShowArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// PEM certificates to trust for this environment instead of those of the system
    #[arg(long, env = "EXEC_SERVER_CA_FILE", value_name = "FILE", value_parser = FlagFileParser, value_hint = ValueHint::AnyPath)]
    pub(crate) ca_file: Option<FlagFile>,
    /// File with the bearer token to send to this environment or its service
    #[arg(long, env = "EXEC_SERVER_CLIENT_TOKEN_FILE", value_name = "FILE", value_parser = FlagFileParser, value_hint = ValueHint::AnyPath)]
    pub(crate) client_token_file: Option<FlagFile>,
    /// Id in environments.toml, or id in the service that EXEC_SERVER_REMOTE names
    #[arg(value_name = "ENV")]
    pub(crate) environment: String,
}

#[derive(Args, Debug)]
pub(crate) struct LoginArgs {
    /// URL of the service, such as `https://service.example`
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) url: String,
}

#[derive(Args, Debug)]
pub(crate) struct LogoutArgs {
    /// URL of the service
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) url: String,
}

#[derive(Args, Debug)]
pub(crate) struct WhoamiArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Answer as for a server that is started with this flag
    #[arg(long, alias = "allow-agent-identity-auth")]
    pub(crate) use_agent_identity_auth: bool,
    /// URL of the service [default: all configured services]
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) url: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct SearchArgs {
    /// Ignore case in the pattern
    #[arg(short, long)]
    pub(crate) ignore_case: bool,
    /// Ignore case unless the pattern has an upper-case letter
    #[arg(short = 'S', long)]
    pub(crate) smart_case: bool,
    /// Search for the text PATTERN, not for a regular expression
    #[arg(short = 'F', long)]
    pub(crate) fixed_strings: bool,
    /// Find whole words only
    #[arg(short, long)]
    pub(crate) word_regexp: bool,
    /// Search only files whose names match; with `!` in front, only the others
    #[arg(short, long, value_name = "GLOB")]
    pub(crate) glob: Vec<String>,
    /// Print N lines after each match
    #[arg(short = 'A', long, value_name = "N")]
    pub(crate) after_context: Option<u32>,
    /// Print N lines before each match
    #[arg(short = 'B', long, value_name = "N")]
    pub(crate) before_context: Option<u32>,
    /// Print N lines before and after each match
    #[arg(short = 'C', long, value_name = "N")]
    pub(crate) context: Option<u32>,
    /// Print only the names of files with matches
    #[arg(short = 'l', long, conflicts_with = "json")]
    pub(crate) files_with_matches: bool,
    /// Print the names of all files that would be searched; takes no PATTERN
    #[arg(long)]
    pub(crate) files: bool,
    /// Search hidden files too
    #[arg(long)]
    pub(crate) hidden: bool,
    /// Also search files that .gitignore and similar files exclude
    #[arg(long)]
    pub(crate) no_ignore: bool,
    /// Stop in each file after N lines with matches
    #[arg(short, long, value_name = "N")]
    pub(crate) max_count: Option<u64>,
    /// Print one JSON object for each file with matches, several for a file with many, and one for the result
    #[arg(long)]
    pub(crate) json: bool,
    /// A regular expression, then the files and directories to search
    #[arg(value_name = "PATTERN [ENV:PATH]")]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct WatchArgs {
    /// Do not watch directories below the given one
    #[arg(long)]
    pub(crate) no_recursive: bool,
    /// Print one JSON object per change
    #[arg(long)]
    pub(crate) json: bool,
    /// File or directory to watch
    #[arg(value_name = "ENV:PATH")]
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct PortArgs {
    /// Port of this machine, and host and port in the environment; repeatable
    #[arg(value_name = "[[BIND:]PORT:][HOST:]PORT", required = true)]
    pub(crate) specs: Vec<ForwardSpec>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct McpStdioArgs {
    /// Working directory [default: the server's, or yours if the environment is this machine or you are below
    /// --local-root]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Set a variable; NAME alone passes your own value on
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
    /// The MCP server and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct SandboxCommandArgs {
    #[command(subcommand)]
    pub(crate) command: SandboxCommand,
}

/// Subcommands of `sandbox`.
#[derive(Subcommand, Debug)]
pub(crate) enum SandboxCommand {
    /// Print for each path what a policy allows, and which entry decides
    #[command(after_help = help_texts::SANDBOX_EXPLAIN)]
    Explain(ExplainArgs),
}

#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// read-only, workspace-write, or a file with a policy as JSON
    #[arg(long, value_name = "POLICY", value_hint = ValueHint::FilePath)]
    pub(crate) policy: PathBuf,
    /// The workspace, and the directory of relative paths and globs [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Make this directory writable too; repeatable
    #[arg(long, value_name = "DIR")]
    pub(crate) writable: Vec<PathBuf>,
    /// Print one JSON object per path
    #[arg(long)]
    pub(crate) json: bool,
    /// Paths to explain, which need not exist
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

// A forwarder has no address of its own, so there is no direct path to it.
#[derive(Args, Debug)]
#[command(mut_arg("direct", |flag| flag.hide(true)))]
pub(crate) struct ForwardArgs {
    /// URL of the server that gets the clients: ws://, wss:// or unix://
    // The environment variables of the two flags are read too, so `requires_all` also accepts those.
    #[arg(long, value_name = "URL", requires_all = ["remote", "environment_id"])]
    pub(crate) connect: String,
    /// PEM certificates to trust for wss:// instead of those of the system
    #[arg(long, env = "EXEC_SERVER_CA_FILE", value_name = "FILE", value_parser = FlagFileParser, value_hint = ValueHint::AnyPath)]
    pub(crate) ca_file: Option<FlagFile>,
    /// File with the bearer token to send to that server
    #[arg(long, env = "EXEC_SERVER_CLIENT_TOKEN_FILE", value_name = "FILE", value_parser = FlagFileParser, value_hint = ValueHint::AnyPath)]
    pub(crate) client_token_file: Option<FlagFile>,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell to print completions for
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Write all pages to this directory, which is made if it is missing
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub(crate) dir: Option<PathBuf>,
    /// Command to print the page of [default: exec-server itself]
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Option<String>,
}
