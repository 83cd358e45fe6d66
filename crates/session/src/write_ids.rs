//! Remembers which writes to the stdin of a process were accepted. So a client may repeat a write after a lost
//! connection, and the process still gets the bytes only once.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};

use protocol::WriteId;

/// How many write ids of one process are remembered. A repeated write with an older id is written again. This does
/// not happen in practice: a client repeats only unanswered writes, and does not have that many.
pub const MAX_REMEMBERED_WRITES: usize = 4096;

/// The most recent write ids of a process. Only a hash of 128 bits is kept of each id, so that long ids need no more memory. The hash is
/// keyed with random numbers, so that a client cannot choose two ids with the same hash.
#[derive(Debug, Default)]
pub struct WriteIds {
    keys: [RandomState; 2],
    known: HashSet<IdHash>,
    oldest_first: VecDeque<IdHash>,
}

type IdHash = [u64; 2];

impl WriteIds {
    /// Whether a write with this id was remembered.
    pub fn contains(&self, id: &WriteId) -> bool {
        !self.known.is_empty() && self.known.contains(&self.hash(id))
    }

    /// Remembers the id of a write. Beyond [`MAX_REMEMBERED_WRITES`] ids, the oldest is forgotten.
    pub fn remember(&mut self, id: &WriteId) {
        let hash = self.hash(id);
        if !self.known.insert(hash) {
            return;
        }
        self.oldest_first.push_back(hash);
        if self.oldest_first.len() > MAX_REMEMBERED_WRITES
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    fn hash(&self, id: &WriteId) -> IdHash {
        [self.keys[0].hash_one(id.as_str()), self.keys[1].hash_one(id.as_str())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_id_is_forgotten_first() {
        let mut ids = WriteIds::default();
        for n in 0..=MAX_REMEMBERED_WRITES {
            ids.remember(&WriteId::from(n.to_string()));
            // An id that is already known takes no second place.
            ids.remember(&WriteId::from(n.to_string()));
        }
        assert!(!ids.contains(&WriteId::from("0")));
        assert!(ids.contains(&WriteId::from("1")));
        assert_eq!(ids.known.len(), MAX_REMEMBERED_WRITES);
    }
}
