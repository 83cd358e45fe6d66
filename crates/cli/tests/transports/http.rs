//! HTTP requests to the port of the WebSocket: pages such as `/healthz`, and the upgrade to a WebSocket. The headers
//! of an answer are compared in lower case.

use testkit::{Client, TestServer, UPGRADE_HEADERS, eventually_async, http_exchange, http_get, http_request, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[tokio::test]
async fn health_and_readiness_are_served() {
    let server = TestServer::start().await;
    let health = http_get(server.address(), "/healthz", &[]).await;
    assert_eq!((health.status, health.body.as_str()), (200, "ok"));
    let ready = http_get(server.address(), "/readyz", &[]).await;
    assert_eq!((ready.status, ready.body.as_str()), (200, ""));
}

#[tokio::test]
async fn one_connection_serves_many_requests_and_then_the_upgrade() {
    let server = TestServer::start().await;
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    for path in ["/healthz", "/readyz", "/nothing", "/", "/metrics"] {
        http_exchange(&mut stream, &http_request(path, &[])).await;
    }
    let answer = http_exchange(&mut stream, &http_request("/", UPGRADE_HEADERS)).await;
    assert_eq!(answer.status, 101);
    assert!(answer.head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"), "{}", answer.head);
}

#[tokio::test]
async fn metrics_count_connections_requests_processes_sessions_and_output() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.run("good", &["echo", "hello"]).await;
    client.run("bad", &["false"]).await;
    client.start("killed", &["sleep", "1000"]).await;
    client.call("process/terminate", json!({"processId": "killed"})).await;
    client.start("alive", &["sleep", "1000"]).await;
    client.call_error("process/read", json!({"processId": "nobody"})).await;
    drop(server.connect_without_handshake().await);

    let answer = http_get(server.address(), "/metrics", &[]).await;
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{}", answer.head);
    let expected = [
        "exec_server_connections_active{transport=\"websocket\"} ",
        "exec_server_connections_total{transport=\"websocket\"} 2",
        "exec_server_requests_total{method=\"process/start\",result=\"success\"} 4",
        "exec_server_requests_total{method=\"process/read\",result=\"error\"} 1",
        "exec_server_requests_total{method=\"initialize\",result=\"success\"} 1",
        "exec_server_request_duration_seconds_bucket{le=\"+Inf\"} 7",
        "exec_server_request_duration_seconds_count 7",
        "exec_server_processes_active 1",
        "exec_server_processes_finished_total{result=\"success\"} 1",
        "exec_server_processes_finished_total{result=\"error\"} 1",
        "exec_server_processes_finished_total{result=\"terminated\"} 1",
        "exec_server_process_duration_seconds_count 3",
        "exec_server_sessions_active 1",
        "exec_server_output_bytes_total 6",
    ];
    // The server counts a request a moment after it has sent the answer.
    eventually_async("all requests are counted", async || {
        let counted = http_get(server.address(), "/metrics", &[]).await.body;
        expected.iter().all(|line| counted.lines().any(|shown| shown.starts_with(line))).then_some(())
    })
    .await;
}

#[tokio::test]
async fn requests_of_web_pages_are_refused_on_every_path() {
    let server = TestServer::start().await;
    let origin = ("Origin", "http://127.0.0.1");
    for path in ["/", "/readyz", "/healthz", "/metrics", "/nothing"] {
        assert_eq!(http_get(server.address(), path, &[origin]).await.status, 403, "{path}");
    }
    let upgrade = [UPGRADE_HEADERS, &[("Origin", "null")]].concat();
    assert_eq!(http_get(server.address(), "/", &upgrade).await.status, 403);
}

/// The header of requests from a web page that attacks by DNS rebinding: the host name of the page resolves to this
/// machine.
const FOREIGN_HOST: (&str, &str) = ("Host", "rebound.example:7000");

#[tokio::test]
async fn requests_for_another_host_are_refused_on_every_path() {
    let server = TestServer::start().await;
    for path in ["/", "/readyz", "/healthz", "/metrics", "/nothing"] {
        let answer = http_get(server.address(), path, &[FOREIGN_HOST]).await;
        assert_eq!(answer.status, 403, "{path}");
        assert!(answer.body.contains("--allow-host NAME"), "{}", answer.body);
    }
    let upgrade = [UPGRADE_HEADERS, &[FOREIGN_HOST]].concat();
    assert_eq!(http_get(server.address(), "/", &upgrade).await.status, 403);
    for host in ["localhost", "127.0.0.1", "[::1]:80", server.address()] {
        assert_eq!(http_get(server.address(), "/metrics", &[("Host", host)]).await.status, 200, "{host}");
    }
}

#[tokio::test]
async fn a_host_that_is_allowed_is_served() {
    let server = TestServer::with_args(&["--allow-host", "Rebound.example", "--allow-host", "192.0.2.1"]).await;
    for host in [FOREIGN_HOST, ("Host", "192.0.2.1:80")] {
        assert_eq!(http_get(server.address(), "/metrics", &[host]).await.status, 200, "{host:?}");
    }
    assert_eq!(http_get(server.address(), "/metrics", &[("Host", "other.example")]).await.status, 403);
}

#[tokio::test]
async fn a_listener_on_all_addresses_accepts_any_host() {
    let server = TestServer::with_args(&["--listen", "ws://0.0.0.0:0", "--insecure-no-auth"]).await;
    let address = format!("127.0.0.1:{}", server.address().rsplit_once(':').unwrap().1);
    // A health probe of an orchestrator sends an IP address as host, and other clients send a name.
    for host in [("Host", "192.0.2.1:7000"), FOREIGN_HOST] {
        assert_eq!(http_get(&address, "/healthz", &[host]).await.status, 200, "{host:?}");
    }
}

#[tokio::test]
async fn unknown_paths_are_404_and_a_websocket_path_without_an_upgrade_is_426() {
    let server = TestServer::start().await;
    for path in ["/nothing", "/healthz/", "/ws", "//"] {
        assert_eq!(http_get(server.address(), path, &[]).await.status, 404, "{path}");
        assert_eq!(http_get(server.address(), path, UPGRADE_HEADERS).await.status, 404, "{path}");
    }
    let answer = http_get(server.address(), "/", &[]).await;
    assert_eq!(answer.status, 426);
    assert!(answer.head.contains("upgrade: websocket\r\n"), "{}", answer.head);
    assert!(answer.head.contains("sec-websocket-version: 13\r\n"), "{}", answer.head);
    for broken in 0..UPGRADE_HEADERS.len() {
        let mut headers = UPGRADE_HEADERS.to_vec();
        headers[broken].1 = "nonsense";
        // The server accepts any key.
        let expected = if headers[broken].0 == "Sec-WebSocket-Key" { 101 } else { 426 };
        assert_eq!(http_get(server.address(), "/", &headers).await.status, expected, "{headers:?}");
        headers.remove(broken);
        assert_eq!(http_get(server.address(), "/", &headers).await.status, 426, "{headers:?}");
    }
}

#[tokio::test]
async fn a_ping_is_answered_with_a_pong_and_a_close_with_a_close() {
    let server = TestServer::start().await;
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    assert_eq!(http_exchange(&mut stream, &http_request("/", UPGRADE_HEADERS)).await.status, 101);
    stream.write_all(b"\x89\x85\0\0\0\0hello").await.unwrap();
    let mut pong = [0; 7];
    stream.read_exact(&mut pong).await.unwrap();
    assert_eq!(&pong, b"\x8a\x05hello");
    stream.write_all(b"\x88\x82\0\0\0\0\x03\xe8").await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"\x88\x02\x03\xe8");
}

#[tokio::test]
async fn frames_that_come_with_the_upgrade_are_not_lost() {
    let server = TestServer::start().await;
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let message = br#"{"id":1,"method":"nothing"}"#;
    let frame = [&[0x82, 0x80 | message.len() as u8, 0, 0, 0, 0], &message[..]].concat();
    let raw = [http_request("/", UPGRADE_HEADERS).as_bytes(), &frame].concat();
    stream.write_all(&raw).await.unwrap();
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains("exec-server stub does not implement `nothing` yet") {
        assert_ne!(stream.read_buf(&mut received).await.unwrap(), 0, "the connection ended");
    }
}

#[tokio::test]
async fn a_server_that_listens_on_ipv6_serves_http_there() {
    let server = TestServer::with_args(&["--listen", "ws://[::1]:0"]).await;
    assert_eq!(http_get(server.address(), "/healthz", &[]).await.body, "ok");
    let mut client = Client::connect(server.url()).await;
    client.handshake(None).await;
    assert_eq!(client.run("p", &["true"]).await.exit_code, 0);
}
