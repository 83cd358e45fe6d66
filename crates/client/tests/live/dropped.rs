//! Futures, handles and clients that are dropped early, often at every await, and starts whose answer is lost. Only
//! detached processes may be left behind.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use client::{ExecServerClient, ExecServerError};
use testkit::{CuttingProxy, TestServer, descendants, eventually, eventually_async};
use tokio::io::AsyncWriteExt as _;

use crate::support::{connect, connect_to, sh, sh_with_stdin};

/// Polls a future at most `polls_left` times. The output is `None` if the future is not finished then; the `.await`
/// drops this value, and with it the unfinished future.
struct DropAfterPolls<F> {
    future: Pin<Box<F>>,
    polls_left: usize,
}

fn drop_after_polls<F: Future>(future: F, polls_left: usize) -> DropAfterPolls<F> {
    DropAfterPolls { future: Box::pin(future), polls_left }
}

impl<F: Future> Future for DropAfterPolls<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls_left == 0 {
            return Poll::Ready(None);
        }
        self.polls_left -= 1;
        if let Poll::Ready(output) = self.future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        if self.polls_left == 0 {
            // Ends now instead of waiting for another wake-up.
            return Poll::Ready(None);
        }
        Poll::Pending
    }
}

async fn wait_until_no_process_runs(client: &ExecServerClient) {
    eventually_async("no process runs", async || {
        let listed = client.processes().await.unwrap();
        listed.iter().all(|process| process.exit_code.is_some()).then_some(())
    })
    .await;
}

/// Waits until the server has no process of a client. One descendant may stay: the guard, a child of the server that
/// kills all processes if the server dies.
async fn wait_until_only_the_guard_is_left(server: &TestServer) {
    eventually("no process is left", || (descendants(server.pid()).len() <= 1).then_some(())).await;
}

/// Runs the scenario again and again, with one more poll each time, until it finishes. Each run gets a new process
/// id.
async fn at_every_await<T>(client: &ExecServerClient, scenario: impl AsyncFn(ExecServerClient, String) -> T) {
    for polls in 0.. {
        let id = format!("p{polls}");
        let done = drop_after_polls(scenario(client.clone(), id.clone()), polls).await;
        wait_until_no_process_runs(client).await;
        if done.is_some() {
            assert!(polls > 1, "the scenario never waited");
            return;
        }
    }
}

#[tokio::test]
async fn a_start_can_be_dropped_at_every_await() {
    let server = TestServer::start().await;
    let client = connect(&server).await;
    at_every_await(&client, async |client, id| {
        client.start(sh(&id, "sleep 1000")).await.unwrap();
    })
    .await;
    client.close().await;
    wait_until_only_the_guard_is_left(&server).await;
}

#[tokio::test]
async fn calls_of_a_process_can_be_dropped_at_every_await() {
    let server = TestServer::start().await;
    let client = connect(&server).await;
    at_every_await(&client, async |client, id| {
        let process = client.start(sh_with_stdin(&id, "while read x; do echo $x; done; sleep 1000")).await.unwrap();
        process.write("one\n").await.unwrap();
        process.stdin().write_all(b"two\n").await.unwrap();
        let mut events = process.events();
        events.next().await.unwrap();
        process.read(Some(0), None, Some(0)).await.unwrap();
        process.close_stdin().await.unwrap();
        process.terminate().await.unwrap();
        process.wait_with_output().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_client_can_be_dropped_at_every_await_from_its_connect_to_its_close() {
    let server = TestServer::start().await;
    for polls in 0.. {
        let scenario = async {
            let client = connect(&server).await;
            let process = client.start(sh("p", "sleep 1000")).await.unwrap();
            process.terminate().await.unwrap();
            process.wait().await.unwrap();
            client.close().await;
        };
        if drop_after_polls(scenario, polls).await.is_some() {
            assert!(polls > 4, "the scenario hardly ever waited");
            break;
        }
    }
    wait_until_only_the_guard_is_left(&server).await;
}

#[tokio::test]
async fn a_start_whose_answer_is_lost_leaves_no_process() {
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let client = connect_to(&proxy.url()).await;
    let mut lost = 0;
    // From turn to turn, the cut moves through the request and its answer.
    for byte in (1..400).step_by(7) {
        proxy.cut_at(proxy.bytes_passed() + byte);
        match client.start(sh(&format!("p{byte}"), "sleep 1000")).await {
            Ok(process) => drop(process),
            Err(ExecServerError::Disconnected(_)) => lost += 1,
            Err(other) => panic!("{other}"),
        }
        // No cut until the next turn.
        proxy.cut_at(0);
    }
    wait_until_no_process_runs(&client).await;
    assert!(lost > 15, "{lost}");
}

#[tokio::test]
async fn a_dropped_client_ends_its_processes_unless_they_were_detached() {
    let server = TestServer::start().await;
    let client = connect(&server).await;
    let ends = client.start(sh("ends", "sleep 1000")).await.unwrap();
    let stays = client.start(sh("stays", "sleep 1000")).await.unwrap();
    stays.detach();
    let session = client.session_id().unwrap().clone();
    drop((ends, stays, client));
    let next = eventually_async("the session is free", async || {
        let options =
            client::ExecServerClientConnectOptions { resume_session_id: Some(session.clone()), ..Default::default() };
        let connector = client::UrlConnector::new(server.url(), Default::default());
        ExecServerClient::connect(connector, options).await.ok()
    })
    .await;
    let listed = next.processes().await.unwrap();
    let codes: Vec<_> = listed.iter().map(|process| (process.process_id.as_str(), process.exit_code)).collect();
    assert_eq!(codes, [("ends", Some(137)), ("stays", None)]);
}
