//! A server that starts with a low soft limit of open files, as most servers do, or that has no descriptor left.

use std::time::Duration;

use testkit::{Client, TestServer, binary, eventually_async, is_alive, json, open_fds, process_state};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::timeout;

const SOFT: usize = 128;
const HARD: usize = 4096;

/// Each process needs more than one descriptor of the server.
const PROCESSES: usize = SOFT;

/// So few descriptors that other connections soon use them up.
const FEW: usize = 96;

/// Late enough that all descriptors are in use by then.
const TIMEOUT_MS: u64 = 3_000;

/// Shorter than the time after which the server closes connections that send nothing, which would free descriptors.
const KILL_PATIENCE: &str = "1s";

/// Nothing here takes this long, even on a loaded machine, unless it waits for a descriptor.
const AT_LAST: Duration = Duration::from_secs(20);

/// Prints the pids of two processes: the leader, and one that has left its process group and its session.
const TREE: &str = "setsid sleep 1000 & echo $!; echo $$; wait";

fn with_limits(soft: usize, hard: usize) -> Command {
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile={soft}:{hard}")).arg(binary()).args(["--kill-patience", KILL_PATIENCE]);
    command
}

#[tokio::test]
async fn the_server_raises_its_soft_limit_of_descriptors_and_processes_get_the_old_one() {
    let server = TestServer::launch(with_limits(SOFT, HARD), &[]).await;
    let mut client = server.client().await;
    for number in 0..PROCESSES {
        client.start(&format!("p{number}"), &["sleep", "1000"]).await;
    }
    assert!(open_fds(server.pid()) > SOFT);
    for number in 0..10 {
        let said = client.run(&format!("limits{number}"), &["sh", "-c", "ulimit -Sn; ulimit -Hn"]).await;
        assert_eq!(String::from_utf8_lossy(&said.stdout), format!("{SOFT}\n{HARD}\n"));
    }
}

/// Starts a tree and returns the pids of its processes.
async fn start_tree(client: &mut Client, id: &str, timeout_ms: Option<u64>) -> Vec<u32> {
    let mut params = Client::start_params(id, &["sh", "-c", TREE]);
    params["timeoutMs"] = json!(timeout_ms);
    client.call("process/start", params).await;
    let mut said = Vec::new();
    while said.iter().filter(|byte| **byte == b'\n').count() < 2 {
        let event = client.event(id).await;
        said.extend(protocol::decode_base64(event["params"]["chunk"].as_str().unwrap()).unwrap());
    }
    String::from_utf8(said).unwrap().lines().map(|pid| pid.parse().unwrap()).collect()
}

async fn until_gone(pids: &[u32]) {
    eventually_async("the tree is gone", async || pids.iter().all(|pid| process_state(*pid).is_none()).then_some(()))
        .await;
}

#[tokio::test]
async fn whole_trees_are_ended_while_no_descriptor_is_free() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let mut command = with_limits(FEW, FEW);
    command.stderr(std::fs::File::create(&log).unwrap());
    let server = TestServer::launch(command, &[]).await;
    let mut client = server.client().await;
    let terminated = start_tree(&mut client, "terminated", None).await;
    let timed = start_tree(&mut client, "timed", Some(TIMEOUT_MS)).await;
    // Every descriptor that the server closes from here on goes to a connection that waits to be accepted.
    let mut strangers = Vec::new();
    for _ in 0..FEW * 2 {
        strangers.push(TcpStream::connect(server.address()).await.unwrap());
    }
    eventually_async("all descriptors are in use", async || (open_fds(server.pid()) >= FEW).then_some(())).await;

    let params = json!({"processId": "terminated"});
    let answer =
        timeout(AT_LAST, client.request("process/terminate", params)).await.expect("the request is answered");
    assert_eq!(answer["result"], json!({"running": true}), "{answer}");
    assert!(terminated.iter().all(|pid| process_state(*pid).is_none()), "{terminated:?}");
    let outcome = timeout(AT_LAST, client.outcome("timed")).await.expect("the timeout ends the process");
    assert!(outcome.timed_out);
    until_gone(&timed).await;
    let lines = std::fs::read_to_string(&log).unwrap().matches("cannot accept a connection").count();
    assert!((1..=5).contains(&lines), "{lines} lines in the log");
}

#[tokio::test]
async fn a_lowered_limit_applies_to_new_processes_and_old_ones_can_still_be_ended() {
    let server = TestServer::launch(with_limits(SOFT, HARD), &[]).await;
    let mut client = server.client().await;
    let pids = start_tree(&mut client, "tree", None).await;
    set_limits(&server, FEW, FEW).await;
    let said = client.run("limits", &["sh", "-c", "ulimit -Sn; ulimit -Hn"]).await;
    assert_eq!(String::from_utf8_lossy(&said.stdout), format!("{FEW}\n{FEW}\n"));

    // Every number below this limit is in use.
    set_limits(&server, 5, 5).await;
    let refused = client.call_error("process/start", Client::start_params("q", &["true"])).await;
    assert_eq!(refused["data"]["errno"], rustix::io::Errno::MFILE.raw_os_error(), "{refused}");
    let answer = timeout(AT_LAST, client.request("process/terminate", json!({"processId": "tree"}))).await;
    assert_eq!(answer.expect("the request is answered")["result"], json!({"running": true}));
    assert!(pids.iter().all(|pid| process_state(*pid).is_none()), "{pids:?}");
}

async fn set_limits(server: &TestServer, soft: usize, hard: usize) {
    let mut command = Command::new("prlimit");
    command.args([format!("--nofile={soft}:{hard}"), "--pid".into(), server.pid().to_string()]);
    assert!(command.status().await.unwrap().success());
}

#[tokio::test]
async fn a_timeout_that_could_not_read_proc_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let file = std::fs::File::create(&log).unwrap();
    let args = ["--kill-patience", "100ms"];
    let server = TestServer::with(&args, |command| command.stderr(file)).await;
    let mut client = server.client().await;
    let pids = start_tree(&mut client, "p", Some(500)).await;
    // No thread of the server can open a descriptor.
    set_limits(&server, 0, HARD).await;
    let exited = timeout(AT_LAST, client.take(|message| message["method"] == "process/exited")).await;
    let exited = exited.expect("the process group of the leader can be ended all the same");
    assert_eq!(exited["params"]["timedOut"], true);
    let text = async || std::fs::read_to_string(&log).unwrap().contains("cannot list processes").then_some(());
    eventually_async("the log tells of it", text).await;
    assert!(is_alive(pids[0]), "this process could not be found");
    set_limits(&server, HARD, HARD).await;
    until_gone(&pids).await;
}

/// From the first limit with which the program can be loaded to one with which it can listen.
const TOO_FEW: std::ops::Range<usize> = 5..17;

#[tokio::test]
async fn with_too_few_descriptors_nothing_panics() {
    let as_client = ["run", "--", "true"];
    // The server refuses to listen there without tokens, so it ends by itself even if it comes that far.
    let as_server = ["--listen", "ws://0.0.0.0:0"];
    for descriptors in TOO_FEW {
        for args in [&as_client[..], &as_server] {
            let mut command = Command::new("prlimit");
            command.arg(format!("--nofile={descriptors}:{descriptors}")).arg(binary()).args(args).kill_on_drop(true);
            let output = timeout(AT_LAST, command.output()).await.expect("the server ends").unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(125), "{args:?} with {descriptors} descriptors: {said}");
            assert!(said.starts_with("exec-server: ") && said.lines().count() == 1, "{said}");
        }
    }
}
