//! Processes from their start until the server forgets them: params and errors of `process/start`, environment
//! variables, terminals, process ids, `process/list`, and the order of the events of a process.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use std::time::{Duration, Instant};

use testkit::{Client, TestServer, Value, eventually, eventually_async, json, unbase64};

/// Params of a start with some members changed.
fn start_with(process: &str, argv: &[&str], changes: Value) -> Value {
    let mut params = Client::start_params(process, argv);
    for (name, value) in changes.as_object().unwrap() {
        params[name] = value.clone();
    }
    params
}

#[tokio::test]
async fn the_answer_to_a_start_comes_first_and_the_events_follow_in_order() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for n in 0..100 {
        let id = format!("p{n}");
        let request = client.send("process/start", Client::start_params(&id, &["echo", "hi"])).await;
        assert_eq!(client.next().await, json!({"id": request, "result": {"processId": id, "sandboxType": "none"}}));
        let params = |seq: u64| json!({"processId": id, "seq": seq});
        let mut output = params(1);
        output["stream"] = json!("stdout");
        output["chunk"] = json!("aGkK");
        assert_eq!(client.next().await, json!({"method": "process/output", "params": output}));
        let mut exited = params(2);
        exited["exitCode"] = json!(0);
        exited["sandboxDenied"] = json!(false);
        assert_eq!(client.next().await, json!({"method": "process/exited", "params": exited}));
        assert_eq!(client.next().await, json!({"method": "process/closed", "params": params(3)}));
    }
}

#[tokio::test]
async fn stdout_stderr_exit_and_close_have_consecutive_numbers() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let script = "echo out; read x; echo err >&2; exit 7";
    client.call("process/start", start_with("p", &["sh", "-c", script], json!({"pipeStdin": true}))).await;
    let mut events = vec![client.event("p").await];
    client.write("p", "go", "\n").await;
    for _ in 0..3 {
        events.push(client.event("p").await);
    }
    assert_eq!(
        events,
        [
            json!({"method": "process/output", "params": {"processId": "p", "seq": 1, "stream": "stdout", "chunk": "b3V0Cg=="}}),
            json!({"method": "process/output", "params": {"processId": "p", "seq": 2, "stream": "stderr", "chunk": "ZXJyCg=="}}),
            json!({"method": "process/exited", "params": {"processId": "p", "seq": 3, "exitCode": 7, "sandboxDenied": false}}),
            json!({"method": "process/closed", "params": {"processId": "p", "seq": 4}}),
        ]
    );
}

#[tokio::test]
async fn a_process_can_start_with_an_empty_environment() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let changes = json!({"env": {}});
    assert_eq!(
        client.call("process/start", start_with("p", &["/usr/bin/env"], changes)).await,
        json!({"processId": "p", "sandboxType": "none"})
    );
    let outcome = client.outcome("p").await;
    assert_eq!((outcome.stdout, outcome.exit_code, outcome.seqs), (vec![], 0, vec![1, 2]));
}

#[tokio::test]
async fn exit_codes_are_the_same_on_pipes_and_on_a_terminal() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for tty in [false, true] {
        for (script, code) in [("exit 0", 0), ("exit 255", 255), ("kill -9 $$", 137), ("kill -TERM $$", 143)] {
            let id = format!("{tty} {script}");
            client.call("process/start", start_with(&id, &["sh", "-c", script], json!({"tty": tty}))).await;
            assert_eq!(client.outcome(&id).await.exit_code, code, "{id}");
        }
    }
}

#[tokio::test]
async fn a_terminal_sends_all_output_as_one_stream() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let script = "test -t 0 && test -t 1 && test -t 2 && echo out && echo err >&2; seq 1 20000";
    client.call("process/start", start_with("p", &["sh", "-c", script], json!({"tty": true}))).await;
    let outcome = client.outcome("p").await;
    let numbers: String = (1..=20000).map(|n| format!("{n}\r\n")).collect();
    assert_eq!(String::from_utf8(outcome.pty).unwrap(), format!("out\r\nerr\r\n{numbers}"));
    assert_eq!((outcome.stdout, outcome.stderr, outcome.exit_code), (vec![], vec![], 0));
}

#[tokio::test]
async fn a_terminal_has_the_default_size_or_the_requested_size_and_can_be_resized() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let argv = ["sh", "-c", "stty size; read x; stty size"];
    client.call("process/start", start_with("default", &["stty", "size"], json!({"tty": true}))).await;
    assert_eq!(client.outcome("default").await.pty, b"24 80\r\n");
    let size = json!({"rows": 10, "cols": 20});
    client.call("process/start", start_with("p", &argv, json!({"tty": true, "size": size}))).await;
    assert_eq!(client.output_until("p", "\n").await, "10 20\r\n");
    let result = client.call("process/resize", json!({"processId": "p", "rows": 50, "cols": 132})).await;
    assert_eq!(result, json!({}));
    client.write("p", "1", "\n").await;
    client.output_until("p", "50 132\r\n").await;
}

#[tokio::test]
async fn only_a_terminal_can_be_resized() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let size = json!({"processId": "p", "rows": 50, "cols": 132});
    let error = client.call_error("process/resize", size.clone()).await;
    assert_eq!(error, json!({"code": -32600, "data": {"kind": "unknownProcess"}, "message": "unknown process id p"}));
    client.start("p", &["sleep", "100"]).await;
    let error = client.call_error("process/resize", size).await;
    assert_eq!(error, json!({"code": -32600, "message": "process p has no terminal"}));
}

#[tokio::test]
async fn arg0_is_the_name_that_the_child_sees_and_argv_is_executed() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for (id, tty, expected) in [("pipes", false, "false\n"), ("terminal", true, "false\r\n")] {
        let changes = json!({"arg0": "false", "tty": tty});
        client.call("process/start", start_with(id, &["sh", "-c", "echo $0"], changes)).await;
        let outcome = client.outcome(id).await;
        assert_eq!([outcome.stdout, outcome.pty].concat(), expected.as_bytes());
    }
}

#[tokio::test]
async fn the_cwd_is_a_file_uri() {
    let directory = tempfile::tempdir().unwrap();
    let odd = directory.path().canonicalize().unwrap().join("a b%ä");
    std::fs::create_dir(&odd).unwrap();
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let uri = format!("file://{}/a%20b%25%C3%A4", odd.parent().unwrap().display());
    for (id, uri, expected) in [("root", "file:///", "/\n".to_owned()), ("odd", &uri, format!("{}\n", odd.display()))]
    {
        client.call("process/start", start_with(id, &["pwd"], json!({"cwd": uri}))).await;
        assert_eq!(String::from_utf8(client.outcome(id).await.stdout).unwrap(), expected);
    }
}

#[tokio::test]
async fn a_cwd_that_is_not_a_file_uri_of_this_host_is_refused_before_anything_runs() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for cwd in ["/tmp", "tmp", "", "https://example.com/tmp", "file:///tmp?x=1", "file:///tmp#x"] {
        let error = client.call_error("process/start", start_with("p", &["true"], json!({"cwd": cwd}))).await;
        assert_eq!(error["code"], -32602, "{cwd}: {error}");
    }
    for cwd in ["file:///C:/Users", "file://server/share"] {
        let error = client.call_error("process/start", start_with("p", &["true"], json!({"cwd": cwd}))).await;
        assert_eq!(error["code"], -32602, "{cwd}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(
            message.starts_with(&format!("cwd URI `{cwd}` is not valid on this exec-server host: ")),
            "{message}"
        );
    }
    assert_eq!(client.processes().await, json!([]));
}

#[tokio::test]
async fn a_failed_start_is_answered_with_its_cause_and_frees_the_id() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().canonicalize().unwrap();
    let file = folder.join("file");
    std::fs::write(&file, "not a program").unwrap();
    let (file, missing) = (file.display().to_string(), folder.join("missing").display().to_string());
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for tty in [false, true] {
        for (argv, cwd, message, errno, kind, path) in [
            (
                "true",
                &missing,
                format!("cwd {missing}: No such file or directory (os error 2)"),
                2,
                "notFound",
                format!("file://{missing}"),
            ),
            (
                "true",
                &file,
                format!("cwd {file}: Not a directory (os error 20)"),
                20,
                "notADirectory",
                format!("file://{file}"),
            ),
            (
                "no-such-program",
                &"/".to_owned(),
                "No such file or directory (os error 2)".to_owned(),
                2,
                "notFound",
                "no-such-program".to_owned(),
            ),
            (
                missing.as_str(),
                &"/".to_owned(),
                "No such file or directory (os error 2)".to_owned(),
                2,
                "notFound",
                format!("file://{missing}"),
            ),
            (
                file.as_str(),
                &"/".to_owned(),
                "Permission denied (os error 13)".to_owned(),
                13,
                "permissionDenied",
                format!("file://{file}"),
            ),
        ] {
            let changes = json!({"cwd": format!("file://{cwd}"), "tty": tty});
            let error = client.call_error("process/start", start_with("p", &[argv], changes)).await;
            let data = json!({"errno": errno, "kind": kind, "path": path});
            assert_eq!(error, json!({"code": -32603, "data": data, "message": message}));
        }
        let error = client.call_error("process/start", start_with("p", &[""], json!({"tty": tty}))).await;
        let kind = if tty { "PTY" } else { "pipe" };
        assert_eq!(error, json!({"code": -32603, "message": format!("missing program for {kind} spawn")}));
    }
    let error = client.call_error("process/start", start_with("p", &[], json!({}))).await;
    assert_eq!(error, json!({"code": -32602, "message": "argv must not be empty"}));
    assert_eq!(client.run("p", &["true"]).await.exit_code, 0, "a failed start frees the id");
}

#[tokio::test]
async fn sandboxes_proxies_and_managed_networks_that_cannot_be_enforced_are_refused() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let sandbox =
        |permissions: Value| json!({"sandbox": {"permissions": permissions, "windowsSandboxLevel": "disabled"}});
    for (changes, message) in [
        (json!({"sandbox": {"permissions": {"type": "disabled"}}}), "missing field `windowsSandboxLevel`"),
        (
            sandbox(json!({"type": "sometimes"})),
            "unknown variant `sometimes`, expected one of `managed`, `disabled`, `external`",
        ),
        (
            json!({"networkProxy": {"proxy": {}, "policyDecisionTimeoutMs": 0}}),
            "network policy decision callback timeout must be nonzero",
        ),
        (
            json!({"networkProxy": {"proxy": {}}}),
            "invalid network proxy config: executor-local network proxy launch requires an enabled proxy",
        ),
        (
            json!({"networkProxy": {"proxy": {"enabled": true}}}),
            "networkProxy needs a sandbox, because a process without a sandbox can use the network without the proxy; add a sandbox, or leave networkProxy out",
        ),
        (
            json!({"enforceManagedNetwork": true}),
            "enforceManagedNetwork needs networkProxy, which says what the process may reach; add it, or leave enforceManagedNetwork out",
        ),
    ] {
        let error = client.call_error("process/start", start_with("p", &["true"], changes)).await;
        assert_eq!(error, json!({"code": -32602, "message": message}));
    }
    assert_eq!(client.processes().await, json!([]), "no process was started");
    for (number, changes) in [
        json!({"sandbox": null, "enforceManagedNetwork": false, "managedNetwork": null}),
        json!({"managedNetwork": {"loopbackPorts": [1, 65535], "allowLocalBinding": true}}),
        sandbox(json!({"type": "disabled"})),
        sandbox(json!({"type": "external", "network": "enabled"})),
        sandbox(json!({"type": "external", "network": "restricted"})),
        sandbox(json!({"type": "managed", "file_system": {"type": "unrestricted"}, "network": "enabled"})),
    ]
    .into_iter()
    .enumerate()
    {
        let process = number.to_string();
        let started = client.call("process/start", start_with(&process, &["echo", "ran"], changes)).await;
        assert_eq!(started, json!({"processId": process, "sandboxType": "none"}), "there is nothing to enforce");
        assert_eq!(client.outcome(&process).await.stdout, b"ran\n");
    }
}

#[tokio::test]
async fn env_policy_selects_variables_of_the_server_and_env_overrides_them() {
    let server = TestServer::start_with(&[], |command| {
        command.env_clear().envs([
            ("PATH", "/usr/bin:/bin"),
            ("HOME", "/home/me"),
            ("EDITOR", "vi"),
            ("API_KEY", "secret"),
            ("My_Token_File", "secret"),
            ("CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN", "secret"),
        ])
    })
    .await;
    let mut client = server.client().await;
    // `NODE_REPL_AUTH_TOKEN` is protected: no process gets it, in upper or lower case.
    let policy = |inherit: &str, ignore_default_excludes: bool, exclude: &[&str], include_only: &[&str]| {
        json!({
            "inherit": inherit, "ignoreDefaultExcludes": ignore_default_excludes, "exclude": exclude,
            "set": {"SET": "by policy", "Node_Repl_Auth_Token": "never"}, "includeOnly": include_only,
        })
    };
    let base = ["HOME=/home/me", "PATH=/usr/bin:/bin", "SET=by policy"];
    for (id, policy, env, expected) in [
        ("no policy", json!(null), json!({"A": "1"}), vec!["A=1"]),
        ("core", policy("core", false, &[], &[]), json!({}), base.to_vec()),
        ("all", policy("all", false, &["ED*"], &[]), json!({}), base.to_vec()),
        (
            "overlay",
            policy("core", false, &[], &[]),
            json!({"SET": "by env", "HOME": "/"}),
            vec!["HOME=/", base[1], "SET=by env"],
        ),
        (
            "secrets",
            policy("all", true, &["e?itor", "path"], &[]),
            json!({}),
            vec!["API_KEY=secret", base[0], "My_Token_File=secret", base[2]],
        ),
        ("only", policy("all", false, &[], &["ho*"]), json!({"B": "2"}), vec!["B=2", base[0]]),
        ("none", policy("none", false, &[], &[]), json!({"NODE_REPL_AUTH_TOKEN": "never"}), vec![base[2]]),
    ] {
        let changes = json!({"env": env, "envPolicy": policy});
        client.call("process/start", start_with(id, &["/usr/bin/env"], changes)).await;
        let text = String::from_utf8(client.outcome(id).await.stdout).unwrap();
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, expected, "{id}");
    }
    let broken = json!({"envPolicy": {"inherit": "all"}});
    let error = client.call_error("process/start", start_with("p", &["true"], broken)).await;
    assert_eq!(error["code"], -32602);
}

#[tokio::test]
async fn the_child_leads_a_process_group_and_a_unix_session_of_its_own() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let script = "read -r pid name state parent group session rest < /proc/$$/stat; echo $$ $group $session";
    let outcome = client.run("p", &["sh", "-c", script]).await;
    let text = String::from_utf8(outcome.stdout).unwrap();
    let ids: Vec<_> = text.split_whitespace().collect();
    assert!(ids.len() == 3 && ids.iter().all(|id| *id == ids[0]), "{text}");
}

#[tokio::test]
async fn a_process_id_is_refused_until_its_process_is_forgotten() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let expected = json!({"code": -32600, "message": "process p already exists"});
    let first = client.send("process/start", Client::start_params("p", &["sleep", "100"])).await;
    let second = client.send("process/start", Client::start_params("p", &["sleep", "100"])).await;
    assert_eq!(client.answer(second).await["error"], expected, "the first start is not answered yet");
    assert!(client.answer(first).await["result"].is_object());
    assert_eq!(client.call_error("process/start", Client::start_params("p", &["true"])).await, expected);
    client.call("process/terminate", json!({"processId": "p"})).await;
    client.outcome("p").await;
    assert_eq!(client.call_error("process/start", Client::start_params("p", &["true"])).await, expected);

    let mut other = server.client().await;
    assert_eq!(other.run("p", &["true"]).await.exit_code, 0, "each session has its own process ids");
    assert_eq!(client.run("", &["true"]).await.exit_code, 0, "an empty string is an id too");
}

#[tokio::test]
async fn of_many_starts_with_the_same_id_one_succeeds() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for round in 0..20 {
        let id = format!("p{round}");
        let mut requests = Vec::new();
        for _ in 0..10 {
            requests.push(client.send("process/start", Client::start_params(&id, &["true"])).await);
        }
        let mut started = 0;
        for request in requests {
            let answer = client.answer(request).await;
            match answer.get("error") {
                None => started += 1,
                Some(error) => {
                    assert_eq!(error, &json!({"code": -32600, "message": format!("process {id} already exists")}));
                }
            }
        }
        assert_eq!(started, 1);
        client.outcome(&id).await;
    }
}

#[tokio::test]
async fn an_id_is_free_again_after_the_retention_time() {
    let server = TestServer::with_args(&["--process-retention", "200ms"]).await;
    let mut client = server.client().await;
    assert_eq!(client.run("p", &["true"]).await.exit_code, 0);
    let closed = Instant::now();
    loop {
        let answer = client.request("process/start", Client::start_params("p", &["sh", "-c", "exit 3"])).await;
        let Some(error) = answer.get("error") else { break };
        assert_eq!(error, &json!({"code": -32600, "message": "process p already exists"}));
        assert!(closed.elapsed() < Duration::from_secs(20), "the id is still taken");
    }
    // The server counts the retention time from the close, and the client learns of the close a little later.
    assert!(closed.elapsed() >= Duration::from_millis(100), "the id was freed too early");
    let outcome = client.outcome("p").await;
    assert_eq!((outcome.exit_code, outcome.seqs), (3, vec![1, 2]), "the new process has events of its own");
}

#[tokio::test]
async fn a_closed_process_is_forgotten_after_the_retention_time() {
    let server = TestServer::with_args(&["--process-retention", "1ms"]).await;
    let mut client = server.client().await;
    client.run("p", &["echo", "hi"]).await;
    let client = tokio::sync::Mutex::new(client);
    let error = eventually_async("the process is forgotten", || async {
        let answer = client.lock().await.request("process/read", json!({"processId": "p"})).await;
        answer.get("error").cloned()
    })
    .await;
    assert_eq!(error, json!({"code": -32600, "data": {"kind": "unknownProcess"}, "message": "unknown process id p"}));
    assert_eq!(client.lock().await.processes().await, json!([]));
}

#[tokio::test]
async fn a_list_has_every_process_of_the_session() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.run("done", &["sh", "-c", "echo hi; exit 3"]).await;
    client.start("running", &["sleep", "100"]).await;
    let list = client.processes().await;
    let entries = list.as_array().unwrap();
    assert_eq!(entries.len(), 2, "{list}");
    for entry in entries {
        let pid = entry["pid"].as_u64().unwrap();
        let started = entry["startedAtMs"].as_u64().unwrap();
        assert!(started > 1_700_000_000_000, "{entry}");
        let expected = if entry["processId"] == "done" {
            json!({
                "processId": "done", "argv": ["sh", "-c", "echo hi; exit 3"], "pid": pid, "startedAtMs": started,
                "state": "closed", "exitCode": 3, "nextSeq": 4, "outputBytes": 3, "oldestSeq": 1,
            })
        } else {
            assert!(testkit::process_state(u32::try_from(pid).unwrap()).is_some(), "{entry}");
            json!({
                "processId": "running", "argv": ["sleep", "100"], "pid": pid, "startedAtMs": started,
                "state": "running", "exitCode": null, "nextSeq": 1, "outputBytes": 0, "oldestSeq": null,
            })
        };
        assert_eq!(entry, &expected);
    }
    let mut other = server.client().await;
    assert_eq!(other.call("process/list", json!(null)).await, json!({"processes": []}));
}

#[tokio::test]
async fn late_output_comes_after_the_exit_and_before_the_close() {
    let directory = tempfile::tempdir().unwrap();
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let script = "mkfifo gate; (read x < gate; echo late) & exit 5";
    let cwd = format!("file://{}", directory.path().display());
    client.call("process/start", start_with("p", &["sh", "-c", script], json!({"cwd": cwd}))).await;
    let exited = client.event("p").await;
    assert_eq!((&exited["method"], &exited["params"]["seq"]), (&json!("process/exited"), &json!(1)));
    let state = client.processes().await[0]["state"].clone();
    assert_eq!(state, "exited");
    let read = client.call("process/read", json!({"processId": "p"})).await;
    assert_eq!((&read["exited"], &read["exitCode"], &read["closed"]), (&json!(true), &json!(5), &json!(false)));

    std::fs::write(directory.path().join("gate"), "\n").unwrap();
    let late = client.event("p").await;
    assert_eq!((&late["params"]["seq"], unbase64(&late["params"]["chunk"])), (&json!(2), b"late\n".to_vec()));
    let closed = client.event("p").await;
    assert_eq!(closed, json!({"method": "process/closed", "params": {"processId": "p", "seq": 3}}));
    let read = client.call("process/read", json!({"processId": "p"})).await;
    assert_eq!((&read["nextSeq"], &read["exitSeq"], &read["closed"]), (&json!(4), &json!(1), &json!(true)));
    assert_eq!(read["chunks"], json!([{"seq": 2, "stream": "stdout", "chunk": "bGF0ZQo="}]));
}

#[tokio::test]
async fn four_mebibytes_of_stderr_arrive_without_any_stdout() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let outcome = client.run("p", &["sh", "-c", "head -c 4194304 /dev/zero >&2"]).await;
    assert_eq!((outcome.stdout.len(), outcome.stderr.len()), (0, 4 << 20));
    assert!(
        outcome.seqs.iter().copied().eq(1..=outcome.seqs.len() as u64),
        "sequence numbers are missing or repeated: {:?}",
        outcome.seqs
    );
}

#[tokio::test]
async fn requests_about_a_terminal_may_be_sent_before_its_start_is_answered() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for n in 0..30 {
        let process = format!("p{n}");
        let start = start_with(&process, &["sh", "-c", "read x; stty size; cat"], json!({"tty": true}));
        client.send("process/start", start).await;
        let resize = client.send("process/resize", json!({"processId": process, "rows": 50, "cols": 132})).await;
        let write = client.send_write(&process, "1", "\n").await;
        client.close_stdin(&process).await;
        assert_eq!(client.answer(resize).await["result"], json!({}));
        assert_eq!(client.answer(write).await["result"], json!({"status": "accepted"}));
        let outcome = client.outcome(&process).await;
        let text = String::from_utf8(outcome.pty).unwrap();
        assert_eq!((text.trim(), outcome.exit_code), ("50 132", 0), "{text:?}");
    }
}

#[tokio::test]
async fn a_terminal_stays_open_for_a_process_that_has_redirected_its_streams() {
    let directory = tempfile::tempdir().unwrap();
    let server = TestServer::start().await;
    let mut client = server.client().await;
    // The script asks for a password on its terminal, as ssh and gpg do.
    let script = "exec </dev/null >/dev/null 2>&1; mkfifo gate; read go <gate; printf 'Password: ' >/dev/tty; \
                  read word </dev/tty; read go <gate; echo \"got $word\" >/dev/tty; exit 4";
    let cwd = format!("file://{}", directory.path().display());
    client.call("process/start", start_with("p", &["sh", "-c", script], json!({"cwd": cwd, "tty": true}))).await;
    let gate = directory.path().join("gate");
    eventually("the streams are redirected", || gate.exists().then_some(())).await;
    assert_eq!(client.write("p", "1", "secret\n").await, "accepted", "the process can still open its terminal");
    // Opened for reading too, so that opening does not wait for the script: it would block the thread that answers the server's pings.
    let mut gate = std::fs::OpenOptions::new().read(true).write(true).open(&gate).unwrap();
    std::io::Write::write_all(&mut gate, b"\n").unwrap();
    client.output_until("p", "Password: ").await;
    std::io::Write::write_all(&mut gate, b"\n").unwrap();
    let outcome = client.outcome("p").await;
    assert!(outcome.pty.ends_with(b"got secret\r\n"), "{}", String::from_utf8_lossy(&outcome.pty));
    assert_eq!(outcome.exit_code, 4);
}

#[tokio::test]
async fn a_process_has_the_requested_umask() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for (id, mask, expected) in [("a", 0o077, "0077\n"), ("b", 0, "0000\n"), ("c", 0o777, "0777\n")] {
        client.call("process/start", start_with(id, &["/bin/sh", "-c", "umask"], json!({"umask": mask}))).await;
        client.output_until(id, expected).await;
    }
    let error = client.call_error("process/start", start_with("d", &["/bin/true"], json!({"umask": 0o1000}))).await;
    assert_eq!(error, json!({"code": -32602, "message": "umask must be at most 511"}));
}

/// A Perl program that writes to stdout and stderr, and repeatedly takes back from the pipe what it wrote to stdout.
const READS_OWN_OUTPUT: &str = r#"
    use Fcntl;
    sysopen my $back, "/proc/self/fd/1", O_RDONLY | O_NONBLOCK or die $!;
    for my $turn (1 .. 20000) {
        syswrite STDERR, "e";
        syswrite STDOUT, "o";
        1 for 1 .. $turn % 50;
        1 while sysread $back, my $taken, 65536;
        select undef, undef, undef, 0.00005 if $turn % 64 == 0;
    }
    1 while sysread $back, my $taken, 65536;
    exit 7;
"#;

#[tokio::test]
async fn the_exit_of_a_process_that_reads_its_own_output_is_noticed() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for round in 0..20 {
        let outcome = client.run(&format!("p{round}"), &["perl", "-e", READS_OWN_OUTPUT]).await;
        assert_eq!(outcome.exit_code, 7);
    }
}
