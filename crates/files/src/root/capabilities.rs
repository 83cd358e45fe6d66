//! Takes the effective capabilities of a thread away while the thread works in a sandbox. With `CAP_DAC_OVERRIDE`, for
//! example, root could read a file that the sandbox hides behind a mount with mode 000.

use std::marker::PhantomData;

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// While this value exists, the thread that made it has no effective capabilities. Dropping it gives them back, also
/// when a panic unwinds the thread. A thread that is started meanwhile inherits the empty set for its whole life.
#[derive(Debug)]
pub(super) struct DroppedCapabilities {
    /// The capabilities to give back. `None` if the thread had no effective ones.
    before: Option<CapabilitySets>,
    /// Capabilities belong to a thread, so the value must not move to another one.
    _not_send: PhantomData<*const ()>,
}

impl DroppedCapabilities {
    pub(super) fn drop_effective() -> Result<Self, Errno> {
        let before = capabilities(None)?;
        if before.effective.is_empty() {
            return Ok(Self { before: None, _not_send: PhantomData });
        }
        set_capabilities(None, CapabilitySets { effective: CapabilitySet::empty(), ..before })?;
        Ok(Self { before: Some(before), _not_send: PhantomData })
    }
}

impl Drop for DroppedCapabilities {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // Cannot fail: a thread may always make capabilities effective that it is permitted to have.
            let _ignored = set_capabilities(None, before);
        }
    }
}

/// Whether this thread has effective capabilities now.
pub(super) fn has_effective_capabilities() -> bool {
    capabilities(None).is_ok_and(|sets| !sets.effective.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effective() -> CapabilitySet {
        capabilities(None).unwrap().effective
    }

    #[test]
    fn a_thread_gets_its_capabilities_back_also_after_a_panic_and_nested_values_do_no_harm() {
        let before = effective();
        let panicked = std::panic::catch_unwind(|| {
            let outer = DroppedCapabilities::drop_effective().unwrap();
            assert!(effective().is_empty() && !has_effective_capabilities());
            drop(DroppedCapabilities::drop_effective().unwrap());
            assert!(effective().is_empty(), "the outer value still exists");
            let inherited = std::thread::spawn(effective).join().unwrap();
            assert!(inherited.is_empty(), "a new thread has no more than the thread that started it");
            drop(outer);
            let _again = DroppedCapabilities::drop_effective().unwrap();
            panic!("on purpose");
        });
        assert!(panicked.is_err());
        assert_eq!(effective(), before);
    }
}
