//! Which writes were already taken, so that a client may repeat one after a lost connection.

use std::collections::{HashSet, VecDeque};

use protocol::WriteId;

/// A client has at most so many writes whose fate it does not know.
const REMEMBERED: usize = 4096;

/// The most recent write ids of a process.
#[derive(Debug, Default)]
pub struct WriteIds {
    known: HashSet<WriteId>,
    oldest_first: VecDeque<WriteId>,
}

impl WriteIds {
    /// Whether this write was taken before.
    pub fn contains(&self, id: &WriteId) -> bool {
        self.known.contains(id)
    }

    /// Remembers a write, forgetting the oldest if there are too many.
    pub fn remember(&mut self, id: WriteId) {
        if !self.known.insert(id.clone()) {
            return;
        }
        self.oldest_first.push_back(id);
        if self.oldest_first.len() > REMEMBERED
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_the_oldest_first() {
        let mut ids = WriteIds::default();
        for n in 0..=REMEMBERED {
            ids.remember(WriteId::from(n.to_string()));
            ids.remember(WriteId::from(n.to_string()));
        }
        assert!(!ids.contains(&WriteId::from("0")));
        assert!(ids.contains(&WriteId::from("1")));
        assert_eq!(ids.known.len(), REMEMBERED);
    }
}
