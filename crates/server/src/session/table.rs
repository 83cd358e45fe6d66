//! The processes of a session by id, with the requests that wait for a start to finish.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use protocol::{ProcessId, ProcessState, ProcessSummary, WireError};
use spawn::Tag;

use crate::process::{Process, now_ms};
use crate::start_cancel::StartCancel;

/// Handles a request that came while its process was being started. What a request is, is not known here.
pub(crate) type DeferredRequest = Box<dyn FnOnce(StartOutcome) + Send>;

/// What became of the start for which a request has waited.
pub(crate) enum StartOutcome {
    Started(Arc<Process>),
    /// The start was given up because a terminate asked for it. The terminate is answered with the error, if something of the start could
    /// not be killed.
    GivenUp(Result<(), WireError>),
    /// The start has failed. Its id may belong to a later process by now, which the request does not mean.
    Failed,
}

/// What a process id stands for. A request that does not have to wait is given back.
pub(crate) enum Lookup<R> {
    Unknown(R),
    Found(R, Arc<Process>),
    /// A start that is not finished. The request waits for it now.
    Deferred(Place),
    /// A start that is not finished, and the request was refused.
    Refused,
}

/// The place in a table that a start has taken. Its id may be given up and taken again before the start ends, so it is
/// told apart by a number.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    id: ProcessId,
    number: u64,
    /// Of the process that the start makes.
    pub(crate) tag: Tag,
    /// Cancelled when the place is given up.
    pub(crate) cancel: StartCancel,
}

impl Place {
    pub(crate) fn id(&self) -> &ProcessId {
        &self.id
    }
}

enum Slot {
    Starting(Start),
    Live { number: u64, process: Arc<Process> },
}

struct Start {
    place: Place,
    /// There is a process, but requests that waited for it still come before later ones.
    born: Option<Arc<Process>>,
    deferred: Vec<DeferredRequest>,
    argv: Vec<String>,
    since_ms: u64,
}

impl Slot {
    fn summary(&self, id: &ProcessId) -> ProcessSummary {
        match self {
            Self::Live { process, .. } | Self::Starting(Start { born: Some(process), .. }) => process.summary(),
            Self::Starting(start) => ProcessSummary {
                process_id: id.clone(),
                argv: start.argv.clone(),
                pid: None,
                started_at_ms: start.since_ms,
                state: ProcessState::Starting,
                exit_code: None,
                next_seq: 1,
                output_bytes: 0,
                oldest_seq: None,
                tty: false,
            },
        }
    }

    /// Counts the starts of a session.
    fn number(&self) -> u64 {
        match self {
            Self::Live { number, .. } | Self::Starting(Start { place: Place { number, .. }, .. }) => *number,
        }
    }

    fn process(&self) -> Option<&Arc<Process>> {
        match self {
            Self::Live { process, .. } => Some(process),
            Self::Starting(start) => start.born.as_ref(),
        }
    }

    /// The start of that number, as long as nothing has come of it.
    fn unborn(&mut self, number: u64) -> Option<&mut Start> {
        match self {
            Self::Starting(start) if start.place.number == number && start.born.is_none() => Some(start),
            _ => None,
        }
    }
}

/// Why an id cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is in use.
    Duplicate,
    /// There are too many processes.
    Full,
}

/// The process table of a session.
#[derive(Default)]
pub(crate) struct Table {
    slots: Mutex<HashMap<ProcessId, Slot>>,
    last_number: AtomicU64,
}

impl Table {
    /// Takes an id for a start. Of two at once exactly one succeeds.
    pub(crate) fn reserve(
        &self,
        id: &ProcessId,
        argv: Vec<String>,
        tag: Tag,
        limit: usize,
    ) -> Result<Place, Refusal> {
        let mut slots = self.slots.lock();
        if slots.contains_key(id) {
            return Err(Refusal::Duplicate);
        }
        if slots.len() >= limit {
            return Err(Refusal::Full);
        }
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        let place = Place { id: id.clone(), number, tag, cancel: StartCancel::default() };
        let start = Start { place: place.clone(), born: None, deferred: Vec::new(), argv, since_ms: now_ms() };
        slots.insert(id.clone(), Slot::Starting(start));
        Ok(place)
    }

    /// Finds a process for a request. If it is still being started, `defer` turns the request into one that waits, or refuses it.
    pub(crate) fn find_or_defer<R>(
        &self,
        id: &ProcessId,
        request: R,
        defer: impl FnOnce(R) -> Option<DeferredRequest>,
    ) -> Lookup<R> {
        match self.slots.lock().get_mut(id) {
            None => Lookup::Unknown(request),
            Some(Slot::Live { process, .. }) => Lookup::Found(request, Arc::clone(process)),
            Some(Slot::Starting(start)) => match defer(request) {
                Some(deferred) => {
                    start.deferred.push(deferred);
                    Lookup::Deferred(start.place.clone())
                }
                None => Lookup::Refused,
            },
        }
    }

    /// The start has made a process. False if nobody wants it any more.
    pub(crate) fn claim(&self, place: &Place, process: &Arc<Process>) -> bool {
        let mut slots = self.slots.lock();
        let Some(start) = slots.get_mut(&place.id).and_then(|slot| slot.unborn(place.number)) else { return false };
        start.born = Some(Arc::clone(process));
        true
    }

    /// Takes the requests that waited, in order. None: there are none left, and the process stands in the table now,
    /// so that later requests cannot overtake.
    pub(crate) fn settle(&self, process: &Arc<Process>) -> Option<Vec<DeferredRequest>> {
        let mut slots = self.slots.lock();
        // Its place is gone if the session ended meanwhile.
        let slot = slots.get_mut(&process.id)?;
        let Slot::Starting(start) = slot else { return None };
        if !start.born.as_ref().is_some_and(|born| Arc::ptr_eq(born, process)) {
            return None;
        }
        if start.deferred.is_empty() {
            *slot = Slot::Live { number: start.place.number, process: Arc::clone(process) };
            return None;
        }
        Some(std::mem::take(&mut start.deferred))
    }

    /// Frees the id of a start that has failed or is no longer wanted, cancels the start, and returns who waited for it. None if there
    /// is a process or the place is somebody else's.
    pub(crate) fn abandon(&self, place: &Place) -> Option<Vec<DeferredRequest>> {
        let mut slots = self.slots.lock();
        let deferred = std::mem::take(&mut slots.get_mut(&place.id)?.unborn(place.number)?.deferred);
        slots.remove(&place.id);
        place.cancel.cancel();
        Some(deferred)
    }

    /// Cancels all starts that have made no process yet.
    pub(crate) fn cancel_starts(&self) {
        for slot in self.slots.lock().values() {
            if let Slot::Starting(Start { born: None, place, .. }) = slot {
                place.cancel.cancel();
            }
        }
    }

    /// Frees the ids of all starts that have made no process yet; what they make is not wanted.
    pub(crate) fn abandon_all(&self) {
        self.slots.lock().retain(|_, slot| slot.process().is_some());
    }

    /// Forgets a process, unless its id is in use by another one now.
    pub(crate) fn forget(&self, process: &Arc<Process>) {
        let mut slots = self.slots.lock();
        if matches!(slots.get(&process.id), Some(Slot::Live { process: current, .. }) if Arc::ptr_eq(current, process))
        {
            slots.remove(&process.id);
            if slots.is_empty() {
                slots.shrink_to_fit();
            }
        }
    }

    pub(crate) fn processes(&self) -> Vec<Arc<Process>> {
        self.slots.lock().values().filter_map(Slot::process).cloned().collect()
    }

    /// Whether a process is not closed, or being started. None: there is no process at all.
    pub(crate) fn is_at_work(&self) -> Option<bool> {
        let slots = self.slots.lock();
        let is_closed = |slot: &Slot| {
            slot.process().is_some_and(|process| process.delivery(|delivery| delivery.log().is_closed()))
        };
        (!slots.is_empty()).then(|| !slots.values().all(is_closed))
    }

    /// Every process of the session for a person to look at, in the order in which they were started. Clocks cannot tell that:
    /// many start within a millisecond.
    pub(crate) fn list(&self) -> Vec<ProcessSummary> {
        let slots = self.slots.lock();
        let mut in_order: Vec<_> = slots.iter().collect();
        in_order.sort_unstable_by_key(|(_, slot)| slot.number());
        in_order.into_iter().map(|(id, slot)| slot.summary(id)).collect()
    }

    /// Empties the table. Starts that are not finished find their place gone.
    pub(crate) fn clear(&self) -> Vec<Arc<Process>> {
        let slots = std::mem::take(&mut *self.slots.lock());
        slots.values().filter_map(Slot::process).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_start_that_was_given_up_does_not_touch_its_successor() {
        let table = Table::default();
        let id = ProcessId::from("p");
        let tag = spawn::Spawner::new(spawn::HostProcess::shared(), None).unwrap().session_tags().next();
        let first = table.reserve(&id, vec![], tag, 1).unwrap();
        assert_eq!(table.reserve(&id, vec![], tag, 2).err(), Some(Refusal::Duplicate));
        assert!(table.abandon(&first).is_some());
        assert!(first.cancel.is_cancelled());
        let second = table.reserve(&id, vec![], tag, 1).unwrap();
        assert!(table.abandon(&first).is_none(), "the late end of the first start");
        let lookup = || table.find_or_defer(&id, (), |()| Some(Box::new(|_| ())));
        assert!(matches!(lookup(), Lookup::Deferred(_)));
        assert!(!second.cancel.is_cancelled());
        assert_eq!(table.reserve(&ProcessId::from("q"), vec![], tag, 1).err(), Some(Refusal::Full));
        assert_eq!(table.abandon(&second).map(|waiting| waiting.len()), Some(1));
        assert!(matches!(lookup(), Lookup::Unknown(())));
    }
}
