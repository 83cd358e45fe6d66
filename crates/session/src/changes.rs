//! The changes in a watched directory, as numbered messages to the client. The newest messages are kept after they
//! were sent. A client that reconnects sends the number of the last message that it has, and [`ChangeLog`] repeats
//! the later messages. If they are no longer kept, one message tells the client to read the whole directory.
//!
//! [`ChangeLog`] knows neither paths nor files; `C` is the type of a change.

use std::collections::VecDeque;
use std::sync::Arc;

/// The most changes in one message. A message stays far below the largest message size, however long the paths are.
pub const MAX_CHANGES_PER_MESSAGE: usize = 500;

/// One message of a watch.
#[derive(Debug, PartialEq, Eq)]
pub struct ChangeMessage<C> {
    /// Number of the message. The first message has 1, and no number is left out.
    pub seq: u64,
    /// The changes, in an order in which they can be applied.
    pub changes: Arc<[C]>,
    /// Changes were lost, so the client must read the whole directory.
    pub overflow: bool,
    /// The watch has ended: this is the last message.
    pub ended: bool,
}

impl<C> Clone for ChangeMessage<C> {
    fn clone(&self) -> Self {
        Self { seq: self.seq, changes: Arc::clone(&self.changes), overflow: self.overflow, ended: self.ended }
    }
}

/// The changes that a watch has seen, sent or not.
#[derive(Debug)]
pub struct ChangeLog<C> {
    /// Number of changes that may wait to be sent. Also the number of changes, and of messages, that are kept after
    /// they were sent.
    limit: usize,
    /// Changes that are in no message yet.
    waiting: Vec<C>,
    overflow: bool,
    ended: bool,
    /// A message with `ended` was made.
    end_sent: bool,
    /// The newest messages, kept for a client that reconnects.
    messages: VecDeque<ChangeMessage<C>>,
    /// Number of changes in `messages`.
    kept_changes: usize,
    /// Number of the last message that was made.
    last_seq: u64,
    /// Number of the last message that was sent over the present connection.
    sent: u64,
}

impl<C> ChangeLog<C> {
    /// The log of a watch that has seen no change.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            waiting: Vec::new(),
            overflow: false,
            ended: false,
            end_sent: false,
            messages: VecDeque::new(),
            kept_changes: 0,
            last_seq: 0,
            sent: 0,
        }
    }

    /// The watch has seen changes. `overflow` says that the watch has missed other changes.
    pub fn add(&mut self, changes: Vec<C>, overflow: bool) {
        self.overflow |= overflow;
        if self.overflow {
            // A client that reads the whole directory sees these changes too.
            self.waiting.clear();
        } else if self.waiting.len() + changes.len() > self.limit {
            self.waiting = Vec::new();
            self.overflow = true;
        } else {
            self.waiting.extend(changes);
        }
    }

    /// The watch has ended: no change follows.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Whether the client was sent the last message.
    pub fn is_over(&self) -> bool {
        self.end_sent && self.sent == self.last_seq
    }

    /// Takes the next message for the client.
    pub fn next_message(&mut self) -> Option<ChangeMessage<C>> {
        if self.sent < self.last_seq {
            // `resume` lowers `sent` only if the message `sent + 1` is kept.
            let message = self.messages.iter().find(|message| message.seq == self.sent + 1).cloned();
            self.sent += 1;
            return message;
        }
        let has_end = self.ended && !self.end_sent;
        if self.waiting.is_empty() && !self.overflow && !has_end {
            return None;
        }
        self.last_seq += 1;
        let later = self.waiting.split_off(self.waiting.len().min(MAX_CHANGES_PER_MESSAGE));
        let is_last = later.is_empty();
        let message = ChangeMessage {
            seq: self.last_seq,
            changes: std::mem::replace(&mut self.waiting, later).into(),
            overflow: std::mem::take(&mut self.overflow),
            ended: self.ended && is_last,
        };
        self.end_sent = message.ended;
        self.sent = self.last_seq;
        self.keep(message.clone());
        Some(message)
    }

    /// A client that has all messages up to `seq` is connected. The next calls of [`next_message`](Self::next_message) return the later
    /// messages. If these are no longer kept, the next message is an overflow instead.
    pub fn resume(&mut self, seq: u64) {
        if seq >= self.last_seq {
            self.sent = self.last_seq;
            return;
        }
        let kept_from = self.messages.front().map_or(self.last_seq + 1, |message| message.seq);
        if seq + 1 >= kept_from {
            self.sent = seq;
            return;
        }
        self.sent = self.last_seq;
        self.waiting.clear();
        self.overflow = true;
        self.end_sent = false;
    }

    fn keep(&mut self, message: ChangeMessage<C>) {
        self.kept_changes += message.changes.len();
        self.messages.push_back(message);
        while self.kept_changes > self.limit || self.messages.len() > self.limit {
            let Some(oldest) = self.messages.pop_front() else { break };
            self.kept_changes -= oldest.changes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next message: its number, its changes, `overflow` and `ended`.
    fn next(log: &mut ChangeLog<u32>) -> Option<(u64, Vec<u32>, bool, bool)> {
        log.next_message().map(|message| (message.seq, message.changes.to_vec(), message.overflow, message.ended))
    }

    #[test]
    fn one_message_has_all_changes_that_wait() {
        let mut log = ChangeLog::new(10);
        assert_eq!(next(&mut log), None);
        log.add(vec![1], false);
        log.add(vec![2, 3], false);
        assert_eq!(next(&mut log), Some((1, vec![1, 2, 3], false, false)));
        assert_eq!(next(&mut log), None);
    }

    #[test]
    fn too_many_waiting_changes_are_an_overflow_and_later_changes_follow_it() {
        let mut log = ChangeLog::new(3);
        log.add(vec![1, 2], false);
        log.add(vec![3, 4], false);
        log.add(vec![5], false);
        assert_eq!(next(&mut log), Some((1, vec![], true, false)));
        log.add(vec![6], false);
        assert_eq!(next(&mut log), Some((2, vec![6], false, false)));
    }

    #[test]
    fn many_changes_are_divided_and_only_the_last_message_has_the_end() {
        let mut log = ChangeLog::new(2000);
        log.add((0..1200).collect(), false);
        log.end();
        let messages: Vec<_> = std::iter::from_fn(|| next(&mut log)).collect();
        let shape: Vec<_> = messages.iter().map(|(seq, changes, _, ended)| (*seq, changes.len(), *ended)).collect();
        assert_eq!(shape, [(1, 500, false), (2, 500, false), (3, 200, true)]);
        assert_eq!(
            messages.into_iter().flat_map(|(_, changes, ..)| changes).collect::<Vec<_>>(),
            Vec::from_iter(0..1200)
        );
        assert!(log.is_over());
    }

    #[test]
    fn a_client_that_reconnects_gets_the_messages_it_missed() {
        let mut log = ChangeLog::new(10);
        for change in 1..=3 {
            log.add(vec![change], false);
            log.next_message();
        }
        log.add(vec![4], false);
        log.resume(1);
        assert_eq!(next(&mut log), Some((2, vec![2], false, false)));
        assert_eq!(next(&mut log), Some((3, vec![3], false, false)));
        assert_eq!(next(&mut log), Some((4, vec![4], false, false)));
        log.resume(4);
        assert_eq!(next(&mut log), None);
    }

    #[test]
    fn a_client_that_missed_too_many_changes_gets_an_overflow() {
        let mut log = ChangeLog::new(2);
        for change in 1..=5 {
            log.add(vec![change], false);
            log.next_message();
        }
        log.resume(1);
        assert_eq!(next(&mut log), Some((6, vec![], true, false)));
        assert_eq!(next(&mut log), None);
    }

    #[test]
    fn a_client_that_claims_to_have_messages_of_the_future_misses_none() {
        let mut log = ChangeLog::new(2);
        log.add(vec![1], false);
        log.next_message();
        log.resume(99);
        log.add(vec![2], false);
        assert_eq!(next(&mut log), Some((2, vec![2], false, false)));
    }

    #[test]
    fn the_end_is_sent_once_and_again_to_a_client_that_missed_it() {
        let mut log = ChangeLog::new(2);
        log.add(vec![1], false);
        log.end();
        assert!(!log.is_over());
        assert_eq!(next(&mut log), Some((1, vec![1], false, true)));
        assert!(log.is_over());
        log.resume(0);
        assert!(!log.is_over());
        assert_eq!(next(&mut log), Some((1, vec![1], false, true)));
        assert_eq!(next(&mut log), None);
    }
}
