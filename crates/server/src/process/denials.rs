//! What the sandbox of a process has refused, as far as the server knows: the system calls that the filter has
//! reported. Refused writes are not known here; see [`sandbox::suggests_denial`].

use parking_lot::Mutex;
use protocol::SandboxDenial;
use sandbox::RefusedCall;

use crate::limits::MAX_SANDBOX_DENIALS;

/// The refused calls of one process.
#[derive(Default)]
pub(crate) struct Denials {
    state: Mutex<DenialState>,
}

#[derive(Default)]
struct DenialState {
    denials: Vec<SandboxDenial>,
    /// Whether one of them is probably the reason why the process fails.
    explains_failure: bool,
    /// The process has exited, and clients may have been told what was refused until then.
    is_final: bool,
}

impl Denials {
    /// Adds a call, unless the process has exited. Of more than [`MAX_SANDBOX_DENIALS`] different ones, the later ones are left out.
    pub(crate) fn add(&self, call: RefusedCall) {
        let mut state = self.state.lock();
        if state.is_final {
            return;
        }
        state.explains_failure |= call.is_telling;
        let same = |known: &&mut SandboxDenial| known.operation == call.operation && known.target == call.target;
        if let Some(known) = state.denials.iter_mut().find(same) {
            known.count += 1;
        } else if state.denials.len() < MAX_SANDBOX_DENIALS {
            let RefusedCall { operation, target, .. } = call;
            state.denials.push(SandboxDenial { operation: operation.to_owned(), target, count: 1 });
        }
    }

    /// The process has exited. Returns whether a refused call is probably the reason if it has failed.
    pub(crate) fn finish(&self) -> bool {
        let mut state = self.state.lock();
        state.is_final = true;
        state.explains_failure
    }

    /// What was refused until the exit. Empty before the exit.
    pub(crate) fn list(&self) -> Vec<SandboxDenial> {
        let state = self.state.lock();
        if state.is_final { state.denials.clone() } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(target: usize) -> RefusedCall {
        RefusedCall { operation: "socket", target: Some(target.to_string()), is_telling: target > 0 }
    }

    #[test]
    fn equal_calls_are_counted_and_the_list_is_bounded() {
        let denials = Denials::default();
        denials.add(call(0));
        denials.add(call(0));
        assert!(denials.list().is_empty(), "the process has not exited");
        (1..100).for_each(|target| denials.add(call(target)));
        assert!(denials.finish());
        denials.add(call(0));
        let list = denials.list();
        assert_eq!((list.len(), list[0].count), (MAX_SANDBOX_DENIALS, 2));
    }

    #[test]
    fn refused_calls_that_programs_only_probe_do_not_explain_a_failure() {
        let denials = Denials::default();
        denials.add(call(0));
        assert!(!denials.finish());
    }
}
