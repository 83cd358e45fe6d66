//! The command `env` lists the environments, which are the machines that commands can work on. It says which
//! environment is the default and why. With `--check` it says whether each environment can be reached.

use std::path::Path;
use std::process::Output;

use tempfile::TempDir;
use testkit::scripted::ScriptedReply;
use testkit::{
    PublishedProtocolServer, ScriptedServer, Signal, TestServer, Value, binary, eventually, is_alive, json,
    send_signal,
};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::{command, wait_for_output};

/// A folder with an `environments.toml`.
struct Configuration {
    folder: TempDir,
}

impl Configuration {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("environments.toml"), text).unwrap();
        Self { folder }
    }

    /// Path of the file.
    fn file(&self) -> String {
        self.folder.path().join("environments.toml").to_str().unwrap().to_owned()
    }

    fn command(&self, args: &[&str]) -> tokio::process::Command {
        let mut command = command(&[&["env"], args].concat());
        command.env("EXEC_SERVER_HOME", self.folder.path());
        command
    }

    /// Runs `env` and returns its stdout and its exit code. Panics if it prints anything on stderr.
    async fn env(&self, args: &[&str]) -> (String, Option<i32>) {
        stdout_and_exit_code(wait_for_output(self.command(args).spawn().unwrap()).await)
    }

    /// Runs `env --json` and returns the printed value and the exit code.
    async fn json(&self, args: &[&str]) -> (Value, Option<i32>) {
        let (text, code) = self.env(&[args, &["--json"]].concat()).await;
        assert_eq!(text.lines().count(), 1, "{text}");
        (text.parse().unwrap(), code)
    }
}

fn stdout_and_exit_code(output: Output) -> (String, Option<i32>) {
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

#[tokio::test]
async fn the_file_its_environments_and_its_default_are_listed() {
    let configuration = Configuration::new(
        r#"
        default = "build"
        [[environments]]
        id = "build"
        url = "wss://build.example:8765/x"
        token_file = "build-token"
        [[environments]]
        id = "box"
        ssh = "me@devbox"
        [[environments]]
        id = "container"
        program = "docker"
        args = ["exec", "-i", "app", "exec-server", "--listen", "stdio"]
        "#,
    );
    let file = configuration.file();
    let expected = format!(
        "\
NAME             REACHED BY
box              ssh me@devbox
build (default)  wss://build.example:8765/x
container        program docker
local            this machine

The default is build, as {file} says.
"
    );
    assert_eq!(configuration.env(&[]).await, (expected, Some(0)));
    let (value, code) = configuration.json(&[]).await;
    assert_eq!(code, Some(0));
    assert_eq!(value["source"], json!({"type": "file", "path": file, "namesDefault": true}));
    assert_eq!(value["default"], "build");
    let token_file = configuration.folder.path().join("build-token");
    let build = json!({"name": "build", "kind": "url", "address": "wss://build.example:8765/x", "isDefault": true,
        "caFile": null, "tokenFile": token_file.to_str().unwrap()});
    assert_eq!(value["environments"][1], build);
    let kinds: Vec<&str> =
        value["environments"].as_array().unwrap().iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ssh", "url", "program", "local"]);
}

#[tokio::test]
async fn env_says_why_an_environment_is_the_default() {
    for (text, reason) in [
        ("", "The default is local, because FILE does not name another.\n"),
        (
            "default = \"none\"",
            "There is no default, because FILE says `none`; give commands -e, --connect or --ssh.\n",
        ),
        (
            "include_local = false",
            "There is no default, because FILE names none and excludes this machine; give commands -e, --connect or --ssh.\n",
        ),
    ] {
        let configuration = Configuration::new(text);
        let (listed, code) = configuration.env(&[]).await;
        assert!(listed.ends_with(&reason.replace("FILE", &configuration.file())), "{text}: {listed}");
        assert_eq!(code, Some(0));
    }
    for (url, reason) in [
        ("ws://h:1", "The default is remote, because EXEC_SERVER_URL is set.\n"),
        ("none", "There is no default, because EXEC_SERVER_URL is `none`; give commands -e, --connect or --ssh.\n"),
    ] {
        let output = wait_for_output(command(&["env"]).env("EXEC_SERVER_URL", url).spawn().unwrap()).await;
        assert!(stdout_and_exit_code(output).0.ends_with(reason), "{url}");
    }
    let home = tempfile::tempdir().unwrap();
    let output = wait_for_output(command(&["env"]).env("HOME", home.path()).spawn().unwrap()).await;
    let path = |folder: &str| home.path().join(folder).join("environments.toml").to_str().unwrap().to_owned();
    let expected = format!(
        "\
NAME             REACHED BY
local (default)  this machine

The default is local, because nothing else is configured. There is no {} and no {}.
",
        path(".config/exec-server"),
        path(".codex")
    );
    assert_eq!(stdout_and_exit_code(output), (expected, Some(0)));
}

#[tokio::test]
async fn a_flag_chooses_one_environment_and_an_unknown_name_is_refused() {
    let configuration = Configuration::new("[[environments]]\nid = \"build\"\nurl = \"ws://h:1\"\n");
    let (listed, _) = configuration.env(&["-e", "build"]).await;
    let file = configuration.file();
    assert_eq!(
        listed,
        format!("NAME             REACHED BY\nbuild (default)  ws://h:1\n\n-e chooses build of {file}.\n")
    );
    let (value, _) = configuration.json(&["--connect", "ws://other:2"]).await;
    assert_eq!(value["source"], json!({"type": "flag", "flag": "--connect", "path": null}));
    assert_eq!((&value["default"], &value["environments"][0]["name"]), (&json!("ws://other:2"), &json!(null)));

    let output = wait_for_output(configuration.command(&["-e", "none"]).spawn().unwrap()).await;
    assert_eq!(
        (String::from_utf8(output.stderr).unwrap().as_str(), output.status.code()),
        ("exec-server: there is no environment `none`; there are: build, local\n", Some(1))
    );
}

#[tokio::test]
async fn an_invalid_configuration_file_is_reported_in_one_line_on_stderr() {
    let configuration = Configuration::new("\n[[environments]]\nid = \"x\"\nssh = \"-evil\"\n");
    let output = wait_for_output(configuration.command(&["--check"]).spawn().unwrap()).await;
    let expected = format!(
        "exec-server: {}:4: environment `x`: `ssh` must name a host, without spaces and without `-` at its beginning\n",
        configuration.file()
    );
    assert_eq!((String::from_utf8(output.stderr).unwrap(), output.status.code()), (expected, Some(1)));
    assert!(output.stdout.is_empty());
}

#[tokio::test]
async fn secrets_are_never_printed() {
    let configuration = Configuration::new(
        r#"
        [[environments]]
        id = "url"
        url = "ws://me:secret@127.0.0.1:1/p?token=secret"
        token_file = "token"
        [[environments]]
        id = "program"
        program = "false"
        args = ["--token", "secret"]
        env = { TOKEN = "secret" }
        "#,
    );
    std::fs::write(configuration.folder.path().join("token"), "secretsecretsecret").unwrap();
    for args in [&[][..], &["--json"], &["--check"], &["--check", "--json"]] {
        let (text, _) = configuration.env(args).await;
        assert!(text.contains("ws://127.0.0.1:1/p") && !text.contains("secret"), "{args:?}: {text}");
    }
}

#[tokio::test]
async fn a_check_says_how_fast_a_server_is_and_what_it_offers() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start_with(&[], |command| command.current_dir(folder.path())).await;
    let configuration =
        Configuration::new(&format!("[[environments]]\nid = \"there\"\nurl = \"{}\"\n", server.url()));
    let (text, code) = configuration.env(&["--check"]).await;
    assert_eq!(code, Some(0), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "local (default): this machine");
    assert!(lines[1].starts_with("  connected in ") && lines[1].contains(", one request took "), "{text}");
    assert_eq!(lines[4], format!("there: {}", server.url()));
    let directory = folder.path().canonicalize().unwrap();
    assert!(lines[6].starts_with("  shell /"), "{text}");
    assert!(lines[6].ends_with(&format!(", directory {}", directory.display())), "{text}");
    assert!(lines[7].starts_with("  capabilities: ") && lines[7].contains(", processResize, "), "{text}");
    assert!(
        text.ends_with(&format!(
            "\n\nThe default is local, because {} does not name another.\n",
            configuration.file()
        ))
    );

    let (value, code) = configuration.json(&["--check", "-e", "there"]).await;
    let check = &value["environments"][0]["check"];
    assert_eq!((code, &check["isReachable"]), (Some(0), &json!(true)));
    assert!(check["connectMs"].as_f64().unwrap() > 0.0 && check["roundTripMs"].as_f64().unwrap() > 0.0, "{check}");
    assert!(lines[6].contains(&format!("shell {},", check["shell"]["path"].as_str().unwrap())), "{text}");
    assert_eq!(check["directory"], directory.to_str().unwrap());
    assert!(check["capabilities"].as_array().unwrap().contains(&json!("processResize")), "{check}");
}

#[tokio::test]
async fn an_unreachable_environment_is_reported_with_the_reason_and_the_next_step() {
    let configuration = Configuration::new(
        r#"
        include_local = false
        [[environments]]
        id = "closed"
        url = "ws://127.0.0.1:1"
        [[environments]]
        id = "ends"
        program = "sh"
        args = ["-c", "echo no licence >&2; exit 3"]
        [[environments]]
        id = "missing"
        program = "/no/such/program"
        [[environments]]
        id = "socket"
        url = "unix:///no/such/socket"
        [[environments]]
        id = "token"
        url = "ws://127.0.0.1:1"
        token_file = "none"
        "#,
    );
    let (text, code) = configuration.env(&["--check"]).await;
    assert_eq!(code, Some(1));
    let token = configuration.folder.path().join("none");
    for line in [
        "failed to connect to exec-server: cannot connect to ws://127.0.0.1:1: Connection refused; check that a server listens there",
        "exec-server transport disconnected: `sh` ended with exit status: 3: no licence; run the program by hand to see what it says",
        "failed to start the exec-server process: cannot start `/no/such/program`: No such file or directory; check `program` in the configuration",
        "failed to connect to exec-server: cannot connect to unix:///no/such/socket: No such file or directory; check that a server listens there",
        &format!("cannot read {}: No such file or directory; correct the path in the configuration", token.display()),
    ] {
        assert!(text.contains(&format!("\n  cannot be reached: {line}\n")), "{line}: {text}");
    }
    let (value, code) = configuration.json(&["--check"]).await;
    let entries = value["environments"].as_array().unwrap();
    assert!(
        entries.iter().all(|entry| entry["check"]["isReachable"] == false && entry["check"]["reason"].is_string())
    );
    assert_eq!((entries.len(), code), (5, Some(1)));
}

#[tokio::test]
async fn a_web_server_that_is_no_exec_server_is_reported_with_the_next_step() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") && client.read_buf(&mut request).await.unwrap() > 0 {}
            client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await.unwrap();
        }
    });
    let output = wait_for_output(command(&["env", "--check", "--connect", &url]).spawn().unwrap()).await;
    let (text, code) = stdout_and_exit_code(output);
    let reason = "failed to connect to exec-server: the server refused the connection with HTTP status 200; check that the \
                  address is that of an exec-server";
    assert!(text.contains(&format!("\n  cannot be reached: {reason}\n")), "{text}");
    assert_eq!(code, Some(1));
    serving.abort();
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_reported_with_the_flag_or_the_variable_that_names_it() {
    let configuration =
        Configuration::new("default = \"a\"\n[[environments]]\nid = \"a\"\nurl = \"wss://127.0.0.1:1\"\n");
    for (variable, flag) in
        [("EXEC_SERVER_CA_FILE", "--ca-file"), ("EXEC_SERVER_CLIENT_TOKEN_FILE", "--client-token-file")]
    {
        let typed = configuration.command(&["--check", "-e", "a", flag, "/no/file"]).spawn().unwrap();
        let set = configuration.command(&["--check", "-e", "a"]).env(variable, "/no/file").spawn().unwrap();
        for (child, setting) in [(typed, flag), (set, variable)] {
            let (text, code) = stdout_and_exit_code(wait_for_output(child).await);
            let reason = format!("cannot read /no/file: No such file or directory; correct {setting}");
            assert!(text.contains(&format!("\n  cannot be reached: {reason}\n")), "{setting}: {text}");
            assert_eq!(code, Some(1));
        }
    }
}

#[tokio::test]
async fn a_token_and_certificates_have_no_effect_on_an_environment_that_cannot_use_them() {
    let folder = tempfile::tempdir().unwrap();
    let listener = ScriptedServer::new().listen(folder.path());
    let plain = TestServer::start().await;
    for (url, variables) in [
        (listener.url(), &["EXEC_SERVER_CA_FILE", "EXEC_SERVER_CLIENT_TOKEN_FILE"][..]),
        (plain.url(), &["EXEC_SERVER_CA_FILE"]),
    ] {
        let configuration =
            Configuration::new(&format!("default = \"a\"\n[[environments]]\nid = \"a\"\nurl = \"{url}\"\n"));
        for choice in [["-e", "a"], ["--connect", url]] {
            let mut check = configuration.command(&[&["--check"], &choice[..]].concat());
            check.envs(variables.iter().map(|name| (name, "/no/file")));
            let (text, code) = stdout_and_exit_code(wait_for_output(check.spawn().unwrap()).await);
            assert_eq!(code, Some(0), "{text}");
        }
    }
}

#[tokio::test]
async fn long_texts_of_a_server_are_cut() {
    let folder = tempfile::tempdir().unwrap();
    let server = ScriptedServer::new();
    let long = "x".repeat(1 << 20);
    let (path, directory) = (format!("/{long}"), format!("file:///{long}"));
    server.on("environment/info", move |_| {
        let shell = json!({"name": path, "path": path});
        ScriptedReply::Result(json!({"shell": shell, "cwd": directory, "capabilities": {}}))
    });
    let listener = server.listen(folder.path());
    for error in [None, Some(long)] {
        if let Some(error) = error {
            server.on("initialize", move |_| ScriptedReply::Error(-32600, error.clone()));
        }
        for format in [&[][..], &["--json"]] {
            let args = [&["env", "--check", "--connect", listener.url()], format].concat();
            let (text, _) = stdout_and_exit_code(wait_for_output(command(&args).spawn().unwrap()).await);
            assert!(text.len() < 20_000 && text.contains("xxx…"), "{} bytes", text.len());
        }
    }
}

#[tokio::test]
async fn a_server_without_environment_info_is_reported_as_reachable_and_without_extensions() {
    let folder = tempfile::tempdir().unwrap();
    let server =
        PublishedProtocolServer::without_methods(TestServer::start().await, folder.path(), &["environment/info"]);
    let output = wait_for_output(command(&["env", "--check", "--connect", server.url()]).spawn().unwrap()).await;
    let (text, code) = stdout_and_exit_code(output);
    assert!(text.contains("\n  the server cannot be asked about itself, so it has no extensions\n"), "{text}");
    assert_eq!(code, Some(0));
}

#[tokio::test]
async fn escape_sequences_of_a_server_do_not_reach_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let server = ScriptedServer::new();
    server.on("environment/info", |_| {
        let shell = json!({"name": "sh", "path": "/bin/\u{1b}[31msh\u{9b}2J"});
        ScriptedReply::Result(json!({"shell": shell, "cwd": "file:///a%1B%5B1m%0Ab", "capabilities": {}}))
    });
    let listener = server.listen(folder.path());
    let output = wait_for_output(command(&["env", "--check", "--connect", listener.url()]).spawn().unwrap()).await;
    let (text, _) = stdout_and_exit_code(output);
    assert!(text.contains("\n  shell /bin/\\u{1b}[31msh\\u{9b}2J, directory /a\\u{1b}[1m\\nb\n"), "{text}");
    let child = command(&["env", "--check", "--json", "--connect", listener.url()]).spawn().unwrap();
    let output = wait_for_output(child).await;
    let (text, _) = stdout_and_exit_code(output);
    assert!(!text.contains(['\u{1b}', '\u{9b}']), "{text}");
    let value: Value = text.parse().unwrap();
    assert_eq!(value["environments"][0]["check"]["shell"]["path"], "/bin/\u{1b}[31msh\u{9b}2J");

    server.on("initialize", |_| ScriptedReply::Error(-32600, "go \u{1b}[5maway".to_owned()));
    let output = wait_for_output(command(&["env", "--check", "--connect", listener.url()]).spawn().unwrap()).await;
    let (text, code) = stdout_and_exit_code(output);
    assert!(text.contains("\n  cannot be reached: go \\u{1b}[5maway; look at the log of the server\n"), "{text}");
    assert_eq!(code, Some(1));
}

/// The TOML table of an environment whose program runs a shell script and then becomes a server.
fn environment_with_script(id: &str, script: &str) -> String {
    let script = format!("{script}; exec {} --listen stdio", binary().display());
    format!("[[environments]]\nid = \"{id}\"\nprogram = \"sh\"\nargs = [\"-c\", '''{script}''']\n")
}

#[tokio::test]
async fn environments_are_checked_in_parallel_and_only_the_one_without_an_answer_times_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    // Environments `a` and `b` become servers only when both scripts are running.
    let wait_for_other =
        |own: &str, other: &str| format!("touch {}; until [ -e {} ]; do sleep 0.05; done", file(own), file(other));
    let configuration = Configuration::new(&format!(
        "include_local = false\n{}{}{}",
        environment_with_script("a", &wait_for_other("a", "b")),
        environment_with_script("b", &wait_for_other("b", "a")),
        environment_with_script("never", "sleep 600"),
    ));
    let (text, code) = configuration.env(&["--check", "--timeout", "2s"]).await;
    assert_eq!(text.matches("  connected in ").count(), 2, "{text}");
    let reason =
        "never: program sh\n  cannot be reached: there was no answer within 2s; give more time with --timeout\n";
    assert!(text.contains(reason), "{text}");
    assert_eq!(code, Some(1));
}

#[tokio::test]
async fn a_signal_ends_the_check_and_the_programs_that_it_has_started() {
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let script = format!("echo $$ > {}; sleep 600", pid_file.display());
    let configuration = Configuration::new(&environment_with_script("never", &script));
    let child = configuration.command(&["--check", "--timeout", "5m"]).spawn().unwrap();
    let pid = read_pid(&pid_file).await;
    send_signal(child.id().unwrap(), Signal::INT);
    assert_eq!(wait_for_output(child).await.status.code(), Some(130));
    eventually("the program is gone", || (!is_alive(pid)).then_some(())).await;
}

async fn read_pid(path: &Path) -> u32 {
    eventually("the program has written its pid", || {
        std::fs::read_to_string(path).ok().filter(|text| text.ends_with('\n'))?.trim().parse().ok()
    })
    .await
}
