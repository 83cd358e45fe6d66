//! Sessions that outlive their connections: which client may resume a session, and which events the client gets then.
//! A session without a connection is called detached.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use testkit::{
    Client, CuttingProxy, TestServer, Value, eventually, eventually_async, http_get, json, process_state, unbase64,
};

fn resume_params(session: &str) -> Value {
    json!({"clientName": "testkit", "resumeSessionId": session})
}

/// Tries to resume a session over a new connection, which must fail. Returns the connection and the error.
async fn assert_resume_fails(server: &TestServer, session: &str) -> (Client, Value) {
    let mut client = server.connect_without_handshake().await;
    let error = client.call_error("initialize", resume_params(session)).await;
    (client, error)
}

/// The sum of the values of all metrics whose name begins with `exec_server_` and then `name`. A metric with labels
/// has several values.
async fn metric(server: &TestServer, name: &str) -> u64 {
    let answer = http_get(server.address(), "/metrics", &[]).await;
    let lines = answer.body.lines().filter_map(|line| line.strip_prefix("exec_server_")?.strip_prefix(name));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64).sum()
}

/// Closes the connection of a client, which must be the only connection of the server, and waits until the server has
/// noticed. Returns the id of the session.
async fn disconnect(server: &TestServer, client: Client) -> String {
    let session = client.session.clone();
    drop(client);
    let detached = async || (metric(server, "connections_active").await == 0).then_some(());
    eventually_async("the connection has ended", detached).await;
    session
}

/// A shell command that waits until the file `gate` exists, and then runs `then`.
fn wait_for_file_then(gate: &Path, then: &str) -> String {
    format!("while ! [ -e {} ]; do sleep 0.01; done; {then}", gate.display())
}

/// A folder with a file for which commands wait. The test creates the file with [`Gate::open`].
struct Gate(TempDir);

impl Gate {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// A shell command that waits until the gate is open, and then runs `then`.
    fn wait_then(&self, then: &str) -> String {
        wait_for_file_then(&self.0.path().join("gate"), then)
    }

    fn open(&self) {
        std::fs::write(self.0.path().join("gate"), "").unwrap();
    }
}

async fn pid_of(client: &mut Client, process: &str) -> u32 {
    let list = client.processes().await;
    let found = list.as_array().unwrap().iter().find(|summary| summary["processId"] == process);
    found.unwrap()["pid"].as_u64().unwrap().try_into().unwrap()
}

async fn read(client: &mut Client, process: &str, after: u64) -> Value {
    client.call("process/read", json!({"processId": process, "afterSeq": after})).await
}

fn output_of(page: &Value) -> Vec<u8> {
    page["chunks"].as_array().unwrap().iter().flat_map(|chunk| unbase64(&chunk["chunk"])).collect()
}

/// The output of `seq 1 LAST`.
fn numbers(last: usize) -> String {
    (1..=last).map(|number| format!("{number}\n")).collect()
}

#[tokio::test]
async fn a_process_goes_on_while_no_client_is_connected() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let mut params = Client::start_params("p", &["cat"]);
    params["pipeStdin"] = true.into();
    client.call("process/start", params).await;
    let pid = pid_of(&mut client, "p").await;
    let session = disconnect(&server, client).await;

    let mut client = server.resume(&session).await;
    assert_eq!(client.session, session);
    assert_eq!(pid_of(&mut client, "p").await, pid);
    assert_eq!(read(&mut client, "p", 0).await["nextSeq"], 1);
    assert_eq!(client.write("p", "1", "still here\n").await, "accepted");
    client.output_until("p", "still here\n").await;
    assert_eq!(client.call("process/terminate", json!({"processId": "p"})).await, json!({"running": true}));
    assert_eq!(process_state(pid), None);
}

#[tokio::test]
async fn a_connection_that_has_ended_does_not_delay_a_resume() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for _ in 0..200 {
        let session = client.session.clone();
        let start = Instant::now();
        drop(client);
        client = server.resume(&session).await;
        assert!(start.elapsed() < Duration::from_millis(1500), "the resume waited for the old connection to answer");
    }
}

#[tokio::test]
async fn a_resume_is_refused_while_the_attached_client_answers_pings() {
    let server = TestServer::start().await;
    let mut first = server.client().await;
    let session = first.session.clone();
    // `first` answers pings only while it receives.
    let (mut second, error) = tokio::select! {
        message = first.receive() => panic!("unexpected {message:?}"),
        refused = assert_resume_fails(&server, &session) => refused,
    };
    let message = format!("session {session} is already attached to another connection");
    assert_eq!(error, json!({"code": -32010, "message": message}));
    assert_eq!(first.call("environment/status", json!({})).await, json!({"status": "ready"}));
    drop(first);
    let resumed = eventually_async("the first connection is gone", async || {
        let answer = try_to_resume(&server, &session).await;
        answer.get("result").cloned()
    });
    assert_eq!(resumed.await, json!({"sessionId": session}));
    // A connection whose resume was refused can still open a new session.
    second.handshake(None).await;
    assert_ne!(second.session, session);
}

/// Tries to resume a session over a new connection. Returns the whole answer.
async fn try_to_resume(server: &TestServer, session: &str) -> Value {
    server.connect_without_handshake().await.request("initialize", resume_params(session)).await
}

#[tokio::test]
async fn a_frozen_connection_is_replaced() {
    let server = TestServer::with_args(&["--takeover-after", "200ms"]).await;
    let proxy = CuttingProxy::start(server.address()).await;
    let gate = Gate::new();
    let mut frozen = Client::connect(&proxy.url()).await;
    frozen.handshake(None).await;
    frozen.start("p", &["sh", "-c", &gate.wait_then("echo hello")]).await;
    proxy.freeze();
    let mut client = server.resume(&frozen.session).await;
    assert_eq!(read(&mut client, "p", 0).await["nextSeq"], 1);
    gate.open();
    let outcome = client.outcome("p").await;
    assert_eq!((outcome.stdout.as_slice(), outcome.seqs), (&b"hello\n"[..], vec![1, 2, 3]));
}

#[tokio::test]
async fn a_client_that_does_not_answer_pings_is_replaced_and_its_connection_ends() {
    let server = TestServer::with_args(&["--takeover-after", "200ms"]).await;
    let gate = Gate::new();
    let mut silent = server.client().await;
    silent.start("p", &["sh", "-c", &gate.wait_then("echo hello")]).await;
    let params = json!({"processId": "p", "afterSeq": 0, "waitMs": 60_000});
    let waiting = silent.send("process/read", params).await;
    silent.call("environment/status", json!({})).await;

    let mut client = server.resume(&silent.session).await;
    gate.open();
    assert_eq!(read(&mut client, "p", 0).await["exited"], false);
    assert_eq!(client.outcome("p").await.stdout, b"hello\n");
    for message in silent.drain().await {
        assert_eq!(message["id"], waiting, "no event goes to a connection that was replaced: {message}");
        assert_eq!(message["error"]["message"], "session has been resumed by another connection");
    }
}

#[tokio::test]
async fn a_resume_succeeds_at_once_if_the_old_connection_ends_while_the_server_waits_for_its_pong() {
    let server = TestServer::with_args(&["--takeover-after", "20s"]).await;
    let mut silent = server.client().await;
    for _ in 0..3 {
        let start = Instant::now();
        let session = silent.session.clone();
        let mut client = server.connect_without_handshake().await;
        let resuming = client.send("initialize", resume_params(&session)).await;
        // sleep: the old connection must end while the server waits for a pong from it
        tokio::time::sleep(Duration::from_millis(200)).await;
        drop(silent);
        assert_eq!(client.answer(resuming).await["result"], json!({"sessionId": session}));
        assert!(start.elapsed() < Duration::from_secs(15), "the resume waited for --takeover-after");
        client.notify("initialized", json!({})).await;
        client.session = session;
        silent = client;
    }
}

#[tokio::test]
async fn an_unknown_session_is_an_error_and_the_connection_stays_usable() {
    let server = TestServer::start().await;
    for unknown in ["", "nonsense", "6d0f0e1c-2a4b-4c7e-9d58-0a1b2c3d4e5f"] {
        let (mut client, error) = assert_resume_fails(&server, unknown).await;
        assert_eq!(error, json!({"code": -32600, "message": format!("unknown session id {unknown}")}));
        client.handshake(None).await;
        assert_eq!(client.run("p", &["echo", "ok"]).await.stdout, b"ok\n");
    }
}

#[tokio::test]
async fn an_expired_session_is_unknown_and_its_processes_are_gone() {
    let server = TestServer::with_args(&["--session-ttl", "200ms"]).await;
    let mut client = server.client().await;
    client.start("p", &["sleep", "1000"]).await;
    let pid = pid_of(&mut client, "p").await;
    let session = disconnect(&server, client).await;
    eventually("the process is gone", || process_state(pid).is_none().then_some(())).await;
    let (_, error) = assert_resume_fails(&server, &session).await;
    assert_eq!(error, json!({"code": -32600, "message": format!("unknown session id {session}")}));
    let sessions = async || (metric(&server, "sessions_active").await == 0).then_some(());
    eventually_async("the session is forgotten", sessions).await;
}

#[tokio::test]
async fn a_session_that_is_resumed_in_time_does_not_expire() {
    let server = TestServer::with_args(&["--session-ttl", "400ms"]).await;
    let mut client = server.client().await;
    client.start("p", &["sleep", "1000"]).await;
    let pid = pid_of(&mut client, "p").await;
    let session = disconnect(&server, client).await;
    let mut client = server.resume(&session).await;
    // sleep: `--session-ttl`, counted from the end of the first connection, must pass while the second is attached
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert_eq!(pid_of(&mut client, "p").await, pid);
    assert!(process_state(pid).is_some());
}

#[tokio::test]
async fn events_of_a_detached_session_can_be_read() {
    let server = TestServer::start().await;
    let gate = Gate::new();
    let mut client = server.client().await;
    client.start("p", &["sh", "-c", &gate.wait_then("echo out; echo err >&2; exit 3")]).await;
    let pid = pid_of(&mut client, "p").await;
    let session = disconnect(&server, client).await;
    gate.open();
    eventually("the process has exited", || process_state(pid).is_none().then_some(())).await;

    let mut client = server.resume(&session).await;
    // No event has a number above 4, so this read returns when the process is closed.
    let params = json!({"processId": "p", "afterSeq": 4, "waitMs": 20_000});
    client.call("process/read", params).await;
    let page = read(&mut client, "p", 0).await;
    assert_eq!(String::from_utf8(output_of(&page)).unwrap().len(), "out\nerr\n".len());
    assert_eq!(
        (&page["exited"], &page["exitCode"], &page["exitSeq"], &page["closed"], &page["nextSeq"]),
        (&json!(true), &json!(3), &json!(3), &json!(true), &json!(5)),
        "{page}"
    );
}

#[tokio::test]
async fn events_of_a_detached_session_are_pushed_to_a_client_that_sends_no_read() {
    let server = TestServer::start().await;
    let gate = Gate::new();
    let mut client = server.client().await;
    client.start("p", &["sh", "-c", &format!("echo before; {}", gate.wait_then("echo after; exit 3"))]).await;
    client.output_until("p", "before\n").await;
    let session = disconnect(&server, client).await;
    gate.open();

    let mut client = server.resume(&session).await;
    let outcome = client.outcome("p").await;
    assert_eq!((outcome.stdout.as_slice(), outcome.exit_code), (&b"before\nafter\n"[..], 3));
    assert_eq!(
        outcome.seqs,
        [1, 2, 3, 4],
        "an event that the client has not acknowledged comes again with the same number"
    );
}

#[tokio::test]
async fn pushed_events_continue_where_the_first_read_ends() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let mut params = Client::start_params("p", &["sh", "-c", "while read n; do seq 1 $n; done"]);
    params["pipeStdin"] = true.into();
    client.call("process/start", params).await;
    let mut output = Vec::new();
    let mut seqs = Vec::new();
    for round in 1..=20 {
        client.write("p", &round.to_string(), "1000\n").await;
        // The test reads only a part of the output of this round before it closes the connection.
        while output.len() < numbers(1000).len() * (round - 1) + 500 {
            let event = client.event("p").await;
            output.extend(unbase64(&event["params"]["chunk"]));
            seqs.push(event["params"]["seq"].as_u64().unwrap());
        }
        client = server.resume(&disconnect(&server, client).await).await;
        let after = seqs.last().copied().unwrap();
        // Each event after `after` must come exactly once, either in the answer to this read or as a notification.
        let params =
            json!({"processId": "p", "afterSeq": after, "maxBytes": if round % 2 == 0 { Some(1) } else { None }});
        let page = client.call("process/read", params).await;
        output.extend(output_of(&page));
        seqs.extend(page["chunks"].as_array().unwrap().iter().map(|chunk| chunk["seq"].as_u64().unwrap()));
    }
    client.close_stdin("p").await;
    let rest = client.outcome("p").await;
    output.extend(rest.stdout);
    seqs.extend(rest.seqs);
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    assert!(String::from_utf8(output).unwrap() == numbers(1000).repeat(20));
}

/// After a resume the server waits one second for a `process/read`, which says which events the client has. If none
/// comes, the server pushes all events that the client has not acknowledged.
#[tokio::test]
async fn the_wait_for_the_first_read_starts_again_with_each_connection() {
    let server = TestServer::start().await;
    let gate = Gate::new();
    let mut client = server.client().await;
    client.start("p", &["sh", "-c", &gate.wait_then("echo hello")]).await;
    let session = disconnect(&server, client).await;
    gate.open();
    let session = disconnect(&server, server.resume(&session).await).await;
    // sleep: the wait after the first resume must end in the middle of the wait after the second
    tokio::time::sleep(Duration::from_millis(600)).await;
    let mut client = server.connect_without_handshake().await;
    let start = Instant::now();
    client.handshake(Some(&session)).await;
    assert_eq!(client.event("p").await["method"], "process/output");
    assert!(start.elapsed() > Duration::from_millis(950), "pushed after {:?}", start.elapsed());
}

/// Starts a process and disconnects. The process then writes more than the 1 MiB that the server retains. When 1 MiB
/// is written, returns the id of the session and the pid.
async fn write_while_detached(server: &TestServer) -> (String, u32) {
    let gate = Gate::new();
    let mut client = server.client().await;
    client.start("p", &["sh", "-c", &gate.wait_then("exec seq 1 1000000")]).await;
    let pid = pid_of(&mut client, "p").await;
    let session = disconnect(server, client).await;
    gate.open();
    let retained_output_is_full = async || (metric(server, "output_bytes").await >= 1 << 20).then_some(());
    eventually_async("as much as the server retains was written", retained_output_is_full).await;
    (session, pid)
}

#[tokio::test]
async fn a_process_of_a_lost_client_waits_for_a_client_that_reads() {
    let server = TestServer::start().await;
    let (session, pid) = write_while_detached(&server).await;
    assert!(process_state(pid).is_some(), "the process waits");
    let mut client = server.resume(&session).await;
    let page = read(&mut client, "p", 0).await;
    assert_ne!(page["gap"], true);
    let mut output = output_of(&page);
    let rest = client.outcome("p").await;
    assert_eq!(rest.seqs[0], page["nextSeq"].as_u64().unwrap());
    output.extend(rest.stdout);
    assert!(String::from_utf8(output).unwrap() == numbers(1_000_000));
}

#[tokio::test]
async fn a_process_of_a_lost_client_waits_for_a_client_that_only_gets_notifications() {
    let server = TestServer::start().await;
    let (session, _) = write_while_detached(&server).await;
    let outcome = server.resume(&session).await.outcome("p").await;
    assert!(String::from_utf8(outcome.stdout).unwrap() == numbers(1_000_000));
    assert_eq!(outcome.seqs, (1..=outcome.seqs.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn without_a_detached_hold_a_gap_is_reported() {
    // `--detached-hold` is how long a process waits for a client that was lost.
    let server = TestServer::with_args(&["--detached-hold", "0s"]).await;
    let (session, pid) = write_while_detached(&server).await;
    eventually("the process does not wait", || process_state(pid).is_none().then_some(())).await;
    let mut client = server.resume(&session).await;
    client.call("process/read", json!({"processId": "p", "afterSeq": 1_u64 << 40, "waitMs": 20_000})).await;
    let page = read(&mut client, "p", 0).await;
    let output = output_of(&page);
    let expected = numbers(1_000_000);
    assert_eq!((&page["gap"], &page["closed"]), (&json!(true), &json!(true)));
    assert!(output.len() <= 1 << 20 && expected.as_bytes().ends_with(&output), "the newest output is kept");
    assert_eq!(page["droppedBytes"], expected.len() - output.len());
    assert_eq!(page["oldestSeq"], page["chunks"][0]["seq"]);
    assert_ne!(page["oldestSeq"], 1);
}

#[tokio::test]
async fn sessions_do_not_see_each_other() {
    let server = TestServer::start().await;
    let (mut a, mut b) = (server.client().await, server.client().await);
    assert_ne!(a.session, b.session);
    let mut params = Client::start_params("p", &["cat"]);
    params["pipeStdin"] = true.into();
    a.call("process/start", params.clone()).await;
    assert_eq!(b.processes().await, json!([]));
    assert_eq!(b.write("p", "1", "b\n").await, "unknownProcess");
    assert_eq!(b.call("process/terminate", json!({"processId": "p"})).await, json!({"running": false}));
    b.call("process/start", params).await;
    assert_eq!(
        (a.write("p", "1", "a\n").await, b.write("p", "1", "b\n").await),
        ("accepted".into(), "accepted".into())
    );
    assert_eq!(a.output_until("p", "\n").await, "a\n");
    assert_eq!(b.output_until("p", "\n").await, "b\n");
    b.call("process/terminate", json!({"processId": "p"})).await;
    assert_eq!(a.write("p", "2", "again\n").await, "accepted");
    assert_eq!(a.output_until("p", "\n").await, "again\n");
}

#[tokio::test]
async fn starts_in_flight_when_the_connection_is_cut_are_not_lost() {
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    for round in 0..10 {
        let mut client = Client::connect(&proxy.url()).await;
        client.handshake(None).await;
        for number in 0..20 {
            let process = format!("p{number}");
            let argv = ["sh", "-c", &format!("echo {round} {number}")];
            client.send("process/start", Client::start_params(&process, &argv)).await;
        }
        // This request waits for nothing. Its answer proves that the server has read all starts, which may still be
        // in progress.
        client.call("environment/status", json!({})).await;
        proxy.cut();
        let mut client = server.resume(&client.session).await;
        for number in 0..20 {
            let process = format!("p{number}");
            let mut output = Vec::new();
            let mut after = 0;
            loop {
                let params = json!({"processId": process, "afterSeq": after, "waitMs": 20_000});
                let page = client.call("process/read", params).await;
                output.extend(output_of(&page));
                after = page["nextSeq"].as_u64().unwrap() - 1;
                if page["closed"] == true {
                    break;
                }
            }
            assert_eq!(String::from_utf8(output).unwrap(), format!("{round} {number}\n"));
        }
    }
}

#[tokio::test]
async fn a_long_poll_does_not_delay_a_resume() {
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let mut client = Client::connect(&proxy.url()).await;
    client.handshake(None).await;
    client.start("p", &["sleep", "1000"]).await;
    client.send("process/read", json!({"processId": "p", "waitMs": 5000})).await;
    client.call("environment/status", json!({})).await;
    let start = Instant::now();
    proxy.cut();
    server.resume(&client.session).await;
    assert!(start.elapsed() < Duration::from_millis(1900), "the resume took {:?}", start.elapsed());
}

/// Flags of a server that sends no keep-alive ping during a test. Then the client acknowledges output only by its
/// pongs to the pings that the server sends after output.
const NO_KEEP_ALIVE: [&str; 2] = ["--ping-interval", "10m"];

/// Perl code that writes single bytes to stdout and stderr in turn. It waits until each byte was read from the pipe
/// (`FIONREAD` is 0), so that each byte is a chunk of its own. There are more chunks than the server retains.
const SINGLE_BYTES: &str = r#"
    sub put { my $to = shift; syswrite $to, "x"; my $left = pack "i", 1; ioctl $to, 0x541B, $left while unpack "i", $left; }
    for (1..26000) { put(*STDOUT); put(*STDERR); }
"#;

#[tokio::test]
async fn a_process_that_writes_single_bytes_does_not_stall() {
    let server = TestServer::with_args(&NO_KEEP_ALIVE).await;
    let mut client = server.client().await;
    let outcome = client.run("p", &["perl", "-e", SINGLE_BYTES]).await;
    assert_eq!((outcome.stdout.len(), outcome.stderr.len()), (26_000, 26_000));
    assert!(outcome.seqs.len() > 50_000, "{}", outcome.seqs.len());
}

#[tokio::test]
async fn a_process_of_which_little_output_is_retained_does_not_stall() {
    let server = TestServer::with_args(&[NO_KEEP_ALIVE[0], NO_KEEP_ALIVE[1], "--retain-bytes", "4KiB"]).await;
    let mut client = server.client().await;
    let outcome = client.run("p", &["seq", "1", "50000"]).await;
    assert!(String::from_utf8(outcome.stdout).unwrap() == numbers(50_000));
}
