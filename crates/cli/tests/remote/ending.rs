//! How an executor ends, and what is left of it: nothing, and a client that knows why.

use std::process::Stdio;
use std::time::Duration;

use testkit::service::{Leg, Operation, RegistryAnswer};
use testkit::{Signal, TestService, descendants, eventually, is_alive};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::support::{CommandEnd, RemoteFixture, wait_for_end};

/// Starts a command, and waits until it has printed `ready`. Further output goes to the pipe.
async fn until_ready(command: &mut Command) -> (Child, tokio::io::Lines<BufReader<tokio::process::ChildStdout>>) {
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));
    (child, lines)
}

/// The registry says from now on that it does not know the environment. Clients believe that at once, while they wait for
/// an environment that is only offline.
fn forget_environment(remote: &RemoteFixture) {
    let body = r#"{"error": {"code": "environment_not_found", "message": "there is no such environment"}}"#;
    let answer = RegistryAnswer::Status(404, body.to_owned());
    remote.service.answer_next(Operation::Connect, 1000, answer);
}

async fn assert_all_end(processes: &[u32]) {
    eventually("no process is left", || (!processes.iter().copied().any(is_alive)).then_some(())).await;
}

#[tokio::test]
async fn sigterm_ends_processes_and_tells_clients() {
    let mut remote = RemoteFixture::start().await;
    let script = "trap 'echo bye; exit 4' TERM; echo ready; while :; do sleep 0.05; done";
    let (child, mut lines) = until_ready(&mut remote.command(&["run", "--", "sh", "-c", script])).await;
    let mut watch = remote.command(&["watch", remote.folder().to_str().unwrap()]).spawn().unwrap();
    remote.service.wait_for_upgrades(Leg::Harness, 2).await;
    let mut changes = BufReader::new(watch.stdout.take().unwrap()).lines();
    // A change before the watch has begun is not reported, so there are changes until one is.
    let mut number = 0;
    while tokio::time::timeout(Duration::from_millis(100), changes.next_line()).await.is_err() {
        number += 1;
        assert!(number < 300, "nothing is printed");
        std::fs::write(remote.path(&format!("changed-{number}")), "").unwrap();
    }
    let started = descendants(remote.executor.pid());
    remote.executor.signal(Signal::TERM);
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("bye"));
    let end = CommandEnd::from(wait_for_end(child).await);
    assert!(end.code == Some(4) && !end.stderr.contains("exec-server"), "the last events arrive: {end:?}");
    assert_eq!(remote.executor.wait().await, Some(0));
    assert_all_end(&started).await;
    forget_environment(&remote);
    let end = CommandEnd::from(wait_for_end(watch).await);
    let reason =
        "exec-server transport disconnected: server is shutting down; failed to resume exec-server session: ";
    assert!(end.code == Some(1) && end.stderr.contains(reason), "{end:?}");
    assert_eq!(remote.service.violations(), [""; 0]);
}

#[tokio::test]
async fn the_end_of_stdin_ends_the_executor_if_a_flag_or_the_published_variable_says_so() {
    for args in [&["--exit-on-stdin-close"][..], &[]] {
        let service = TestService::start().await;
        let mut remote = RemoteFixture::prepared(service, args, |command| {
            if args.is_empty() {
                command.env("CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE", "true");
            }
            command.stdin(Stdio::piped())
        })
        .await;
        let script = "trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done";
        let (child, lines) = until_ready(&mut remote.command(&["run", "--", "sh", "-c", script])).await;
        let started = descendants(remote.executor.pid());
        assert!(!started.is_empty());
        drop(remote.executor.child.stdin.take());
        assert_eq!(remote.executor.wait().await, Some(0), "{args:?}");
        drop(lines);
        assert_eq!(wait_for_end(child).await.status.code(), Some(5));
        assert_all_end(&started).await;
    }
}

#[tokio::test]
async fn without_the_flag_the_end_of_stdin_means_nothing() {
    // The fixture gives the executor no stdin.
    let remote = RemoteFixture::start().await;
    assert_eq!(remote.run(&["run", "--", "true"]).await.code, Some(0));
    assert!(is_alive(remote.executor.pid()));
}

#[tokio::test]
async fn an_executor_that_is_killed_leaves_no_process_and_its_clients_say_so() {
    let mut remote = RemoteFixture::start().await;
    let script = "sleep 600 & setsid sleep 600 & echo ready; wait";
    let (child, _lines) = until_ready(&mut remote.command(&["run", "--", "sh", "-c", script])).await;
    let started = descendants(remote.executor.pid());
    assert!(started.len() >= 3, "{started:?}");
    remote.executor.child.kill().await.unwrap();
    assert_all_end(&started).await;
    forget_environment(&remote);
    let end = CommandEnd::from(wait_for_end(child).await);
    assert_eq!(end.code, Some(125), "{end:?}");
    assert!(end.stderr.contains("there is no such environment"), "{end:?}");
}

#[tokio::test]
async fn a_session_does_not_outlive_its_executor_and_the_client_says_so() {
    let mut remote = RemoteFixture::start().await;
    let (child, _lines) =
        until_ready(&mut remote.command(&["run", "--", "sh", "-c", "echo ready; exec sleep 600"])).await;
    remote.executor.child.kill().await.unwrap();
    remote.restart_executor().await;
    let end = CommandEnd::from(wait_for_end(child).await);
    assert_eq!(end.code, Some(125), "{end:?}");
    assert!(end.stderr.contains("failed to resume exec-server session: unknown session id"), "{end:?}");
    assert_eq!(remote.run(&["run", "--", "echo", "hi"]).await, CommandEnd::printed("hi\n", 0));
}

#[tokio::test]
async fn an_executor_that_is_refused_ends_with_one_sentence() {
    let service = TestService::start().await;
    let folder = tempfile::tempdir().unwrap();
    let mut executor = crate::support::ExecutorProcess::start(&service, folder.path(), &[], |command| {
        command.env("EXEC_SERVER_API_KEY", "another")
    });
    assert_eq!(executor.wait().await, Some(125));
    let log = executor.log();
    let last = log.lines().last().unwrap();
    assert_eq!(
        last,
        "exec-server: the service refused the credential (HTTP 401): the token is missing or wrong; `exec-server whoami` says \
         which one is used"
    );
}
