//! `process/start.limits`: processes that reach their limits, requests that cannot be met, and what the exit says.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use testkit::{Client, TestServer, Value, json};

const SPIN: [&str; 3] = ["perl", "-e", "1 while 1"];

fn limited(process: &str, argv: &[&str], limits: &Value) -> Value {
    let mut params = Client::start_params(process, argv);
    params["limits"] = limits.clone();
    params
}

/// Starts a process with limits. Returns the params of its exit event.
async fn exit_of(client: &mut Client, params: Value) -> Value {
    let process = params["processId"].as_str().unwrap().to_owned();
    client.call("process/start", params).await;
    loop {
        let event = client.event(&process).await;
        if event["method"] == "process/exited" {
            return event["params"].clone();
        }
    }
}

async fn refusal(client: &mut Client, limits: &Value) -> (i64, String) {
    let error = client.call_error("process/start", limited("refused", &["true"], limits)).await;
    (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
}

fn ended_by(limit: &str) -> Value {
    json!({"limit": limit, "ended": true})
}

#[tokio::test]
async fn a_process_that_spins_ends_at_its_cpu_time_on_pipes_and_on_a_terminal() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for tty in [false, true] {
        let process = if tty { "terminal" } else { "pipes" };
        let mut params = limited(process, &SPIN, &json!({"cpuSeconds": 1}));
        params["tty"] = json!(tty);
        let exit = exit_of(&mut client, params).await;
        assert_eq!((&exit["exitCode"], &exit["limitReached"]), (&json!(152), &ended_by("cpuSeconds")), "{exit}");
        let cpu = exit["usage"]["userMicros"].as_u64().unwrap() + exit["usage"]["systemMicros"].as_u64().unwrap();
        // The limit counts clock ticks, and the usage is exact, so on a busy machine the two differ.
        assert!((300_000..3_000_000).contains(&cpu), "{exit}");
        let read = client.call("process/read", json!({"processId": process, "waitMs": 10_000})).await;
        assert_eq!((&read["usage"], &read["limitReached"]), (&exit["usage"], &exit["limitReached"]));
    }
}

#[tokio::test]
async fn a_process_that_raises_its_soft_limit_and_ignores_the_signal_is_killed_at_the_hard_limit() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let script = "ulimit -S -t $(ulimit -H -t); trap '' XCPU; while :; do :; done";
    let exit = exit_of(&mut client, limited("p", &["bash", "-c", script], &json!({"cpuSeconds": 1}))).await;
    assert_eq!((&exit["exitCode"], &exit["limitReached"]), (&json!(137), &ended_by("cpuSeconds")), "{exit}");
}

#[tokio::test]
async fn a_file_that_grows_too_large_ends_the_process() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let folder = tempfile::tempdir().unwrap();
    let script = format!("exec head -c 2000000 /dev/zero > {}/file", folder.path().display());
    let exit = exit_of(&mut client, limited("p", &["sh", "-c", &script], &json!({"fileSizeBytes": 1_000_000}))).await;
    assert_eq!((&exit["exitCode"], &exit["limitReached"]), (&json!(153), &ended_by("fileSizeBytes")), "{exit}");
    assert_eq!(std::fs::metadata(folder.path().join("file")).unwrap().len(), 1_000_000);
    // Output is not a file, so it may be longer.
    client.call("process/start", limited("q", &["seq", "100000"], &json!({"fileSizeBytes": 10}))).await;
    assert_eq!(client.outcome("q").await.stdout.len(), 588_895);
}

#[tokio::test]
async fn opening_files_and_allocating_fail_at_the_limit() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let script = "my @f; while (open(my $f, '<', '/dev/null')) { push @f, $f } print scalar @f";
    client.call("process/start", limited("files", &["perl", "-e", script], &json!({"openFiles": 20}))).await;
    let outcome = client.outcome("files").await;
    assert_eq!((outcome.stdout.as_slice(), outcome.exit_code), (b"17".as_slice(), 0));

    let script = "my $x = 'x' x (600 << 20); print 'allocated'";
    let params = limited("memory", &["perl", "-e", script], &json!({"memoryBytes": 300 << 20}));
    let answer = client.call("process/start", params).await;
    let scope = answer["memoryLimitScope"].as_str().unwrap().to_owned();
    assert!(["tree", "process"].contains(&scope.as_str()), "{answer}");
    let outcome = client.outcome("memory").await;
    assert_eq!(outcome.stdout, b"");
    assert_ne!(outcome.exit_code, 0);
}

#[tokio::test]
async fn invalid_limits_are_refused_before_anything_starts() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for member in ["memoryBytes", "cpuSeconds", "pids", "openFiles", "fileSizeBytes"] {
        let (code, message) = refusal(&mut client, &json!({member: 0})).await;
        assert_eq!((code, message), (-32602, format!("limits.{member} must be at least 1")));
        for wrong in [json!(-1), json!(1.5), json!("7"), json!(true), json!([])] {
            assert_eq!(refusal(&mut client, &json!({member: wrong})).await.0, -32602, "{member}: {wrong}");
        }
        let (code, message) = refusal(&mut client, &json!({member: u64::MAX})).await;
        assert_eq!(code, -32602);
        assert!(message.starts_with(&format!("limits.{member} must be at most ")), "{message}");
    }
    assert_eq!(refusal(&mut client, &json!(7)).await.0, -32602);
    assert_eq!(client.processes().await, json!([]));
    // The id is free, and null and unknown members are no limits.
    let exit = exit_of(&mut client, limited("refused", &["true"], &json!({"pids": null, "new": 1}))).await;
    assert_eq!((&exit["exitCode"], &exit["limitReached"]), (&json!(0), &Value::Null));
}

#[tokio::test]
async fn a_limit_above_that_of_the_server_is_refused_with_its_name_and_number() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.start("p", &["sh", "-c", "ulimit -H -n"]).await;
    let hard: u64 = String::from_utf8(client.outcome("p").await.stdout).unwrap().trim().parse().unwrap();
    let (code, message) = refusal(&mut client, &json!({"openFiles": hard + 1})).await;
    assert_eq!(code, -32602);
    let expected =
        format!("limits.openFiles {} is above the hard limit {hard} of the server (RLIMIT_NOFILE)", hard + 1);
    assert!(message.starts_with(&expected), "{message}");
    let exit = exit_of(&mut client, limited("q", &["true"], &json!({"openFiles": hard}))).await;
    assert_eq!(exit["exitCode"], 0);
}

#[tokio::test]
async fn a_fork_bomb_ends_at_its_limit_or_is_not_started() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    // The `sleep`s must not hold the pipes, or the bomb would never close after its shell has exited.
    let bomb = "while :; do sleep 1000 >/dev/null 2>&1 & done";
    let params = limited("bomb", &["sh", "-c", bomb], &json!({"pids": 10}));
    let answer = client.request("process/start", params).await;
    if let Some(error) = answer.get("error") {
        let message = error["message"].as_str().unwrap();
        assert_eq!(error["code"], -32602);
        assert!(message.starts_with("limits.pids cannot be enforced without cgroup v2: "), "{message}");
    } else {
        let read = json!({"processId": "bomb", "afterSeq": 1, "waitMs": 30_000});
        let exit = client.call("process/read", read).await;
        assert_eq!(exit["limitReached"], json!({"limit": "pids", "ended": false}), "{exit}");
        client.call("process/terminate", json!({"processId": "bomb"})).await;
    }
}

#[tokio::test]
async fn a_process_that_is_ended_by_its_timeout_or_by_a_client_has_reached_no_limit() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let limits = json!({"cpuSeconds": 60, "memoryBytes": 1_u64 << 30, "openFiles": 100, "fileSizeBytes": 1 << 20});
    let mut params = limited("timeout", &["sleep", "100"], &limits);
    params["timeoutMs"] = json!(100);
    let exit = exit_of(&mut client, params).await;
    assert_eq!((&exit["exitCode"], &exit["timedOut"]), (&json!(137), &json!(true)));
    assert!(exit.get("limitReached").is_none() && exit["usage"].is_object(), "{exit}");

    client.call("process/start", limited("terminated", &SPIN, &limits)).await;
    client.call("process/terminate", json!({"processId": "terminated"})).await;
    let read = client.call("process/read", json!({"processId": "terminated", "waitMs": 10_000})).await;
    assert_eq!(read["exitCode"], 137);
    assert!(read.get("limitReached").is_none() && read["usage"].is_object(), "{read}");
}

#[tokio::test]
async fn usage_is_sent_only_if_it_was_asked_for_and_can_be_read_after_a_resume() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.start("without", &["true"]).await;
    let exit = client.event("without").await["params"].clone();
    assert_eq!(exit, json!({"processId": "without", "seq": 1, "exitCode": 0, "sandboxDenied": false}));
    let exit =
        exit_of(&mut client, limited("with", &["sh", "-c", "head -c 1000000 /dev/zero >&-"], &json!({}))).await;
    assert!(exit["usage"]["minorFaults"].as_u64().unwrap() > 0, "{exit}");

    let session = client.session.clone();
    drop(client);
    let mut client = Client::connect(server.url()).await;
    client.handshake(Some(&session)).await;
    let read = client.call("process/read", json!({"processId": "with"})).await;
    assert_eq!(read["usage"], exit["usage"]);
    assert!(client.call("process/read", json!({"processId": "without"})).await.get("usage").is_none());
}

#[tokio::test]
async fn a_program_that_does_not_fit_into_its_memory_is_an_error_or_an_exit_and_the_server_goes_on() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let answer = client.request("process/start", limited("p", &["true"], &json!({"memoryBytes": 1}))).await;
    match answer.get("error") {
        Some(error) => assert!(error["message"].as_str().unwrap().contains("memory limit"), "{error}"),
        None => assert_ne!(client.outcome("p").await.exit_code, 0),
    }
    client.start("q", &["echo", "alive"]).await;
    assert_eq!(client.outcome("q").await.stdout, b"alive\n");
}
