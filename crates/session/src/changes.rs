//! What a watch has to tell, and what it has told: a client that comes back says up to where it knows, and is told the rest
//! again, or that it must look at everything.

use std::collections::VecDeque;
use std::sync::Arc;

/// What one message holds at most, so that it stays far below what a message may have however long the paths are.
const MESSAGE_CHANGES: usize = 500;

/// One message of a watch.
#[derive(Debug, PartialEq, Eq)]
pub struct Told<C> {
    /// From 1, without holes.
    pub seq: u64,
    /// In the order in which they can be applied.
    pub changes: Arc<[C]>,
    /// More has changed than could be told.
    pub overflow: bool,
    /// Nothing follows.
    pub ended: bool,
}

impl<C> Clone for Told<C> {
    fn clone(&self) -> Self {
        Self { seq: self.seq, changes: Arc::clone(&self.changes), overflow: self.overflow, ended: self.ended }
    }
}

/// The changes that a watch has seen.
#[derive(Debug)]
pub struct ChangeLog<C> {
    /// Changes that may wait, and changes that are kept after they were told.
    limit: usize,
    waiting: Vec<C>,
    overflow: bool,
    ended: bool,
    end_told: bool,
    told: VecDeque<Told<C>>,
    told_changes: usize,
    /// The last message that was made.
    last_seq: u64,
    /// The last message that went to the client that is there now.
    sent: u64,
}

impl<C> ChangeLog<C> {
    /// A watch that has seen nothing.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            waiting: Vec::new(),
            overflow: false,
            ended: false,
            end_told: false,
            told: VecDeque::new(),
            told_changes: 0,
            last_seq: 0,
            sent: 0,
        }
    }

    /// Something has changed, or more than can be said.
    pub fn add(&mut self, changes: Vec<C>, overflow: bool) {
        self.overflow |= overflow;
        if self.overflow {
            // Whoever looks at everything sees these too.
            self.waiting.clear();
        } else if self.waiting.len() + changes.len() > self.limit {
            self.waiting = Vec::new();
            self.overflow = true;
        } else {
            self.waiting.extend(changes);
        }
    }

    /// Nothing more will change.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Whether everything was told and nothing more will come.
    pub fn is_over(&self) -> bool {
        self.end_told && self.sent == self.last_seq
    }

    /// The next message for the client.
    pub fn tell_next(&mut self) -> Option<Told<C>> {
        if self.sent < self.last_seq {
            // `resume` has made sure that it is kept.
            let told = self.told.iter().find(|told| told.seq == self.sent + 1).cloned();
            self.sent += 1;
            return told;
        }
        let has_end = self.ended && !self.end_told;
        if self.waiting.is_empty() && !self.overflow && !has_end {
            return None;
        }
        self.last_seq += 1;
        let later = self.waiting.split_off(self.waiting.len().min(MESSAGE_CHANGES));
        let is_last = later.is_empty();
        let told = Told {
            seq: self.last_seq,
            changes: std::mem::replace(&mut self.waiting, later).into(),
            overflow: std::mem::take(&mut self.overflow),
            ended: self.ended && is_last,
        };
        self.end_told = told.ended;
        self.sent = self.last_seq;
        self.keep(told.clone());
        Some(told)
    }

    /// A client is there, perhaps again, that knows everything up to `seq`. What it missed follows; if that is no longer
    /// kept, it is told to look at everything.
    pub fn resume(&mut self, seq: u64) {
        if seq >= self.last_seq {
            self.sent = self.last_seq;
            return;
        }
        let kept_from = self.told.front().map_or(self.last_seq + 1, |told| told.seq);
        if seq + 1 >= kept_from {
            self.sent = seq;
            return;
        }
        self.sent = self.last_seq;
        self.waiting.clear();
        self.overflow = true;
        self.end_told = false;
    }

    fn keep(&mut self, told: Told<C>) {
        self.told_changes += told.changes.len();
        self.told.push_back(told);
        while self.told_changes > self.limit || self.told.len() > self.limit {
            let Some(oldest) = self.told.pop_front() else { break };
            self.told_changes -= oldest.changes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(log: &mut ChangeLog<u32>) -> Option<(u64, Vec<u32>, bool, bool)> {
        log.tell_next().map(|told| (told.seq, told.changes.to_vec(), told.overflow, told.ended))
    }

    #[test]
    fn what_waits_is_told_at_once() {
        let mut log = ChangeLog::new(10);
        assert_eq!(told(&mut log), None);
        log.add(vec![1], false);
        log.add(vec![2, 3], false);
        assert_eq!(told(&mut log), Some((1, vec![1, 2, 3], false, false)));
        assert_eq!(told(&mut log), None);
    }

    #[test]
    fn more_than_may_wait_is_an_overflow_and_then_it_goes_on() {
        let mut log = ChangeLog::new(3);
        log.add(vec![1, 2], false);
        log.add(vec![3, 4], false);
        log.add(vec![5], false);
        assert_eq!(told(&mut log), Some((1, vec![], true, false)));
        log.add(vec![6], false);
        assert_eq!(told(&mut log), Some((2, vec![6], false, false)));
    }

    #[test]
    fn many_changes_go_in_several_messages_and_the_end_in_the_last() {
        let mut log = ChangeLog::new(2000);
        log.add((0..1200).collect(), false);
        log.end();
        let messages: Vec<_> = std::iter::from_fn(|| told(&mut log)).collect();
        let shape: Vec<_> = messages.iter().map(|(seq, changes, _, ended)| (*seq, changes.len(), *ended)).collect();
        assert_eq!(shape, [(1, 500, false), (2, 500, false), (3, 200, true)]);
        assert_eq!(
            messages.into_iter().flat_map(|(_, changes, ..)| changes).collect::<Vec<_>>(),
            Vec::from_iter(0..1200)
        );
        assert!(log.is_over());
    }

    #[test]
    fn a_client_that_comes_back_is_told_what_it_missed() {
        let mut log = ChangeLog::new(10);
        for change in 1..=3 {
            log.add(vec![change], false);
            log.tell_next();
        }
        log.add(vec![4], false);
        log.resume(1);
        assert_eq!(told(&mut log), Some((2, vec![2], false, false)));
        assert_eq!(told(&mut log), Some((3, vec![3], false, false)));
        assert_eq!(told(&mut log), Some((4, vec![4], false, false)));
        log.resume(4);
        assert_eq!(told(&mut log), None);
    }

    #[test]
    fn a_client_that_missed_too_much_must_look_at_everything() {
        let mut log = ChangeLog::new(2);
        for change in 1..=5 {
            log.add(vec![change], false);
            log.tell_next();
        }
        log.resume(1);
        assert_eq!(told(&mut log), Some((6, vec![], true, false)));
        assert_eq!(told(&mut log), None);
    }

    #[test]
    fn a_number_from_the_future_is_no_hole() {
        let mut log = ChangeLog::new(2);
        log.add(vec![1], false);
        log.tell_next();
        log.resume(99);
        log.add(vec![2], false);
        assert_eq!(told(&mut log), Some((2, vec![2], false, false)));
    }

    #[test]
    fn the_end_is_told_once_and_again_to_whoever_missed_it() {
        let mut log = ChangeLog::new(2);
        log.add(vec![1], false);
        log.end();
        assert!(!log.is_over());
        assert_eq!(told(&mut log), Some((1, vec![1], false, true)));
        assert!(log.is_over());
        log.resume(0);
        assert!(!log.is_over());
        assert_eq!(told(&mut log), Some((1, vec![1], false, true)));
        assert_eq!(told(&mut log), None);
    }
}
