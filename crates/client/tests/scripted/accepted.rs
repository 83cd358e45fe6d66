//! Clients over sockets that the server has opened to the client. Such a client cannot reconnect by itself. The test
//! hands it the next socket with `replace`.

use client::{AcceptedSockets, ConnectionState, ExecServerError, accepted};
use testkit::scripted::{ScriptedReply, read_result};
use testkit::{ScriptedServer, json};

use crate::support::{error_text, options, params, wait_for_state};

const IN_PROGRESS: &str = "exec-server protocol error: an accepted exec-server replacement is already in progress";

/// A client on its first accepted socket.
async fn accept_client(server: &ScriptedServer) -> (client::ExecServerClient, AcceptedSockets) {
    accepted(server.dial(), options()).await.unwrap()
}

#[tokio::test]
async fn the_first_socket_cannot_resume_a_session() {
    let server = ScriptedServer::new();
    let mut options = options();
    options.resume_session_id = Some("earlier".into());
    let refused = accepted(server.dial(), options).await.map(drop);
    assert_eq!(
        error_text(refused),
        "exec-server protocol error: accepted exec-server initial connection cannot resume a session"
    );
    assert!(server.received().is_empty());
}

#[tokio::test]
async fn a_client_on_an_accepted_socket_can_be_used_at_once() {
    let server = ScriptedServer::new();
    let (client, _sockets) = accept_client(&server).await;
    assert_eq!(*client.connection_state().borrow(), ConnectionState::Connected);
    assert_eq!(client.environment_status().await.unwrap().status, "ready");
}

#[tokio::test]
async fn a_replacement_closes_the_old_socket_and_the_process_continues() {
    let server = ScriptedServer::new();
    let (client, sockets) = accept_client(&server).await;
    let process = client.start(params("p")).await.unwrap();
    let old = server.connection();
    server.on("process/read", |_| ScriptedReply::Result(read_result([(1, b"meanwhile".to_vec())], 2)));
    let mut states = client.connection_state();
    sockets.replace(server.dial()).await.unwrap();
    old.wait_for_end().await;
    states.wait_for(|state| *state == ConnectionState::Connected).await.unwrap();
    assert!(client.environment_status().await.is_ok());
    assert_eq!(server.wait_for("initialize", 2).await.params["resumeSessionId"], "session-1");
    server.push_exited("p", 2, 0);
    server.push_closed("p", 3);
    assert_eq!(process.wait_with_output().await.unwrap().stdout, b"meanwhile");
}

/// A client that uses its second socket, over which the server does not answer the handshake.
async fn client_in_unanswered_handshake(server: &ScriptedServer) -> (client::ExecServerClient, AcceptedSockets) {
    let (client, sockets) = accept_client(server).await;
    server.on("initialize", |_| ScriptedReply::Silence);
    sockets.replace(server.dial()).await.unwrap();
    server.wait_for("initialize", 2).await;
    (client, sockets)
}

/// Answers a request to resume a session.
fn reply_to_resume(asked: &testkit::scripted::ClientMessage) -> ScriptedReply {
    ScriptedReply::Result(json!({"sessionId": asked.params["resumeSessionId"]}))
}

#[tokio::test]
async fn only_one_socket_can_wait_and_it_is_used_when_the_current_handshake_is_refused() {
    let server = ScriptedServer::new();
    let (client, sockets) = client_in_unanswered_handshake(&server).await;
    let mut replacing = Box::pin(sockets.replace(server.dial()));
    assert!(poll_once(&mut replacing).await.is_none(), "the third socket waits");
    assert_eq!(error_text(sockets.replace(server.dial()).await), IN_PROGRESS);
    let second = server.wait_for("initialize", 2).await;
    server.on("initialize", reply_to_resume);
    second.answer(ScriptedReply::Error(-32010, "session session-1 is already attached to another connection".into()));
    replacing.await.unwrap();
    wait_for_state(&client, |state| *state == ConnectionState::Connected).await;
    assert!(client.environment_status().await.is_ok());
    assert_eq!(server.count("initialize"), 3);
}

#[tokio::test]
async fn the_socket_of_a_cancelled_replacement_is_not_used_and_another_replacement_can_follow() {
    let server = ScriptedServer::new();
    let (client, sockets) = client_in_unanswered_handshake(&server).await;
    let cancelled = ScriptedServer::new();
    let mut replacing = Box::pin(sockets.replace(cancelled.dial()));
    assert!(poll_once(&mut replacing).await.is_none());
    drop(replacing);
    let second = server.wait_for("initialize", 2).await;
    server.on("initialize", reply_to_resume);
    let answering = async { second.answer(ScriptedReply::Error(-32010, "still attached".into())) };
    let (replaced, ()) = tokio::join!(sockets.replace(server.dial()), answering);
    replaced.unwrap();
    assert!(client.environment_status().await.is_ok());
    assert!(cancelled.received().is_empty());
}

#[tokio::test]
async fn a_socket_whose_handshake_is_answered_late_is_replaced_by_the_waiting_socket() {
    let server = ScriptedServer::new();
    let (client, sockets) = client_in_unanswered_handshake(&server).await;
    let second = server.wait_for("initialize", 2).await;
    server.on("initialize", reply_to_resume);
    let mut replacing = Box::pin(sockets.replace(server.dial()));
    assert!(poll_once(&mut replacing).await.is_none());
    second.answer(reply_to_resume(&second));
    replacing.await.unwrap();
    second.connection.wait_for_end().await;
    assert!(client.environment_status().await.is_ok());
    assert_eq!(server.count("initialize"), 3);
}

#[tokio::test]
async fn a_client_that_has_failed_accepts_no_socket() {
    let server = ScriptedServer::new();
    let (client, sockets) = accept_client(&server).await;
    server.on("initialize", |_| ScriptedReply::Error(-32600, "unknown session id session-1".into()));
    sockets.replace(server.dial()).await.unwrap();
    let text = crate::support::wait_for_failure(&client).await;
    let refused = sockets.replace(server.dial()).await;
    assert!(matches!(&refused, Err(ExecServerError::Disconnected(words)) if *words == text), "{refused:?}");
}

/// Polls a future once. Returns its output if it is ready.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let mut future = std::pin::Pin::new(future);
    std::future::poll_fn(|cx| {
        std::task::Poll::Ready(match future.as_mut().poll(cx) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}
