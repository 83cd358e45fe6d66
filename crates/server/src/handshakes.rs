//! Connections that have not shown yet who they are. They have a number of places of their own, so that sockets which never send a
//! token cannot keep out a client that has one. Knows nothing of HTTP and tokens: the listener says who was admitted.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The places of all listeners of a server.
pub(crate) struct Handshakes {
    limit: usize,
    under_way: Mutex<Vec<PendingHandshake>>,
}

/// A connection in its handshake, the oldest first in the list.
struct PendingHandshake {
    /// None for a peer that has no address.
    address: Option<IpAddr>,
    gives_way: CancellationToken,
}

/// The place of one connection, until it is admitted or dropped.
pub(crate) struct Handshake {
    all: Arc<Handshakes>,
    gives_way: CancellationToken,
}

impl Handshakes {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, under_way: Mutex::default() })
    }

    /// Takes a place. If there is none, the oldest connection of the address that has the most of them gives way: a client that has
    /// a token shows it at once, and whoever fills the places with idle sockets pushes out only those. Never waits, so that the listener
    /// goes on to accept whatever becomes of the connections.
    pub(crate) fn enter(self: &Arc<Self>, address: Option<IpAddr>) -> Handshake {
        let address = address.map(|address| address.to_canonical());
        let mut under_way = self.under_way.lock();
        if under_way.len() >= self.limit
            && let Some(index) = gives_way(&under_way)
        {
            under_way.remove(index).gives_way.cancel();
        }
        let gives_way = CancellationToken::new();
        under_way.push(PendingHandshake { address, gives_way: gives_way.clone() });
        Handshake { all: Arc::clone(self), gives_way }
    }
}

/// Which connection gives way to the next one; none if there is none.
fn gives_way(under_way: &[PendingHandshake]) -> Option<usize> {
    let mut counts = HashMap::<_, usize>::new();
    for one in under_way {
        *counts.entry(one.address).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    under_way.iter().position(|one| counts.get(&one.address) == Some(&most))
}

impl Handshake {
    /// Waits until this connection has to give way to another one.
    pub(crate) async fn gives_way(&self) {
        self.gives_way.cancelled().await;
    }

    /// The peer may connect, and its handshake is over. False if it had to give way a moment ago.
    pub(crate) fn admit(&self) -> bool {
        let mut under_way = self.all.under_way.lock();
        let before = under_way.len();
        under_way.retain(|one| one.gives_way != self.gives_way);
        under_way.len() < before
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.admit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> Option<IpAddr> {
        Some([127, 0, 0, last].into())
    }

    fn had_to_give_way(handshake: &Handshake) -> bool {
        handshake.gives_way.is_cancelled()
    }

    #[test]
    fn the_oldest_of_the_address_with_the_most_gives_way() {
        let all = Handshakes::new(3);
        let client = all.enter(peer(1));
        let (first, second) = (all.enter(peer(2)), all.enter(peer(2)));
        let third = all.enter(peer(2));
        let given_way: Vec<bool> = [&client, &first, &second, &third].map(had_to_give_way).into();
        assert_eq!(given_way, [false, true, false, false]);
        assert!(!first.admit() && client.admit());
    }

    #[test]
    fn a_peer_that_was_admitted_has_left_its_place_to_the_next() {
        let all = Handshakes::new(1);
        let admitted = all.enter(peer(1));
        assert!(admitted.admit());
        let next = all.enter(peer(2));
        let third = all.enter(peer(2));
        assert_eq!([&admitted, &next, &third].map(had_to_give_way), [false, true, false]);
        drop((admitted, next));
        assert!(third.admit(), "the end of others does not touch its place");
    }
}
