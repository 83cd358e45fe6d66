//! A limit of memory that several holders share, for example all processes. The server has one budget each for
//! retained output, for input that waits for processes, and for HTTP answers that are held as a whole. Each session
//! has another budget for such HTTP answers. This module only counts bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A shared limit in bytes, and the sum of the bytes that all holders have. The sum may exceed the limit.
#[derive(Debug)]
pub(crate) struct Budget {
    held: AtomicUsize,
    limit: usize,
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { held: AtomicUsize::new(0), limit })
    }

    /// A share for a new holder, which has no bytes yet.
    pub(crate) fn share(self: &Arc<Self>) -> BudgetShare {
        BudgetShare { budget: Arc::clone(self), held: 0 }
    }

    /// The number of bytes that holders must free; 0 within the limit. Beyond the limit, the number is higher than
    /// necessary by 1/16 of the limit, so that memory is not freed again for each small growth.
    pub(crate) fn excess(&self) -> usize {
        let held = self.held.load(Ordering::Relaxed);
        if held <= self.limit { 0 } else { held - self.limit + self.limit / 16 }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }
}

/// The bytes of one holder. They are returned to the budget when the share is dropped.
#[derive(Debug)]
pub(crate) struct BudgetShare {
    budget: Arc<Budget>,
    held: usize,
}

impl BudgetShare {
    /// A holder that has no bytes may always have this many bytes, so that every process can make progress.
    pub(crate) const FAIR_MINIMUM: usize = 64 << 10;

    /// Sets the bytes of this holder, even beyond the limit.
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

    /// The number of bytes that this holder may have in addition. A holder without bytes may always have
    /// [`Self::FAIR_MINIMUM`]. If no holder has bytes, there is no limit.
    pub(crate) fn room(&self) -> usize {
        let held = self.budget.held.load(Ordering::Relaxed);
        match self.held {
            _ if held == 0 => usize::MAX,
            0 => self.budget.limit.saturating_sub(held).max(Self::FAIR_MINIMUM),
            _ => self.budget.limit.saturating_sub(held),
        }
    }

    /// Sets the bytes of this holder to `held` if [`Self::room`] allows it. Returns whether it did.
    pub(crate) fn try_set(&mut self, held: usize) -> bool {
        let is_allowed = held.saturating_sub(self.held) <= self.room();
        if is_allowed {
            self.set(held);
        }
        is_allowed
    }

    /// Whether all holders together exceed the limit.
    pub(crate) fn is_over_limit(&self) -> bool {
        self.budget.held.load(Ordering::Relaxed) > self.budget.limit
    }

    /// Whether all holders together exceed twice the limit. Then even output that is about to be sent may be dropped.
    pub(crate) fn is_over_twice_limit(&self) -> bool {
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
    fn excess_and_room_depend_on_the_bytes_of_all_holders() {
        let budget = Budget::new(160);
        let (mut a, mut b) = (budget.share(), budget.share());
        a.set(100);
        b.set(60);
        assert_eq!((budget.excess(), a.is_over_limit()), (0, false));
        b.set(80);
        assert_eq!((budget.excess(), a.is_over_limit(), a.is_over_twice_limit()), (30, true, false));
        b.set(221);
        assert!(a.is_over_twice_limit());
        b.set(80);
        a.set(0);
        assert_eq!(budget.excess(), 0);
        assert_eq!((a.room(), b.room()), (BudgetShare::FAIR_MINIMUM, 80));
        b.set(0);
        assert_eq!(a.room(), usize::MAX);
    }

    #[test]
    fn a_share_grows_only_within_the_limit_and_returns_its_bytes_when_dropped() {
        let budget = Budget::new(300 << 10);
        let (mut first, mut second) = (budget.share(), budget.share());
        assert!(first.try_set(200 << 10) && !second.try_set(200 << 10));
        assert!(second.try_set(100 << 10) && !first.try_set(201 << 10));
        drop(first);
        assert!(second.try_set(300 << 10));
        drop(second);
        assert_eq!(budget.held.load(Ordering::Relaxed), 0);
    }
}
