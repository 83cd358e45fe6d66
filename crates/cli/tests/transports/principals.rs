//! A session belongs to the principal that made it: the name of a token, or the uid of a client of the Unix socket. A
//! client that knows the id of a session but is another principal cannot use the session.

use std::fs;

use tempfile::TempDir;
use testkit::{Client, Signal, TestServer, Value, eventually_async, http_get, json};
use transport::ConnectOptions;

const ALICE: &str = "token-of-alice-0123456789";
const BOB: &str = "token-of-bob-0123456789";

/// A server with a token for Alice and one for Bob on TCP, and with a Unix socket.
struct SharedServer {
    server: TestServer,
    directory: TempDir,
}

impl SharedServer {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tokens = directory.path().join("tokens");
        fs::write(&tokens, format!("alice: {ALICE}\nbob: {BOB}\n")).unwrap();
        let socket = format!("unix://{}/exec.sock", directory.path().display());
        let server = TestServer::with_args(&[
            "--listen",
            "ws://127.0.0.1:0",
            "--listen",
            &socket,
            "--token-file",
            tokens.to_str().unwrap(),
        ])
        .await;
        Self { server, directory }
    }

    async fn connect(&self, token: &str) -> Client {
        let options = ConnectOptions { bearer_token: Some(token.to_owned()), ..Default::default() };
        Client::connect_with(&self.server.urls()[0], options).await.unwrap()
    }

    async fn connect_unix(&self) -> Client {
        Client::connect(&self.server.urls()[1]).await
    }

    async fn metrics(&self) -> String {
        let bearer = format!("Bearer {ALICE}");
        http_get(self.server.address(), "/metrics", &[("Authorization", &bearer)]).await.body
    }
}

/// Opens a session and returns its id.
async fn open(client: &mut Client) -> String {
    let opened = client.call("initialize", json!({"clientName": "test"})).await;
    client.notify("initialized", json!({})).await;
    opened["sessionId"].as_str().unwrap().to_owned()
}

/// Params of `initialize` for all ways to use a session that exists.
fn resume_requests(session: &str) -> [Value; 4] {
    let request = json!({"clientName": "test", "resumeSessionId": session});
    [
        ("takeover", json!(true)),
        ("observe", json!(true)),
        ("keepForMs", json!(86_400_000)),
        ("takeover", json!(false)),
    ]
    .map(|(member, value)| {
        let mut request = request.clone();
        request[member] = value;
        request
    })
}

/// The error for a session of another principal.
fn refusal(session: &str) -> Value {
    json!({"code": -32600, "message": format!("session {session} belongs to another user or token")})
}

#[tokio::test]
async fn another_token_cannot_use_a_session_whether_the_session_is_attached_or_not() {
    let shared = SharedServer::start().await;
    let mut alice = shared.connect(ALICE).await;
    let session = open(&mut alice).await;
    alice.start("p", &["cat"]).await;
    for request in resume_requests(&session) {
        let mut bob = shared.connect(BOB).await;
        assert_eq!(bob.call_error("initialize", request.clone()).await, refusal(&session), "{request}");
        // The connection stays usable, and Bob can have a session of his own.
        assert_ne!(open(&mut bob).await, session);
    }
    assert_eq!(
        alice.call("process/list", json!({})).await["processes"][0]["processId"],
        "p",
        "Alice keeps her session"
    );

    drop(alice);
    for request in resume_requests(&session) {
        let mut bob = shared.connect(BOB).await;
        assert_eq!(bob.call_error("initialize", request.clone()).await, refusal(&session), "{request}");
    }
    let mut alice = shared.connect(ALICE).await;
    alice.handshake(Some(&session)).await;
    assert_eq!(alice.call("process/list", json!({})).await["processes"][0]["processId"], "p");
}

#[tokio::test]
async fn a_user_of_the_unix_socket_and_a_token_are_different_principals() {
    let shared = SharedServer::start().await;
    let mut with_token = shared.connect(ALICE).await;
    let session_of_token = open(&mut with_token).await;
    let mut with_socket = shared.connect_unix().await;
    let session_of_socket = open(&mut with_socket).await;
    for request in resume_requests(&session_of_token) {
        let error = shared.connect_unix().await.call_error("initialize", request).await;
        assert_eq!(error, refusal(&session_of_token));
    }
    for request in resume_requests(&session_of_socket) {
        let error = shared.connect(ALICE).await.call_error("initialize", request).await;
        assert_eq!(error, refusal(&session_of_socket));
    }
    drop(with_socket);
    shared.connect_unix().await.handshake(Some(&session_of_socket)).await;
}

#[tokio::test]
async fn a_session_outlives_the_change_of_a_token_that_keeps_its_name() {
    let shared = SharedServer::start().await;
    let mut alice = shared.connect(ALICE).await;
    let session = open(&mut alice).await;
    drop(alice);
    let rotated = "rotated-token-of-alice-0123456789";
    fs::write(shared.directory.path().join("tokens"), format!("bob: {BOB}\nalice: {rotated}\n")).unwrap();
    shared.server.signal(Signal::HUP);
    let options = || ConnectOptions { bearer_token: Some(rotated.to_owned()), ..Default::default() };
    let url = &shared.server.urls()[0];
    let mut alice =
        eventually_async("the new token is accepted", || async { Client::connect_with(url, options()).await.ok() })
            .await;
    alice.handshake(Some(&session)).await;
}

#[tokio::test]
async fn metrics_name_the_principal_and_count_refusals() {
    let shared = SharedServer::start().await;
    let mut alice = shared.connect(ALICE).await;
    let session = open(&mut alice).await;
    let mut user = shared.connect_unix().await;
    user.call_error("initialize", json!({"clientName": "test", "resumeSessionId": session})).await;
    let metrics = shared.metrics().await;
    let uid = rustix::process::geteuid().as_raw();
    for line in [
        "exec_server_principal_connections_active{principal=\"token:alice\"} 1".to_owned(),
        format!("exec_server_principal_connections_total{{principal=\"uid:{uid}\"}} 1"),
        "exec_server_authentication_failures_total{reason=\"other_session\"} 1".to_owned(),
    ] {
        assert!(metrics.lines().any(|shown| shown == line), "{line} is not in\n{metrics}");
    }
    assert!(!metrics.contains(ALICE));
}
