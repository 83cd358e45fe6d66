//! Connects to the first address of a host that answers. A host often has IPv4 and IPv6 addresses, and packets to one
//! of the families may be lost without an error. So several attempts run at the same time, as RFC 8305 ("Happy
//! Eyeballs") describes. An address that does not answer costs 250 ms instead of the connect timeout of the system,
//! which is minutes. This module does not resolve names, and has no timeout of its own.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Time from the start of an attempt to the start of the next one, if no attempt fails in between. RFC 8305
/// recommends this value.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Connects to the first address that answers and cancels the other attempts. If all fail, returns the error of the last one that failed.
pub(super) async fn connect_to_first(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut untried = interleaved(addresses).into_iter().peekable();
    let mut attempts = JoinSet::new();
    let mut next_attempt = Instant::now();
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    loop {
        if Instant::now() >= next_attempt || attempts.is_empty() {
            match untried.next() {
                Some(address) => drop(attempts.spawn(TcpStream::connect(address))),
                None if attempts.is_empty() => return Err(failure),
                None => {}
            }
            next_attempt = Instant::now() + ATTEMPT_DELAY;
        }
        tokio::select! {
            Some(finished) = attempts.join_next() => match finished.unwrap_or_else(|error| Err(io::Error::other(error))) {
                Ok(stream) => return Ok(stream),
                Err(error) => {
                    failure = error;
                    // After a failure, such as a refusal, the next address is tried at once.
                    next_attempt = Instant::now();
                }
            },
            () = tokio::time::sleep_until(next_attempt), if untried.peek().is_some() => {}
        }
    }
}

/// Alternates between the address families, beginning with the one that the system lists first. If that family does not work, the
/// second attempt already uses the other one.
fn interleaved(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let prefers_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (preferred, rest): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == prefers_v6);
    let (mut preferred, mut rest) = (preferred.into_iter(), rest.into_iter());
    std::iter::from_fn(|| match (preferred.next(), rest.next()) {
        (None, None) => None,
        pair => Some(pair),
    })
    .flat_map(|(first, second)| first.into_iter().chain(second))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use tokio::net::{TcpListener, TcpSocket};

    /// Longer than an attempt that succeeds takes on a busy machine, and shorter than the connect timeout of the system.
    const TEST_TIMEOUT: Duration = Duration::from_secs(20);

    /// An address that never answers: the accept queue of its listener is full, and nothing accepts.
    struct UnresponsiveAddress {
        address: SocketAddr,
        _listener: TcpListener,
        _queued: Vec<JoinSet<io::Result<TcpStream>>>,
    }

    impl UnresponsiveAddress {
        async fn new() -> Self {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let listener = socket.listen(1).unwrap();
            let address = listener.local_addr().unwrap();
            let mut queued = Vec::new();
            loop {
                let mut attempt = JoinSet::new();
                attempt.spawn(TcpStream::connect(address));
                let answered = tokio::time::timeout(Duration::from_millis(200), attempt.join_next()).await;
                let is_full = answered.is_err();
                // The connection is kept, because dropping it would free its slot in the queue.
                if let Ok(Some(Ok(stream))) = answered {
                    attempt.spawn(async { stream });
                }
                queued.push(attempt);
                assert!(queued.len() < 64, "the accept queue does not fill up");
                if is_full {
                    return Self { address, _listener: listener, _queued: queued };
                }
            }
        }
    }

    fn addresses(list: &[&str]) -> Vec<SocketAddr> {
        list.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[test]
    fn address_families_alternate() {
        let given = addresses(&["[::1]:1", "[::2]:1", "[::3]:1", "127.0.0.1:1"]);
        assert_eq!(interleaved(given), addresses(&["[::1]:1", "127.0.0.1:1", "[::2]:1", "[::3]:1"]));
        let given = addresses(&["127.0.0.1:1", "[::1]:1", "[::2]:1"]);
        assert_eq!(interleaved(given), addresses(&["127.0.0.1:1", "[::1]:1", "[::2]:1"]));
        assert_eq!(interleaved(Vec::new()), Vec::new());
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_does_not_block_the_next_address() {
        let unresponsive = UnresponsiveAddress::new().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let answering = listener.local_addr().unwrap();
        let connecting = connect_to_first(vec![unresponsive.address, answering]);
        let stream = tokio::time::timeout(TEST_TIMEOUT, connecting)
            .await
            .expect("the attempt waits for the address that does not answer");
        assert_eq!(stream.unwrap().peer_addr().unwrap(), answering);
    }

    #[tokio::test]
    async fn connecting_fails_only_if_no_address_is_left_to_try() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let answering = listener.local_addr().unwrap();
        let stream = connect_to_first(vec![closed, answering]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), answering);
        assert_eq!(connect_to_first(vec![closed]).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(connect_to_first(Vec::new()).await.unwrap_err().to_string(), "the host has no address");
    }
}
