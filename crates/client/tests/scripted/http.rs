//! HTTP requests made from the environment.

use client::{ExecServerError, HttpRequestParams};
use testkit::scripted::Reply;
use testkit::{ScriptedServer, base64, json};

use crate::support::connect;

fn answered(server: &ScriptedServer) {
    server.on("http/request", |_| Reply::Result(json!({"status": 200, "headers": [], "bodyBase64": ""})));
}

fn delta(server: &ScriptedServer, seq: u64, bytes: &str, done: bool) {
    let delta = base64(bytes.as_bytes());
    let params = json!({"requestId": "http-1", "seq": seq, "deltaBase64": delta, "done": done, "error": null});
    server.push("http/request/bodyDelta", params);
}

#[tokio::test]
async fn a_streamed_body_comes_in_pieces_to_its_end() {
    let server = ScriptedServer::new();
    answered(&server);
    let client = connect(&server).await;
    let (response, body) = client.http_request_stream(HttpRequestParams::new("GET", "http://x/")).await.unwrap();
    assert_eq!(response.status, 200);
    let asked = server.wait_for("http/request", 1).await.params;
    assert_eq!((&asked["requestId"], &asked["streamResponse"]), (&json!("http-1"), &json!(true)));
    delta(&server, 1, "one ", false);
    delta(&server, 2, "two", false);
    delta(&server, 3, "", true);
    assert_eq!(body.collect().await.unwrap(), b"one two");
}

#[tokio::test]
async fn a_streamed_body_fails_at_once_when_the_connection_does() {
    let server = ScriptedServer::new();
    answered(&server);
    let client = connect(&server).await;
    let (_, mut body) = client.http_request_stream(HttpRequestParams::new("GET", "http://x/")).await.unwrap();
    delta(&server, 1, "one", false);
    assert_eq!(body.recv().await.unwrap().unwrap(), "one");
    server.cut();
    let Some(Err(ExecServerError::HttpRequest(text))) = body.recv().await else { panic!("it goes on") };
    assert!(text.starts_with("exec-server transport disconnected"), "{text}");
    assert!(body.recv().await.is_none());
}

#[tokio::test]
async fn a_piece_that_is_missing_fails_the_body() {
    let server = ScriptedServer::new();
    answered(&server);
    let client = connect(&server).await;
    let (_, body) = client.http_request_stream(HttpRequestParams::new("GET", "http://x/")).await.unwrap();
    delta(&server, 2, "two", false);
    assert!(matches!(body.collect().await, Err(ExecServerError::HttpRequest(_))));
}
