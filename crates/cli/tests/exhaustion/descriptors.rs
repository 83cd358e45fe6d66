//! Limits of open files, and so of descriptors: a server that starts with a low soft limit, a server without a free
//! descriptor, a server whose limit is lowered while it runs, and a program that has too few descriptors to start.

use std::time::Duration;

use testkit::{Client, TestServer, binary, eventually_async, is_alive, json, open_fds, process_state};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::timeout;

/// Soft and hard limit of open files with which a server starts.
const SOFT: usize = 128;
const HARD: usize = 4096;

/// Each process needs more than one descriptor of the server, so this many processes need more than [`SOFT`].
const PROCESSES: usize = SOFT;

/// A limit of open files that is so low that a test can use up all descriptors with connections.
const LOW: usize = 96;

/// Timeout of a process. It is so long that all descriptors are in use when it is reached.
const TIMEOUT_MS: u64 = 3_000;

/// How long the server waits until a killed process and its descendants have ended. Connections that send nothing are
/// closed after 10 s, which frees descriptors. With this shorter time, a kill that waits for a descriptor fails.
const KILL_PATIENCE: &str = "1s";

/// Timeout of one operation. Even on a loaded machine an operation takes less, unless it waits for a descriptor.
const OPERATION_LIMIT: Duration = Duration::from_secs(20);

/// A shell script that makes a tree of two processes: the shell, and its child `sleep` in another session (of Linux,
/// not of the server). It prints the pid of the child, then the pid of the shell.
const TREE: &str = "setsid sleep 1000 & echo $!; echo $$; wait";

/// A command that starts a server with these limits of open files.
fn server_with_limits(soft: usize, hard: usize) -> Command {
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile={soft}:{hard}")).arg(binary()).args(["--kill-patience", KILL_PATIENCE]);
    command
}

#[tokio::test]
async fn the_server_raises_its_soft_limit_of_descriptors_and_processes_get_the_original_limit() {
    let server = TestServer::launch(server_with_limits(SOFT, HARD), &[]).await;
    let mut client = server.client().await;
    for number in 0..PROCESSES {
        client.start(&format!("p{number}"), &["sleep", "1000"]).await;
    }
    assert!(open_fds(server.pid()) > SOFT);
    for number in 0..10 {
        let outcome = client.run(&format!("limits{number}"), &["sh", "-c", "ulimit -Sn; ulimit -Hn"]).await;
        assert_eq!(String::from_utf8_lossy(&outcome.stdout), format!("{SOFT}\n{HARD}\n"));
    }
}

/// Starts [`TREE`] and returns the pids that it prints: child and shell.
async fn start_tree(client: &mut Client, id: &str, timeout_ms: Option<u64>) -> Vec<u32> {
    let mut params = Client::start_params(id, &["sh", "-c", TREE]);
    params["timeoutMs"] = json!(timeout_ms);
    client.call("process/start", params).await;
    let mut output = Vec::new();
    while output.iter().filter(|byte| **byte == b'\n').count() < 2 {
        let event = client.event(id).await;
        output.extend(protocol::decode_base64(event["params"]["chunk"].as_str().unwrap()).unwrap());
    }
    String::from_utf8(output).unwrap().lines().map(|pid| pid.parse().unwrap()).collect()
}

async fn wait_until_gone(pids: &[u32]) {
    eventually_async("the tree is gone", async || pids.iter().all(|pid| process_state(*pid).is_none()).then_some(()))
        .await;
}

#[tokio::test]
async fn process_trees_are_killed_and_the_log_stays_short_while_no_descriptor_is_free() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let mut command = server_with_limits(LOW, LOW);
    command.stderr(std::fs::File::create(&log).unwrap());
    let server = TestServer::launch(command, &[]).await;
    let mut client = server.client().await;
    let terminated = start_tree(&mut client, "terminated", None).await;
    let with_timeout = start_tree(&mut client, "timed", Some(TIMEOUT_MS)).await;
    // More connections than descriptors: when the server closes a descriptor, the next waiting connection takes it.
    let mut idle_connections = Vec::new();
    for _ in 0..LOW * 2 {
        idle_connections.push(TcpStream::connect(server.address()).await.unwrap());
    }
    eventually_async("all descriptors are in use", async || (open_fds(server.pid()) >= LOW).then_some(())).await;

    let params = json!({"processId": "terminated"});
    let answer =
        timeout(OPERATION_LIMIT, client.request("process/terminate", params)).await.expect("no answer to terminate");
    assert_eq!(answer["result"], json!({"running": true}), "{answer}");
    assert!(terminated.iter().all(|pid| process_state(*pid).is_none()), "{terminated:?}");
    let outcome =
        timeout(OPERATION_LIMIT, client.outcome("timed")).await.expect("the timeout does not end the process");
    assert!(outcome.timed_out);
    wait_until_gone(&with_timeout).await;
    let lines = std::fs::read_to_string(&log).unwrap().matches("cannot accept a connection").count();
    assert!((1..=5).contains(&lines), "{lines} lines in the log");
}

#[tokio::test]
async fn a_lowered_limit_of_descriptors_applies_to_new_processes_and_running_processes_can_still_be_killed() {
    let server = TestServer::launch(server_with_limits(SOFT, HARD), &[]).await;
    let mut client = server.client().await;
    let pids = start_tree(&mut client, "tree", None).await;
    set_limits(&server, LOW, LOW).await;
    let outcome = client.run("limits", &["sh", "-c", "ulimit -Sn; ulimit -Hn"]).await;
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), format!("{LOW}\n{LOW}\n"));

    // The server uses all descriptor numbers below 5, so with this limit it can open no further descriptor.
    set_limits(&server, 5, 5).await;
    let refused = client.call_error("process/start", Client::start_params("q", &["true"])).await;
    assert_eq!(refused["data"]["errno"], rustix::io::Errno::MFILE.raw_os_error(), "{refused}");
    let answer = timeout(OPERATION_LIMIT, client.request("process/terminate", json!({"processId": "tree"}))).await;
    assert_eq!(answer.expect("no answer to terminate")["result"], json!({"running": true}));
    assert!(pids.iter().all(|pid| process_state(*pid).is_none()), "{pids:?}");
}

async fn set_limits(server: &TestServer, soft: usize, hard: usize) {
    let mut command = Command::new("prlimit");
    command.args([format!("--nofile={soft}:{hard}"), "--pid".into(), server.pid().to_string()]);
    assert!(command.status().await.unwrap().success());
}

#[tokio::test]
async fn a_kill_after_a_timeout_is_retried_if_proc_could_not_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let file = std::fs::File::create(&log).unwrap();
    let args = ["--kill-patience", "100ms"];
    let server = TestServer::start_with(&args, |command| command.stderr(file)).await;
    let mut client = server.client().await;
    let pids = start_tree(&mut client, "p", Some(500)).await;
    // With a soft limit of 0, no thread of the server can open a descriptor.
    set_limits(&server, 0, HARD).await;
    let exited = timeout(OPERATION_LIMIT, client.take(|message| message["method"] == "process/exited")).await;
    let exited = exited.expect("the server does not kill the process group of the shell");
    assert_eq!(exited["params"]["timedOut"], true);
    let failure_is_logged =
        async || std::fs::read_to_string(&log).unwrap().contains("cannot list processes").then_some(());
    eventually_async("the failure is in the log", failure_is_logged).await;
    assert!(is_alive(pids[0]), "the child in the other session was killed although /proc cannot be read");
    set_limits(&server, HARD, HARD).await;
    wait_until_gone(&pids).await;
}

/// Limits of open files with which `run` fails. All of them are high enough for the program to be loaded, and the
/// highest may be enough for a server to listen.
const TOO_FEW: std::ops::Range<usize> = 5..17;

#[tokio::test]
async fn with_too_few_descriptors_the_program_ends_with_one_line_of_error() {
    let as_client = ["run", "--", "true"];
    // Without tokens a server refuses to listen on this address. So it ends even if it has enough descriptors to
    // listen.
    let as_server = ["--listen", "ws://0.0.0.0:0"];
    for descriptors in TOO_FEW {
        for args in [&as_client[..], &as_server] {
            let mut command = Command::new("prlimit");
            command.arg(format!("--nofile={descriptors}:{descriptors}")).arg(binary()).args(args).kill_on_drop(true);
            let output = timeout(OPERATION_LIMIT, command.output()).await.expect("the program does not end").unwrap();
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(125), "{args:?} with {descriptors} descriptors: {stderr}");
            assert!(stderr.starts_with("exec-server: ") && stderr.lines().count() == 1, "{stderr}");
        }
    }
}
