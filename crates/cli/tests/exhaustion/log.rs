//! A server whose log goes to a pipe that no process reads.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Duration;

use testkit::{Signal, TestServer, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Timeout of one operation. Even on a loaded machine an operation takes less, unless it waits for the log.
const OPERATION_LIMIT: Duration = Duration::from_secs(20);

/// Number of invalid requests. Each of them causes a line in the log, and all lines together exceed the buffers of
/// the pipe and of the server.
const BAD_REQUESTS: usize = 5_000;

/// A server, and the read end of the pipe that is its stderr.
async fn server_with_unread_log() -> (TestServer, OwnedFd) {
    let (log, stderr) = rustix::pipe::pipe().unwrap();
    let server = TestServer::start_with(&[], |command| command.env("RUST_LOG", "debug").stderr(stderr)).await;
    (server, log)
}

async fn fill_log(server: &TestServer) {
    for _ in 0..BAD_REQUESTS {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(b"nonsense\r\n\r\n").await.unwrap();
        let answer = timeout(OPERATION_LIMIT, stream.read_to_end(&mut Vec::new())).await;
        let _reset_or_closed = answer.expect("the server does not answer");
    }
}

#[tokio::test]
async fn an_unread_log_delays_nothing_and_later_has_the_number_of_dropped_lines() {
    let (mut server, log) = server_with_unread_log().await;
    fill_log(&server).await;
    let mut client = server.client().await;
    let ran = timeout(OPERATION_LIMIT, client.run("p", &["echo", "hello"])).await.expect("no process runs");
    assert_eq!(ran.stdout, b"hello\n");
    let info = timeout(OPERATION_LIMIT, client.request("environment/info", json!({})))
        .await
        .expect("the request is not answered");
    assert!(info.get("result").is_some(), "{info}");

    let reading = std::thread::spawn(move || {
        let mut text = Vec::new();
        std::fs::File::from(log).read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    });
    server.signal(Signal::TERM);
    assert_eq!(timeout(OPERATION_LIMIT, server.wait()).await.expect("the server does not end"), Some(0));
    let text = reading.join().unwrap();
    let dropped_lines = |line: &str| {
        let (count, _) = line.strip_prefix("exec-server: ")?.split_once(" lines of the log were dropped")?;
        count.parse::<usize>().ok()
    };
    assert!(text.lines().filter_map(dropped_lines).sum::<usize>() > 0, "{} bytes", text.len());
    assert!(text.lines().count() > 1000, "lines that fit into the buffers were dropped");
}

#[tokio::test]
async fn sigterm_ends_a_server_whose_log_is_full_and_unread() {
    let (mut server, _log) = server_with_unread_log().await;
    fill_log(&server).await;
    server.signal(Signal::TERM);
    assert_eq!(timeout(OPERATION_LIMIT, server.wait()).await.expect("the server does not end"), Some(0));
}
