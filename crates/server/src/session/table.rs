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
    Deferred(StartReservation),
    /// A start that is not finished, and the request was refused.
    Refused,
}

/// The place in a table that a start has taken. Its id may be given up and taken again before the start ends, so it is
/// told apart by a number.
#[derive(Clone, Debug)]
pub(crate) struct StartReservation {
    id: ProcessId,
    number: u64,
    /// Of the process that the start makes.
    pub(crate) tag: Tag,
    /// Cancelled when the place is given up.
    pub(crate) cancel: StartCancel,
}

impl StartReservation {
    pub(crate) fn id(&self) -> &ProcessId {
        &self.id
    }
}

enum TableEntry {
    Starting(PendingStart),
    Live { number: u64, process: Arc<Process> },
}

struct PendingStart {
    reservation: StartReservation,
    /// There is a process, but requests that waited for it still come before later ones.
    born: Option<Arc<Process>>,
    deferred: Vec<DeferredRequest>,
    argv: Vec<String>,
    since_ms: u64,
}

impl TableEntry {
    fn summary(&self, id: &ProcessId) -> ProcessSummary {
        match self {
            Self::Live { process, .. } | Self::Starting(PendingStart { born: Some(process), .. }) => {
                process.summary()
            }
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
            Self::Live { number, .. }
            | Self::Starting(PendingStart { reservation: StartReservation { number, .. }, .. }) => *number,
        }
    }

    fn process(&self) -> Option<&Arc<Process>> {
        match self {
            Self::Live { process, .. } => Some(process),
            Self::Starting(start) => start.born.as_ref(),
        }
    }

    /// The start of that number, as long as nothing has come of it.
    fn unborn(&mut self, number: u64) -> Option<&mut PendingStart> {
        match self {
            Self::Starting(start) if start.reservation.number == number && start.born.is_none() => Some(start),
            _ => None,
        }
    }
}

/// Why an id cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReserveRefusal {
    /// It is in use.
    Duplicate,
    /// There are too many processes.
    Full,
}

/// The process table of a session.
#[derive(Default)]
pub(crate) struct Table {
    entries: Mutex<HashMap<ProcessId, TableEntry>>,
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
    ) -> Result<StartReservation, ReserveRefusal> {
        let mut entries = self.entries.lock();
        if entries.contains_key(id) {
            return Err(ReserveRefusal::Duplicate);
        }
        if entries.len() >= limit {
            return Err(ReserveRefusal::Full);
        }
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        let reservation = StartReservation { id: id.clone(), number, tag, cancel: StartCancel::default() };
        let start = PendingStart {
            reservation: reservation.clone(),
            born: None,
            deferred: Vec::new(),
            argv,
            since_ms: now_ms(),
        };
        entries.insert(id.clone(), TableEntry::Starting(start));
        Ok(reservation)
    }

    /// Finds a process for a request. If it is still being started, `defer` turns the request into one that waits, or refuses it.
    pub(crate) fn find_or_defer<R>(
        &self,
        id: &ProcessId,
        request: R,
        defer: impl FnOnce(R) -> Option<DeferredRequest>,
    ) -> Lookup<R> {
        match self.entries.lock().get_mut(id) {
            None => Lookup::Unknown(request),
            Some(TableEntry::Live { process, .. }) => Lookup::Found(request, Arc::clone(process)),
            Some(TableEntry::Starting(start)) => match defer(request) {
                Some(deferred) => {
                    start.deferred.push(deferred);
                    Lookup::Deferred(start.reservation.clone())
                }
                None => Lookup::Refused,
            },
        }
    }

    /// The start has made a process. False if nobody wants it any more.
    pub(crate) fn claim(&self, reservation: &StartReservation, process: &Arc<Process>) -> bool {
        let mut entries = self.entries.lock();
        let Some(start) = entries.get_mut(&reservation.id).and_then(|entry| entry.unborn(reservation.number)) else {
            return false;
        };
        start.born = Some(Arc::clone(process));
        true
    }

    /// Takes the requests that waited, in order. None: there are none left, and the process stands in the table now,
    /// so that later requests cannot overtake.
    pub(crate) fn settle(&self, process: &Arc<Process>) -> Option<Vec<DeferredRequest>> {
        let mut entries = self.entries.lock();
        // Its place is gone if the session ended meanwhile.
        let entry = entries.get_mut(&process.id)?;
        let TableEntry::Starting(start) = entry else { return None };
        if !start.born.as_ref().is_some_and(|born| Arc::ptr_eq(born, process)) {
            return None;
        }
        if start.deferred.is_empty() {
            *entry = TableEntry::Live { number: start.reservation.number, process: Arc::clone(process) };
            return None;
        }
        Some(std::mem::take(&mut start.deferred))
    }

    /// Frees the id of a start that has failed or is no longer wanted, cancels the start, and returns who waited for it. None if there
    /// is a process or the place is somebody else's.
    pub(crate) fn abandon(&self, reservation: &StartReservation) -> Option<Vec<DeferredRequest>> {
        let mut entries = self.entries.lock();
        let deferred = std::mem::take(&mut entries.get_mut(&reservation.id)?.unborn(reservation.number)?.deferred);
        entries.remove(&reservation.id);
        reservation.cancel.cancel();
        Some(deferred)
    }

    /// Cancels all starts that have made no process yet.
    pub(crate) fn cancel_starts(&self) {
        for entry in self.entries.lock().values() {
            if let TableEntry::Starting(PendingStart { born: None, reservation, .. }) = entry {
                reservation.cancel.cancel();
            }
        }
    }

    /// Frees the ids of all starts that have made no process yet; what they make is not wanted.
    pub(crate) fn abandon_all(&self) {
        self.entries.lock().retain(|_, entry| entry.process().is_some());
    }

    /// Forgets a process, unless its id is in use by another one now.
    pub(crate) fn forget(&self, process: &Arc<Process>) {
        let mut entries = self.entries.lock();
        if matches!(entries.get(&process.id), Some(TableEntry::Live { process: current, .. }) if Arc::ptr_eq(current, process))
        {
            entries.remove(&process.id);
            if entries.is_empty() {
                entries.shrink_to_fit();
            }
        }
    }

    pub(crate) fn processes(&self) -> Vec<Arc<Process>> {
        self.entries.lock().values().filter_map(TableEntry::process).cloned().collect()
    }

    /// Whether a process is not closed, or being started. None: there is no process at all.
    pub(crate) fn is_at_work(&self) -> Option<bool> {
        let entries = self.entries.lock();
        let is_closed = |entry: &TableEntry| {
            entry.process().is_some_and(|process| process.delivery(|delivery| delivery.log().is_closed()))
        };
        (!entries.is_empty()).then(|| !entries.values().all(is_closed))
    }

    /// Every process of the session for a person to look at, in the order in which they were started. Clocks cannot tell that:
    /// many start within a millisecond.
    pub(crate) fn list(&self) -> Vec<ProcessSummary> {
        let entries = self.entries.lock();
        let mut in_order: Vec<_> = entries.iter().collect();
        in_order.sort_unstable_by_key(|(_, entry)| entry.number());
        in_order.into_iter().map(|(id, entry)| entry.summary(id)).collect()
    }

    /// Empties the table. Starts that are not finished find their place gone.
    pub(crate) fn clear(&self) -> Vec<Arc<Process>> {
        let entries = std::mem::take(&mut *self.entries.lock());
        entries.values().filter_map(TableEntry::process).cloned().collect()
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
        assert_eq!(table.reserve(&id, vec![], tag, 2).err(), Some(ReserveRefusal::Duplicate));
        assert!(table.abandon(&first).is_some());
        assert!(first.cancel.is_cancelled());
        let second = table.reserve(&id, vec![], tag, 1).unwrap();
        assert!(table.abandon(&first).is_none(), "the late end of the first start");
        let lookup = || table.find_or_defer(&id, (), |()| Some(Box::new(|_| ())));
        assert!(matches!(lookup(), Lookup::Deferred(_)));
        assert!(!second.cancel.is_cancelled());
        assert_eq!(table.reserve(&ProcessId::from("q"), vec![], tag, 1).err(), Some(ReserveRefusal::Full));
        assert_eq!(table.abandon(&second).map(|waiting| waiting.len()), Some(1));
        assert!(matches!(lookup(), Lookup::Unknown(())));
    }
}
