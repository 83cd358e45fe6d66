//! Which writes were already taken, so that a client may repeat one after a lost connection.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};

use protocol::WriteId;

/// A client has at most so many writes whose fate it does not know.
const REMEMBERED: usize = 4096;

/// The most recent write ids of a process. What is kept is 128 bits of each, under keys nobody else knows: enough to tell
/// them apart, and little enough to keep many, however long they are.
#[derive(Debug, Default)]
pub struct WriteIds {
    keys: [RandomState; 2],
    known: HashSet<Print>,
    oldest_first: VecDeque<Print>,
}

type Print = [u64; 2];

impl WriteIds {
    /// Whether this write was taken before.
    pub fn contains(&self, id: &WriteId) -> bool {
        !self.known.is_empty() && self.known.contains(&self.print(id))
    }

    /// Remembers a write, forgetting the oldest if there are too many.
    pub fn remember(&mut self, id: &WriteId) {
        let print = self.print(id);
        if !self.known.insert(print) {
            return;
        }
        self.oldest_first.push_back(print);
        if self.oldest_first.len() > REMEMBERED
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    fn print(&self, id: &WriteId) -> Print {
        [self.keys[0].hash_one(id.as_str()), self.keys[1].hash_one(id.as_str())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_the_oldest_first() {
        let mut ids = WriteIds::default();
        for n in 0..=REMEMBERED {
            ids.remember(&WriteId::from(n.to_string()));
            ids.remember(&WriteId::from(n.to_string()));
        }
        assert!(!ids.contains(&WriteId::from("0")));
        assert!(ids.contains(&WriteId::from("1")));
        assert_eq!(ids.known.len(), REMEMBERED);
    }
}
