//! Hundreds of `process/terminate` requests at the same time.

use testkit::{TestServer, json, process_state};

const PROCESSES: usize = 400;

/// Time for which the server tries to kill a process and its descendants. All terminates of the test together need
/// much less. They would need much more if each of them scanned all processes of the machine.
const KILL_PATIENCE: &str = "1s";

#[tokio::test]
async fn hundreds_of_terminates_at_once_all_succeed() {
    let server = TestServer::with_args(&["--kill-patience", KILL_PATIENCE]).await;
    let mut client = server.client().await;
    let ids: Vec<String> = (0..PROCESSES).map(|number| format!("p{number}")).collect();
    for id in &ids {
        client.start(id, &["/usr/bin/sleep", "1000"]).await;
    }
    let pids: Vec<u32> = testkit::descendants(server.pid());
    let mut terminates = Vec::new();
    for id in &ids {
        terminates.push(client.send("process/terminate", json!({"processId": id})).await);
    }
    for request in terminates {
        assert_eq!(client.answer(request).await["result"], json!({"running": true}));
    }
    let left = pids.iter().filter(|pid| process_state(**pid).is_some()).count();
    // The guard, which kills all processes if the server dies, is a child of the server too.
    assert_eq!(left, 1, "only the guard is left");
}
