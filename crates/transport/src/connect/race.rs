//! Finds the address of a host that answers. A host often has addresses of two families, and one family may lead nowhere: its packets
//! vanish without an error. So the addresses race, as RFC 8305 ("Happy Eyeballs") describes it, and one dead address costs a moment
//! and not the whole time that connecting may take. It does not look names up and sets no deadline.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long an attempt runs alone before the next address is tried beside it; what RFC 8305 recommends.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Connects to the first address that answers. The others are given up. Fails with the error of the last address that failed.
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
                    // An address that says no makes room for the next one at once.
                    next_attempt = Instant::now();
                }
            },
            () = tokio::time::sleep_until(next_attempt), if untried.peek().is_some() => {}
        }
    }
}

/// The addresses with their families in turn, beginning with the family that the system prefers: when a family leads nowhere, the
/// second attempt is one of the other family.
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

    /// Longer than a healthy attempt takes on a loaded machine, and shorter than the system takes to give an address up.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// An address whose connections are never answered: its queue is full, and nobody accepts.
    struct BlackHole {
        address: SocketAddr,
        _listener: TcpListener,
        _queued: Vec<JoinSet<io::Result<TcpStream>>>,
    }

    impl BlackHole {
        async fn dig() -> Self {
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
                // Kept: a connection that is dropped makes room in the queue.
                if let Ok(Some(Ok(stream))) = answered {
                    attempt.spawn(async { stream });
                }
                queued.push(attempt);
                assert!(queued.len() < 64, "the queue of a listener does not fill");
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
    fn families_take_turns() {
        let given = addresses(&["[::1]:1", "[::2]:1", "[::3]:1", "127.0.0.1:1"]);
        assert_eq!(interleaved(given), addresses(&["[::1]:1", "127.0.0.1:1", "[::2]:1", "[::3]:1"]));
        let given = addresses(&["127.0.0.1:1", "[::1]:1", "[::2]:1"]);
        assert_eq!(interleaved(given), addresses(&["127.0.0.1:1", "[::1]:1", "[::2]:1"]));
        assert_eq!(interleaved(Vec::new()), Vec::new());
    }

    #[tokio::test]
    async fn an_address_that_leads_nowhere_costs_a_moment() {
        let black_hole = BlackHole::dig().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let answering = listener.local_addr().unwrap();
        let connecting = connect_to_first(vec![black_hole.address, answering]);
        let stream =
            tokio::time::timeout(PATIENCE, connecting).await.expect("it waits for an address that leads nowhere");
        assert_eq!(stream.unwrap().peer_addr().unwrap(), answering);
    }

    #[tokio::test]
    async fn an_address_that_refuses_gives_way_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let answering = listener.local_addr().unwrap();
        let stream = connect_to_first(vec![closed, answering]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), answering);
        assert_eq!(connect_to_first(vec![closed]).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(connect_to_first(Vec::new()).await.unwrap_err().to_string(), "the host has no address");
    }
}
