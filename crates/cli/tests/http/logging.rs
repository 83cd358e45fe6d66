//! The log of a server contains no path, query or password of a URL, and no id, header or body of an HTTP request,
//! even at the level `trace`. All these texts contain `hush` in this test.

use std::fs::File;

use testkit::{HttpPeer, TestServer, base64, http_ok, json};

use crate::support::{BodyReceiver, fetch, fetch_error, open_stream, request};

#[tokio::test]
async fn neither_paths_nor_headers_nor_bodies_are_logged() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let server = TestServer::start_with(&[], |command| {
        command.env("RUST_LOG", "trace").env("HUSH_VARIABLE", "hushtoken").stderr(File::create(&log).unwrap())
    })
    .await;
    let peer = HttpPeer::closing(|request| match () {
        () if request.contains("/hushround") => {
            "HTTP/1.1 302 Found\r\nLocation: /hushpath\r\nContent-Length: 0\r\n\r\n".into()
        }
        () if request.contains("/hushbroken") => "hushanswer".into(),
        () => http_ok("hushanswer").replace("\r\n\r\n", "\r\nX-Hush: hushheader\r\n\r\n"),
    })
    .await;
    let mut client = server.client().await;
    let headers = json!([{"name": "Authorization", "value": "hushvalue"},
        {"name": "X-Env", "value": "hush", "valueEnvVar": "HUSH_VARIABLE"}]);
    let changes = json!({"headers": headers, "bodyBase64": base64("hushbody"), "requestId": "hushid"});
    for path in ["/hushpath?hushquery", "/hushround"] {
        fetch(&mut client, peer.url(path), changes.clone()).await;
    }
    let url = peer.url("/hushpath").replace("http://", "http://hushuser:hushpass@");
    fetch(&mut client, url, changes.clone()).await;
    fetch_error(&mut client, peer.url("/hushbroken"), changes.clone()).await;
    fetch_error(&mut client, "http://127.0.0.1:1/hushpath", changes.clone()).await;
    fetch_error(&mut client, peer.url("/"), json!({"headers": [{"name": "X", "value": "hush\n"}]})).await;
    open_stream(&mut client, "hushid", peer.url("/hushpath"), changes).await;
    assert_eq!(BodyReceiver::new("hushid").rest(&mut client).await.0, b"hushanswer");
    client.call_error("http/request", request("hushnonsense", json!({}))).await;
    drop(client);
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains("TRACE") || text.contains("DEBUG"), "nothing was logged at the levels TRACE and DEBUG");
    let secret_lines: Vec<_> = text.lines().filter(|line| line.contains("hush")).collect();
    assert!(secret_lines.is_empty(), "{secret_lines:#?}");
    // The bodies of request and answer in base64.
    let encoded = ["aHVzaGJvZHk=", "aHVzaGFuc3dlcg=="];
    assert!(encoded.iter().all(|secret| !text.contains(secret)));
}
