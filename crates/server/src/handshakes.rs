//! Limits the connections that have not finished their handshake (`--max-handshakes`). They are counted apart from other connections, so
//! that sockets which never send a token cannot keep out a client that has a token. This module knows nothing of HTTP and tokens: the
//! listener reports which connections were admitted.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The unfinished handshakes of all listeners of a server.
pub(crate) struct Handshakes {
    limit: usize,
    /// The oldest handshake is the first.
    under_way: Mutex<Vec<PendingHandshake>>,
}

struct PendingHandshake {
    /// None for a peer that has no address.
    address: Option<IpAddr>,
    evicted: CancellationToken,
}

/// The handshake of one connection. It is counted until it is admitted, evicted or dropped.
pub(crate) struct Handshake {
    all: Arc<Handshakes>,
    evicted: CancellationToken,
}

impl Handshakes {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, under_way: Mutex::default() })
    }

    /// Counts another handshake. If the limit is reached, the oldest handshake of the address that has the most of
    /// them is evicted: a client that has a token sends it at once, and a peer that opens many idle sockets
    /// mostly evicts its own handshakes. This never waits, so the listener goes on accepting.
    pub(crate) fn enter(self: &Arc<Self>, address: Option<IpAddr>) -> Handshake {
        let address = address.map(|address| address.to_canonical());
        let mut under_way = self.under_way.lock();
        if under_way.len() >= self.limit
            && let Some(index) = index_to_evict(&under_way)
        {
            under_way.remove(index).evicted.cancel();
        }
        let evicted = CancellationToken::new();
        under_way.push(PendingHandshake { address, evicted: evicted.clone() });
        Handshake { all: Arc::clone(self), evicted }
    }
}

/// Index of the handshake to evict. None if the list is empty.
fn index_to_evict(under_way: &[PendingHandshake]) -> Option<usize> {
    let mut counts = HashMap::<_, usize>::new();
    for pending in under_way {
        *counts.entry(pending.address).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    under_way.iter().position(|pending| counts.get(&pending.address) == Some(&most))
}

impl Handshake {
    /// Waits until this handshake is evicted in favour of a newer one.
    pub(crate) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// Ends the handshake, because the peer may connect. Returns false if the handshake was evicted before.
    pub(crate) fn admit(&self) -> bool {
        self.stop_counting()
    }

    /// Returns false if the handshake was not counted any more.
    fn stop_counting(&self) -> bool {
        let mut under_way = self.all.under_way.lock();
        let before = under_way.len();
        under_way.retain(|pending| pending.evicted != self.evicted);
        under_way.len() < before
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.stop_counting();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last_byte: u8) -> Option<IpAddr> {
        Some([127, 0, 0, last_byte].into())
    }

    fn is_evicted(handshake: &Handshake) -> bool {
        handshake.evicted.is_cancelled()
    }

    #[test]
    fn the_oldest_handshake_of_the_address_with_the_most_is_evicted() {
        let all = Handshakes::new(3);
        let client = all.enter(address(1));
        let (first, second) = (all.enter(address(2)), all.enter(address(2)));
        let third = all.enter(address(2));
        assert_eq!([&client, &first, &second, &third].map(is_evicted), [false, true, false, false]);
        assert!(!first.admit() && client.admit());
    }

    #[test]
    fn an_admitted_handshake_is_not_counted_and_dropping_it_removes_no_other() {
        let all = Handshakes::new(1);
        let admitted = all.enter(address(1));
        assert!(admitted.admit());
        let next = all.enter(address(2));
        let third = all.enter(address(2));
        assert_eq!([&admitted, &next, &third].map(is_evicted), [false, true, false]);
        drop((admitted, next));
        assert!(third.admit(), "dropping other handshakes must not remove the third");
    }
}
