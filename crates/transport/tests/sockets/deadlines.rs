//! Timeouts for peers that send nothing or too slowly. The clock is paused and jumps to the next deadline whenever
//! all tasks wait.

use std::time::Duration;

use crate::support::{TestSurface, accept_one, address, listen};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use transport::AcceptError;

/// Must equal `REQUEST_TIMEOUT`, the time that the server allows for the next request to arrive.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends `bytes` and waits until the server closes the connection. Returns the time from the start to the close, and
/// the bytes that the server sent.
async fn send_and_wait_for_timeout(tls: Option<transport::TlsAcceptor>, bytes: &str) -> (Duration, String) {
    let listener = listen(tls).await;
    let address = address(&listener);
    let started = Instant::now();
    let accepted = accept_one(listener, TestSurface::default());
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    let mut answered = String::new();
    stream.read_to_string(&mut answered).await.unwrap();
    assert!(matches!(accepted.await.unwrap(), Err(AcceptError::Deadline)));
    (started.elapsed(), answered)
}

/// Whether the server closed the connection after [`TIMEOUT`], neither earlier nor noticeably later.
fn is_timeout(waited: Duration) -> bool {
    (TIMEOUT..TIMEOUT + Duration::from_millis(100)).contains(&waited)
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_times_out() {
    let (waited, answered) = send_and_wait_for_timeout(None, "").await;
    assert!(is_timeout(waited) && answered.is_empty(), "{waited:?} {answered}");
}

#[tokio::test(start_paused = true)]
async fn incomplete_headers_time_out() {
    let (waited, answered) = send_and_wait_for_timeout(None, "GET / HTTP/1.1\r\nHost: localhost\r\n").await;
    assert!(is_timeout(waited) && answered.is_empty(), "{waited:?} {answered}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_times_out_after_its_last_request() {
    let (waited, answered) =
        send_and_wait_for_timeout(None, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(is_timeout(waited) && answered.starts_with("HTTP/1.1 200 "), "{waited:?} {answered}");
}

#[tokio::test(start_paused = true)]
async fn a_request_restarts_the_timeout_but_single_bytes_of_headers_do_not() {
    let listener = listen(None).await;
    let address = address(&listener);
    let accepted = accept_one(listener, TestSurface::default());
    let started = Instant::now();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut buffer = [0; 1024];
    for _ in 0..3 {
        // sleep: the idle time between requests, on a paused clock
        tokio::time::sleep(Duration::from_secs(8)).await;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        assert!(stream.read(&mut buffer).await.unwrap() > 0);
    }
    stream.write_all(b"GET /healthz HTTP/1.1\r\nX: ").await.unwrap();
    let slow_headers = async {
        while stream.write_all(b"x").await.is_ok() {
            // sleep: the time between two bytes of a slow peer, on a paused clock
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let (_, accepted) = tokio::join!(slow_headers, async {
        let accepted = accepted.await.unwrap();
        assert!((34..36).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
        accepted
    });
    assert!(matches!(accepted, Err(AcceptError::Deadline)));
}

#[tokio::test(start_paused = true)]
async fn a_missing_tls_handshake_times_out() {
    let files = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (files.path().join("cert.pem"), files.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let (waited, _) = send_and_wait_for_timeout(Some(transport::tls_acceptor(&certificate, &key).unwrap()), "").await;
    assert!(is_timeout(waited), "{waited:?}");
}
