//! Connections that have not shown yet who they are. They have a number of places of their own, so that sockets which never send a
//! token cannot keep out a client that has one. Knows nothing of HTTP and tokens: the listener says who was admitted.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use transport::PeerLabel;

/// The places of all listeners of a server.
pub(crate) struct Handshakes {
    limit: usize,
    under_way: Mutex<Vec<PendingHandshake>>,
    /// A place was given back.
    freed: Notify,
}

/// A connection in its handshake, the oldest first in the list.
struct PendingHandshake {
    /// None for a peer that has no address.
    address: Option<IpAddr>,
    /// Admitted connections wait for one of the places of connections, and no longer give way.
    is_admitted: bool,
    gives_way: CancellationToken,
}

/// The place of one connection, until dropped.
pub(crate) struct Handshake {
    all: Arc<Handshakes>,
    gives_way: CancellationToken,
}

impl Handshakes {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, under_way: Mutex::default(), freed: Notify::new() })
    }

    /// Takes a place. If there is none, the oldest connection of the address that has the most of them gives way: a client that has
    /// a token shows it at once, and whoever fills the places with idle sockets pushes out only those. Waits if all were admitted.
    pub(crate) async fn enter(self: &Arc<Self>, peer: PeerLabel) -> Handshake {
        let address = if let PeerLabel::Tcp(peer) = peer { Some(peer.ip().to_canonical()) } else { None };
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if let Some(handshake) = self.try_enter(address) {
                return handshake;
            }
            freed.await;
        }
    }

    fn try_enter(self: &Arc<Self>, address: Option<IpAddr>) -> Option<Handshake> {
        let mut under_way = self.under_way.lock();
        if under_way.len() >= self.limit {
            let index = gives_way(&under_way)?;
            under_way.remove(index).gives_way.cancel();
        }
        let gives_way = CancellationToken::new();
        under_way.push(PendingHandshake { address, is_admitted: false, gives_way: gives_way.clone() });
        Some(Handshake { all: Arc::clone(self), gives_way })
    }
}

/// Which connection gives way to the next one; none if all were admitted.
fn gives_way(under_way: &[PendingHandshake]) -> Option<usize> {
    let mut counts = HashMap::<_, usize>::new();
    let waiting = || under_way.iter().enumerate().filter(|(_, one)| !one.is_admitted);
    for (_, one) in waiting() {
        *counts.entry(one.address).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    waiting().find(|(_, one)| counts.get(&one.address) == Some(&most)).map(|(index, _)| index)
}

impl Handshake {
    /// Waits until this connection has to give way to another one.
    pub(crate) async fn gives_way(&self) {
        self.gives_way.cancelled().await;
    }

    /// The peer may connect. False if it had to give way a moment ago.
    pub(crate) fn admit(&self) -> bool {
        let mut under_way = self.all.under_way.lock();
        let own = under_way.iter_mut().find(|one| one.gives_way == self.gives_way);
        own.map(|one| one.is_admitted = true).is_some()
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.all.under_way.lock().retain(|one| one.gives_way != self.gives_way);
        self.all.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    fn peer(last: u8) -> PeerLabel {
        PeerLabel::Tcp(([127, 0, 0, last], 1000).into())
    }

    fn had_to_give_way(handshake: &Handshake) -> bool {
        handshake.gives_way.is_cancelled()
    }

    #[tokio::test]
    async fn the_oldest_of_the_address_with_the_most_gives_way() {
        let all = Handshakes::new(3);
        let client = all.enter(peer(1)).await;
        let (first, second) = (all.enter(peer(2)).await, all.enter(peer(2)).await);
        let third = all.enter(peer(2)).await;
        let given_way: Vec<bool> = [&client, &first, &second, &third].map(had_to_give_way).into();
        assert_eq!(given_way, [false, true, false, false]);
        assert!(!first.admit() && client.admit());
    }

    #[tokio::test]
    async fn who_was_admitted_stays_and_the_next_one_waits() {
        let all = Handshakes::new(1);
        let admitted = all.enter(peer(1)).await;
        assert!(admitted.admit());
        let mut next = Box::pin(all.enter(peer(2)));
        assert!(timeout(Duration::from_millis(20), &mut next).await.is_err());
        drop(admitted);
        assert!(!had_to_give_way(&next.await));
    }
}
