//! `process/start` with the param `shellSnapshot`: the server runs the profile of the user once in a shell that
//! reports its state (the capture). Commands with the same `shellSnapshot`, policy, `cwd` and `HOME` begin with that
//! state (the snapshot), and do not run the profile themselves. If the capture fails, they run without a snapshot.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode};
use testkit::{Client, FinishedProcess, TestServer, Value, eventually, eventually_async, http_get, is_alive, json};

/// Name, path and login file of each shell.
const SHELLS: [(&str, &str, &str); 3] =
    [("bash", "/bin/bash", ".bash_profile"), ("zsh", "/usr/bin/zsh", ".zprofile"), ("sh", "/bin/sh", ".profile")];

/// A home directory with a profile for every shell. The profiles count in a file how often they are run.
struct Home(tempfile::TempDir);

impl Home {
    fn new(profile: &str) -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        home.set_profile(profile);
        home
    }

    fn set_profile(&self, profile: &str) {
        for (_, _, file) in SHELLS {
            std::fs::write(self.path(file), format!("echo run >> \"$HOME/runs\"\n{profile}\n")).unwrap();
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// How often the profiles were run, all together.
    fn runs(&self) -> usize {
        std::fs::read_to_string(self.path("runs")).map_or(0, |runs| runs.lines().count())
    }

    fn params(&self, process: &str, shell: &str, command: &str) -> Value {
        let (name, path, _) = SHELLS.into_iter().find(|(name, ..)| *name == shell).unwrap();
        json!({
            "processId": process, "argv": [path, "-lc", command], "cwd": "file:///", "tty": false,
            "env": {"HOME": self.path("")},
            "envPolicy": {"inherit": "all", "ignoreDefaultExcludes": true, "exclude": [], "set": {}, "includeOnly": []},
            "shellSnapshot": {"scopeId": "scope", "shell": {"name": name, "path": path}},
        })
    }
}

async fn run(client: &mut Client, params: Value) -> FinishedProcess {
    let process = params["processId"].as_str().unwrap().to_owned();
    client.call("process/start", params).await;
    client.outcome(&process).await
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The object with the members of `more`, which are added or replace members of the same name.
fn with_members(mut object: Value, more: Value) -> Value {
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

/// An object whose only member is `envPolicy`: a policy that inherits no variable, changed by the members of `more`.
fn env_policy(more: Value) -> Value {
    let policy =
        json!({"inherit": "none", "ignoreDefaultExcludes": false, "exclude": [], "set": {}, "includeOnly": []});
    json!({"envPolicy": with_members(policy, more)})
}

#[tokio::test]
async fn the_profile_is_run_once_and_every_command_begins_with_its_state() {
    let profile = "echo noise\nexport FROM_PROFILE=exported\nPATH=$HOME/bin:$PATH\nexport PATH\nunset GONE\numask 027\n\
                   set -C";
    for (shell, path, _) in SHELLS {
        let home = Home::new(profile);
        let server = TestServer::start_with(&[], |command| command.env("GONE", "here")).await;
        let mut client = server.client().await;
        let command = "echo $FROM_PROFILE ${GONE-gone} $(umask) \"$0\" \"$@\"\ncase $- in *C*) echo noclobber;; esac; echo $PATH";
        for number in 0..3 {
            let mut params = home.params(&number.to_string(), shell, command);
            params["argv"].as_array_mut().unwrap().extend([json!("zero"), json!("a b")]);
            let outcome = run(&mut client, params).await;
            let mask = if shell == "zsh" { "027" } else { "0027" };
            let home_path = home.path("").display().to_string();
            let expected = format!("exported gone {mask} zero a b\nnoclobber\n{home_path}/bin:");
            let stdout = text(&outcome.stdout).replace("//", "/");
            assert!(stdout.starts_with(&expected.replace("//", "/")), "{shell}: {stdout}{}", text(&outcome.stderr));
            assert_eq!(text(&outcome.stderr), "", "{shell}");
        }
        assert_eq!(home.runs(), 1, "{shell}");
        let again = run(&mut client, home.params("name", shell, "echo $0")).await;
        assert_eq!(text(&again.stdout), format!("{path}\n"), "`$0` is the path of the shell");
    }
}

#[tokio::test]
async fn functions_and_aliases_are_restored() {
    let profile = "greet() { echo \"hello $1\"; }\nalias shout='echo LOUD'\nalias lines='echo a\necho b'";
    for (shell, command) in [
        ("bash", "greet you; shopt -s expand_aliases; eval 'shout; lines'"),
        ("zsh", "greet you; shout; lines"),
        // `sh` cannot list its functions, so they cannot be restored.
        ("sh", "echo hello you; shout; lines"),
    ] {
        let home = Home::new(profile);
        let server = TestServer::start().await;
        let mut client = server.client().await;
        for number in ["1", "2"] {
            let outcome = run(&mut client, home.params(number, shell, command)).await;
            assert_eq!(
                (text(&outcome.stdout), text(&outcome.stderr)),
                ("hello you\nLOUD\na\nb\n", ""),
                "{shell}: both commands begin with the captured state"
            );
        }
        assert_eq!(home.runs(), 1, "{shell}");
    }
}

#[tokio::test]
async fn options_of_a_shell_are_restored() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let home = Home::new("set -e -u");
    for (shell, ..) in SHELLS {
        let outcome = run(&mut client, home.params(shell, shell, "echo before; false; echo after")).await;
        assert_eq!((text(&outcome.stdout), outcome.exit_code), ("before\n", 1), "{shell}");
        let outcome = run(&mut client, home.params(&format!("{shell} 2"), shell, "echo $NOT_SET")).await;
        assert_ne!(outcome.exit_code, 0, "{shell}");
    }
    assert_eq!(home.runs(), 3);

    let home = Home::new("shopt -s extglob globstar 2>/dev/null || setopt extendedglob");
    let bash = run(&mut client, home.params("b", "bash", "shopt -q extglob && shopt -q globstar && echo on")).await;
    let zsh = run(&mut client, home.params("z", "zsh", "[[ -o extendedglob && -o aliases ]] && echo on")).await;
    assert_eq!((text(&bash.stdout), text(&zsh.stdout)), ("on\n", "on\n"));
}

#[tokio::test]
async fn the_command_cannot_see_how_its_state_was_restored() {
    let home = Home::new("export FROM_PROFILE=1");
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for (shell, ..) in SHELLS {
        let outcome = run(&mut client, home.params(shell, shell, "env; set; alias; pwd")).await;
        let stdout = text(&outcome.stdout);
        assert!(stdout.contains("FROM_PROFILE=1") && stdout.ends_with("/\n"), "{shell}: {stdout}");
        // The variables and functions with which the server restores the state have names that contain `codex`.
        let is_ours = |line: &&str| line.contains("codex") || line.contains("CODEX");
        assert_eq!(stdout.lines().filter(is_ours).collect::<Vec<_>>(), Vec::<&str>::new(), "{shell}");
    }
    let names: Vec<_> = std::fs::read_dir(home.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(
        names.len(),
        SHELLS.len() + 1,
        "the home directory has files other than the profiles and their counter: {names:?}"
    );
}

#[tokio::test]
async fn variables_that_a_profile_exports_are_filtered_by_the_policy() {
    let profile = "export PLAIN=plain MY_TOKEN=token DROPPED=dropped CHOSEN=profile OPENAI_IDENTITY_TOKEN_FILE=never";
    // The server removes `OPENAI_IDENTITY_TOKEN_FILE` from every environment, also without a policy.
    let show = "echo ${PLAIN-} ${MY_TOKEN-} ${DROPPED-} ${CHOSEN-} ${OPENAI_IDENTITY_TOKEN_FILE-}";
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for (shell, ..) in SHELLS {
        let home = Home::new(profile);
        for (number, (more, expected)) in [
            (json!({"envPolicy": null}), "plain token dropped profile\n"),
            (env_policy(json!({})), "plain dropped profile\n"),
            (env_policy(json!({"inherit": "core"})), "plain dropped profile\n"),
            (env_policy(json!({"ignoreDefaultExcludes": true})), "plain token dropped profile\n"),
            (env_policy(json!({"exclude": ["DROP*"]})), "plain profile\n"),
            (env_policy(json!({"set": {"CHOSEN": "policy"}})), "plain dropped policy\n"),
            (env_policy(json!({"includeOnly": ["PLAIN", "HOME", "PATH"]})), "plain\n"),
        ]
        .into_iter()
        .enumerate()
        {
            let params = with_members(home.params(&format!("{shell} {number}"), shell, show), more);
            let outcome = run(&mut client, params).await;
            assert_eq!((text(&outcome.stdout), text(&outcome.stderr)), (expected, ""), "{shell} {number}");
        }
        assert_eq!(home.runs(), 7, "{shell}: each policy needs a snapshot of its own");
    }
}

#[tokio::test]
async fn commands_that_share_a_snapshot_have_the_variables_of_their_own_start() {
    let home = Home::new("export DEFAULT=${DEFAULT-profile}");
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let mut first = home.params("1", "bash", "echo $RUN_NUMBER $DEFAULT");
    first["env"]["RUN_NUMBER"] = json!("1");
    let mut second = home.params("2", "bash", "echo $RUN_NUMBER $DEFAULT");
    second["env"]["RUN_NUMBER"] = json!("2");
    second["env"]["DEFAULT"] = json!("client");
    let third = home.params("3", "bash", "echo ${RUN_NUMBER-none} $DEFAULT");
    assert_eq!(text(&run(&mut client, first).await.stdout), "1 profile\n");
    assert_eq!(text(&run(&mut client, second).await.stdout), "2 client\n");
    assert_eq!(text(&run(&mut client, third).await.stdout), "none profile\n");
    assert_eq!(home.runs(), 1);
}

#[tokio::test]
async fn simultaneous_starts_share_one_capture_that_clients_cannot_see_and_that_leaves_no_process() {
    let home = Home::new(
        "mkfifo \"$HOME/gate\"; sleep 600 & echo $! > \"$HOME/left\"; read go < \"$HOME/gate\"; export GO=$go",
    );
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let mut waiting = Vec::new();
    for number in 0..8 {
        let params = home.params(&number.to_string(), "bash", "echo $GO");
        waiting.push(client.send("process/start", params).await);
    }
    let pid_file = home.path("left");
    let left_behind: u32 =
        eventually("the profile runs", || std::fs::read_to_string(&pid_file).ok()?.trim().parse().ok()).await;
    let list = client.processes().await;
    let states: Vec<_> = list.as_array().unwrap().iter().map(|process| &process["state"]).collect();
    assert_eq!(states, ["starting"; 8], "the capture is not in the list");
    std::fs::write(home.path("gate"), "went\n").unwrap();
    for id in waiting {
        assert!(client.answer(id).await.get("result").is_some());
    }
    for number in 0..8 {
        assert_eq!(text(&client.outcome(&number.to_string()).await.stdout), "went\n");
    }
    assert_eq!(home.runs(), 1);
    eventually("the process that the profile left behind is gone", || (!is_alive(left_behind)).then_some(())).await;
}

#[tokio::test]
async fn after_a_failed_capture_commands_run_without_a_snapshot_and_the_capture_is_not_repeated() {
    let fails_once = "mkdir \"$HOME/first\" 2>/dev/null && exit 3\nexport FROM_PROFILE=1";
    for (shell, ..) in SHELLS {
        let home = Home::new(fails_once);
        let server = TestServer::start().await;
        let mut client = server.client().await;
        for number in ["1", "2"] {
            let outcome = run(&mut client, home.params(number, shell, "echo ran $FROM_PROFILE")).await;
            assert_eq!((text(&outcome.stdout), outcome.exit_code), ("ran 1\n", 0), "{shell}");
        }
        assert_eq!(home.runs(), 3, "{shell}: one run in the capture, and one in each command");
    }
    // This state is larger than a capture may report.
    let huge = "mkdir \"$HOME/first\" 2>/dev/null && eval \"huge() { : $(head -c 600000 /dev/zero | tr '\\0' x); }\"";
    let home = Home::new(&format!("{huge}\nexport FROM_PROFILE=1"));
    let server = TestServer::start().await;
    let outcome = run(&mut server.client().await, home.params("p", "bash", "echo ran $FROM_PROFILE")).await;
    assert_eq!((text(&outcome.stdout), home.runs()), ("ran 1\n", 2));
}

#[tokio::test]
async fn a_profile_that_hangs_is_given_up_after_ten_seconds() {
    let home = Home::new("mkdir \"$HOME/first\" 2>/dev/null && { echo $$ > \"$HOME/pid\"; sleep 600; }\nexport A=1");
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let start = std::time::Instant::now();
    let outcome = run(&mut client, home.params("p", "bash", "echo ran $A")).await;
    assert_eq!(text(&outcome.stdout), "ran 1\n");
    assert!(start.elapsed().as_secs() >= 10);
    let pid = std::fs::read_to_string(home.path("pid")).unwrap().trim().parse().unwrap();
    eventually("the capture is killed", || (!is_alive(pid)).then_some(())).await;
}

#[tokio::test]
async fn a_command_that_is_ended_during_the_capture_never_runs() {
    let home = Home::new("mkfifo \"$HOME/gate\"; read go < \"$HOME/gate\"");
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let start = client.send("process/start", home.params("p", "bash", "echo > $HOME/ran")).await;
    eventually("the profile runs", || home.path("gate").exists().then_some(())).await;
    assert_eq!(client.call("process/terminate", json!({"processId": "p"})).await, json!({"running": true}));
    std::fs::write(home.path("gate"), "go\n").unwrap();
    let error = client.answer(start).await["error"].clone();
    assert_eq!(error, json!({"code": -32600, "message": "process p start was cancelled"}));
    assert!(!home.path("ran").exists());
    assert_eq!(client.processes().await, json!([]));
}

#[tokio::test]
async fn a_large_state_works_and_changes_neither_line_numbers_nor_exit_codes() {
    let functions: String =
        (0..1500).map(|number| format!("f{number}() {{ echo 'ü{number} {}'; }}\n", "é".repeat(60))).collect();
    let home = Home::new(&functions);
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for shell in ["bash", "zsh"] {
        let outcome = run(&mut client, home.params(shell, shell, "f1499 | cut -c -6; f0 | cut -c -3; exit 7")).await;
        assert!(text(&outcome.stdout).starts_with("ü1499"), "{shell}: {}", text(&outcome.stdout));
        assert_eq!((text(&outcome.stderr), outcome.exit_code), ("", 7), "{shell}");
    }
    let outcome = run(&mut client, home.params("line", "bash", "true\nno-such-command")).await;
    assert_eq!(text(&outcome.stderr), "/bin/bash: line 2: no-such-command: command not found\n");
    assert_eq!(outcome.exit_code, 127);
    assert_eq!(home.runs(), 2);
}

#[tokio::test]
async fn a_snapshot_works_on_a_terminal() {
    let home = Home::new("export FROM_PROFILE=1");
    let server = TestServer::start().await;
    let params = with_members(home.params("p", "bash", "test -t 0 && echo $FROM_PROFILE"), json!({"tty": true}));
    assert_eq!(text(&run(&mut server.client().await, params).await.pty), "1\r\n");
}

#[tokio::test]
async fn a_command_that_does_not_run_the_named_shell_with_lc_runs_without_a_snapshot() {
    let home = Home::new("export FROM_PROFILE=1");
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let mut params = home.params("p", "bash", "echo ${FROM_PROFILE-unset}");
    params["argv"][1] = json!("-c");
    assert_eq!(text(&run(&mut client, params).await.stdout), "unset\n");
    assert_eq!(home.runs(), 0);
    let mut params = home.params("q", "bash", "echo ${FROM_PROFILE-unset}");
    params["argv"][0] = json!("/usr/bin/bash");
    assert_eq!(text(&run(&mut client, params).await.stdout), "1\n");
    assert_eq!(home.runs(), 1, "the command itself ran the profile");
}

#[tokio::test]
async fn invalid_requests_get_the_error_texts_of_the_published_protocol() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let home = Home::new("");
    let scope = "shell snapshot scope must be non-empty and at most 256 bytes";
    for (scope_id, shell, message) in [
        ("", "bash", scope),
        (&*"x".repeat(257), "bash", scope),
        ("s", "fish", "shell snapshots are unsupported for shell `fish`"),
    ] {
        let mut params = home.params("p", "bash", "true");
        params["shellSnapshot"] = json!({"scopeId": scope_id, "shell": {"name": shell, "path": "/bin/bash"}});
        let error = client.call_error("process/start", params).await;
        assert_eq!(error, json!({"code": -32602, "message": message}));
    }
}

#[tokio::test]
async fn requests_that_waited_for_a_failed_start_never_reach_a_new_process_with_the_same_id() {
    let home = Home::new("mkfifo \"$HOME/gate\"; read go < \"$HOME/gate\"");
    let directory = tempfile::tempdir().unwrap();
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let cwd = json!({"cwd": format!("file://{}", directory.path().display())});
    let start = client.send("process/start", with_members(home.params("p", "bash", "true"), cwd)).await;
    // The writes wait until the start has a result. There are so many that the next process is started before all of
    // them are answered.
    let mut writes = Vec::new();
    for number in 0..1500 {
        writes.push(client.send_write("p", &number.to_string(), [b'x'; 24 << 10]).await);
    }
    // The server reads requests in order, so after this answer it has read all writes.
    client.call("environment/status", json!({})).await;
    let gate = home.path("gate");
    eventually("the profile runs", || gate.exists().then_some(())).await;
    // The start will fail, because its `cwd` is gone.
    directory.close().unwrap();
    let mut next = Client::start_params("p", &["cat"]);
    (next["pipeStdin"], next["paused"]) = (json!(true), json!(true));
    // The next process is started over another connection of the same session, because the connection of `client` is
    // busy with the answers to the writes.
    let mut observer = server.connect_without_handshake().await;
    let params = json!({"clientName": "testkit", "resumeSessionId": client.session, "observe": true});
    observer.call("initialize", params).await;
    observer.notify("initialized", json!({})).await;
    // The first start still has the id.
    observer.call_error("process/start", next.clone()).await;
    std::fs::write(&gate, "\n").unwrap();
    // The start is repeated until the id is free.
    while observer.request("process/start", next.clone()).await.get("result").is_none() {}
    assert_eq!(client.answer(start).await["error"]["data"]["kind"], "notFound");
    for write in writes {
        assert_eq!(client.answer(write).await["result"], json!({"status": "unknownProcess"}));
    }
    client.close_stdin("p").await;
    let mut read = json!(null);
    while read["closed"] != true {
        read = client.call("process/read", json!({"processId": "p", "waitMs": 10_000})).await;
    }
    assert_eq!(read["chunks"], json!([]), "the new process got bytes that were meant for the old one");
}

/// Starts a process whose profile waits until `leave` has disconnected the client. The process then writes more bytes
/// than the server retains and the pipe of its stdout holds together, so it ends only if it does not wait for a
/// reader.
async fn assert_process_ends_after_its_client_left(server: &TestServer, leave: impl AsyncFnOnce(Client)) {
    let home = Home::new("read line < \"$HOME/go\"");
    let go = home.path("go");
    rustix::fs::mknodat(CWD, &go, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let mut client = server.client().await;
    let params = home.params("p", "bash", "head -c 3000000 /dev/zero; touch \"$HOME/done\"");
    client.send("process/start", params).await;
    eventually("the profile runs", || (home.runs() == 1).then_some(())).await;
    leave(client).await;
    std::fs::write(&go, "\n").unwrap();
    let ends = eventually("the process has written everything", || home.path("done").exists().then_some(()));
    // By default a process waits 25 s for a client that was lost, which is longer than this timeout.
    tokio::time::timeout(Duration::from_secs(15), ends).await.expect("the process waits for a reader");
}

#[tokio::test]
async fn a_process_that_starts_after_its_client_has_closed_the_connection_waits_for_no_reader() {
    let server = TestServer::start().await;
    assert_process_ends_after_its_client_left(&server, async |mut client| {
        let mut close_frame = Vec::new();
        transport::Framing::WebSocketClient.close(&mut close_frame, 1000, "");
        client.send_bytes(&close_frame).await.unwrap();
        assert_eq!(client.drain().await, Vec::<Value>::new());
    })
    .await;
}

#[tokio::test]
async fn a_process_that_starts_after_the_detached_hold_has_ended_waits_for_no_reader() {
    // The detached hold is the time for which a process waits for a client that was lost.
    let server = TestServer::with_args(&["--detached-hold", "0s"]).await;
    assert_process_ends_after_its_client_left(&server, async |client| {
        drop(client);
        let no_connection_is_left = async || {
            let page = http_get(server.address(), "/metrics", &[]).await;
            page.body.contains("exec_server_connections_active{transport=\"websocket\"} 0").then_some(())
        };
        eventually_async("the connection has ended", no_connection_is_left).await;
    })
    .await;
}
