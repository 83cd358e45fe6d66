//! The method `process/flow`, with which a client pauses the events of one process. Other processes and requests are
//! not affected. The process itself runs on until the server can retain no more of its output.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use std::time::{Duration, Instant};

use testkit::{
    Client, FinishedProcess, TestServer, Value, cpu_time, eventually, eventually_async, http_get, json,
    process_state, unbase64,
};

/// Flags of a server that retains little output, so that a paused process soon has to wait.
const SMALL_RETENTION: [&str; 2] = ["--retain-bytes", "64KiB"];

/// The number of bytes that [`SMALL_RETENTION`] sets.
const RETAINED_BYTES: u64 = 64 << 10;

async fn set_paused(client: &mut Client, process: &str, paused: bool) {
    let params = json!({"processId": process, "paused": paused});
    assert_eq!(client.call("process/flow", params).await, json!({}));
}

async fn summary(client: &mut Client, process: &str) -> Value {
    let list = client.processes().await;
    list.as_array().unwrap().iter().find(|summary| summary["processId"] == process).unwrap().clone()
}

/// Starts a shell that waits for a line, pauses its events, and sends the line. The shell then runs `script`.
async fn start_and_pause(client: &mut Client, process: &str, script: &str) {
    let mut params = Client::start_params(process, &["sh", "-c", &format!("read go; {script}")]);
    params["pipeStdin"] = true.into();
    client.call("process/start", params).await;
    set_paused(client, process, true).await;
    assert_eq!(client.write(process, "go", "\n").await, "accepted");
}

/// Waits until the retained output of a process is full and the process sleeps. Returns its pid.
async fn wait_until_stalled(client: &mut Client, process: &str) -> u32 {
    let mut pid = 0;
    eventually_async("the retained output is full", async || {
        let summary = summary(client, process).await;
        pid = summary["pid"].as_u64().unwrap().try_into().unwrap();
        (summary["outputBytes"] == RETAINED_BYTES).then_some(())
    })
    .await;
    eventually("the process sleeps", || (process_state(pid) == Some('S')).then_some(())).await;
    pid
}

/// Runs a process and checks that no event of another process comes meanwhile.
async fn run_alone(client: &mut Client, process: &str) {
    let id = client.send("process/start", Client::start_params(process, &["seq", "1", "50000"])).await;
    let mut output = Vec::new();
    loop {
        let message = client.next().await;
        if message["id"] == id {
            continue;
        }
        assert_eq!(message["params"]["processId"], process, "{message}");
        match message["method"].as_str().unwrap() {
            "process/output" => output.extend(unbase64(&message["params"]["chunk"])),
            "process/closed" => break,
            _ => {}
        }
    }
    assert!(String::from_utf8(output).unwrap() == numbers(50_000));
}

/// Waits until the server has noticed that its only client has disconnected.
async fn wait_until_disconnected(server: &TestServer) {
    eventually_async("the connection has ended", async || {
        let no_connection = "exec_server_connections_active{transport=\"websocket\"} 0";
        http_get(server.address(), "/metrics", &[]).await.body.contains(no_connection).then_some(())
    })
    .await;
}

fn numbers(last: usize) -> String {
    (1..=last).map(|number| format!("{number}\n")).collect()
}

/// Checks that the output is all lines up to `last`, and that no sequence number is missing.
fn assert_whole(outcome: &FinishedProcess, last: usize) {
    assert!(String::from_utf8(outcome.stdout.clone()).unwrap() == numbers(last), "{} bytes", outcome.stdout.len());
    assert_eq!(outcome.seqs, (1..=outcome.seqs.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_paused_process_waits_and_continues_without_loss() {
    let server = TestServer::with_args(&SMALL_RETENTION).await;
    let mut client = server.client().await;
    start_and_pause(&mut client, "p", "exec seq 1 300000").await;
    let pid = wait_until_stalled(&mut client, "p").await;
    run_alone(&mut client, "other").await;
    let summary = summary(&mut client, "p").await;
    assert_eq!((&summary["outputBytes"], &summary["state"]), (&json!(RETAINED_BYTES), &json!("running")));
    assert!(process_state(pid).is_some());

    set_paused(&mut client, "p", false).await;
    assert_whole(&client.outcome("p").await, 300_000);
}

#[tokio::test]
async fn the_output_of_a_process_that_was_started_paused_is_not_sent_but_can_be_read() {
    let server = TestServer::with_args(&SMALL_RETENTION).await;
    let mut starter = server.client().await;
    let mut params = Client::start_params("p", &["sh", "-c", "seq 1 1000; exec sleep 1000"]);
    params["paused"] = true.into();
    starter.call("process/start", params).await;
    run_alone(&mut starter, "q").await;
    let session = starter.session.clone();
    drop(starter);
    wait_until_disconnected(&server).await;
    let mut other = server.resume(&session).await;
    let page = other.call("process/read", json!({"processId": "p", "afterSeq": 0, "waitMs": 20_000})).await;
    assert_eq!(unbase64(&page["chunks"][0]["chunk"]), numbers(1000).into_bytes());
}

#[tokio::test]
async fn a_process_that_was_started_paused_does_not_wait_after_its_client_has_left() {
    // `--detached-hold` is how long a process waits for a client that was lost. It is longer than this test, but has
    // no effect here: a process that was started paused and not resumed does not wait for a lost client.
    let server =
        TestServer::with_args(&["--retain-bytes", "64KiB", "--detached-hold", "1h", "--session-ttl", "1h"]).await;
    let directory = tempfile::tempdir().unwrap();
    let done = directory.path().join("done");
    let mut starter = server.client().await;
    let script = format!("seq 1 300000; : > {}", done.display());
    let mut params = Client::start_params("p", &["sh", "-c", &script]);
    params["paused"] = true.into();
    starter.call("process/start", params).await;
    wait_until_stalled(&mut starter, "p").await;
    assert!(!done.exists(), "the process waits while its client is connected");
    let session = starter.session.clone();
    drop(starter);
    eventually("the process goes on when its client has left", || done.exists().then_some(())).await;
    let mut other = server.resume(&session).await;
    let page = eventually_async("the process has closed", async || {
        let page = other.call("process/read", json!({"processId": "p", "afterSeq": 0})).await;
        (page["closed"] == true).then_some(page)
    })
    .await;
    let chunks = page["chunks"].as_array().unwrap();
    let kept: Vec<u8> = chunks.iter().flat_map(|chunk| unbase64(&chunk["chunk"])).collect();
    assert!(page["gap"] == true && numbers(300_000).as_bytes().ends_with(&kept), "the newest output is kept");
}

#[tokio::test]
async fn a_process_that_was_started_paused_can_be_resumed() {
    let server = TestServer::with_args(&SMALL_RETENTION).await;
    let mut client = server.client().await;
    let mut params = Client::start_params("p", &["seq", "1", "300000"]);
    params["paused"] = true.into();
    client.call("process/start", params).await;
    wait_until_stalled(&mut client, "p").await;
    set_paused(&mut client, "p", false).await;
    assert_whole(&client.outcome("p").await, 300_000);
}

#[tokio::test]
async fn a_paused_process_costs_the_server_hardly_any_cpu_time() {
    let server = TestServer::with_args(&SMALL_RETENTION).await;
    let mut client = server.client().await;
    start_and_pause(&mut client, "p", "exec seq 1 300000").await;
    wait_until_stalled(&mut client, "p").await;
    let before = cpu_time(server.pid());
    // sleep: the CPU time of an idle period is measured
    tokio::time::sleep(Duration::from_secs(1)).await;
    let spent = cpu_time(server.pid()) - before;
    assert!(spent < Duration::from_millis(300), "{spent:?}");
}

#[tokio::test]
async fn after_the_answer_to_a_pause_no_event_comes() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.start("p", &["seq", "1", "3000000"]).await;
    let mut outcome = FinishedProcess::default();
    let mut closed = false;
    // Records an event, and returns whether the process has closed.
    let mut record_event = |message: Value| {
        let params = &message["params"];
        outcome.seqs.push(params["seq"].as_u64().unwrap());
        match message["method"].as_str().unwrap() {
            "process/output" => outcome.stdout.extend(unbase64(&params["chunk"])),
            "process/closed" => closed = true,
            _ => {}
        }
        closed
    };
    'all: for round in 0.. {
        let pause = client.send("process/flow", json!({"processId": "p", "paused": true})).await;
        loop {
            let message = client.next().await;
            if message["id"] == pause {
                break;
            }
            if record_event(message) {
                break 'all;
            }
        }
        let status = client.send("environment/status", json!({})).await;
        assert_eq!(client.next().await["id"], status, "round {round}");
        let release = client.send("process/flow", json!({"processId": "p", "paused": false})).await;
        assert_eq!(client.next().await["id"], release, "the answer comes before the paused events, round {round}");
        // The test reads only one event here, so that the next pause often comes in the middle of a burst of events.
        if record_event(client.next().await) {
            break;
        }
    }
    assert_whole(&outcome, 3_000_000);
}

#[tokio::test]
async fn a_pause_can_be_sent_together_with_the_start_and_repeated() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let start = client.send("process/start", Client::start_params("p", &["sh", "-c", "sleep 0.2; echo hello"])).await;
    let params = json!({"processId": "p", "paused": true});
    let pauses = [client.send("process/flow", params.clone()).await, client.send("process/flow", params).await];
    for id in [start, pauses[0], pauses[1]] {
        assert!(client.answer(id).await.get("result").is_some());
    }
    let page = client.call("process/read", json!({"processId": "p", "waitMs": 20_000})).await;
    assert_eq!(unbase64(&page["chunks"][0]["chunk"]), b"hello\n", "a read returns the output all the same");
    run_alone(&mut client, "other").await;
    set_paused(&mut client, "p", false).await;
    set_paused(&mut client, "p", false).await;
    let outcome = client.outcome("p").await;
    assert_eq!((outcome.stdout.as_slice(), outcome.seqs), (&b"hello\n"[..], vec![1, 2, 3]));
}

#[tokio::test]
async fn a_paused_process_that_has_closed_is_kept_longer_than_the_process_retention() {
    let server = TestServer::with_args(&["--process-retention", "50ms"]).await;
    let mut client = server.client().await;
    start_and_pause(&mut client, "p", "echo hello; exit 3").await;
    // No event has such a large `seq`, so this read waits until the process has closed.
    client.call("process/read", json!({"processId": "p", "afterSeq": 1_u64 << 40, "waitMs": 20_000})).await;
    eventually_async("the process is closed", async || {
        (summary(&mut client, "p").await["state"] == "closed").then_some(())
    })
    .await;
    // The process `clock` closes later than `p` and is forgotten before `p` is resumed.
    run_alone(&mut client, "clock").await;
    eventually_async("the process `clock` is forgotten", async || {
        client.request("process/read", json!({"processId": "clock"})).await.get("error").map(drop)
    })
    .await;
    set_paused(&mut client, "p", false).await;
    let outcome = client.outcome("p").await;
    assert_eq!((outcome.stdout.as_slice(), outcome.exit_code), (&b"hello\n"[..], 3));
    assert_eq!(outcome.seqs, [1, 2, 3]);
    eventually_async("the process `p` is forgotten too, after its events were sent", async || {
        client.request("process/read", json!({"processId": "p"})).await.get("error").map(drop)
    })
    .await;
}

#[tokio::test]
async fn terminate_does_not_wait_for_paused_events() {
    let server = TestServer::with_args(&SMALL_RETENTION).await;
    let mut client = server.client().await;
    let mut fastest = Duration::MAX;
    for round in 0..5 {
        let process = format!("p{round}");
        start_and_pause(&mut client, &process, "seq 1 300000; exec sleep 1000").await;
        let pid = wait_until_stalled(&mut client, &process).await;
        let start = Instant::now();
        let id = client.send("process/terminate", json!({"processId": process})).await;
        assert_eq!(
            client.next().await,
            json!({"id": id, "result": {"running": true}}),
            "no event comes before the answer"
        );
        fastest = fastest.min(start.elapsed());
        assert_eq!(process_state(pid), None);
        set_paused(&mut client, &process, false).await;
        let outcome = client.outcome(&process).await;
        assert!(numbers(300_000).as_bytes().starts_with(&outcome.stdout));
        assert!(outcome.stdout.len() as u64 >= RETAINED_BYTES, "the retained output is sent");
        assert_eq!((outcome.exit_code, outcome.seqs[0]), (137, 1));
    }
    assert!(fastest < Duration::from_millis(900), "{fastest:?}");
}

#[tokio::test]
async fn a_pause_ends_with_its_connection() {
    let server = TestServer::with_args(&SMALL_RETENTION).await;
    for reads_first in [true, false] {
        let mut client = server.client().await;
        start_and_pause(&mut client, "p", "exec seq 1 300000").await;
        wait_until_stalled(&mut client, "p").await;
        let session = client.session.clone();
        drop(client);
        wait_until_disconnected(&server).await;
        let mut client = server.resume(&session).await;
        let mut before = Vec::new();
        let mut seqs = Vec::new();
        if reads_first {
            let page = client.call("process/read", json!({"processId": "p", "afterSeq": 0})).await;
            assert_ne!(page["gap"], true);
            for chunk in page["chunks"].as_array().unwrap() {
                before.extend(unbase64(&chunk["chunk"]));
                seqs.push(chunk["seq"].as_u64().unwrap());
            }
        }
        let rest = client.outcome("p").await;
        let outcome = FinishedProcess {
            stdout: [before, rest.stdout].concat(),
            seqs: [seqs, rest.seqs].concat(),
            ..FinishedProcess::default()
        };
        assert_whole(&outcome, 300_000);
    }
}

#[tokio::test]
async fn a_takeover_ends_a_pause() {
    let server = TestServer::with_args(&SMALL_RETENTION).await;
    let mut first = server.client().await;
    start_and_pause(&mut first, "p", "exec seq 1 300000").await;
    wait_until_stalled(&mut first, "p").await;
    let mut client = server.connect_without_handshake().await;
    let params = json!({"clientName": "testkit", "resumeSessionId": first.session, "takeover": true});
    client.call("initialize", params).await;
    client.notify("initialized", json!({})).await;
    assert_whole(&client.outcome("p").await, 300_000);
    assert_eq!(first.drain().await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_pause_of_an_unknown_process_or_with_invalid_params_is_refused() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let error = client.call_error("process/flow", json!({"processId": "p", "paused": true})).await;
    assert_eq!(error, json!({"code": -32600, "data": {"kind": "unknownProcess"}, "message": "unknown process id p"}));
    for params in [json!({"processId": "p"}), json!({"paused": true}), json!({"processId": "p", "paused": "yes"})] {
        assert_eq!(client.call_error("process/flow", params).await["code"], -32602);
    }
}
