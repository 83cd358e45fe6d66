//! A server whose stderr is a pipe that no process reads.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Duration;

use testkit::{Signal, TestServer, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Nothing here takes this long, even on a loaded machine, unless it waits for the log.
const AT_LAST: Duration = Duration::from_secs(20);

/// Each request causes a line in the log. Together the lines exceed the buffers of the pipe and of the server.
const BAD_REQUESTS: usize = 5_000;

/// The server, and the read end of its stderr pipe.
async fn server_with_unread_log() -> (TestServer, OwnedFd) {
    let (log, stderr) = rustix::pipe::pipe().unwrap();
    let server = TestServer::with(&[], |command| command.env("RUST_LOG", "debug").stderr(stderr)).await;
    (server, log)
}

async fn cause_lines(server: &TestServer) {
    for _ in 0..BAD_REQUESTS {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(b"nonsense\r\n\r\n").await.unwrap();
        let answer = timeout(AT_LAST, stream.read_to_end(&mut Vec::new())).await;
        let _reset_or_closed = answer.expect("the server goes on");
    }
}

#[tokio::test]
async fn an_unread_log_delays_nothing_and_later_says_how_many_lines_are_missing() {
    let (mut server, log) = server_with_unread_log().await;
    cause_lines(&server).await;
    let mut client = server.client().await;
    let ran = timeout(AT_LAST, client.run("p", &["echo", "hello"])).await.expect("a process runs");
    assert_eq!(ran.stdout, b"hello\n");
    let info = timeout(AT_LAST, client.request("environment/info", json!({}))).await.expect("an answer");
    assert!(info.get("result").is_some(), "{info}");

    let reading = std::thread::spawn(move || {
        let mut text = Vec::new();
        std::fs::File::from(log).read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    });
    server.signal(Signal::TERM);
    assert_eq!(timeout(AT_LAST, server.wait()).await.expect("the server ends"), Some(0));
    let text = reading.join().unwrap();
    let missing = |line: &str| {
        let (count, _) = line.strip_prefix("exec-server: ")?.split_once(" lines of the log were dropped")?;
        count.parse::<usize>().ok()
    };
    assert!(text.lines().filter_map(missing).sum::<usize>() > 0, "{} bytes", text.len());
    assert!(text.lines().count() > 1000);
}

#[tokio::test]
async fn a_server_with_an_unread_log_ends() {
    let (mut server, _log) = server_with_unread_log().await;
    cause_lines(&server).await;
    server.signal(Signal::TERM);
    assert_eq!(timeout(AT_LAST, server.wait()).await.expect("the server ends"), Some(0));
}
