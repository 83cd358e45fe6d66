//! Counts connections and sessions together, so that a server that nobody uses can exit (`--exit-when-idle`).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// The number of connections and sessions. Clones share the number.
#[derive(Clone, Debug)]
pub(crate) struct Presence(Arc<watch::Sender<usize>>);

/// Counts one connection or session until the guard is dropped.
#[derive(Debug)]
pub(crate) struct PresenceGuard(Presence);

impl Presence {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    /// Counts another connection or session.
    pub(crate) fn enter(&self) -> PresenceGuard {
        self.0.send_modify(|count| *count += 1);
        PresenceGuard(self.clone())
    }

    /// Waits until the number has been 0 for the whole time `patience`.
    pub(crate) async fn wait_unused_for(&self, patience: Duration) {
        let mut count = self.0.subscribe();
        loop {
            // The sender lives in `self`, so neither wait can fail.
            let _ = count.wait_for(|count| *count == 0).await;
            if tokio::time::timeout(patience, count.changed()).await.is_err() {
                return;
            }
        }
    }
}

impl Drop for PresenceGuard {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const PATIENCE: Duration = Duration::from_millis(40);

    #[tokio::test]
    async fn the_time_counts_from_the_end_of_the_last_connection() {
        let start = Instant::now();
        let presence = Presence::new();
        let (one, two) = (presence.enter(), presence.enter());
        let leaving = async {
            drop(one);
            // sleep: one connection is left for longer than PATIENCE, so `wait_unused_for` must not return
            tokio::time::sleep(PATIENCE * 2).await;
            drop(two);
        };
        tokio::join!(presence.wait_unused_for(PATIENCE), leaving);
        assert!(start.elapsed() >= PATIENCE * 3, "{:?}", start.elapsed());
    }

    #[tokio::test]
    async fn a_short_connection_starts_the_time_again() {
        let presence = Presence::new();
        let unused = presence.wait_unused_for(PATIENCE);
        tokio::pin!(unused);
        let before_connection = tokio::time::timeout(PATIENCE / 4, &mut unused).await;
        let connected_at = Instant::now();
        drop(presence.enter());
        unused.await;
        assert!(before_connection.is_err() && connected_at.elapsed() >= PATIENCE, "{:?}", connected_at.elapsed());
    }
}
