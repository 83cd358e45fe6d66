//! HTTP requests that the server sends for the client.

use client::{ExecServerError, HttpClient, HttpRequestParams};
use testkit::scripted::ScriptedReply;
use testkit::{ScriptedServer, base64, json};

use crate::support::connect;

/// Makes the server answer each HTTP request with status 200 and an empty body. A streamed body follows in pieces.
fn answer_http_requests(server: &ScriptedServer) {
    server.on("http/request", |_| ScriptedReply::Result(json!({"status": 200, "headers": [], "bodyBase64": ""})));
}

/// Makes the server push a piece of the body of request `http-1`.
fn push_delta(server: &ScriptedServer, seq: u64, bytes: &str, done: bool) {
    let delta = base64(bytes.as_bytes());
    let params = json!({"requestId": "http-1", "seq": seq, "deltaBase64": delta, "done": done, "error": null});
    server.push("http/request/bodyDelta", params);
}

#[tokio::test]
async fn a_streamed_body_comes_in_pieces() {
    let server = ScriptedServer::new();
    answer_http_requests(&server);
    let client = connect(&server).await;
    let (response, body) = client.http_request_stream(HttpRequestParams::new("GET", "http://x/")).await.unwrap();
    assert_eq!(response.status, 200);
    let asked = server.wait_for("http/request", 1).await.params;
    assert_eq!((&asked["requestId"], &asked["streamResponse"]), (&json!("http-1"), &json!(true)));
    push_delta(&server, 1, "one ", false);
    push_delta(&server, 2, "two", false);
    push_delta(&server, 3, "", true);
    assert_eq!(body.collect().await.unwrap(), b"one two");
}

#[tokio::test]
async fn a_streamed_body_fails_at_once_when_the_connection_is_lost() {
    let server = ScriptedServer::new();
    answer_http_requests(&server);
    let client = connect(&server).await;
    let (_, mut body) = client.http_request_stream(HttpRequestParams::new("GET", "http://x/")).await.unwrap();
    push_delta(&server, 1, "one", false);
    assert_eq!(body.recv().await.unwrap().unwrap(), "one");
    server.cut();
    let Some(Err(ExecServerError::HttpRequest(text))) = body.recv().await else { panic!("the body continues") };
    assert!(text.starts_with("exec-server transport disconnected"), "{text}");
    assert!(body.recv().await.is_none());
}

#[tokio::test]
async fn a_missing_piece_fails_the_body() {
    let server = ScriptedServer::new();
    answer_http_requests(&server);
    let client = connect(&server).await;
    let (_, body) = client.http_request_stream(HttpRequestParams::new("GET", "http://x/")).await.unwrap();
    push_delta(&server, 2, "two", false);
    assert!(matches!(body.collect().await, Err(ExecServerError::HttpRequest(_))));
}

/// Makes the server one that can cancel HTTP requests and pause HTTP bodies.
fn offer_cancel_and_pause(server: &ScriptedServer) {
    server.on("environment/info", |_| {
        let capabilities = json!({"httpCancel": true, "httpLimits": true});
        ScriptedReply::Result(json!({"shell": {"name": "sh", "path": "/bin/sh"}, "capabilities": capabilities}))
    });
}

#[tokio::test]
async fn buffered_requests_get_an_id_from_the_client_and_are_not_streamed() {
    let server = ScriptedServer::new();
    answer_http_requests(&server);
    let client: Box<dyn HttpClient> = Box::new(connect(&server).await);
    let mut params = HttpRequestParams::new("GET", "http://x/");
    params.stream_response = true;
    params.request_id = "mine".into();
    for id in ["http-1", "http-2"] {
        client.http_request(params.clone()).await.unwrap();
        let asked = server.received().pop().unwrap().params;
        assert_eq!((&asked["requestId"], &asked["streamResponse"]), (&json!(id), &json!(false)));
    }
}

#[tokio::test]
async fn a_dropped_body_is_cancelled_if_the_server_supports_it() {
    let server = ScriptedServer::new();
    answer_http_requests(&server);
    offer_cancel_and_pause(&server);
    let client = connect(&server).await;
    let (_, mut body) = client.http_request_stream(HttpRequestParams::new("GET", "http://x/")).await.unwrap();
    push_delta(&server, 1, "one", false);
    assert_eq!(body.recv().await.unwrap().unwrap(), "one");
    drop(body);
    assert_eq!(server.wait_for("http/cancel", 1).await.params, json!({"requestId": "http-1"}));
    // Pieces that were in flight are ignored.
    push_delta(&server, 2, "late", false);
    client.environment_status().await.unwrap();
}

#[tokio::test]
async fn a_dropped_request_is_cancelled() {
    let server = ScriptedServer::new();
    server.on("http/request", |_| ScriptedReply::Silence);
    offer_cancel_and_pause(&server);
    let client = connect(&server).await;
    for (times, is_streamed) in [(1, false), (2, true)] {
        let params = HttpRequestParams::new("GET", "http://x/");
        let request = async {
            if is_streamed {
                client.http_request_stream(params).await.map(drop)
            } else {
                client.http_request(params).await.map(drop)
            }
        };
        tokio::select! {
            _ = request => panic!("the request was answered"),
            _ = server.wait_for("http/request", times) => {}
        }
        let cancelled = server.wait_for("http/cancel", times).await.params;
        assert_eq!(cancelled, json!({"requestId": format!("http-{times}")}));
    }
}

#[tokio::test]
async fn finished_requests_and_requests_to_an_old_server_are_not_cancelled() {
    for is_old in [true, false] {
        let server = ScriptedServer::new();
        answer_http_requests(&server);
        if !is_old {
            offer_cancel_and_pause(&server);
        }
        let client = connect(&server).await;
        let (_, mut body) = client.http_request_stream(HttpRequestParams::new("GET", "http://x/")).await.unwrap();
        if is_old {
            push_delta(&server, 1, "one", false);
            body.recv().await.unwrap().unwrap();
        } else {
            push_delta(&server, 1, "", true);
            assert!(body.recv().await.is_none());
        }
        drop(body);
        server.on("http/request", |_| ScriptedReply::Error(-32602, "no".into()));
        client.http_request_stream(HttpRequestParams::new("GET", "http://x/")).await.err().unwrap();
        client.environment_status().await.unwrap();
        client.close().await;
        assert_eq!(server.count("http/cancel"), 0);
    }
}

/// The largest piece of a body that the client accepts.
const MAX_PIECE_BYTES: usize = 1 << 20;

#[tokio::test]
async fn a_body_is_paused_for_a_slow_reader_and_loses_nothing() {
    let server = ScriptedServer::new();
    answer_http_requests(&server);
    offer_cancel_and_pause(&server);
    let client = connect(&server).await;
    let (_, mut body) = client.http_request_stream(HttpRequestParams::new("GET", "http://x/")).await.unwrap();
    let largest_piece = "x".repeat(MAX_PIECE_BYTES);
    for seq in 1..=6 {
        push_delta(&server, seq, &largest_piece, false);
    }
    let paused = server.wait_for("http/flow", 1).await.params;
    assert_eq!(paused, json!({"requestId": "http-1", "paused": true}));
    // Together these pieces exceed the limit of 16 MiB for old servers, which cannot pause a body.
    for seq in 7..=30 {
        push_delta(&server, seq, &largest_piece, false);
    }
    push_delta(&server, 31, "", true);
    let mut received = 0;
    while let Some(piece) = body.recv().await {
        received += piece.unwrap().len();
    }
    assert_eq!(received, 30 * MAX_PIECE_BYTES);
}

#[tokio::test]
async fn a_body_is_resumed_when_its_reader_has_caught_up() {
    let server = ScriptedServer::new();
    answer_http_requests(&server);
    offer_cancel_and_pause(&server);
    let client = connect(&server).await;
    let (_, mut body) = client.http_request_stream(HttpRequestParams::new("GET", "http://x/")).await.unwrap();
    let largest_piece = "x".repeat(MAX_PIECE_BYTES);
    for seq in 1..=5 {
        push_delta(&server, seq, &largest_piece, false);
    }
    server.wait_for("http/flow", 1).await;
    for _ in 1..=5 {
        body.recv().await.unwrap().unwrap();
    }
    let released = server.wait_for("http/flow", 2).await.params;
    assert_eq!(released, json!({"requestId": "http-1", "paused": false}));
}

#[tokio::test]
async fn a_body_fails_if_an_old_server_sends_too_much_of_it() {
    for (pieces, bytes, words) in [
        (300, "x".to_owned(), "body delta channel filled"),
        (20, "x".repeat(MAX_PIECE_BYTES), "queued body deltas exceed 16777216"),
    ] {
        let server = ScriptedServer::new();
        answer_http_requests(&server);
        let client = connect(&server).await;
        let (_, body) = client.http_request_stream(HttpRequestParams::new("GET", "http://x/")).await.unwrap();
        for seq in 1..=pieces {
            push_delta(&server, seq, &bytes, false);
        }
        // This answer comes after all pushed pieces, so the client has them all.
        client.environment_status().await.unwrap();
        let error = body.collect().await.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(server.count("http/flow"), 0);
    }
}

#[tokio::test]
async fn bodies_of_an_old_server_share_one_limit_for_waiting_pieces() {
    let server = ScriptedServer::new();
    answer_http_requests(&server);
    let client = connect(&server).await;
    let (_, first) = client.http_request_stream(HttpRequestParams::new("GET", "http://x/")).await.unwrap();
    let (_, second) = client.http_request_stream(HttpRequestParams::new("GET", "http://x/")).await.unwrap();
    let largest_piece = "x".repeat(MAX_PIECE_BYTES);
    for seq in 1..=10 {
        push_delta(&server, seq, &largest_piece, false);
    }
    for seq in 1..=7 {
        let delta = base64(&largest_piece);
        let params = json!({"requestId": "http-2", "seq": seq, "deltaBase64": delta, "done": false, "error": null});
        server.push("http/request/bodyDelta", params);
    }
    client.environment_status().await.unwrap();
    assert!(second.collect().await.unwrap_err().to_string().contains("queued body deltas exceed"));
    push_delta(&server, 11, "", true);
    assert_eq!(first.collect().await.unwrap().len(), 10 * MAX_PIECE_BYTES);
}

#[tokio::test]
async fn a_piece_over_a_mebibyte_ends_the_connection() {
    let server = ScriptedServer::new();
    answer_http_requests(&server);
    let client = connect(&server).await;
    let (_, body) = client.http_request_stream(HttpRequestParams::new("GET", "http://x/")).await.unwrap();
    push_delta(&server, 1, &"x".repeat(MAX_PIECE_BYTES + 1), false);
    assert!(matches!(body.collect().await, Err(ExecServerError::HttpRequest(_))));
    server.wait_for("initialize", 2).await;
}
