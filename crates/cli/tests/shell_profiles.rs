//! `process/start` with the param `shellSnapshot`: before the first command, the server runs a shell that reads the
//! profile of the user and reports its state (the capture). Commands begin with that state. The profiles of these
//! tests are unusual: they redefine builtins, set traps and options, redirect the standard streams or end the shell.
//! In all cases a variable that the policy (`envPolicy`) excludes must not reach the command.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use std::path::Path;
use std::time::{Duration, Instant};

use testkit::{Client, FinishedProcess, TestServer, Value, json};

/// Name and path of a shell, its login file, and the second file: the startup file of interactive shells, which the
/// capture reads after the login file. `sh` finds its second file in the variable `ENV`.
const SHELLS: [(&str, &str, &str, &str); 3] = [
    ("bash", "/bin/bash", ".bash_profile", ".bashrc"),
    ("zsh", "/usr/bin/zsh", ".zprofile", ".zshrc"),
    ("sh", "/bin/sh", ".profile", ".shrc"),
];

/// Limit for a capture and its command together. Less than the ten seconds after which the server gives up a capture,
/// and enough for a loaded machine.
const CAPTURE_LIMIT: Duration = Duration::from_secs(8);

/// Profiles that every shell can read.
const PROFILES: &[&str] = &[
    "",
    "echo noise; echo more >&2; head -c 600000 /dev/zero",
    "printf() { :; }\necho() { :; }\nread() { :; }\nenv() { :; }\ncommand() { :; }\nalias() { exit 9; }\numask() { exit 9; }\ntypeset() { :; }\ntest() { :; }",
    "exec >/dev/null 2>&1",
    "exec >&- 2>&- <&-",
    "exec 3>/dev/null 9>/dev/null",
    "trap 'echo bye; exit 9' EXIT",
    "set -e",
    "set -u",
    "set -x",
    "set -a",
    "set -f",
    "set -e; false || :",
    "IFS=_/abcdefghijklmnop",
    "IFS=",
    "readonly IFS",
    "readonly X_SECRET PATH HOME",
    "alias unset='exit 1' exec='exit 2' env='exit 4' printf='exit 5' set='exit 6' trap='exit 7' eval='exit 8'",
    "PATH=",
    "unset PATH",
    "umask 777",
    "sleep 600 &",
    "ulimit -n 50",
];

/// Profiles for bash alone.
const BASH_PROFILES: &[&str] = &[
    "unset() { exit 41; }\nbuiltin() { :; }",
    "unset() { exit 41; }; builtin() { exit 1; }; command() { :; }; eval() { :; }; declare() { :; }; typeset() { :; }; set() { exit 6; }; \
     exec() { exit 7; }; trap() { exit 8; }; shopt() { exit 9; }; printf() { :; }; echo() { :; }; exit() { :; }; source() { :; }; shift() { :; }",
    "unset() { exit 1; }; builtin() { exit 1; }; exec() { exit 1; }; readonly -f unset builtin exec",
    "shopt -s expand_aliases; alias unset='exit 1' builtin='exit 1' exec='exit 2' if='exit 3' '{=exit 4' declare='exit 5'",
    "trap 'echo debugging' DEBUG",
    "set -T; trap 'echo debugging' DEBUG",
    "set -eE; trap 'exit 9' ERR",
    "set -o posix",
    "readonly POSIXLY_CORRECT",
    "shopt -s extglob nullglob failglob nocasematch extdebug",
    "enable -n printf builtin declare unset exec trap",
    "BASH_XTRACEFD=1; set -x",
    "set +h +B; set -k",
];

/// Profiles for zsh alone.
const ZSH_PROFILES: &[&str] = &[
    "unset() { exit 41; }; builtin() { exit 1; }; command() { :; }; eval() { :; }; declare() { :; }; typeset() { :; }; set() { exit 6; }; \
     exec() { exit 7; }; trap() { exit 8; }; emulate() { exit 9; }; functions() { :; }; print() { :; }; shift() { :; }",
    "emulate sh",
    "emulate ksh",
    "setopt ksharrays shwordsplit globsubst",
    "setopt errexit errreturn nounset",
    "setopt rcquotes nullglob posixbuiltins",
    "alias -g G='| grep' -- '-0=-1'",
    "TRAPDEBUG() { echo debugging; }",
    "TRAPEXIT() { exit 9; }",
    "TRAPZERR() { exit 9; }",
    "zshexit() { exit 9; }",
    "disable printf builtin exec trap",
];

/// A home directory in which the login file of every shell ends with `profile`, and the second file with `rc`. Both
/// files also export variables, some of which the policy of [`params`] excludes.
fn home(profile: &str, rc: &str) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    for (_, _, profile_file, rc_file) in SHELLS {
        let exports = "FROM_PROFILE=1 X_SECRET=1 DENIED=1; export FROM_PROFILE X_SECRET DENIED";
        std::fs::write(home.path().join(profile_file), format!("{exports}\n{profile}\n")).unwrap();
        let exports = "FROM_RC=1 MY_TOKEN=1; export FROM_RC MY_TOKEN";
        std::fs::write(home.path().join(rc_file), format!("{exports}\n{rc}\n")).unwrap();
    }
    home
}

/// Params of a start with a snapshot. `shell` is an index of [`SHELLS`]. The policy excludes `DENIED` by its name,
/// and names with `SECRET` or `TOKEN` by default.
fn params(home: &Path, process: &str, shell: usize, command: &str) -> Value {
    let (name, path, _, rc) = SHELLS[shell];
    let set = json!({"HOME": home, "ENV": home.join(rc)});
    json!({
        "processId": process, "argv": [path, "-lc", command], "cwd": format!("file://{}", home.display()), "tty": false, "env": {},
        "envPolicy": {"inherit": "core", "ignoreDefaultExcludes": false, "exclude": ["DENIED"], "set": set, "includeOnly": []},
        "shellSnapshot": {"scopeId": "thread-1:env-1", "shell": {"name": name, "path": path}},
    })
}

async fn run(client: &mut Client, params: Value) -> FinishedProcess {
    let process = params["processId"].as_str().unwrap().to_owned();
    client.call("process/start", params).await;
    client.outcome(&process).await
}

/// The sorted names of the variables that the command `env` has printed. Only these names count: names that begin
/// with `FROM_`, the names of excluded variables that [`home`] exports, and names that contain `CODEX`, which are the
/// server's own.
fn names(outcome: &FinishedProcess) -> Vec<&str> {
    let lines = std::str::from_utf8(&outcome.stdout).unwrap().lines();
    let mut names: Vec<_> = lines.filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.retain(|name| {
        name.starts_with("FROM_") || name.contains("CODEX") || ["X_SECRET", "DENIED", "MY_TOKEN"].contains(name)
    });
    names.sort_unstable();
    names
}

/// Runs every profile as the login file, and then as the second file. Checks that the variables that the policy
/// allows reach the command within [`CAPTURE_LIMIT`], and that no other variable does. `own` are profiles for this
/// shell alone.
async fn assert_excluded_variables_are_removed(shell: usize, own: &[&str]) {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for (number, profile) in PROFILES.iter().chain(own).enumerate() {
        for (file, (login, after)) in [("login file", (*profile, "")), ("second file", ("", *profile))] {
            let home = home(login, after);
            let begun = Instant::now();
            let process = format!("{number} {file}");
            let outcome = run(&mut client, params(home.path(), &process, shell, "/usr/bin/env")).await;
            assert_eq!(names(&outcome), ["FROM_PROFILE", "FROM_RC"], "{file}: {profile}");
            assert!(begun.elapsed() < CAPTURE_LIMIT, "{file}: {profile}");
        }
    }
}

#[tokio::test]
async fn bash_passes_no_variable_that_the_policy_excludes() {
    assert_excluded_variables_are_removed(0, BASH_PROFILES).await;
}

#[tokio::test]
async fn zsh_passes_no_variable_that_the_policy_excludes() {
    assert_excluded_variables_are_removed(1, ZSH_PROFILES).await;
}

#[tokio::test]
async fn sh_passes_no_variable_that_the_policy_excludes() {
    assert_excluded_variables_are_removed(2, &[]).await;
}

#[tokio::test]
async fn the_capture_reads_the_file_of_interactive_shells_or_the_file_that_bash_env_names() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let functions = "greet() { echo hello; }\nunset() { exit 41; }\nbuiltin() { echo mine; }";
    // Only bash and zsh: `sh` cannot list its functions, so a snapshot does not have them.
    for (number, (shell, ..)) in SHELLS.iter().enumerate().take(2) {
        let home = home("", functions);
        let outcome =
            run(&mut client, params(home.path(), shell, number, "greet; builtin; unset; echo not reached")).await;
        let text = std::str::from_utf8(&outcome.stdout).unwrap();
        assert_eq!((text, outcome.exit_code), ("hello\nmine\n", 41), "{shell}: functions of the second file");
    }
    // If `BASH_ENV` is set, bash reads the file that it names, and the capture does not read `.bashrc`.
    let home = home("BASH_ENV=$HOME/other; export BASH_ENV", "");
    std::fs::write(home.path().join("other"), "FROM_OTHER=1; export FROM_OTHER\n").unwrap();
    let outcome = run(&mut client, params(home.path(), "other", 0, "/usr/bin/env")).await;
    assert_eq!(names(&outcome), ["FROM_OTHER", "FROM_PROFILE"]);
}

#[tokio::test]
async fn if_the_second_file_ends_or_blocks_the_capture_the_command_has_the_variables_of_the_login_file() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for (number, (shell, ..)) in SHELLS.iter().enumerate() {
        // The subshell that reads the file kills itself: it is the parent of the inner `sh`.
        let kill_reader = r#"kill -9 "$(exec /bin/sh -c 'echo $PPID')""#;
        for end in ["exit 3", "exit 0", kill_reader, "exec /bin/true", "trap 'exit 9' EXIT; exit 3"] {
            let home = home("", end);
            let process = format!("{shell} {end}");
            let outcome = run(&mut client, params(home.path(), &process, number, "/usr/bin/env")).await;
            assert_eq!((names(&outcome), outcome.exit_code), (vec!["FROM_PROFILE"], 0), "{process}");
        }
        // `$$` is the shell that waits for that subshell. The subshell lives on until the server has seen that the
        // shell ended, so it may or may not report in time. The login file is reported in both cases.
        let home = home("", "kill -9 $$");
        let outcome = run(&mut client, params(home.path(), shell, number, "/usr/bin/env")).await;
        assert!([&["FROM_PROFILE"][..], &["FROM_PROFILE", "FROM_RC"]].contains(&&names(&outcome)[..]), "{shell}");
        assert_eq!(outcome.exit_code, 0, "{shell}");
    }
    let home = home("", "sleep 600");
    let begun = Instant::now();
    let outcome = run(&mut client, params(home.path(), "sleeps", 0, "/usr/bin/env")).await;
    assert_eq!(names(&outcome), ["FROM_PROFILE"]);
    assert!(begun.elapsed() >= Duration::from_secs(10), "the capture was given up too early");
}

#[tokio::test]
async fn a_profile_that_ends_the_shell_ends_the_shell_of_the_command_too() {
    let home = home("exit 3", "");
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for (number, (shell, ..)) in SHELLS.iter().enumerate() {
        // The capture fails, so the command runs as a plain login shell, which its profile ends before `env` runs.
        let outcome = run(&mut client, params(home.path(), shell, number, "/usr/bin/env")).await;
        assert_eq!((names(&outcome), outcome.exit_code), (vec![], 3), "{shell}");
    }
}

#[tokio::test]
async fn variables_in_env_of_the_start_override_those_of_the_profile() {
    let home = home("PATH=/from/profile:/usr/bin:/bin; CHOSEN=profile; export PATH CHOSEN", "");
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for (number, (shell, ..)) in SHELLS.iter().enumerate() {
        for with_policy in [true, false] {
            let mut params = params(home.path(), &format!("{shell} {with_policy}"), number, "echo $PATH $CHOSEN");
            params["env"] = json!({"PATH": "/usr/bin:/bin", "CHOSEN": "client", "HOME": home.path()});
            if !with_policy {
                params["envPolicy"] = json!(null);
            }
            let outcome = run(&mut client, params).await;
            assert_eq!(
                std::str::from_utf8(&outcome.stdout).unwrap(),
                "/usr/bin:/bin client\n",
                "{shell} {with_policy}"
            );
        }
    }
}

#[tokio::test]
async fn a_snapshot_request_for_a_command_without_lc_is_ignored_even_if_it_names_an_unsupported_shell() {
    let home = home("", "");
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let mut params = params(home.path(), "p", 0, "echo ran");
    params["argv"] = json!(["/bin/bash", "-c", "echo ran"]);
    params["shellSnapshot"]["shell"]["name"] = json!("fish");
    assert_eq!(run(&mut client, params).await.stdout, b"ran\n");
}

/// Sends the example requests that the published protocol has for `shellSnapshot`.
#[tokio::test]
async fn the_published_examples_hold() {
    let home = tempfile::tempdir().unwrap();
    let rc = "unset() { exit 41; }\nbuiltin() { :; }\nexport OK=1 DENIED=1 MY_TOKEN=1\ngreet() { echo hi; }\n";
    std::fs::write(home.path().join(".bashrc"), rc).unwrap();
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let params = |process: &str, command: &str, scope: &str, shell: &str| {
        json!({
            "processId": process, "argv": ["/bin/bash", "-lc", command], "cwd": format!("file://{}", home.path().display()), "env": {},
            "tty": false,
            "envPolicy": {"inherit": "core", "ignoreDefaultExcludes": false, "exclude": ["DENIED"], "set": {"HOME": home.path()}, "includeOnly": []},
            "shellSnapshot": {"scopeId": scope, "shell": {"name": shell, "path": "/bin/bash"}},
        })
    };
    let show = "greet; echo \"${OK-} ${DENIED-no} ${MY_TOKEN-no} ${__CODEX_SHELL_SNAPSHOT_STATE_0-no}\"";
    let started = client.call("process/start", params("p1", show, "thread-1:env-1", "bash")).await;
    assert_eq!(started, json!({"processId": "p1", "sandboxType": "none"}));
    let outcome = client.outcome("p1").await;
    assert_eq!((outcome.stdout.as_slice(), outcome.exit_code), (&b"hi\n1 no no no\n"[..], 0));
    let error = client.call_error("process/start", params("p2", "true", "", "bash")).await;
    let message = "shell snapshot scope must be non-empty and at most 256 bytes";
    assert_eq!(error, json!({"code": -32602, "message": message}));
    let error = client.call_error("process/start", params("p3", "true", "a", "fish")).await;
    assert_eq!(error, json!({"code": -32602, "message": "shell snapshots are unsupported for shell `fish`"}));
    std::fs::write(home.path().join(".bashrc"), "exit 3\n").unwrap();
    let outcome = run(&mut client, params("p4", "echo ran", "thread-2:env-1", "bash")).await;
    assert_eq!((outcome.stdout.as_slice(), outcome.exit_code), (&b"ran\n"[..], 0));
}
