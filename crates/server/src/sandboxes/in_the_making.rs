//! The sandboxes of a session that are being made. Two requests that lead to the same plan make one sandbox: the second request
//! waits for the first. Requests with other plans do not wait, because making a sandbox can hang.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use sandbox::EnforcementPlan;

/// The plans whose sandboxes are being made.
#[derive(Default)]
pub(super) struct PlansInTheMaking {
    plans: Mutex<Vec<Arc<EnforcementPlan>>>,
    finished: Condvar,
}

impl PlansInTheMaking {
    /// Waits until nobody makes a sandbox from an equal plan. Then it is the caller's task, until the result is dropped.
    pub(super) fn claim(&self, plan: &Arc<EnforcementPlan>) -> MakingClaim<'_> {
        let mut plans = self.plans.lock();
        self.finished.wait_while(&mut plans, |plans| plans.contains(plan));
        plans.push(Arc::clone(plan));
        MakingClaim { all: self, plan: Arc::clone(plan) }
    }

    /// How many sandboxes are being made.
    pub(super) fn count(&self) -> usize {
        self.plans.lock().len()
    }
}

/// The right to make the sandbox of a plan.
pub(super) struct MakingClaim<'a> {
    all: &'a PlansInTheMaking,
    plan: Arc<EnforcementPlan>,
}

impl Drop for MakingClaim<'_> {
    fn drop(&mut self) {
        self.all.plans.lock().retain(|plan| !Arc::ptr_eq(plan, &self.plan));
        self.all.finished.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, RecvTimeoutError};
    use std::time::Duration;

    use sandbox::{LandlockFiles, LandlockPlan, SandboxNetwork};

    use super::*;

    fn plan(network: SandboxNetwork) -> Arc<EnforcementPlan> {
        let plan = LandlockPlan { files: LandlockFiles::ReadEverything, network };
        Arc::new(EnforcementPlan::Landlock(plan))
    }

    #[test]
    fn only_requests_with_the_same_plan_wait_for_each_other() {
        let making = PlansInTheMaking::default();
        let first = making.claim(&plan(SandboxNetwork::None));
        let other = making.claim(&plan(SandboxNetwork::Host));
        assert_eq!(making.count(), 2);
        drop(other);
        let (began, begun) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _second = making.claim(&plan(SandboxNetwork::None));
                began.send("makes").unwrap();
            });
            assert_eq!(begun.recv_timeout(Duration::from_millis(50)), Err(RecvTimeoutError::Timeout));
            assert_eq!(making.count(), 1);
            drop(first);
            assert_eq!(begun.recv(), Ok("makes"));
        });
        assert_eq!(making.count(), 0);
    }
}
