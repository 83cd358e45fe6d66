//! A server that can create no thread and no process, because its user has reached the limit of processes.

use std::time::Duration;

use rustix::process::geteuid;
use tempfile::TempDir;
use testkit::{Signal, TestServer, Value, eventually_async, json};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::time::timeout;

/// Timeout of one operation. Even on a loaded machine an operation takes less, unless it waits for a thread.
const OPERATION_LIMIT: Duration = Duration::from_secs(20);

/// User ids from here on are for this test only. No real user has them.
const FIRST_USER: u32 = 1_700_000_000;

/// The user id of the server under test. No other test process uses it while this process runs.
fn user() -> u32 {
    FIRST_USER + std::process::id()
}

/// Allows the user of the server only one thread, so that the server can create no further thread. `prlimit` runs as
/// the user of the server, because root in a container may not be allowed to change the limits of other users'
/// processes.
async fn allow_no_more_threads(server: &TestServer) {
    let mut command = Command::new("prlimit");
    command.args(["--nproc=1:1", "--pid", &server.pid().to_string()]).uid(user()).gid(user());
    assert!(command.status().await.unwrap().success());
}

#[tokio::test]
async fn a_server_that_can_create_no_threads_answers_requests_kills_and_forgets_processes_and_shuts_down() {
    // Only root can start the server as another user, and the limit does not apply to root.
    if !geteuid().is_root() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let unused_port = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let args = ["--process-retention", "1s", "--retain-bytes", "8MiB"];
    let mut server = TestServer::start_as_user(user(), directory.path(), &args).await;
    let mut client = server.client().await;
    client.start("p", &["sleep", "1000"]).await;
    // A task of the server, the janitor, forgets closed processes. This output is so large that the janitor returns
    // memory to the system afterwards.
    client.start("large", &["head", "-c", "6000000", "/dev/zero"]).await;
    allow_no_more_threads(&server).await;

    let refused = client.call_error("process/start", testkit::Client::start_params("q", &["true"])).await;
    assert_eq!(refused["data"]["kind"], "resourceTemporarilyUnavailable", "{refused}");
    let folder = json!({"path": format!("file://{}/made", directory.path().display())});
    assert_eq!(answer(&mut client, "fs/createDirectory", folder).await["result"], json!({}));
    let search = json!({"searchId": "s", "path": format!("file://{}", directory.path().display()), "pattern": "x"});
    let searched = answer(&mut client, "fs/search", search).await;
    assert!(searched.get("result").is_some(), "{searched}");
    let watch = json!({"watchId": "w", "path": format!("file://{}", directory.path().display())});
    // A watch may fail, because it needs a thread of its own, but the request must be answered.
    answer(&mut client, "fs/watch", watch).await;
    let url = format!("http://{}/", unused_port.local_addr().unwrap());
    drop(unused_port);
    let request = json!({"method": "GET", "url": url, "requestId": "r", "timeoutMs": 5_000});
    let failed = answer(&mut client, "http/request", request).await;
    assert_eq!(failed["error"]["data"]["kind"], "connect", "{failed}");

    client.outcome("large").await;
    wait_until_forgotten(&mut client, "large").await;
    // Half a second after the janitor has forgotten a large process, it returns memory. After that it must still
    // forget `p`.
    let params = json!({"processId": "p"});
    assert_eq!(answer(&mut client, "process/terminate", params).await["result"], json!({"running": true}));
    wait_until_forgotten(&mut client, "p").await;

    server.signal(Signal::TERM);
    let code = timeout(OPERATION_LIMIT, server.wait()).await.expect("the server does not end");
    assert_eq!(code, Some(0));
}

/// Sends a request and returns the whole answer.
async fn answer(client: &mut testkit::Client, method: &str, params: Value) -> Value {
    let answer = timeout(OPERATION_LIMIT, client.request(method, params)).await;
    answer.unwrap_or_else(|_| panic!("{method} is not answered"))
}

async fn wait_until_forgotten(client: &mut testkit::Client, process: &str) {
    eventually_async("the closed process is forgotten", async || {
        let list = client.processes().await;
        let is_listed = list.as_array().unwrap().iter().any(|entry| entry["processId"] == process);
        (!is_listed).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_server_that_gets_too_few_threads_says_so_and_ends() {
    if !geteuid().is_root() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let binary = testkit::binary_for_all_users(directory.path());
    for limit in [2, 3, 8, 13] {
        // Another user than that of the test above.
        let user = user() + 50_000_000;
        let mut command = Command::new("prlimit");
        command.arg(format!("--nproc={limit}:{limit}")).arg(&binary).args(["--listen", "stdio"]);
        command.uid(user).gid(user).current_dir("/").stdin(std::process::Stdio::null());
        let ended = timeout(OPERATION_LIMIT, command.output()).await.unwrap().unwrap();
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert!(stderr.contains("ulimit -u") && !stderr.contains("panicked"), "{limit}: {stderr}");
        assert_eq!(ended.status.code(), Some(125), "{limit}: {stderr}");
    }
}
