//! Peers that keep us waiting. The clock is paused and jumps to the next deadline whenever everybody waits.

use std::time::Duration;

use crate::support::{Owner, accept_one, address, listen};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use transport::AcceptError;

const PATIENCE: Duration = Duration::from_secs(10);

/// Sends `bytes`, waits for the server to give up, and says how long that took and what it had answered.
async fn stall(tls: Option<transport::TlsAcceptor>, bytes: &str) -> (Duration, String) {
    let listener = listen(tls).await;
    let address = address(&listener);
    let started = Instant::now();
    let accepted = accept_one(listener, Owner::default());
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    let mut answered = String::new();
    stream.read_to_string(&mut answered).await.unwrap();
    assert!(matches!(accepted.await.unwrap(), Err(AcceptError::Deadline)));
    (started.elapsed(), answered)
}

fn is_patience(waited: Duration) -> bool {
    (PATIENCE..PATIENCE + Duration::from_millis(100)).contains(&waited)
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_dropped() {
    let (waited, answered) = stall(None, "").await;
    assert!(is_patience(waited) && answered.is_empty(), "{waited:?} {answered}");
}

#[tokio::test(start_paused = true)]
async fn unfinished_headers_are_dropped() {
    let (waited, answered) = stall(None, "GET / HTTP/1.1\r\nHost: localhost\r\n").await;
    assert!(is_patience(waited) && answered.is_empty(), "{waited:?} {answered}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_dropped_after_its_last_request() {
    let (waited, answered) = stall(None, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(is_patience(waited) && answered.starts_with("HTTP/1.1 200 "), "{waited:?} {answered}");
}

#[tokio::test(start_paused = true)]
async fn each_request_buys_more_time_but_dripping_headers_do_not() {
    let listener = listen(None).await;
    let address = address(&listener);
    let accepted = accept_one(listener, Owner::default());
    let started = Instant::now();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut buffer = [0; 1024];
    for _ in 0..3 {
        // sleep: on a paused clock, the idle time that is under test
        tokio::time::sleep(Duration::from_secs(8)).await;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        assert!(stream.read(&mut buffer).await.unwrap() > 0);
    }
    stream.write_all(b"GET /healthz HTTP/1.1\r\nX: ").await.unwrap();
    let drip = async {
        while stream.write_all(b"x").await.is_ok() {
            // sleep: on a paused clock, the pace of a peer that drips
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let (_, accepted) = tokio::join!(drip, async {
        let accepted = accepted.await.unwrap();
        assert!((34..36).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
        accepted
    });
    assert!(matches!(accepted, Err(AcceptError::Deadline)));
}

#[tokio::test(start_paused = true)]
async fn a_tls_handshake_that_never_comes_is_dropped() {
    let files = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (files.path().join("cert.pem"), files.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let (waited, _) = stall(Some(transport::tls_acceptor(&certificate, &key).unwrap()), "").await;
    assert!(is_patience(waited), "{waited:?}");
}
