//! Clients that keep all processors busy with work on files.

use std::time::Duration;

use testkit::{TestServer, json};
use tokio::time::timeout;

/// Timeout of one request. Even on a loaded machine a request takes less, unless it waits for all the work on files.
const REQUEST_LIMIT: Duration = Duration::from_secs(20);

const BUSY_CLIENTS: usize = 10;
/// Number of `fs/walk` requests of each client: fewer than the 32 file operations that a session may run at once.
const WALKS: usize = 30;
/// Enough files for a walk to need a processor for some milliseconds.
const FILES: usize = 2_000;

/// Up to this many threads for each processor, the server adds a thread as soon as work on files waits.
const EAGER_THREADS_PER_PROCESSOR: usize = 4;
/// How many further threads the test accepts. The server also adds a thread when work waits and no walk begins for a
/// while, which happens on a loaded machine.
const SLACK_THREADS: usize = 50;

fn threads(server: &TestServer) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap().count()
}

#[tokio::test]
async fn walks_do_not_get_a_thread_each_and_do_not_delay_a_terminate() {
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
    let most_threads = threads(&server) + processors * EAGER_THREADS_PER_PROCESSOR + SLACK_THREADS;

    let options = json!({"maxDepth": 2, "maxDirectories": 10, "maxEntries": FILES, "followDirectorySymlinks": false});
    let mut walks = Vec::new();
    for client in &mut busy {
        for _ in 0..WALKS {
            walks.push(client.send("fs/walk", json!({"path": uri, "options": options})).await);
        }
    }
    let terminated = timeout(REQUEST_LIMIT, other.call("process/terminate", json!({"processId": "p"}))).await;
    assert_eq!(terminated.expect("the request is not answered"), json!({"running": true}));
    let mut peak_threads = 0;
    for (client, walks) in busy.iter_mut().zip(walks.chunks(WALKS)) {
        for walk in walks {
            peak_threads = peak_threads.max(threads(&server));
            let answer = client.answer(*walk).await;
            assert_eq!(answer["result"]["entries"].as_array().map(Vec::len), Some(FILES), "{:?}", answer["error"]);
        }
    }
    assert!(peak_threads <= most_threads, "{peak_threads} threads");
}
