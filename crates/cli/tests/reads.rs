//! The method `process/read`: what it returns, when it waits, and that no other request has to wait for it.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use std::time::{Duration, Instant};

use testkit::{Client, TestServer, Value, json, unbase64};

/// `waitMs` of reads that must be answered earlier. A read takes this long only if the server misses the event that
/// should wake it.
const LONG_MS: u64 = 25_000;

/// Time limit for reads that must be answered before `waitMs`, or that have no `waitMs`. Well below [`LONG_MS`], and
/// well above the time that a loaded machine needs.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);

async fn read(client: &mut Client, process: &str, more: Value) -> Value {
    let params = read_params(process, more);
    client.call("process/read", params).await
}

/// Params of `process/read`, with the members of `more` added.
fn read_params(process: &str, more: Value) -> Value {
    let mut params = json!({"processId": process});
    for (name, value) in more.as_object().unwrap() {
        params[name] = value.clone();
    }
    params
}

/// All output in the result of a `process/read`, as text.
fn text(read: &Value) -> String {
    let chunks = read["chunks"].as_array().unwrap();
    chunks.iter().map(|chunk| String::from_utf8(unbase64(&chunk["chunk"])).unwrap()).collect()
}

async fn start_cat(client: &mut Client, process: &str) {
    let mut params = Client::start_params(process, &["cat"]);
    params["pipeStdin"] = json!(true);
    client.call("process/start", params).await;
}

#[tokio::test]
async fn a_closed_process_can_be_read_again_and_again() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.run("p", &["sh", "-c", "echo hi; exit 7"]).await;
    for _ in 0..2 {
        assert_eq!(
            read(&mut client, "p", json!({"waitMs": LONG_MS})).await,
            json!({
                "chunks": [{"seq": 1, "stream": "stdout", "chunk": "aGkK"}], "nextSeq": 4, "exited": true,
                "exitCode": 7, "closed": true, "failure": null, "sandboxDenied": false, "oldestSeq": 1, "exitSeq": 2,
            })
        );
    }
    let rest = read(&mut client, "p", json!({"afterSeq": 3, "waitMs": LONG_MS})).await;
    assert_eq!(
        (&rest["chunks"], &rest["nextSeq"]),
        (&json!([]), &json!(4)),
        "no event can follow, so the read does not wait"
    );
}

#[tokio::test]
async fn a_read_of_a_process_without_output_returns_no_chunks() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.start("p", &["sleep", "100"]).await;
    assert_eq!(
        read(&mut client, "p", json!({"afterSeq": null, "maxBytes": null, "waitMs": null})).await,
        json!({
            "chunks": [], "nextSeq": 1, "exited": false, "exitCode": null, "closed": false, "failure": null,
            "sandboxDenied": false,
        })
    );
}

#[tokio::test]
async fn an_unknown_process_cannot_be_read() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let error = client.call_error("process/read", json!({"processId": "p", "waitMs": LONG_MS})).await;
    assert_eq!(error, json!({"code": -32600, "data": {"kind": "unknownProcess"}, "message": "unknown process id p"}));
    let start = client.send("process/start", Client::start_params("p", &["no-such-program"])).await;
    let waiting = client.send("process/read", json!({"processId": "p", "waitMs": LONG_MS})).await;
    assert_eq!(client.answer(start).await["error"]["code"], -32603);
    assert_eq!(client.answer(waiting).await["error"], error, "the start failed while the read waited for it");
}

#[tokio::test]
async fn after_seq_and_max_bytes_select_the_chunks_of_a_read() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    start_cat(&mut client, "p").await;
    for word in ["aaa", "bbb", "ccc"] {
        client.write("p", word, word).await;
        client.output_until("p", word).await;
    }
    for (after, max, expected, next) in [
        (0, json!(null), "aaabbbccc", 4),
        (1, json!(null), "bbbccc", 4),
        (3, json!(null), "", 4),
        (99, json!(null), "", 4),
        (0, json!(0), "aaa", 2),
        (0, json!(1), "aaa", 2),
        (0, json!(3), "aaa", 2),
        (0, json!(5), "aaa", 2),
        (0, json!(6), "aaabbb", 3),
        (1, json!(8), "bbbccc", 4),
        (2, json!(1_000_000), "ccc", 4),
        (3, json!(1), "", 4),
    ] {
        let page = read(&mut client, "p", json!({"afterSeq": after, "maxBytes": max})).await;
        assert_eq!((text(&page), &page["nextSeq"]), (expected.to_owned(), &json!(next)), "after {after}, max {max}");
    }
    client.close_stdin("p").await;
    client.outcome("p").await;
    let mut cursor = 0;
    let mut collected = String::new();
    loop {
        let page = read(&mut client, "p", json!({"afterSeq": cursor, "maxBytes": 1})).await;
        collected += &text(&page);
        let next = page["nextSeq"].as_u64().unwrap();
        if page["chunks"] == json!([]) {
            assert_eq!((next, &page["closed"], collected.as_str()), (6, &json!(true), "aaabbbccc"));
            break;
        }
        assert_eq!(next, cursor + 2, "a page has one chunk");
        cursor = next - 1;
    }
}

#[tokio::test]
async fn a_read_without_output_waits_for_wait_ms_and_without_wait_ms_not_at_all() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.start("p", &["sleep", "100"]).await;
    let start = Instant::now();
    let page = read(&mut client, "p", json!({"waitMs": 300})).await;
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
    assert_eq!((&page["chunks"], &page["nextSeq"], &page["exited"]), (&json!([]), &json!(1), &json!(false)));
    let start = Instant::now();
    read(&mut client, "p", json!({"waitMs": 0})).await;
    read(&mut client, "p", json!({})).await;
    assert!(start.elapsed() < ANSWER_LIMIT);
}

#[tokio::test]
async fn a_read_waits_for_output_for_the_exit_and_for_the_close() {
    let directory = tempfile::tempdir().unwrap();
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let mut params =
        Client::start_params("p", &["sh", "-c", "mkfifo gate; (read x < gate) & echo hi; read y; exit 3"]);
    params["pipeStdin"] = json!(true);
    params["cwd"] = json!(format!("file://{}", directory.path().display()));
    client.call("process/start", params).await;
    let first = read(&mut client, "p", json!({"waitMs": LONG_MS})).await;
    assert_eq!((text(&first).as_str(), &first["nextSeq"], &first["exited"]), ("hi\n", &json!(2), &json!(false)));

    let exit = client.send("process/read", read_params("p", json!({"afterSeq": 1, "waitMs": LONG_MS}))).await;
    client.write("p", "1", "\n").await;
    let exit = client.answer(exit).await["result"].clone();
    assert_eq!((&exit["exited"], &exit["exitCode"], &exit["closed"]), (&json!(true), &json!(3), &json!(false)));
    assert_eq!((&exit["nextSeq"], &exit["exitSeq"]), (&json!(3), &json!(2)));

    // `afterSeq` of this read is the exit, so the exit does not wake the read. The read waits for the stream that is
    // still open.
    let close = client.send("process/read", read_params("p", json!({"afterSeq": 2, "waitMs": LONG_MS}))).await;
    let short = read(&mut client, "p", json!({"afterSeq": 2, "waitMs": 50})).await;
    assert_eq!((&short["exited"], &short["closed"], &short["nextSeq"]), (&json!(true), &json!(false), &json!(3)));
    std::fs::write(directory.path().join("gate"), "\n").unwrap();
    let close = client.answer(close).await["result"].clone();
    assert_eq!((&close["closed"], &close["nextSeq"]), (&json!(true), &json!(4)));
}

#[tokio::test]
async fn no_waiting_read_misses_new_output() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    start_cat(&mut client, "p").await;
    for n in 0..500_u64 {
        let start = Instant::now();
        let params = read_params("p", json!({"afterSeq": n, "waitMs": LONG_MS}));
        // In even rounds the read is sent first, in odd rounds the write. So the output comes before, while or after
        // the read begins to wait.
        let request = if n % 2 == 0 {
            let request = client.send("process/read", params).await;
            client.write("p", &n.to_string(), "x").await;
            request
        } else {
            client.send_write("p", &n.to_string(), "x").await;
            client.send("process/read", params).await
        };
        let page = client.answer(request).await;
        assert_eq!((text(&page["result"]).as_str(), &page["result"]["nextSeq"]), ("x", &json!(n + 2)));
        assert!(start.elapsed() < ANSWER_LIMIT, "round {n} took {:?}", start.elapsed());
    }
}

#[tokio::test]
async fn one_output_wakes_all_waiting_reads() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    start_cat(&mut client, "p").await;
    let mut requests = Vec::new();
    for _ in 0..50 {
        requests.push(client.send("process/read", read_params("p", json!({"waitMs": LONG_MS}))).await);
    }
    let start = Instant::now();
    client.write("p", "1", "x").await;
    for request in requests {
        assert_eq!(text(&client.answer(request).await["result"]), "x");
    }
    assert!(start.elapsed() < ANSWER_LIMIT);
}

#[tokio::test]
async fn long_reads_delay_no_other_request() {
    let server = TestServer::with_args(&["--concurrent-requests", "32"]).await;
    let mut client = server.client().await;
    client.start("quiet", &["sleep", "100"]).await;
    let start = Instant::now();
    let mut reads = Vec::new();
    for _ in 0..33 {
        reads.push(client.send("process/read", read_params("quiet", json!({"waitMs": LONG_MS}))).await);
    }
    client.call("environment/info", json!({})).await;
    client.call("environment/status", json!({})).await;
    assert_eq!(client.run("other", &["echo", "hi"]).await.stdout, b"hi\n");
    assert_eq!(text(&read(&mut client, "other", json!({"waitMs": LONG_MS})).await), "hi\n");
    let answer = client.call("process/terminate", json!({"processId": "quiet"})).await;
    assert_eq!(answer, json!({"running": true}));
    for request in reads {
        let page = client.answer(request).await["result"].clone();
        assert_eq!((&page["exited"], &page["exitCode"]), (&json!(true), &json!(137)));
    }
    assert!(start.elapsed() < ANSWER_LIMIT, "{:?}", start.elapsed());
}

#[tokio::test]
async fn output_that_is_no_longer_retained_is_a_gap() {
    const TOTAL: usize = 4 << 20;
    let server = TestServer::with_args(&["--retain-bytes", "64KiB"]).await;
    let mut client = server.client().await;
    let outcome = client.run("p", &["head", "-c", &TOTAL.to_string(), "/dev/zero"]).await;
    assert_eq!(outcome.stdout.len(), TOTAL, "pushed output is not limited by the retention");
    let page = read(&mut client, "p", json!({})).await;
    let kept = text(&page).len();
    assert!(kept > 0 && kept <= 64 << 10, "{kept} bytes kept");
    assert_eq!((&page["gap"], &page["droppedBytes"]), (&json!(true), &json!(TOTAL - kept)));
    let oldest = page["oldestSeq"].as_u64().unwrap();
    assert_eq!(page["chunks"][0]["seq"], oldest);
    let rest = read(&mut client, "p", json!({"afterSeq": oldest - 1})).await;
    assert_eq!((rest.get("gap"), rest.get("droppedBytes"), &rest["chunks"]), (None, None, &page["chunks"]));
}

#[tokio::test]
async fn a_first_read_of_many_small_chunks_fits_into_a_message() {
    /// In an answer these chunks take about 68 KB, of which only 1,500 bytes are output.
    const CHUNKS: u64 = 1500;
    let server = TestServer::with_args(&["--max-message-bytes", "64KiB"]).await;
    let mut first = server.client().await;
    start_cat(&mut first, "p").await;
    for seq in 1..=CHUNKS {
        first.call("process/write", json!({"processId": "p", "chunk": "eA==", "writeId": seq.to_string()})).await;
        assert_eq!(first.event("p").await["params"]["seq"], seq, "each byte is an event of its own");
    }
    let session = first.session.clone();
    drop(first);
    let mut second = server.resume(&session).await;
    let page = read(&mut second, "p", json!({})).await;
    let next = page["nextSeq"].as_u64().unwrap();
    assert!((2..=CHUNKS).contains(&next), "the page ends before event {next}");
    for seq in next..=CHUNKS {
        assert_eq!(second.event("p").await["params"]["seq"], seq, "the events after the page follow");
    }
}
