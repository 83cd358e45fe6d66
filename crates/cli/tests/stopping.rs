//! Ending processes: signals, `process/terminate` and timeouts.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use std::time::{Duration, Instant};

use testkit::{Client, TestServer, Value, eventually, http_get, json, process_state};

async fn signal(client: &mut Client, process: &str, signal: &str) {
    let params = json!({"processId": process, "signal": signal});
    assert_eq!(client.call("process/signal", params).await, json!({}));
}

/// Terminates a process and returns whether it was running.
async fn terminate(client: &mut Client, process: &str) -> bool {
    let answer = client.call("process/terminate", json!({"processId": process})).await;
    let running = answer["running"].as_bool().unwrap();
    assert_eq!(answer, json!({"running": running}));
    running
}

async fn start_on_terminal(client: &mut Client, process: &str, argv: &[&str]) {
    let mut params = Client::start_params(process, argv);
    params["tty"] = json!(true);
    client.call("process/start", params).await;
}

async fn pid(client: &mut Client, process: &str) -> u32 {
    let list = client.processes().await;
    let entry = list.as_array().unwrap().iter().find(|entry| entry["processId"] == process).unwrap();
    u32::try_from(entry["pid"].as_u64().unwrap()).unwrap()
}

#[tokio::test]
async fn an_interrupt_reaches_a_handler() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let argv = ["sh", "-c", "trap 'exit 7' INT; echo ready; while :; do sleep 0.05; done"];
    client.start("pipes", &argv).await;
    start_on_terminal(&mut client, "terminal", &argv).await;
    for process in ["pipes", "terminal"] {
        client.output_until(process, "ready").await;
        signal(&mut client, process, "interrupt").await;
        assert_eq!(client.outcome(process).await.exit_code, 7, "{process}");
    }
}

#[tokio::test]
async fn every_signal_that_ends_a_process_has_its_exit_code() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for (name, number) in
        [("interrupt", 2), ("hangup", 1), ("quit", 3), ("terminate", 15), ("kill", 9), ("user1", 10), ("user2", 12)]
    {
        client.start(name, &["sh", "-c", "ulimit -c 0; echo ready; exec sleep 100"]).await;
        client.output_until(name, "ready").await;
        signal(&mut client, name, name).await;
        assert_eq!(client.outcome(name).await.exit_code, 128 + number, "{name}");
    }
}

#[tokio::test]
async fn a_process_can_be_stopped_and_continued() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.start("p", &["sleep", "100"]).await;
    let pid = pid(&mut client, "p").await;
    signal(&mut client, "p", "stop").await;
    eventually("the process is stopped", || (process_state(pid) == Some('T')).then_some(())).await;
    signal(&mut client, "p", "continue").await;
    eventually("the process runs again", || (process_state(pid) == Some('S')).then_some(())).await;
    signal(&mut client, "p", "stop").await;
    assert!(terminate(&mut client, "p").await, "a stopped process is terminated too");
    assert_eq!(client.outcome("p").await.exit_code, 137);
}

#[tokio::test]
async fn a_signal_to_an_unknown_or_exited_process_is_ignored_and_an_unknown_signal_is_an_error() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    signal(&mut client, "nobody", "interrupt").await;
    client.run("p", &["true"]).await;
    signal(&mut client, "p", "kill").await;
    for bad in [json!("INT"), json!("SIGINT"), json!(2), json!(null)] {
        let error = client.call_error("process/signal", json!({"processId": "p", "signal": bad})).await;
        assert_eq!(error["code"], -32602, "{bad}");
    }
}

#[tokio::test]
async fn terminate_reports_whether_the_process_was_running() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    assert!(!terminate(&mut client, "nobody").await);
    client.start("p", &["sleep", "100"]).await;
    let pid = pid(&mut client, "p").await;
    assert!(terminate(&mut client, "p").await);
    assert_eq!(process_state(pid), None, "the process is reaped when the answer comes");
    let outcome = client.outcome("p").await;
    assert_eq!((outcome.exit_code, outcome.seqs), (137, vec![1, 2]));
    assert!(!terminate(&mut client, "p").await);
    client.run("q", &["true"]).await;
    assert!(!terminate(&mut client, "q").await);
}

#[tokio::test]
async fn terminate_may_be_sent_right_after_a_start() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for n in 0..50 {
        let process = format!("p{n}");
        let start = client.send("process/start", Client::start_params(&process, &["sleep", "100"])).await;
        let stop = client.send("process/terminate", json!({"processId": process})).await;
        let started = client.answer(start).await;
        assert_eq!(started["result"]["processId"], json!(process), "{started}");
        assert_eq!(client.answer(stop).await["result"], json!({"running": true}));
        assert_eq!(client.outcome(&process).await.exit_code, 137);
    }
}

#[tokio::test]
async fn terminate_delivers_earlier_output() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    // The script creates the file `marker` after its output, so when the file exists all output is in the pipes.
    let script = "echo out; echo err >&2; touch marker; exec sleep 100";
    let directory = tempfile::tempdir().unwrap();
    for n in 0..20 {
        let process = format!("p{n}");
        let folder = directory.path().join(&process);
        std::fs::create_dir(&folder).unwrap();
        let mut params = Client::start_params(&process, &["sh", "-c", script]);
        params["cwd"] = json!(format!("file://{}", folder.display()));
        client.call("process/start", params).await;
        eventually("all output is written", || folder.join("marker").exists().then_some(())).await;
        assert!(terminate(&mut client, &process).await);
        let outcome = client.outcome(&process).await;
        assert_eq!((outcome.stdout.as_slice(), outcome.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
        assert_eq!(outcome.exit_code, 137);
    }
}

#[tokio::test]
async fn terminate_answers_after_the_last_event() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.start("p", &["sh", "-c", "echo ready; exec sleep 100"]).await;
    client.output_until("p", "ready").await;
    let request = client.send("process/terminate", json!({"processId": "p"})).await;
    let messages = [client.next().await, client.next().await, client.next().await];
    let kinds: Vec<_> = messages.iter().map(|message| message.get("method").cloned()).collect();
    assert_eq!(kinds, [Some(json!("process/exited")), Some(json!("process/closed")), None]);
    assert_eq!(messages[2], json!({"id": request, "result": {"running": true}}));
}

#[tokio::test]
async fn terminate_finds_a_descendant_without_a_tag_after_the_process_has_exited() {
    // The server finds the descendants of a process by their tag, a value of the resource limit `RLIMIT_RTTIME`.
    // `prlimit` removes the tag.
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.start("p", &["sh", "-c", "prlimit --rttime=unlimited sh -c 'sleep 1000 & echo $!'; exit 3"]).await;
    let sleeper: u32 = client.output_until("p", "\n").await.trim().parse().unwrap();
    client.take(|message| message["method"] == "process/exited").await;
    terminate(&mut client, "p").await;
    eventually("the descendant is gone", || (!testkit::is_alive(sleeper)).then_some(())).await;
}

#[tokio::test]
async fn terminate_ends_every_descendant() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let script = "sleep 100 & echo $!; setsid sleep 101 & echo $!; setsid sh -c 'sleep 102 & echo $!; wait' & wait";
    client.start("pipes", &["sh", "-c", script]).await;
    start_on_terminal(&mut client, "terminal", &["sh", "-c", script]).await;
    for process in ["pipes", "terminal"] {
        let mut pids = vec![pid(&mut client, process).await];
        while pids.len() < 4 {
            let output = client.output_until(process, "\n").await;
            pids.extend(output.lines().map(|line| line.trim().parse::<u32>().unwrap()));
        }
        assert!(terminate(&mut client, process).await);
        for pid in pids {
            assert_eq!(process_state(pid), None, "{process}: {pid} is left");
        }
        assert_eq!(client.outcome(process).await.exit_code, 137);
    }
    // The guard is the child of the server that kills all processes if the server dies.
    assert!(testkit::descendants(server.pid()).len() <= 1, "the server has children other than the guard");
}

#[tokio::test]
async fn terminate_ends_processes_that_an_exited_process_has_left() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.start("p", &["sh", "-c", "setsid sleep 100 & echo $!"]).await;
    let output = client.output_until("p", "\n").await;
    let left_behind: u32 = output.trim().parse().unwrap();
    let exited = client.event("p").await;
    assert_eq!((&exited["method"], &exited["params"]["exitCode"]), (&json!("process/exited"), &json!(0)));
    assert!(process_state(left_behind).is_some());
    assert!(!terminate(&mut client, "p").await, "the process itself was not running any more");
    assert_eq!(process_state(left_behind), None);
    assert_eq!(client.event("p").await, json!({"method": "process/closed", "params": {"processId": "p", "seq": 3}}));
}

#[tokio::test]
async fn a_process_ends_at_its_timeout() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for tty in [false, true] {
        let process = if tty { "terminal" } else { "pipes" };
        let mut params = Client::start_params(process, &["sleep", "100"]);
        params["timeoutMs"] = json!(300);
        params["tty"] = json!(tty);
        let start = Instant::now();
        client.call("process/start", params).await;
        let expected =
            json!({"processId": process, "seq": 1, "exitCode": 137, "sandboxDenied": false, "timedOut": true});
        assert_eq!(client.event(process).await, json!({"method": "process/exited", "params": expected}));
        assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
        assert_eq!(client.event(process).await["method"], "process/closed");
    }
}

#[tokio::test]
async fn a_process_that_ends_in_time_is_not_reported_as_timed_out_and_a_timeout_of_0_is_refused() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let mut params = Client::start_params("p", &["true"]);
    params["timeoutMs"] = json!(60_000);
    client.call("process/start", params.clone()).await;
    let exited: Value = client.event("p").await["params"].clone();
    assert_eq!(exited, json!({"processId": "p", "seq": 1, "exitCode": 0, "sandboxDenied": false}));
    params["timeoutMs"] = json!(0);
    params["processId"] = json!("q");
    let error = client.call_error("process/start", params).await;
    assert_eq!(error, json!({"code": -32602, "message": "timeoutMs must not be 0"}));
}

/// Starts a script with a timeout. Returns the pid that the script prints: the pid of a process that the script
/// leaves behind.
async fn start_with_timeout(client: &mut Client, process: &str, script: &str, timeout_ms: u64) -> u32 {
    let mut params = Client::start_params(process, &["sh", "-c", script]);
    params["timeoutMs"] = json!(timeout_ms);
    client.call("process/start", params).await;
    client.output_until(process, "\n").await.trim().parse().unwrap()
}

#[tokio::test]
async fn processes_that_an_exited_process_left_behind_end_at_the_timeout() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let left_behind = start_with_timeout(&mut client, "p", "setsid sleep 1000 & echo $!", 1000).await;
    let exited = json!({"processId": "p", "seq": 2, "exitCode": 0, "sandboxDenied": false});
    assert_eq!(client.event("p").await["params"], exited, "the process itself ended in time");
    assert!(process_state(left_behind).is_some(), "the timeout is not reached yet");
    eventually("the process is gone", || process_state(left_behind).is_none().then_some(())).await;
    assert_eq!(client.event("p").await, json!({"method": "process/closed", "params": {"processId": "p", "seq": 3}}));
}

#[tokio::test]
async fn processes_that_a_closed_process_left_behind_end_at_the_timeout() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    // The process that the script leaves behind does not hold the pipes open, so the script closes long before its
    // timeout.
    let script = "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!";
    let left_behind = start_with_timeout(&mut client, "p", script, 1500).await;
    let left_with_long_timeout = start_with_timeout(&mut client, "q", script, 600_000).await;
    assert_eq!(client.outcome("p").await.exit_code, 0);
    assert!(process_state(left_behind).is_some(), "the timeout is not reached yet");
    eventually("the process is gone", || process_state(left_behind).is_none().then_some(())).await;
    assert!(process_state(left_with_long_timeout).is_some(), "the timeout of the other script is not reached yet");
}

#[tokio::test]
async fn the_metrics_count_how_processes_ended() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.run("success", &["true"]).await;
    client.run("error 1", &["false"]).await;
    client.run("error 2", &["sh", "-c", "kill -9 $$"]).await;
    client.start("terminated", &["sleep", "100"]).await;
    client.start("running", &["sleep", "100"]).await;
    terminate(&mut client, "terminated").await;
    terminate(&mut client, "success").await;
    let metrics = http_get(server.address(), "/metrics", &[]).await.body;
    for line in [
        r#"exec_server_processes_finished_total{result="success"} 1"#,
        r#"exec_server_processes_finished_total{result="error"} 2"#,
        r#"exec_server_processes_finished_total{result="terminated"} 1"#,
        "exec_server_processes_active 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in {metrics}");
    }
}
