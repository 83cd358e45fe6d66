//! Bounds over all sessions together: of retained output, of input that waits for its process, of HTTP answers that are collected.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How much all holders hold together, and how much they may.
#[derive(Debug)]
pub(crate) struct Budget {
    held: AtomicUsize,
    limit: usize,
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { held: AtomicUsize::new(0), limit })
    }

    /// An account for one holder.
    pub(crate) fn account(self: &Arc<Self>) -> BudgetShare {
        BudgetShare { budget: Arc::clone(self), held: 0 }
    }

    /// How many bytes must be given back, with a margin so that it does not have to happen for each chunk.
    pub(crate) fn excess(&self) -> usize {
        let held = self.held.load(Ordering::Relaxed);
        if held <= self.limit { 0 } else { held - self.limit + self.limit / 16 }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }
}

/// The share of one holder.
#[derive(Debug)]
pub(crate) struct BudgetShare {
    budget: Arc<Budget>,
    held: usize,
}

impl BudgetShare {
    /// A holder that has nothing yet may always hold this much. With less, a process would stand still.
    pub(crate) const FAIR_MINIMUM: usize = 64 << 10;

    pub(crate) fn set(&mut self, held: usize) {
        if held == self.held {
            return;
        }
        if held >= self.held {
            self.budget.held.fetch_add(held - self.held, Ordering::Relaxed);
        } else {
            self.budget.held.fetch_sub(self.held - held, Ordering::Relaxed);
        }
        self.held = held;
    }

    /// How much more may be held in all. A holder that has nothing yet may always have the fair minimum, and the only
    /// one whatever it needs.
    pub(crate) fn room(&self) -> usize {
        let held = self.budget.held.load(Ordering::Relaxed);
        match self.held {
            _ if held == 0 => usize::MAX,
            0 => self.budget.limit.saturating_sub(held).max(Self::FAIR_MINIMUM),
            _ => self.budget.limit.saturating_sub(held),
        }
    }

    /// Holds so much from now on, if that is allowed.
    pub(crate) fn try_grow(&mut self, held: usize) -> bool {
        let may = held.saturating_sub(self.held) <= self.room();
        if may {
            self.set(held);
        }
        may
    }

    pub(crate) fn is_tight(&self) -> bool {
        self.budget.held.load(Ordering::Relaxed) > self.budget.limit
    }

    /// Whether so much more than the limit is held that even what a client is about to get has to go.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.budget.held.load(Ordering::Relaxed) > self.budget.limit.saturating_mul(2)
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_each_holder_holds() {
        let budget = Budget::new(160);
        let (mut a, mut b) = (budget.account(), budget.account());
        a.set(100);
        b.set(60);
        assert_eq!((budget.excess(), a.is_tight()), (0, false));
        b.set(80);
        assert_eq!((budget.excess(), a.is_tight(), a.is_exhausted()), (30, true, false));
        b.set(221);
        assert!(a.is_exhausted());
        b.set(80);
        a.set(0);
        assert_eq!(budget.excess(), 0);
        assert_eq!((a.room(), b.room()), (BudgetShare::FAIR_MINIMUM, 80));
        b.set(0);
        assert_eq!(a.room(), usize::MAX);
    }

    #[test]
    fn what_is_held_grows_only_into_what_is_free_and_is_given_back() {
        let budget = Budget::new(300 << 10);
        let (mut first, mut second) = (budget.account(), budget.account());
        assert!(first.try_grow(200 << 10) && !second.try_grow(200 << 10));
        assert!(second.try_grow(100 << 10) && !first.try_grow(201 << 10));
        drop(first);
        assert!(second.try_grow(300 << 10));
        drop(second);
        assert_eq!(budget.held.load(Ordering::Relaxed), 0);
    }
}
