//! How long the server keeps a session without a connected client, which closed processes it keeps, and what a client
//! finds that resumes the session. At most one connection is attached to a session: the server sends it the events of
//! the processes. Another connection can take the session over, or be an observer: it can list, read, start and end
//! processes of the session, but it gets no events.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use testkit::{Client, TestServer, Value, eventually, eventually_async, http_get, json, process_state, unbase64};

/// A value of `keepForMs`, which is how long the server keeps a session without a client. No test takes so long.
const LONG_MS: u64 = 3_600_000;

/// Opens a connection whose `initialize` has `params` in addition to the client name.
async fn connect_with(server: &TestServer, params: Value) -> Client {
    let mut client = server.connect_without_handshake().await;
    let mut all = json!({"clientName": "testkit"});
    all.as_object_mut().unwrap().extend(params.as_object().unwrap().clone());
    let result = client.call("initialize", all).await;
    client.session = result["sessionId"].as_str().unwrap().to_owned();
    client.notify("initialized", json!({})).await;
    client
}

/// Starts a process that does not end and returns its pid.
async fn start_sleeper(client: &mut Client) -> u32 {
    client.start("sleeper", &["sleep", "1000"]).await;
    client.processes().await[0]["pid"].as_u64().unwrap().try_into().unwrap()
}

async fn wait_until_gone(pid: u32) {
    eventually("the process is gone", || process_state(pid).is_none().then_some(())).await;
}

/// Waits until the server has only this many connections.
async fn wait_for_connections(server: &TestServer, count: usize) {
    eventually_async("the other connections have ended", async || {
        let open = format!("exec_server_connections_active{{transport=\"websocket\"}} {count}\n");
        http_get(server.address(), "/metrics", &[]).await.body.contains(&open).then_some(())
    })
    .await;
}

/// Waits until the server has forgotten a process, so that its id is unknown.
async fn wait_until_forgotten(client: &mut Client, process: &str) {
    eventually_async("the process is forgotten", async || {
        client.request("process/read", json!({"processId": process})).await.get("error").map(drop)
    })
    .await;
}

async fn listed_ids(client: &mut Client) -> Vec<String> {
    let list = client.processes().await;
    list.as_array().unwrap().iter().map(|summary| summary["processId"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_session_is_kept_for_longer_than_others_if_its_client_says_so() {
    let server = TestServer::with_args(&["--session-ttl", "200ms"]).await;
    let mut kept = connect_with(&server, json!({"keepForMs": LONG_MS})).await;
    let mut ordinary = server.client().await;
    let (kept_pid, ordinary_pid) = (start_sleeper(&mut kept).await, start_sleeper(&mut ordinary).await);
    let session = kept.session.clone();
    drop(kept);
    // The ordinary session loses its connection after the kept one. So when the ordinary session has expired, the
    // default lifetime (`--session-ttl`) is over for both.
    wait_for_connections(&server, 1).await;
    drop(ordinary);
    wait_until_gone(ordinary_pid).await;
    assert!(process_state(kept_pid).is_some());
    let mut client = server.resume(&session).await;
    assert_eq!(client.call("process/terminate", json!({"processId": "sleeper"})).await, json!({"running": true}));
}

#[tokio::test]
async fn a_session_is_kept_for_a_shorter_time_than_others_if_its_client_says_so() {
    let server = TestServer::with_args(&["--session-ttl", "1h"]).await;
    for keep in [0, 1, 200] {
        let mut client = connect_with(&server, json!({"keepForMs": keep})).await;
        let pid = start_sleeper(&mut client).await;
        let session = client.session.clone();
        drop(client);
        wait_until_gone(pid).await;
        let params = json!({"clientName": "testkit", "resumeSessionId": session});
        let error = server.connect_without_handshake().await.call_error("initialize", params).await;
        assert_eq!(error, json!({"code": -32600, "message": format!("unknown session id {session}")}));
    }
}

#[tokio::test]
async fn no_session_is_kept_for_longer_than_max_session_ttl() {
    let server = TestServer::with_args(&["--max-session-ttl", "200ms"]).await;
    for keep in [LONG_MS, u64::MAX] {
        let mut client = connect_with(&server, json!({"keepForMs": keep})).await;
        let pid = start_sleeper(&mut client).await;
        drop(client);
        wait_until_gone(pid).await;
    }
    for wrong in [json!(-1), json!("1h"), json!(1.5)] {
        let params = json!({"clientName": "testkit", "keepForMs": wrong});
        assert_eq!(server.connect_without_handshake().await.call_error("initialize", params).await["code"], -32602);
    }
}

#[tokio::test]
async fn a_resume_changes_the_lifetime_only_if_it_asks_to() {
    let server = TestServer::start().await;
    let first = connect_with(&server, json!({"keepForMs": 0})).await;
    let resume = |keep: Value| json!({"resumeSessionId": first.session, "takeover": true, "keepForMs": keep});
    let second = connect_with(&server, resume(json!(LONG_MS))).await;
    drop(second);
    wait_for_connections(&server, 0).await;
    let third = connect_with(&server, json!({"resumeSessionId": first.session})).await;
    drop(third);
    wait_for_connections(&server, 0).await;
    let mut fourth = connect_with(&server, resume(json!(0))).await;
    let pid = start_sleeper(&mut fourth).await;
    let fifth = connect_with(&server, resume(Value::Null)).await;
    assert!(process_state(pid).is_some(), "the takeover does not detach the session, which would end it");
    drop(fifth);
    wait_until_gone(pid).await;
}

#[tokio::test]
async fn a_session_is_taken_over_from_a_client_that_is_connected() {
    let server = TestServer::with_args(&["--max-queued-stdin", "64KiB"]).await;
    let mut first = server.client().await;
    let mut params = Client::start_params("p", &["cat"]);
    params["pipeStdin"] = true.into();
    first.call("process/start", params).await;
    let session = first.session.clone();
    // Two requests of the first client wait when the session is taken over: this read, and a write to a full queue.
    let read = first.send("process/read", json!({"processId": "p", "waitMs": 60_000})).await;
    let mut params = Client::start_params("full", &["sleep", "1000"]);
    params["pipeStdin"] = true.into();
    first.call("process/start", params).await;
    assert_eq!(first.write("full", "1", [0; 256 << 10]).await, "accepted");
    let write = first.send_write("full", "2", [0; 256 << 10]).await;
    first.call("environment/status", json!({})).await;

    let mut second = connect_with(&server, json!({"resumeSessionId": session, "takeover": true})).await;
    assert_eq!(second.session, session);
    let mut messages = first.drain().await;
    messages.sort_by_key(|message| message["id"].as_i64());
    let resumed = json!({
        "code": -32600,
        "data": {"kind": "sessionResumedElsewhere"},
        "message": "session has been resumed by another connection",
    });
    assert_eq!(messages, [json!({"error": resumed, "id": read}), json!({"error": resumed, "id": write})]);
    let reason = first.close_reason.unwrap();
    assert_eq!((reason.code, reason.reason.as_str()), (4010, "session has been taken over by another connection"));

    assert_eq!(second.call("process/read", json!({"processId": "p"})).await["nextSeq"], 1);
    assert_eq!(second.write("p", "1", "still here\n").await, "accepted");
    second.output_until("p", "still here\n").await;
    wait_for_connections(&server, 1).await;
    assert_eq!(second.call("environment/status", json!({})).await, json!({"status": "ready"}));
}

/// Sends a start that does not finish until the test creates the returned file. Returns when the start is in
/// progress.
async fn slow_start(client: &mut Client, home: &TempDir, extra: Value) -> PathBuf {
    let (begun, go) = (home.path().join("begun"), home.path().join("go"));
    let profile = format!(": > {}; until [ -e {} ]; do sleep 0.01; done", begun.display(), go.display());
    std::fs::write(home.path().join(".profile"), profile).unwrap();
    let script = "head -c 200000 /dev/zero";
    let mut params = Client::start_params("p", &["/bin/bash", "-lc", script]);
    params["env"] = json!({"HOME": home.path(), "PATH": "/usr/bin:/bin"});
    params["shellSnapshot"] = json!({"scopeId": "s", "shell": {"name": "bash", "path": "/bin/bash"}});
    params.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    client.send("process/start", params).await;
    eventually("the start is under way", || begun.exists().then_some(())).await;
    go
}

#[tokio::test]
async fn a_paused_process_waits_for_no_client_if_its_session_is_taken_over_during_its_start() {
    let home = tempfile::tempdir().unwrap();
    let server = TestServer::with_args(&["--retain-bytes", "64KiB"]).await;
    let mut first = server.client().await;
    let go = slow_start(&mut first, &home, json!({"paused": true})).await;
    let mut second = connect_with(&server, json!({"resumeSessionId": first.session, "takeover": true})).await;
    std::fs::write(go, "").unwrap();
    eventually_async("the process waits for no client", async || {
        (second.processes().await[0]["state"] == "closed").then_some(())
    })
    .await;
}

#[tokio::test]
async fn after_a_takeover_during_a_start_the_process_can_be_read_before_its_events_come() {
    let home = tempfile::tempdir().unwrap();
    let server = TestServer::with_args(&["--retain-bytes", "64KiB"]).await;
    let mut first = server.client().await;
    let go = slow_start(&mut first, &home, json!({})).await;
    let mut second = server.connect_without_handshake().await;
    let resume = json!({"clientName": "second", "resumeSessionId": first.session, "takeover": true});
    second.call("initialize", resume).await;
    std::fs::write(go, "").unwrap();
    let mut observer = connect_with(&server, json!({"resumeSessionId": first.session, "observe": true})).await;
    eventually_async("the retained output is full, so the process waits for its client", async || {
        (observer.processes().await[0]["outputBytes"] == 64 << 10).then_some(())
    })
    .await;
    second.notify("initialized", json!({})).await;
    let read = second.send("process/read", json!({"processId": "p", "afterSeq": 0})).await;
    let answer = second.next().await;
    assert_eq!((&answer["id"], &answer["result"]["chunks"][0]["seq"]), (&json!(read), &json!(1)));
    assert_eq!(second.outcome("p").await.exit_code, 0);
}

#[tokio::test]
async fn many_takeovers_at_once_all_succeed_and_one_connection_is_left() {
    let server = TestServer::start().await;
    let mut holder = server.client().await;
    let pid = start_sleeper(&mut holder).await;
    let session = holder.session.clone();
    let params = json!({"clientName": "testkit", "resumeSessionId": session, "takeover": true});
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(server.connect_without_handshake().await);
    }
    let mut ids = Vec::new();
    for client in &mut clients {
        ids.push(client.send("initialize", params.clone()).await);
    }
    for (client, id) in clients.iter_mut().zip(ids) {
        assert_eq!(client.answer(id).await["result"], json!({"sessionId": session}));
    }
    wait_for_connections(&server, 1).await;
    assert!(process_state(pid).is_some());
}

#[tokio::test]
async fn a_takeover_needs_a_session_but_no_attached_connection() {
    let server = TestServer::start().await;
    let params = json!({"clientName": "testkit", "resumeSessionId": "nonsense", "takeover": true});
    let error = server.connect_without_handshake().await.call_error("initialize", params).await;
    assert_eq!(error, json!({"code": -32600, "message": "unknown session id nonsense"}));
    let client = connect_with(&server, json!({"takeover": true})).await;
    let session = client.session.clone();
    drop(client);
    wait_for_connections(&server, 0).await;
    let again = connect_with(&server, json!({"resumeSessionId": session, "takeover": true})).await;
    assert_eq!(again.session, session);
}

#[tokio::test]
async fn the_output_of_a_process_that_ended_without_a_client_is_kept() {
    let server = TestServer::with_args(&["--process-retention", "100ms"]).await;
    let directory = tempfile::tempdir().unwrap();
    let gate = directory.path().join("gate");
    let mut client = connect_with(&server, json!({"keepForMs": LONG_MS})).await;
    let script = format!("until [ -e {} ]; do sleep 0.01; done; echo done; exit 3", gate.display());
    client.start("job", &["sh", "-c", &script]).await;
    client.run("early", &["echo", "hello"]).await;
    let session = client.session.clone();
    drop(client);
    wait_for_connections(&server, 0).await;
    std::fs::write(&gate, "").unwrap();
    eventually_async("the process has exited", async || {
        let metrics = http_get(server.address(), "/metrics", &[]).await.body;
        metrics.contains("exec_server_processes_active 0").then_some(())
    })
    .await;
    // When this process of an ordinary session is forgotten, `--process-retention` has passed for the processes above
    // too.
    let mut clock = server.client().await;
    clock.run("clock", &["true"]).await;
    wait_until_forgotten(&mut clock, "clock").await;

    let mut client = connect_with(&server, json!({"resumeSessionId": session})).await;
    assert_eq!(listed_ids(&mut client).await, ["job", "early"]);
    for (process, code, expected) in [("job", 3, "done\n"), ("early", 0, "hello\n")] {
        let page = client.call("process/read", json!({"processId": process})).await;
        let output: Vec<u8> =
            page["chunks"].as_array().unwrap().iter().flat_map(|chunk| unbase64(&chunk["chunk"])).collect();
        assert_eq!((String::from_utf8(output).unwrap().as_str(), &page["closed"]), (expected, &json!(true)));
        assert_eq!(page["exitCode"], code);
    }
    let list = client.processes().await;
    assert_eq!((&list[0]["state"], &list[0]["exitCode"]), (&json!("closed"), &json!(3)));
}

#[tokio::test]
async fn processes_are_listed_in_the_order_of_their_starts() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    // The starts follow each other so fast that some have the same start time. Their order is not that of their
    // names.
    let ids: Vec<String> = (0..40).map(|number| format!("p{}", (number * 7) % 40)).collect();
    for id in &ids {
        client.send("process/start", Client::start_params(id, &["sleep", "1000"])).await;
    }
    eventually_async("all processes run", async || {
        let list = client.processes().await;
        list.as_array().unwrap().iter().all(|summary| summary["state"] == "running").then_some(())
    })
    .await;
    assert_eq!(listed_ids(&mut client).await, ids);
}

#[tokio::test]
async fn closed_processes_are_kept_for_keep_for_ms_if_it_is_longer_than_process_retention() {
    let server = TestServer::with_args(&["--process-retention", "50ms"]).await;
    let mut brief = connect_with(&server, json!({"keepForMs": 400})).await;
    brief.run("p", &["true"]).await;
    wait_until_forgotten(&mut brief, "p").await;
    // This `keepForMs` is equal to `--process-retention`.
    let mut equal = connect_with(&server, json!({"keepForMs": 50})).await;
    equal.run("p", &["true"]).await;
    wait_until_forgotten(&mut equal, "p").await;

    let mut long = connect_with(&server, json!({"keepForMs": LONG_MS})).await;
    long.run("p", &["true"]).await;
    let mut clock = server.client().await;
    clock.run("clock", &["true"]).await;
    wait_until_forgotten(&mut clock, "clock").await;
    assert_eq!(listed_ids(&mut long).await, ["p"]);
    let params = json!({"resumeSessionId": long.session, "takeover": true, "keepForMs": 1});
    let mut shorter = connect_with(&server, params).await;
    wait_until_forgotten(&mut shorter, "p").await;
}

#[tokio::test]
async fn no_more_than_max_kept_processes_are_kept() {
    let server = TestServer::with_args(&["--max-kept-processes", "2", "--process-retention", "100ms"]).await;
    let mut client = connect_with(&server, json!({"keepForMs": LONG_MS})).await;
    for process in ["a", "b", "c", "d"] {
        client.run(process, &["true"]).await;
    }
    wait_until_forgotten(&mut client, "b").await;
    assert_eq!(listed_ids(&mut client).await, ["c", "d"]);
    client.run("e", &["true"]).await;
    wait_until_forgotten(&mut client, "c").await;
    assert_eq!(listed_ids(&mut client).await, ["d", "e"]);
    assert_eq!(client.run("a", &["true"]).await.exit_code, 0, "the id of a forgotten process can be used again");
}

#[tokio::test]
async fn kept_processes_make_room_for_new_ones() {
    let server = TestServer::with_args(&["--max-processes", "2", "--process-retention", "100ms"]).await;
    let mut client = connect_with(&server, json!({"keepForMs": LONG_MS})).await;
    client.run("a", &["true"]).await;
    client.run("b", &["true"]).await;
    for (process, expected) in [("c", ["b", "c"]), ("d", ["c", "d"])] {
        let start = Client::start_params(process, &["sleep", "1000"]);
        eventually_async("`--process-retention` of a closed process is over", async || {
            client.request("process/start", start.clone()).await.get("result").map(drop)
        })
        .await;
        assert_eq!(listed_ids(&mut client).await, expected);
    }
    let error = client.call_error("process/start", Client::start_params("e", &["true"])).await;
    assert_eq!(error["message"], "session has reached its limit of 2 processes (--max-processes)");
}

#[tokio::test]
async fn an_idle_server_ends_by_itself() {
    let mut server = TestServer::with_args(&["--exit-when-idle", "200ms"]).await;
    assert_eq!(server.wait().await, Some(0), "no client ever connected");

    let mut server = TestServer::with_args(&["--exit-when-idle", "300ms"]).await;
    let mut client = connect_with(&server, json!({"keepForMs": LONG_MS})).await;
    let pid = start_sleeper(&mut client).await;
    // sleep: the idle time must pass while a client is connected
    tokio::time::sleep(Duration::from_millis(600)).await;
    let session = client.session.clone();
    drop(client);
    // sleep: the idle time must also pass with a session that has no connection
    tokio::time::sleep(Duration::from_millis(600)).await;
    let client = connect_with(&server, json!({"resumeSessionId": session, "keepForMs": 0})).await;
    assert!(process_state(pid).is_some());
    drop(client);
    assert_eq!(server.wait().await, Some(0));
    wait_until_gone(pid).await;
}

#[tokio::test]
async fn an_observer_can_list_read_start_and_end_processes_and_disturbs_no_other_client() {
    let server = TestServer::start().await;
    let mut attached = server.client().await;
    let mut params = Client::start_params("p", &["cat"]);
    params["pipeStdin"] = true.into();
    attached.call("process/start", params.clone()).await;
    attached.write("p", "1", "hello\n").await;
    attached.output_until("p", "hello\n").await;

    let mut observer = connect_with(&server, json!({"resumeSessionId": attached.session, "observe": true})).await;
    assert_eq!(observer.session, attached.session);
    assert_eq!(listed_ids(&mut observer).await, ["p"]);
    let page = observer.call("process/read", json!({"processId": "p"})).await;
    assert_eq!(unbase64(&page["chunks"][0]["chunk"]), b"hello\n");
    for (method, params) in [
        ("process/write", json!({"processId": "p", "chunk": "", "writeId": "w"})),
        ("process/closeStdin", json!({"processId": "p"})),
        ("process/flow", json!({"processId": "p", "paused": true})),
        ("session/keep", json!({"keepForMs": 0})),
        ("fs/watch", json!({"watchId": "w", "path": "file:///"})),
    ] {
        let message =
            format!("a connection that only observes cannot use {method}; resume the session without observe");
        assert_eq!(observer.call_error(method, params).await, json!({"code": -32600, "message": message}));
    }
    params["processId"] = "job".into();
    assert_eq!(
        observer.call_error("process/start", params.clone()).await["code"],
        -32602,
        "an observer is sent no events"
    );
    params["paused"] = true.into();
    observer.call("process/start", params).await;
    assert_eq!(observer.call("process/terminate", json!({"processId": "job"})).await, json!({"running": true}));

    attached.write("p", "2", "still here\n").await;
    assert_eq!(attached.output_until("p", "still here\n").await, "still here\n", "no other output of `p` came");
    let page = attached.call("process/read", json!({"processId": "job"})).await;
    assert_eq!((&page["closed"], &page["exitCode"]), (&json!(true), &json!(137)));
    assert_eq!(listed_ids(&mut attached).await, ["p", "job"]);
    let status = observer.send("environment/status", json!({})).await;
    assert_eq!(observer.next().await["id"], status, "an observer is sent no events");
}

#[tokio::test]
async fn the_first_reader_of_a_process_that_an_observer_started_gets_its_events() {
    let server = TestServer::start().await;
    let mut attached = server.client().await;
    let mut observer = connect_with(&server, json!({"resumeSessionId": attached.session, "observe": true})).await;
    let mut params = Client::start_params("job", &["sh", "-c", "read line; echo got $line"]);
    params["pipeStdin"] = true.into();
    params["paused"] = true.into();
    observer.call("process/start", params).await;
    drop(observer);
    wait_for_connections(&server, 1).await;
    assert_eq!(attached.call("process/read", json!({"processId": "job"})).await["nextSeq"], 1);
    assert_eq!(attached.write("job", "1", "it\n").await, "accepted");
    let outcome = attached.outcome("job").await;
    assert_eq!((outcome.stdout.as_slice(), outcome.exit_code), (&b"got it\n"[..], 0));
}

#[tokio::test]
async fn observe_needs_a_session_excludes_takeover_and_outlives_the_session() {
    let server = TestServer::start().await;
    for params in [json!({}), json!({"resumeSessionId": "x", "takeover": true})] {
        let mut all = json!({"clientName": "testkit", "observe": true});
        all.as_object_mut().unwrap().extend(params.as_object().unwrap().clone());
        let error = server.connect_without_handshake().await.call_error("initialize", all).await;
        let message = "observe needs resumeSessionId and cannot be combined with takeover";
        assert_eq!(error, json!({"code": -32602, "message": message}));
    }
    let attached = connect_with(&server, json!({"keepForMs": 0})).await;
    let session = attached.session.clone();
    let mut observer = connect_with(&server, json!({"resumeSessionId": session, "observe": true})).await;
    assert_eq!(listed_ids(&mut observer).await, Vec::<String>::new());
    drop(attached);
    let error = eventually_async("the session is over", async || {
        observer.request("process/list", json!({})).await.get("error").cloned()
    })
    .await;
    assert_eq!(error, json!({"code": -32600, "message": format!("unknown session id {session}")}));
}
