//! Limits for the output that the server retains, so that a client that reconnects can read it. `--detached-hold` is
//! how long a process waits for a client that was lost, instead of losing its oldest output.

use protocol::decode_base64;
use testkit::{Client, TestServer, Value, eventually, eventually_async, json, resident_bytes};

use crate::metric;

/// The output in an answer to `process/read`.
fn output(page: &Value) -> Vec<u8> {
    let chunks = page["chunks"].as_array().unwrap().iter();
    chunks.flat_map(|chunk| decode_base64(chunk["chunk"].as_str().unwrap()).unwrap()).collect()
}

#[tokio::test]
async fn output_beyond_retain_bytes_is_dropped_while_detached_and_the_gap_is_reported() {
    let server = TestServer::with_args(&["--retain-bytes", "64KiB", "--detached-hold", "0s"]).await;
    let mut client = server.client().await;
    let session = client.session.clone();
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go");
    let script = format!("until [ -e {} ]; do sleep 0.01; done; seq 100000 200000", go.display());
    client.start("p", &["sh", "-c", &script]).await;
    drop(client);
    let connections = "exec_server_connections_active{transport=\"websocket\"}";
    eventually_async("the connection of the client has ended", async || {
        (metric(&server, connections).await == 0).then_some(())
    })
    .await;
    std::fs::write(&go, "").unwrap();
    eventually_async("the process ends without a reader", async || {
        (metric(&server, "exec_server_processes_active").await == 0).then_some(())
    })
    .await;

    let mut client = server.resume(&session).await;
    let page = eventually_async("the process is closed", async || {
        let page = client.call("process/read", json!({"processId": "p"})).await;
        (page["closed"] == true).then_some(page)
    })
    .await;
    assert_eq!(page["gap"], true, "{page}");
    let kept = output(&page);
    let total: usize = 7 * 100_001;
    let dropped = page["droppedBytes"].as_u64().unwrap() as usize;
    assert_eq!(kept.len() + dropped, total);
    assert!(kept.len() <= 64 << 10, "{} bytes are kept", kept.len());
    assert!(!kept.is_empty() && kept.ends_with(b"199999\n200000\n"), "the newest output is kept");
    let oldest = page["oldestSeq"].as_u64().unwrap();
    assert!(oldest > 1);
    assert_eq!(page["chunks"][0]["seq"], oldest);
    let without_gap = client.call("process/read", json!({"processId": "p", "afterSeq": oldest - 1})).await;
    assert_eq!((without_gap.get("gap"), without_gap.get("droppedBytes")), (None, None));
    // The metric counts only output that the client may not have received, so it may be lower.
    assert!(metric(&server, "exec_server_output_dropped_bytes_total").await >= dropped as u64 / 2);
}

#[tokio::test]
async fn no_output_is_dropped_before_the_detached_hold_ends() {
    // The default of `--detached-hold`, 25 s, is longer than this test.
    let server = TestServer::with_args(&["--retain-bytes", "64KiB"]).await;
    let mut client = server.client().await;
    let session = client.session.clone();
    client.start("p", &["seq", "100000", "200000"]).await;
    drop(client);
    let mut client = server.resume(&session).await;
    // The read tells the server which events the client has. Later events follow as notifications.
    let page = client.call("process/read", json!({"processId": "p"})).await;
    assert_eq!((page.get("gap"), &page["closed"]), (None, &json!(false)));
    let rest = client.outcome("p").await;
    assert_eq!(output(&page).len() + rest.stdout.len(), 7 * 100_001);
}

#[tokio::test]
async fn a_connected_client_gets_all_output_although_the_total_limit_is_reached() {
    /// Number of processes. Even when the total limit is reached, each process may have 64 KiB of unread output. So
    /// 120 processes can write 16 MiB and 120 times 64 KiB, about 24 MB, before all of them must wait. The test waits
    /// below for 20 MB.
    const PROCESSES: usize = 120;
    /// Output of each process: less than the limit for one process. The output of all processes together exceeds the
    /// total limit.
    const BYTES: usize = 1_000_000;
    let server = TestServer::with_args(&["--retain-total-bytes", "16MiB"]).await;
    let mut client = server.client().await;
    for n in 0..PROCESSES {
        let argv = ["head", "-c", &BYTES.to_string(), "/dev/zero"];
        client.send("process/start", Client::start_params(&format!("p{n}"), &argv)).await;
    }
    eventually_async("the limit is reached while the client reads nothing", async || {
        (metric(&server, "exec_server_output_bytes_total").await > 20_000_000).then_some(())
    })
    .await;
    for n in 0..PROCESSES {
        assert_eq!(client.outcome(&format!("p{n}")).await.stdout.len(), BYTES);
    }
    assert_eq!(metric(&server, "exec_server_output_dropped_bytes_total").await, 0);
}

#[tokio::test]
async fn output_of_closed_processes_that_a_broken_connection_has_lost_can_be_read_again() {
    const PROCESSES: usize = 30;
    let server = TestServer::with_args(&["--retain-total-bytes", "4MiB"]).await;
    let mut client = server.client().await;
    let session = client.session.clone();
    for n in 0..PROCESSES {
        let argv = ["head", "-c", "300000", "/dev/zero"];
        client.send("process/start", Client::start_params(&format!("p{n}"), &argv)).await;
    }
    eventually_async("the limit is reached while the client reads nothing", async || {
        (metric(&server, "exec_server_output_bytes_total").await > 4_300_000).then_some(())
    })
    .await;
    drop(client);
    let mut client = server.resume(&session).await;
    for n in 0..PROCESSES {
        let page = client.call("process/read", json!({"processId": format!("p{n}")})).await;
        assert_eq!(page.get("gap"), None, "process {n} has lost {} bytes", page["droppedBytes"]);
    }
}

#[tokio::test]
async fn all_processes_together_retain_no_more_than_the_limit() {
    let server = TestServer::with_args(&["--retain-total-bytes", "4MiB", "--detached-hold", "0s"]).await;
    let mut client = server.client().await;
    client.run("warm-up", &["head", "-c", "1MiB", "/dev/zero"]).await;
    let before = resident_bytes(server.pid());
    for n in 0..64 {
        let outcome = client.run(&format!("p{n}"), &["head", "-c", "1048576", "/dev/zero"]).await;
        assert_eq!(outcome.stdout.len(), 1 << 20, "a client that reads gets all output");
    }
    let mut kept = 0;
    for n in 0..64 {
        let page = client.call("process/read", json!({"processId": format!("p{n}")})).await;
        kept += output(&page).len();
        if output(&page).len() < 1 << 20 {
            assert_eq!(page["gap"], true);
        }
    }
    assert!((1..=4 << 20).contains(&kept), "{kept} bytes are kept");
    eventually("the memory of the server shrinks", || {
        (resident_bytes(server.pid()) < before + (16 << 20)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn closed_processes_that_are_paused_retain_no_more_than_the_limit() {
    const PROCESSES: usize = 200;
    let server = TestServer::with_args(&["--retain-total-bytes", "4MiB"]).await;
    let mut client = server.client().await;
    for n in 0..PROCESSES {
        let mut params = Client::start_params(&format!("p{n}"), &["head", "-c", "60000", "/dev/zero"]);
        params["paused"] = json!(true);
        client.call("process/start", params).await;
    }
    eventually_async("all processes have ended", async || {
        (metric(&server, "exec_server_processes_active").await == 0).then_some(())
    })
    .await;
    // The server checks the limit when a process writes output.
    client.run("last", &["echo"]).await;
    let mut kept = 0;
    for n in 0..PROCESSES {
        let page = client.call("process/read", json!({"processId": format!("p{n}")})).await;
        kept += output(&page).len();
    }
    assert!(kept <= 4 << 20, "{kept} bytes are kept");
}

#[tokio::test]
async fn a_closed_process_is_forgotten_after_its_retention() {
    let server = TestServer::with_args(&["--process-retention", "300ms"]).await;
    let mut client = server.client().await;
    client.run("p", &["echo", "hello"]).await;
    let page = client.call("process/read", json!({"processId": "p"})).await;
    assert_eq!(output(&page), b"hello\n");
    let error = eventually_async("the process is forgotten", async || {
        client.request("process/read", json!({"processId": "p"})).await.get("error").cloned()
    })
    .await;
    assert_eq!(error, json!({"code": -32600, "data": {"kind": "unknownProcess"}, "message": "unknown process id p"}));
    assert_eq!(client.run("p", &["true"]).await.exit_code, 0, "the id of a forgotten process can be used again");
}

#[tokio::test]
async fn a_closed_process_is_not_forgotten_before_a_slow_client_was_sent_its_output() {
    /// The output of all processes together is larger than the buffers of two sockets, so most of it waits in the server.
    const PROCESSES: usize = 32;
    const BYTES: usize = 1_000_000;
    let server = TestServer::with_args(&["--process-retention", "100ms"]).await;
    let mut client = server.client().await;
    for n in 0..PROCESSES {
        let argv = ["head", "-c", &BYTES.to_string(), "/dev/zero"];
        client.send("process/start", Client::start_params(&format!("p{n}"), &argv)).await;
    }
    eventually_async("all processes end while the client reads nothing", async || {
        let is_written = metric(&server, "exec_server_output_bytes_total").await == (PROCESSES * BYTES) as u64;
        (is_written && metric(&server, "exec_server_processes_active").await == 0).then_some(())
    })
    .await;
    // This process closes after the others. When it is forgotten, the retention of the others is over too.
    let mut other = server.client().await;
    other.run("later", &["true"]).await;
    eventually_async("the later process is forgotten", async || {
        other.request("process/read", json!({"processId": "later"})).await.get("error").cloned()
    })
    .await;

    for n in 0..PROCESSES {
        assert_eq!(client.outcome(&format!("p{n}")).await.stdout.len(), BYTES, "output of process {n}");
    }
    eventually_async("the processes are forgotten when their output was sent", async || {
        let list = client.call("process/list", json!({})).await;
        list["processes"].as_array().unwrap().is_empty().then_some(())
    })
    .await;
    assert_eq!(metric(&server, "exec_server_output_dropped_bytes_total").await, 0);
}

#[tokio::test]
async fn output_that_no_client_came_back_for_is_counted_when_its_process_is_forgotten() {
    let server = TestServer::with_args(&["--process-retention", "100ms"]).await;
    let mut client = server.client().await;
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go");
    let script = format!("until [ -e {} ]; do sleep 0.01; done; seq 100000 200000", go.display());
    client.start("p", &["sh", "-c", &script]).await;
    drop(client);
    eventually_async("the client is disconnected", async || {
        let connections = metric(&server, "exec_server_connections_active{transport=\"websocket\"}").await;
        (connections == 0).then_some(())
    })
    .await;
    std::fs::write(&go, "").unwrap();
    eventually_async("the output is counted as dropped", async || {
        (metric(&server, "exec_server_output_dropped_bytes_total").await == 7 * 100_001).then_some(())
    })
    .await;
}
