//! `env`: which environments there are, which one is the default and why, and whether they can be reached.

use std::path::Path;
use std::process::Output;

use tempfile::TempDir;
use testkit::scripted::ScriptedReply;
use testkit::{
    PublishedServer, ScriptedServer, Signal, TestServer, Value, binary, eventually, is_alive, json, send_signal,
};

use crate::support::{command, finished};

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

    fn file(&self) -> String {
        self.folder.path().join("environments.toml").to_str().unwrap().to_owned()
    }

    fn command(&self, args: &[&str]) -> tokio::process::Command {
        let mut command = command(&[&["env"], args].concat());
        command.env("EXEC_SERVER_HOME", self.folder.path());
        command
    }

    /// What `env` prints on stdout, and its exit code. It prints nothing on stderr.
    async fn env(&self, args: &[&str]) -> (String, Option<i32>) {
        told(finished(self.command(args).spawn().unwrap()).await)
    }

    async fn json(&self, args: &[&str]) -> (Value, Option<i32>) {
        let (text, code) = self.env(&[args, &["--json"]].concat()).await;
        assert_eq!(text.lines().count(), 1, "{text}");
        (text.parse().unwrap(), code)
    }
}

fn told(output: Output) -> (String, Option<i32>) {
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
    let names: Vec<&str> =
        value["environments"].as_array().unwrap().iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
    assert_eq!(names, ["ssh", "url", "program", "local"]);
}

#[tokio::test]
async fn the_default_has_a_reason() {
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
        let output = finished(command(&["env"]).env("EXEC_SERVER_URL", url).spawn().unwrap()).await;
        assert!(told(output).0.ends_with(reason), "{url}");
    }
    let home = tempfile::tempdir().unwrap();
    let output = finished(command(&["env"]).env("HOME", home.path()).spawn().unwrap()).await;
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
    assert_eq!(told(output), (expected, Some(0)));
}

#[tokio::test]
async fn a_flag_chooses_one_environment() {
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

    let output = finished(configuration.command(&["-e", "none"]).spawn().unwrap()).await;
    assert_eq!(
        (String::from_utf8(output.stderr).unwrap().as_str(), output.status.code()),
        ("exec-server: there is no environment `none`; there are: build, local\n", Some(1))
    );
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_one_line_on_stderr() {
    let configuration = Configuration::new("\n[[environments]]\nid = \"x\"\nssh = \"-evil\"\n");
    let output = finished(configuration.command(&["--check"]).spawn().unwrap()).await;
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
    let server = TestServer::with(&[], |command| command.current_dir(folder.path())).await;
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
async fn an_environment_that_cannot_be_reached_has_a_reason_with_the_next_step() {
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
    let checks = value["environments"].as_array().unwrap();
    assert!(
        checks.iter().all(|entry| entry["check"]["isReachable"] == false && entry["check"]["reason"].is_string())
    );
    assert_eq!((checks.len(), code), (5, Some(1)));
}

#[tokio::test]
async fn a_server_without_extensions_is_reached_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let server = PublishedServer::without(TestServer::start().await, folder.path(), &["environment/info"]);
    let output = finished(command(&["env", "--check", "--connect", server.url()]).spawn().unwrap()).await;
    let (text, code) = told(output);
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
    let output = finished(command(&["env", "--check", "--connect", listener.url()]).spawn().unwrap()).await;
    let (text, _) = told(output);
    assert!(text.contains("\n  shell /bin/\\u{1b}[31msh\\u{9b}2J, directory /a\\u{1b}[1m\\nb\n"), "{text}");
    let output = finished(command(&["env", "--check", "--json", "--connect", listener.url()]).spawn().unwrap()).await;
    let (text, _) = told(output);
    assert!(!text.contains(['\u{1b}', '\u{9b}']), "{text}");
    let value: Value = text.parse().unwrap();
    assert_eq!(value["environments"][0]["check"]["shell"]["path"], "/bin/\u{1b}[31msh\u{9b}2J");

    server.on("initialize", |_| ScriptedReply::Error(-32600, "go \u{1b}[5maway".to_owned()));
    let output = finished(command(&["env", "--check", "--connect", listener.url()]).spawn().unwrap()).await;
    let (text, code) = told(output);
    assert!(text.contains("\n  cannot be reached: go \\u{1b}[5maway; look at the log of the server\n"), "{text}");
    assert_eq!(code, Some(1));
}

/// A table for an environment that is served by our own binary after a script has run.
fn scripted_environment(id: &str, script: &str) -> String {
    let script = format!("{script}; exec {} --listen stdio", binary().display());
    format!("[[environments]]\nid = \"{id}\"\nprogram = \"sh\"\nargs = [\"-c\", '''{script}''']\n")
}

#[tokio::test]
async fn environments_are_checked_at_once_and_each_has_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    // Neither is served before both have begun.
    let meets =
        |own: &str, other: &str| format!("touch {}; until [ -e {} ]; do sleep 0.05; done", file(own), file(other));
    let configuration = Configuration::new(&format!(
        "include_local = false\n{}{}{}",
        scripted_environment("a", &meets("a", "b")),
        scripted_environment("b", &meets("b", "a")),
        scripted_environment("never", "sleep 600"),
    ));
    let (text, code) = configuration.env(&["--check", "--timeout", "2s"]).await;
    assert_eq!(text.matches("  connected in ").count(), 2, "{text}");
    let reason =
        "never: program sh\n  cannot be reached: there was no answer within 2s; give more time with --timeout\n";
    assert!(text.contains(reason), "{text}");
    assert_eq!(code, Some(1));
}

#[tokio::test]
async fn a_signal_ends_the_check_and_what_it_has_started() {
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let script = format!("echo $$ > {}; sleep 600", pid_file.display());
    let configuration = Configuration::new(&scripted_environment("never", &script));
    let child = configuration.command(&["--check", "--timeout", "5m"]).spawn().unwrap();
    let pid = number_in(&pid_file).await;
    send_signal(child.id().unwrap(), Signal::INT);
    assert_eq!(finished(child).await.status.code(), Some(130));
    eventually("the program is gone", || (!is_alive(pid)).then_some(())).await;
}

async fn number_in(path: &Path) -> u32 {
    eventually("the program has written its number", || {
        std::fs::read_to_string(path).ok().filter(|text| text.ends_with('\n'))?.trim().parse().ok()
    })
    .await
}
