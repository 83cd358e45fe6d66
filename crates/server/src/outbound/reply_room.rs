//! Permits for the memory of unsent answers ("room"). An answer that may be large, for example about files, takes
//! room of its connection. A large answer (more than `LARGE_ANSWER_BYTES`) also takes a part of the room that all
//! connections share (`--max-large-answers`). The queue of answers is in `outbound`.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::budget::BudgetShare;

/// A large answer takes at most a quarter of the shared room, so that a peer that does not read leaves room to others.
const LARGE_ANSWER_DIVISOR: usize = 4;
/// Bytes for which one permit of [`LargeAnswers::units`] stands.
const UNIT_BYTES: usize = 1 << 10;

/// The shared room for the large answers of all connections (`--max-large-answers`).
pub(crate) struct LargeAnswers {
    units: Arc<Semaphore>,
    /// The most units that one answer takes.
    most_units: u32,
}

/// Held by a large answer until it has been sent: its part of the shared room, and the permit that makes the large answers of a connection
/// wait for each other.
pub(crate) struct LargeAnswerRoom {
    _connection_permit: OwnedSemaphorePermit,
    _units: OwnedSemaphorePermit,
}

impl LargeAnswers {
    pub(crate) fn new(bytes: usize) -> Self {
        let units = bytes.div_ceil(UNIT_BYTES).clamp(LARGE_ANSWER_DIVISOR, Semaphore::MAX_PERMITS);
        let most_units = u32::try_from(units / LARGE_ANSWER_DIVISOR).unwrap_or(u32::MAX);
        Self { units: Arc::new(Semaphore::new(units)), most_units }
    }

    /// Waits for `connection_permit`, the permit that only one large answer of a connection can have at a time, and
    /// then for shared room. An answer that is larger than a quarter of the shared room takes a quarter. None if a
    /// semaphore was closed.
    pub(crate) async fn room(&self, connection_permit: &Arc<Semaphore>, bytes: usize) -> Option<LargeAnswerRoom> {
        let connection_permit = Arc::clone(connection_permit).acquire_owned().await.ok()?;
        let units = Arc::clone(&self.units).acquire_many_owned(self.units_for(bytes)).await.ok()?;
        Some(LargeAnswerRoom { _connection_permit: connection_permit, _units: units })
    }

    /// As [`Self::room`], but does not wait: None if there is not enough room now.
    pub(crate) fn room_now(&self, connection_permit: &Arc<Semaphore>, bytes: usize) -> Option<LargeAnswerRoom> {
        let connection_permit = Arc::clone(connection_permit).try_acquire_owned().ok()?;
        let units = Arc::clone(&self.units).try_acquire_many_owned(self.units_for(bytes)).ok()?;
        Some(LargeAnswerRoom { _connection_permit: connection_permit, _units: units })
    }

    fn units_for(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT_BYTES)).map_or(self.most_units, |units| units.min(self.most_units))
    }
}

/// The permits of one answer. They are returned when this value is dropped.
pub(crate) struct ReplyRoom {
    /// Memory permits of the connection. For an answer to `process/read`: one of the few permits for such answers.
    _of_connection: OwnedSemaphorePermit,
    _large: Option<LargeAnswerRoom>,
    _http: Vec<BudgetShare>,
    /// Whether other connections may wait for a part of this room.
    pub(crate) is_shared: bool,
}

impl ReplyRoom {
    /// Adds the room of a large answer.
    pub(crate) fn with_large(self, large: Option<LargeAnswerRoom>) -> Self {
        Self { is_shared: large.is_some(), _large: large, ..self }
    }

    /// Adds the shares of the budgets for HTTP bodies that are held as a whole (`--max-buffered-http`).
    pub(crate) fn with_http(self, http: Vec<BudgetShare>) -> Self {
        Self { is_shared: true, _http: http, ..self }
    }
}

impl From<OwnedSemaphorePermit> for ReplyRoom {
    fn from(permit: OwnedSemaphorePermit) -> Self {
        Self { _of_connection: permit, _large: None, _http: Vec::new(), is_shared: false }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// The semaphore of a connection: one large answer at a time.
    fn connection_permit() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(1))
    }

    #[tokio::test]
    async fn one_connection_cannot_take_all_of_the_shared_room() {
        let all = LargeAnswers::new(64 << 20);
        let (one, other) = (connection_permit(), connection_permit());
        let first = all.room(&one, 500 << 20).await.unwrap();
        assert!(all.room_now(&one, 1).is_none(), "another large answer of this connection is unsent");
        assert!(
            timeout(Duration::ZERO, all.room(&one, 1)).await.is_err(),
            "another large answer of this connection is unsent"
        );
        let mut held: Vec<LargeAnswerRoom> = Vec::new();
        for connection in [&other, &connection_permit(), &connection_permit()] {
            held.push(all.room_now(connection, 16 << 20).unwrap());
        }
        let fifth = connection_permit();
        assert!(all.room_now(&fifth, 1).is_none(), "all of the room is taken");
        let mut waiting = Box::pin(all.room(&fifth, 16 << 20));
        assert!(timeout(Duration::ZERO, &mut waiting).await.is_err());
        drop(first);
        waiting.await.unwrap();
        all.room_now(&one, 1).unwrap();
    }

    #[tokio::test]
    async fn an_answer_that_is_dropped_while_it_waits_takes_no_room() {
        let all = LargeAnswers::new(4 << 10);
        let held: Vec<_> = [connection_permit(), connection_permit(), connection_permit(), connection_permit()]
            .iter()
            .map(|connection_permit| all.room_now(connection_permit, 1 << 10))
            .collect();
        assert!(held.iter().all(Option::is_some));
        let leaving = connection_permit();
        let waiting = timeout(Duration::ZERO, all.room(&leaving, 1 << 10)).await;
        assert!(waiting.is_err());
        drop(held);
        assert_eq!((all.units.available_permits(), leaving.available_permits()), (4, 1));
    }
}
