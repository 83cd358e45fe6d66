//! The texts below the flags in `--help` of a command. A line that ends with a colon is a heading for the indented
//! lines below it; the manual page makes sections of the headings `Exit codes:`, `Example:` and `Examples:`. Each
//! paragraph is a single line in `--help`, which the terminal breaks.

pub(super) const RUN: &str = "\
With -t, keys go to the command as they are. After Enter, `~.` hangs up, or leaves a command of a \
kept session running, and `~~` sends one tilde. A kept session (--session, -d) outlives `run`.

On this machine, a command in a kept session gets the variables, the directory and the umask of your shell, but the \
limits (ulimit) of the server in the background.

Exit codes:
  0 to 255  the exit code of the command, unless it is one of these:
  124       the command ran longer than --timeout
  125       exec-server failed, for example to connect, or was not told how the command ended
  126       the command cannot be executed
  127       the command was not found
  141       the program that read the output has closed the pipe

Examples:
  exec-server run -- make test
  exec-server run --ssh build-host --cwd /srv/app -- git pull
  tar c src | exec-server run --connect ws://10.0.0.5:7000 -- tar x
  exec-server run -t --connect unix:///run/user/1000/exec.sock -- htop
  exec-server run -d -- ./long-job      (then: exec-server attach)";

pub(super) const SHELL: &str = "\
After Enter, `~.` hangs up, or leaves a shell of a kept session running, and `~~` sends one tilde. If stdin is not a \
terminal, the shell reads its commands from there.

The variable EXEC_SERVER_ENVIRONMENT in the shell holds the name of the environment. On a terminal, a line at the \
start shows the name too, and so does the prompt of bash and zsh on another machine: bash gets PROMPT_COMMAND, which \
puts the name before the prompt of your profile, and zsh gets PROMPT. Your profile may replace both variables; then the \
prompt can show EXEC_SERVER_ENVIRONMENT instead. With --no-hint \
or EXEC_SERVER_NO_HINT=1, the line is not printed and the prompt stays as it is.

Examples:
  exec-server shell --ssh build-host
  exec-server shell --session work      (then: exec-server attach --session work)
  exec-server shell --connect ws://10.0.0.5:7000 < script.sh";

pub(super) const PS: &str = "\
Examples:
  exec-server ps
  exec-server ps --session work --json";

pub(super) const KILL: &str = "\
Examples:
  exec-server kill build
  exec-server kill --session work --signal user1 3";

pub(super) const LOGS: &str = "\
Printing the output does not slow the process down if the server has the capability sessionObserve. If the server \
drops output before it can be printed, a line says how many bytes are missing.

Examples:
  exec-server logs build
  exec-server logs -f --session work 3";

pub(super) const ATTACH: &str = "\
Prints the retained output, then goes on as if the command had been run in this terminal, and exits with its exit code. \
After Enter, `~.` leaves the process running, and `~~` sends one tilde.

Examples:
  exec-server attach
  exec-server attach --session work 3";

pub(super) const ENV: &str = "\
Lists the environments of environments.toml, and says which one commands use without a flag and why. With -e, --connect \
or --ssh it shows only the environment that the flag chooses. Tokens are not printed. With --check, the token of \
--client-token-file or its variable is sent to the chosen or the default environment, and to no other.

Exit codes:
  0  every environment could be reached, or --check is not given
  1  an environment could not be reached, or the configuration cannot be read

Examples:
  exec-server env
  exec-server env --check
  exec-server env --check --ssh build-host
  exec-server env --check --json | jq '.environments[] | select(.check.isReachable | not)'";

pub(super) const ENV_SHOW: &str = "\
For an environment behind a relay, the command asks the service for the key of the executor, and sends nothing to the \
executor. Compare the fingerprint with the one that the executor has printed at its start, and add the printed lines to \
environments.toml: then no other key is accepted.

Exit codes:
  0  the environment was printed; if its key is pinned, the service names the pinned key
  1  the service names no key, or a key that differs from the pinned one

Examples:
  exec-server env show build-7
  exec-server env show build-7 --json | jq -r .executor.key";

pub(super) const LOGIN: &str = "\
On a terminal, the command asks for the key and does not show it; otherwise it reads the key from stdin. The key is kept in \
credentials.json in EXEC_SERVER_HOME, or else in ~/.config/exec-server; only you can read this file. The key is sent only \
to this service: the same scheme, host and port.

Examples:
  exec-server login https://service.example
  exec-server login https://service.example < key";

pub(super) const LOGOUT: &str = "\
Removes the key from credentials.json. The service is not told, so the key stays valid there.

Example:
  exec-server logout https://service.example";

pub(super) const WHOAMI: &str = "\
Lists the variables and files that hold a credential, in the order in which exec-server looks for them. A service gets the \
first credential. Nothing is sent, and no secret is printed.

Exit codes:
  0  the service of URL gets a credential; without URL: there is a credential that can be used
  1  there is none

Examples:
  exec-server whoami
  exec-server whoami https://service.example --json";

pub(super) const SEARCH: &str = "\
Give PATH, or ENV:PATH for an environment of environments.toml. A relative path begins in the directory of the server, \
which is searched if no path is given. Hidden files and the files that .gitignore names are skipped.

Exit codes:
  0  something was found
  1  nothing was found
  2  an error occurred

Examples:
  exec-server search -S 'todo|fixme' build-host:/srv/app
  exec-server search -l -g '*.rs' unwrap --ssh build-host :/srv/app
  exec-server search --files -g '*.toml' build-host:";

pub(super) const WATCH: &str = "\
Prints one line for each file that is created, modified, removed or renamed, until Ctrl-C. `overflow` means that changes \
came faster than they could be reported, and some are missing.

Examples:
  exec-server watch build-host:/srv/app/log
  exec-server watch --json --connect ws://10.0.0.5:7000 :/srv/app";

pub(super) const PORT: &str = "\
For each connection to a port of this machine, the environment connects to HOST (default: localhost). The command \
listens on 127.0.0.1 unless BIND is given; with port 0 it chooses a free port. Ctrl-C ends the command. If the \
connection to the environment is lost, forwarded connections are reset, and new ones wait until the environment can be \
reached again.

Examples:
  exec-server port -e build-host 8080
  exec-server port -e build-host 8080:db:5432 0:3000
  exec-server port --connect ws://10.0.0.5:7000 127.0.0.2:8080:localhost:80";

pub(super) const CP: &str = "\
ENV:PATH is in an environment of environments.toml, :PATH in the one that -e, --connect or --ssh chooses, and every \
other path on this machine; write ./a:b for a file with a colon. Relative paths in an environment begin in the \
directory of its server.

Modification times are kept, holes stay holes, and links in trees stay links. A new file gets the mode of its source \
as far as the umask allows, and a replaced file keeps its mode; with -p both get exactly the mode of the source. No \
file gets set-user-ID or set-group-ID bits, because the copy may have another owner.

Examples:
  exec-server cp -r src build:/srv/app
  exec-server cp --connect ws://10.0.0.5:7000 :/var/log/app.log .
  exec-server cp staging:db.dump production:";

pub(super) const LS: &str = "\
ENV:PATH is in an environment of environments.toml. :PATH is in the environment that -e, --connect or --ssh chooses; \
without such a flag it is in the default environment. A path without a colon is in the environment that the flag \
chooses; without such a flag it is on this machine. Times are UTC.

Examples:
  exec-server ls -l build:/srv/app
  exec-server ls --ssh build-host";

pub(super) const CAT: &str = "\
ENV:PATH is in an environment of environments.toml. :PATH is in the environment that -e, --connect or --ssh chooses; \
without such a flag it is in the default environment. A path without a colon is in the environment that the flag \
chooses; without such a flag it is on this machine.

Example:
  exec-server cat build:/etc/os-release";

pub(super) const RM: &str = "\
ENV:PATH is in an environment of environments.toml. :PATH is in the environment that -e, --connect or --ssh chooses; \
without such a flag it is in the default environment. A path without a colon is in the environment that the flag \
chooses; without such a flag it is on this machine.

Example:
  exec-server rm -r build:/srv/app/target";

pub(super) const MKDIR: &str = "\
ENV:PATH is in an environment of environments.toml. :PATH is in the environment that -e, --connect or --ssh chooses; \
without such a flag it is in the default environment. A path without a colon is in the environment that the flag \
chooses; without such a flag it is on this machine.

Example:
  exec-server mkdir -p build:/srv/app/logs";

pub(super) const SANDBOX: &str = "\
Example:
  exec-server sandbox explain --policy workspace-write ~/.ssh/id_ed25519 src .git";

pub(super) const SANDBOX_EXPLAIN: &str = "\
The answer is about this machine and about the paths as they are written: links are not followed. docs/sandbox.md \
describes policies.

Examples:
  exec-server sandbox explain --policy workspace-write --cwd ~/project ~/project/.git /etc
  exec-server sandbox explain --policy policy.json --json src/main.rs";

pub(super) const MCP_STDIO: &str = "\
The lines of the MCP server pass unchanged and without a gap, also when the connection is lost and made again.

Example:
  exec-server mcp-stdio -e build -- mcp-server-git --repository /srv/app";

pub(super) const FORWARD: &str = "\
Clients connect to the service, and this command passes them on to the server of --connect. Only this command needs \
access to both. The server sees all clients as one user: the one whose token is sent. SIGTERM ends the command; the \
sessions stay in the server.

Example:
  exec-server forward --connect ws://box:7000 --remote https://service.example --environment-id b7";

pub(super) const DOCTOR: &str = "\
Each line is the result of a real attempt, for example to run a command in a sandbox. The line below a missing item \
says what to do. The exit code is 0 if all policies of sandboxes are enforced, and 1 otherwise. Run it as the user and \
in the container or service of the server, because the answers depend on these.

Examples:
  exec-server doctor
  exec-server run -e build -- exec-server doctor --json";

pub(super) const COMPLETIONS: &str = "\
Examples:
  source <(exec-server completions bash)
  exec-server completions zsh > ~/.zfunc/_exec-server
  exec-server completions fish > ~/.config/fish/completions/exec-server.fish";

pub(super) const MAN: &str = "\
The page is roff source, which `man -l -` shows.

Examples:
  exec-server man | man -l -
  exec-server man run | man -l -
  exec-server man --dir /usr/local/share/man/man1";
