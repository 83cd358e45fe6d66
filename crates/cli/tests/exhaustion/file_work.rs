//! Clients that keep all processors busy with work on files.

use std::time::Duration;

use testkit::{TestServer, json};
use tokio::time::timeout;

/// Limit for one request. Even on a loaded machine a request takes less, unless it waits for all the work on files.
const REQUEST_LIMIT: Duration = Duration::from_secs(20);

const BUSY_CLIENTS: usize = 10;
/// Number of `fs/walk` requests of each client. Less than the limit of a session.
const WALKS: usize = 30;
/// Enough files for a walk to need a processor for some milliseconds.
const FILES: usize = 2_000;

/// How many threads for each processor the server adds at once when work waits.
const AT_ONCE_PER_PROCESSOR: usize = 4;
/// How many further threads the test accepts. The server adds a thread when no walk begins for a while, which happens on a
/// loaded machine.
const SLACK: usize = 50;

fn threads(server: &TestServer) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap().count()
}

#[tokio::test]
async fn work_on_files_does_not_get_a_thread_for_each_request() {
    let directory = tempfile::tempdir().unwrap();
    for number in 0..FILES {
        std::fs::write(directory.path().join(number.to_string()), "").unwrap();
    }
    let uri = format!("file://{}", directory.path().display());
    let server = TestServer::start().await;
    let mut other = server.client().await;
    other.start("p", &["sleep", "1000"]).await;
    let mut busy = Vec::new();
    for _ in 0..BUSY_CLIENTS {
        busy.push(server.client().await);
    }
    let processors = std::thread::available_parallelism().unwrap().get();
    let most_threads = threads(&server) + processors * AT_ONCE_PER_PROCESSOR + SLACK;

    let options = json!({"maxDepth": 2, "maxDirectories": 10, "maxEntries": FILES, "followDirectorySymlinks": false});
    let mut walks = Vec::new();
    for client in &mut busy {
        for _ in 0..WALKS {
            walks.push(client.send("fs/walk", json!({"path": uri, "options": options})).await);
        }
    }
    let terminated = timeout(REQUEST_LIMIT, other.call("process/terminate", json!({"processId": "p"}))).await;
    assert_eq!(terminated.expect("the request is not answered"), json!({"running": true}));
    let mut seen_threads = 0;
    for (client, walks) in busy.iter_mut().zip(walks.chunks(WALKS)) {
        for walk in walks {
            seen_threads = seen_threads.max(threads(&server));
            let answer = client.answer(*walk).await;
            assert_eq!(answer["result"]["entries"].as_array().map(Vec::len), Some(FILES), "{:?}", answer["error"]);
        }
    }
    assert!(seen_threads <= most_threads, "{seen_threads} threads");
}
