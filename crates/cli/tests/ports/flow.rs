//! Backpressure: a side that does not read makes the other one wait, and neither the server nor the command keeps much.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use testkit::{TestServer, eventually, resident_bytes};
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::support::{Forwarding, echo_server, in_time, tcp_server};

/// More than all buffers on the way together: those of the kernel and those of server and command.
const ENDLESS_BYTES: usize = 256 << 20;

/// The most memory that server and command may take in addition while a stream is stalled.
const GROWTH_BYTES: usize = 16 << 20;

/// Writes until the other side has gone, and counts the bytes.
async fn write_endlessly(mut to: impl AsyncWrite + Unpin, written: &AtomicUsize) {
    let block = vec![b'x'; 64 << 10];
    while written.load(Ordering::SeqCst) < ENDLESS_BYTES && to.write_all(&block).await.is_ok() {
        written.fetch_add(block.len(), Ordering::SeqCst);
    }
}

/// Waits until no byte was written for 300 ms.
async fn wait_until_stalled(written: &AtomicUsize) -> usize {
    let mut last = (0, Instant::now());
    eventually("nothing more is written", || {
        let now = written.load(Ordering::SeqCst);
        if now != last.0 {
            last = (now, Instant::now());
        }
        (last.0 > 0 && last.1.elapsed() > Duration::from_millis(300)).then_some(last.0)
    })
    .await
}

#[tokio::test]
async fn a_visitor_that_does_not_read_makes_the_target_wait_and_delays_no_other_visitor() {
    let (server, echo) = (TestServer::start().await, echo_server().await);
    let written = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&written);
    let target = tcp_server(move |stream| {
        let counted = Arc::clone(&counted);
        async move { write_endlessly(stream, &counted).await }
    })
    .await;
    let forwarding = Forwarding::start(server.url(), &[target.to_string(), echo.to_string()]).await;
    let before = [server.pid(), forwarding.pid()].map(resident_bytes);
    let stalled = forwarding.connect().await;
    let bytes = wait_until_stalled(&written).await;
    assert!(bytes < ENDLESS_BYTES, "the target never had to wait");
    for (pid, before) in [server.pid(), forwarding.pid()].into_iter().zip(before) {
        let growth = resident_bytes(pid).saturating_sub(before);
        assert!(growth < GROWTH_BYTES, "{growth} bytes more");
    }
    let mut other = tokio::net::TcpStream::connect(&forwarding.addresses[1]).await.unwrap();
    other.write_u8(7).await.unwrap();
    assert_eq!(in_time(other.read_u8()).await.unwrap(), 7);
    drop(stalled);
}

#[tokio::test]
async fn a_target_that_does_not_read_makes_the_visitor_wait_and_a_stream_goes_on_when_it_reads() {
    let server = TestServer::start().await;
    let (go, may_read) = tokio::sync::watch::channel(false);
    let target = tcp_server(move |mut stream| {
        let mut may_read = may_read.clone();
        async move {
            may_read.wait_for(|may_read| *may_read).await.unwrap();
            let mut total = 0;
            let mut block = vec![0; 64 << 10];
            loop {
                match stream.read(&mut block).await.unwrap() {
                    0 => break,
                    length => total += length as u64,
                }
            }
            stream.write_u64(total).await.unwrap();
        }
    })
    .await;
    let forwarding = Forwarding::one(server.url(), target).await;
    let before = [server.pid(), forwarding.pid()].map(resident_bytes);
    let (mut read, mut write) = forwarding.connect().await.into_split();
    let written = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&written);
    let writing = tokio::spawn(async move {
        write_endlessly(&mut write, &counted).await;
        write.shutdown().await.unwrap();
    });
    let bytes = wait_until_stalled(&written).await;
    assert!(bytes < ENDLESS_BYTES, "the visitor never had to wait");
    for (pid, before) in [server.pid(), forwarding.pid()].into_iter().zip(before) {
        let growth = resident_bytes(pid).saturating_sub(before);
        assert!(growth < GROWTH_BYTES, "{growth} bytes more");
    }
    go.send(true).unwrap();
    assert_eq!(in_time(read.read_u64()).await.unwrap(), ENDLESS_BYTES as u64);
    writing.await.unwrap();
}
