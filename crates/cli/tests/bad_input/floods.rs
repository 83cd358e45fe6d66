//! Clients that do not read what they asked for, clients that send very slowly or never complete a request, writes to
//! a process that does not read its stdin, and connections that do not speak HTTP.

use std::time::Duration;

use testkit::{Client, TestServer, json, resident_bytes};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::other_client::OtherClient;

/// How much the memory of the server may grow for a connected client that does not read.
const GROWTH_FOR_UNREADING_CLIENT_BYTES: usize = 16 << 20;

#[tokio::test]
async fn a_client_that_stops_reading_delays_no_other_client_and_takes_bounded_memory() {
    let server = TestServer::with_args(&["--session-ttl", "0s"]).await;
    let mut other_client = OtherClient::connect(&server).await;
    let mut unreading = server.client().await;
    for n in 0..4 {
        unreading.start(&format!("flood-{n}"), &["cat", "/dev/zero"]).await;
    }
    // While the other client runs these commands, the output of the four processes fills the buffers of the server.
    for _ in 0..20 {
        other_client.assert_served().await;
    }
    let with_full_buffers = resident_bytes(server.pid());
    for _ in 0..20 {
        other_client.assert_served().await;
    }
    assert!(resident_bytes(server.pid()) < with_full_buffers + GROWTH_FOR_UNREADING_CLIENT_BYTES);
    drop(unreading);
    other_client.assert_served_and_memory_freed().await;
}

/// Sends the same message again and again, until one of them cannot be sent within two seconds, or 200 MiB are sent.
async fn send_without_reading(client: &mut Client, message: &str) {
    const ENOUGH_BYTES: usize = 200 << 20;
    let mut sent = 0;
    while sent < ENOUGH_BYTES {
        match timeout(Duration::from_secs(2), client.send_text(message)).await {
            Ok(()) => sent += message.len(),
            Err(_) => return,
        }
    }
}

#[tokio::test]
async fn answers_that_the_client_does_not_read_do_not_pile_up() {
    for message in [
        r#"{"id":1,"method":"environment/info"}"#.to_owned(),
        "garbage".to_owned(),
        format!(r#"{{"id":1,"method":"{}"}}"#, "long".repeat(100_000)),
    ] {
        let server = TestServer::with_args(&["--session-ttl", "0s"]).await;
        let mut other_client = OtherClient::connect(&server).await;
        let before = resident_bytes(server.pid());
        let mut unreading = server.client().await;
        send_without_reading(&mut unreading, &message).await;
        let now = resident_bytes(server.pid());
        assert!(
            now < before + GROWTH_FOR_UNREADING_CLIENT_BYTES,
            "{}: {before} -> {now}",
            &message[..message.len().min(50)]
        );
        other_client.assert_served().await;
        drop(unreading);
        other_client.assert_served_and_memory_freed().await;
    }
}

#[tokio::test]
async fn writes_that_the_process_does_not_read_do_not_pile_up() {
    let server = TestServer::with_args(&["--session-ttl", "0s"]).await;
    let mut other_client = OtherClient::connect(&server).await;
    let before = resident_bytes(server.pid());
    let mut client = server.client().await;
    let mut params = Client::start_params("p", &["sleep", "1000"]);
    params["pipeStdin"] = json!(true);
    client.call("process/start", params).await;
    let chunk = "AAAA".repeat(1 << 18);
    let message =
        json!({"id": 1, "method": "process/write", "params": {"processId": "p", "chunk": chunk}}).to_string();
    send_without_reading(&mut client, &message).await;
    let now = resident_bytes(server.pid());
    assert!(now < before + GROWTH_FOR_UNREADING_CLIENT_BYTES, "{before} -> {now}");
    other_client.assert_served().await;
    drop(client);
    other_client.assert_served_and_memory_freed().await;
}

#[tokio::test]
async fn an_http_request_and_a_message_sent_byte_by_byte_are_answered() {
    let server = TestServer::start().await;
    let mut other_client = OtherClient::connect(&server).await;
    let mut slow = TcpStream::connect(server.address()).await.unwrap();
    slow.set_nodelay(true).unwrap();
    let request = testkit::http_request("/", testkit::UPGRADE_HEADERS);
    for byte in request.bytes() {
        slow.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut answer = vec![0; 12];
    slow.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 101");
    let message = br#"{"id":1,"method":"initialize","params":{"clientName":"slow"}}"#;
    let frame = [&[0x81, 0x80 | message.len() as u8, 0, 0, 0, 0], &message[..]].concat();
    for byte in frame {
        other_client.assert_served().await;
        slow.write_all(&[byte]).await.unwrap();
    }
    let mut rest = Vec::new();
    while !String::from_utf8_lossy(&rest).contains("sessionId") {
        assert_ne!(slow.read_buf(&mut rest).await.unwrap(), 0, "the connection ended");
    }
    other_client.assert_served_and_memory_freed().await;
}

#[tokio::test]
async fn connections_whose_http_request_never_ends_are_closed_and_delay_no_other_client() {
    let server = TestServer::start().await;
    let mut other_client = OtherClient::connect(&server).await;
    let mut incomplete_requests = Vec::new();
    for n in 0..200 {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        // Half of the connections send nothing, and the others never end their headers.
        if n % 2 == 0 {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ").await.unwrap();
        }
        incomplete_requests.push(stream);
    }
    other_client.assert_served().await;
    assert_eq!(testkit::http_get(server.address(), "/healthz", &[]).await.status, 200);
    let mut rest = Vec::new();
    for mut stream in incomplete_requests {
        let ended = timeout(Duration::from_secs(30), stream.read_to_end(&mut rest)).await;
        // An error means that the server has reset the connection, which closes it too.
        ended.expect("the server does not close the connection").ok();
    }
    other_client.assert_served_and_memory_freed().await;
}

#[tokio::test]
async fn a_header_that_grows_without_end_is_refused() {
    let server = TestServer::start().await;
    let other_client = OtherClient::connect(&server).await;
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nX-Long: ").await.unwrap();
    let mut sent = 0;
    while sent < 64 << 20 && stream.write_all(&[b'x'; 4096]).await.is_ok() {
        sent += 4096;
    }
    assert!(sent < 64 << 20, "the server accepts headers of any length");
    other_client.assert_served_and_memory_freed().await;
}

#[tokio::test]
async fn a_connection_that_does_not_speak_http_is_closed() {
    let server = TestServer::start().await;
    let mut other_client = OtherClient::connect(&server).await;
    let tls_hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    for garbage in [
        &b"\0\0\0\0\r\n\r\n"[..],
        tls_hello,
        b"{\"id\":1}\n",
        b"GET\r\n\r\n",
        b"\xff\xfe\xfd\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        let mut answer = Vec::new();
        let ended = timeout(Duration::from_secs(30), stream.read_to_end(&mut answer)).await;
        // An error means that the server has reset the connection, which closes it too.
        ended.expect("the server does not close the connection").ok();
        assert!(!answer.starts_with(b"HTTP/1.1 101"), "{garbage:?}");
        other_client.assert_served().await;
    }
    other_client.assert_served_and_memory_freed().await;
}
