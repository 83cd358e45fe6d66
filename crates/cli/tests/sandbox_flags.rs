//! The flags `--sandbox`, `--writable` and `--allow-network`, and `sandbox explain`. A scripted server records what the
//! commands ask for. `sandbox_flags/enforced.rs` has tests with a real server, which enforces it.
#![expect(clippy::unwrap_used, reason = "a failed unwrap in a helper function fails the test")]

#[path = "sandbox_flags/enforced.rs"]
mod enforced;
#[path = "shared/policies.rs"]
mod policies;

use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use testkit::scripted::{ClientMessage, ScriptedListener, ScriptedReply};
use testkit::{ScriptedServer, Value, binary, eventually, hide_configuration, json};
use tokio::process::Command;

use crate::policies::{path_entry, restricted, special_entry};

/// Time limit for one command. Even on a loaded machine a command takes less.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// A scripted server whose working directory is `/srv/app`. It records the requests.
struct RecordingServer {
    server: ScriptedServer,
    listener: ScriptedListener,
    folder: TempDir,
}

impl RecordingServer {
    /// `sandbox_type` is the member `sandboxType` of the answers to `process/start`.
    fn start(sandbox_type: Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = ScriptedServer::new();
        let capabilities = json!({"fsSearch": true, "fsWatch": true, "fsLinks": true, "fsSetMetadata": true,
            "fsWriteBlocks": true, "processCloseStdin": true, "processSignals": true});
        let info = json!({"shell": {"name": "sh", "path": "/bin/sh"}, "cwd": "file:///srv/app",
            "capabilities": capabilities});
        server.on("environment/info", move |_| ScriptedReply::Result(info.clone()));
        server.on("process/start", move |request: &ClientMessage| {
            let (connection, id) = (request.connection.clone(), request.params["processId"].clone());
            let started = json!({"processId": id, "sandboxType": sandbox_type});
            // Each test has only one thread, so this task runs after the answer was sent.
            tokio::spawn(async move {
                let exited = json!({"processId": id, "seq": 1, "exitCode": 7, "sandboxDenied": false});
                connection.push("process/exited", exited);
                connection.push("process/closed", json!({"processId": id, "seq": 2}));
            });
            ScriptedReply::Result(started)
        });
        let listener = server.listen(folder.path());
        Self { server, listener, folder }
    }

    /// Answers a start with this type of sandbox. The command does not end by itself.
    fn start_with_sandbox_type(&self, sandbox_type: Value) {
        self.server.on("process/start", move |request: &ClientMessage| {
            let id = request.params["processId"].clone();
            ScriptedReply::Result(json!({"processId": id, "sandboxType": sandbox_type}))
        });
    }

    /// Runs a command in the environment of this server. Returns stdout, stderr and exit code.
    async fn run(&self, command: &str, args: &[&str]) -> (String, String, Option<i32>) {
        run_in(self.folder.path(), &[&[command, "--connect", self.listener.url()][..], args].concat()).await
    }

    /// The sandboxes of all requests with this beginning, except those that name an open file instead of a path.
    fn sandboxes(&self, method: &str) -> Vec<Value> {
        let messages = self.server.received();
        let names_file = |method: &str| matches!(method, "fs/readBlock" | "fs/close" | "fs/writeBlock" | "fs/commit");
        let wanted =
            messages.iter().filter(|message| message.method.starts_with(method) && !names_file(&message.method));
        wanted.map(|message| message.params["sandbox"].clone()).collect()
    }
}

/// Runs the binary in a directory. Returns stdout, stderr and exit code.
async fn run_in(directory: &Path, args: &[&str]) -> (String, String, Option<i32>) {
    let mut command = Command::new(binary());
    command.args(args).current_dir(directory).stdin(std::process::Stdio::null()).kill_on_drop(true);
    hide_configuration(&mut command).env_remove("TMPDIR");
    let output = tokio::time::timeout(COMMAND_TIMEOUT, command.output()).await.expect("the command ends").unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// The entry without effect if its path does not exist.
fn skipped_if_missing(mut entry: Value) -> Value {
    entry["missing_path_behavior"] = "skip".into();
    entry
}

/// The sandbox of `workspace-write` in this directory, with further entries.
fn workspace_write(directory: &str, network: &str, further: &[Value]) -> Value {
    let mut entries = vec![
        special_entry(json!({"kind": "root"}), "read"),
        special_entry(json!({"kind": "project_roots"}), "write"),
        special_entry(json!({"kind": "slash_tmp"}), "write"),
        special_entry(json!({"kind": "tmpdir"}), "write"),
    ];
    for name in [".git", ".agents", ".codex"] {
        entries.push(skipped_if_missing(special_entry(json!({"kind": "project_roots", "subpath": name}), "read")));
    }
    entries.push(skipped_if_missing(path_entry(&format!("{directory}/.codex"), "read")));
    entries.extend(further.iter().cloned());
    let mut sandbox = restricted(entries, network);
    sandbox["cwd"] = json!(directory);
    sandbox["workspaceRoots"] = json!([directory]);
    sandbox["windowsSandboxPrivateDesktop"] = json!(false);
    sandbox["useLegacyLandlock"] = json!(false);
    sandbox
}

#[tokio::test]
async fn processes_are_started_in_the_sandbox_with_their_directory_as_the_workspace() {
    let server = RecordingServer::start("linuxSeccomp".into());
    let flags = ["--sandbox", "workspace-write", "--writable", "/data", "--writable", "out", "--allow-network"];
    let args = [&flags[..], &["--cwd", "/srv/other", "--", "make"]].concat();
    assert_eq!(server.run("run", &args).await, (String::new(), String::new(), Some(7)));
    assert_eq!(server.run("mcp-stdio", &args).await.2, Some(7));
    let further = [path_entry("file:///data", "write"), path_entry("file:///srv/other/out", "write")];
    let expected = workspace_write("file:///srv/other", "enabled", &further);
    assert_eq!(server.sandboxes("process/start"), [expected.clone(), expected]);

    server.run("shell", &["--sandbox", "workspace-write"]).await;
    let expected = workspace_write("file:///srv/app", "restricted", &[]);
    assert_eq!(server.sandboxes("process/start")[2], expected);
    server.run("run", &["--", "make"]).await;
    assert_eq!(server.sandboxes("process/start")[3], Value::Null, "no flag, no sandbox");
}

#[tokio::test]
async fn a_policy_file_is_sent_as_it_is() {
    let server = RecordingServer::start("linuxSeccomp".into());
    let policy = json!({
        "permissions": {"type": "managed", "file_system": {"type": "restricted", "glob_scan_max_depth": 4, "entries": [
            special_entry(json!({"kind": "minimal"}), "read"),
            json!({"path": {"type": "glob_pattern", "pattern": "**/*.env"}, "access": "deny"}),
        ]}, "network": "restricted"},
        "cwd": "file:///ws", "workspaceRoots": ["file:///ws"], "windowsSandboxLevel": "disabled",
        "windowsSandboxPrivateDesktop": false, "useLegacyLandlock": false,
    });
    std::fs::write(server.folder.path().join("policy.json"), policy.to_string()).unwrap();
    assert_eq!(server.run("run", &["--sandbox", "policy.json", "--", "make"]).await.2, Some(7));
    assert_eq!(server.sandboxes("process/start"), [policy]);
}

#[tokio::test]
async fn every_request_about_files_carries_the_sandbox() {
    for (command, args) in [
        ("ls", &["-l", "/srv"][..]),
        ("cat", &["a"]),
        ("rm", &["-r", "a"]),
        ("mkdir", &["-p", "a/b"]),
        ("cp", &["-r", ":a", "copy"]),
        ("cp", &["scripted.sock", ":b"]),
        ("search", &["word", "a"]),
        ("watch", &["a"]),
    ] {
        let server = RecordingServer::start(Value::Null);
        // The watch is refused, so that the command ends.
        server.server.on("fs/watch", |_| ScriptedReply::Error(-32600, "no".to_owned()));
        let args = [&["--sandbox", "workspace-write"][..], args].concat();
        server.run(command, &args).await;
        let sent = server.sandboxes("fs/");
        assert!(!sent.is_empty(), "{command} {args:?}");
        for sandbox in sent {
            assert_eq!(sandbox, workspace_write("file:///srv/app", "restricted", &[]), "{command}");
        }
    }
}

#[tokio::test]
async fn a_command_that_the_server_starts_without_the_sandbox_is_ended() {
    for sandbox_type in [json!("none"), Value::Null] {
        for (command, argv) in [("run", &["--", "make"][..]), ("shell", &[]), ("mcp-stdio", &["--", "make"])] {
            let server = RecordingServer::start(json!(null));
            server.start_with_sandbox_type(sandbox_type.clone());
            let (stdout, stderr, code) = server.run(command, &[&["--sandbox", "read-only"], argv].concat()).await;
            let message = "exec-server: the server has started the command without the sandbox, so the command is \
                           ended; use a server that enforces sandboxes, or leave out --sandbox\n";
            assert_eq!((stdout.as_str(), stderr.as_str(), code), ("", message, Some(125)), "{command}");
            let is_end = |message: &ClientMessage| message.method == "process/terminate";
            eventually("the command is ended", || server.server.received().iter().any(is_end).then_some(())).await;
        }
    }
    let server = RecordingServer::start("none".into());
    std::fs::write(server.folder.path().join("full.json"), r#"{"type":"danger-full-access"}"#).unwrap();
    let (_, stderr, code) = server.run("run", &["--sandbox", "full.json", "--", "make"]).await;
    assert_eq!((stderr.as_str(), code), ("", Some(7)), "this policy asks for nothing");
}

#[tokio::test]
async fn a_command_whose_sandbox_type_cannot_be_decoded_is_ended() {
    for sandbox_type in [json!("junk"), json!(5)] {
        for (command, argv) in [("run", &["--", "make"][..]), ("shell", &[]), ("mcp-stdio", &["--", "make"])] {
            let server = RecordingServer::start(json!(null));
            server.start_with_sandbox_type(sandbox_type.clone());
            let (stdout, stderr, code) = server.run(command, &[&["--sandbox", "read-only"], argv].concat()).await;
            assert_eq!((stdout.as_str(), code), ("", Some(125)), "{command}: {stderr}");
            assert!(stderr.contains("so the command is ended: failed to decode an answer"), "{command}: {stderr}");
            let is_end = |message: &ClientMessage| message.method == "process/terminate";
            assert_eq!(server.server.received().iter().filter(|message| is_end(message)).count(), 1, "{command}");
        }
    }
}

#[tokio::test]
async fn the_reason_of_a_refusal_is_shown() {
    let server = RecordingServer::start(Value::Null);
    let reason = "failed to prepare process sandbox: user namespaces are switched off on this machine";
    server.server.on("process/start", move |_| ScriptedReply::Error(-32602, reason.to_owned()));
    let (_, stderr, code) = server.run("run", &["--sandbox", "read-only", "--", "make"]).await;
    assert_eq!(code, Some(125));
    assert!(
        stderr.starts_with("exec-server: ") && stderr.contains(reason) && stderr.lines().count() == 1,
        "{stderr}"
    );

    server
        .server
        .on("fs/createDirectory", |_| ScriptedReply::Error(-32603, "Read-only file system (os error 30)".to_owned()));
    let (_, stderr, code) = server.run("mkdir", &["--sandbox", "read-only", "d"]).await;
    assert_eq!(code, Some(1));
    assert!(stderr.contains("cannot make the directory d: ") && stderr.contains("ead-only file system"), "{stderr}");
}

/// Also: nothing is said about a command that fails for another reason, and JSON has the denial in its exit event.
#[tokio::test]
async fn a_denial_is_reported_with_the_flags_that_allow_more() {
    let workspace = tempfile::tempdir().unwrap();
    let run = async |flags: &'static [&'static str], script: &'static str| {
        let args = [&["run"], flags, &["--sandbox", "read-only", "--", "sh", "-c", script]].concat();
        run_in(workspace.path(), &args).await
    };
    let (_, stderr, code) = run(&[], "echo x > file").await;
    assert_eq!(code, Some(2));
    assert!(
        stderr.ends_with("sandbox refused something; --writable DIR and --allow-network allow more\n"),
        "{stderr}"
    );
    let (_, stderr, _) = run(&[], "python3 -c 'import socket; socket.socket()' 2>&-").await;
    let refused = stderr.split_once("refused something (").and_then(|(_, rest)| rest.split_once(')'));
    // An interpreter may try more, such as asking a daemon for the name of its user.
    assert!(refused.is_some_and(|(list, _)| list.split(", ").any(|call| call == "socket AF_INET")), "{stderr}");
    let (_, stderr, code) = run(&[], "exit 3").await;
    assert_eq!((&stderr[..], code), ("", Some(3)));
    let (stdout, stderr, _) = run(&["--json"], "python3 -c 'import socket; socket.socket()' 2>&-").await;
    let exit: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    let denials = exit["sandboxDenials"].as_array().unwrap();
    assert!(denials.contains(&json!({"count": 1, "operation": "socket", "target": "AF_INET"})), "{stdout}");
    assert_eq!(stderr, "");
}

/// So the next command of a script finds the directory as it was.
#[tokio::test]
async fn when_a_command_returns_nothing_of_its_sandbox_is_left_in_the_workspace() {
    let workspace = tempfile::tempdir().unwrap();
    for number in 0..10 {
        let (_, stderr, code) =
            run_in(workspace.path(), &["run", "--sandbox", "workspace-write", "--", "true"]).await;
        assert_eq!((&stderr[..], code), ("", Some(0)));
        let left: Vec<_> = std::fs::read_dir(workspace.path()).unwrap().collect();
        assert!(left.is_empty(), "after command {number}: {left:?}");
    }
}

#[tokio::test]
async fn the_other_flags_need_a_sandbox_and_a_sandbox_needs_an_environment() {
    let folder = tempfile::tempdir().unwrap();
    for flags in [&["--writable", "/x"][..], &["--allow-network"]] {
        let (_, stderr, code) = run_in(folder.path(), &[&["run"], flags, &["--", "true"]].concat()).await;
        assert_eq!(code, Some(2), "{stderr}");
        assert!(stderr.contains("--sandbox <POLICY>"), "{stderr}");
    }
    let (_, stderr, code) = run_in(folder.path(), &["cp", "--sandbox", "read-only", "a", "b"]).await;
    assert_eq!(code, Some(1));
    assert!(stderr.contains("all paths are on this machine"), "{stderr}");
    let (_, stderr, code) = run_in(folder.path(), &["run", "--sandbox", "readonly", "--", "true"]).await;
    assert_eq!(code, Some(125));
    assert!(stderr.contains("cannot read the sandbox policy readonly; it is `read-only`"), "{stderr}");
}

#[tokio::test]
async fn explain_says_what_a_policy_allows_and_why() {
    let folder = tempfile::tempdir().unwrap();
    let at = |rest: &str| format!("{}{rest}", folder.path().canonicalize().unwrap().display());
    let cwd = at("/ws");
    let explain = ["sandbox", "explain", "--policy"];
    let words =
        [&explain[..], &["workspace-write", "--cwd", &cwd, "--writable", "/opt/data", "src/x.rs", ".codex/a"]];
    let (stdout, stderr, code) =
        run_in(folder.path(), &[&words.concat()[..], &["/opt/data/y", "/etc/passwd"]].concat()).await;
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    let lines: Vec<String> =
        stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        lines,
        [
            format!("write {cwd}/src/x.rs entry 2 allows writing below {cwd}"),
            format!("read {cwd}/.codex/a entry 7 allows reading below {cwd}/.codex"),
            "write /opt/data/y entry 9 allows writing below /opt/data".to_owned(),
            "read /etc/passwd entry 1 allows reading below /".to_owned(),
        ]
    );

    let policy = json!({"permissions": {"type": "managed", "network": "restricted", "file_system": {
        "type": "restricted", "entries": [{"path": {"type": "glob_pattern", "pattern": "*"}, "access": "read"}]}}});
    std::fs::write(at("/policy.json"), policy.to_string()).unwrap();
    let (stdout, stderr, code) = run_in(folder.path(), &[&explain[..], &["policy.json", "x"]].concat()).await;
    assert_eq!((stdout.as_str(), code), ("", Some(1)));
    assert!(stderr.contains("sandbox glob pattern `*` must have access deny"), "{stderr}");

    std::fs::write(at("/full.json"), r#"{"type":"danger-full-access"}"#).unwrap();
    let (stdout, ..) = run_in(folder.path(), &[&explain[..], &["full.json", "--json", "/x"]].concat()).await;
    let value: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&value["access"], &value["source"]), (&json!("write"), &json!("unrestricted")));
}
