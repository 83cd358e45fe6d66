//! The processes of a session by id, and the requests that wait for a start to finish.
//!
//! An id goes through three steps: [`Table::reserve`] before the start, [`Table::claim`] when there is a process, and [`Table::settle`]
//! when all requests that have waited are handled.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use protocol::{ProcessId, ProcessState, ProcessSummary, WireError};
use spawn::Tag;

use crate::process::{Process, now_ms};
use crate::start_cancel::StartCancel;

/// Handles a request that arrived while its process was being started. Requests are not known here, so it is a function.
pub(crate) type DeferredRequest = Box<dyn FnOnce(StartOutcome) + Send>;

/// What became of the start for which a request has waited.
pub(crate) enum StartOutcome {
    Started(Arc<Process>),
    /// The start was given up because a terminate asked for it. The terminate is answered with the error, if something of the start could
    /// not be killed.
    GivenUp(Result<(), WireError>),
    /// The start has failed. The id may belong to a later process by now, which the request does not mean.
    Failed,
}

/// What a process id stands for. `R` is the request that names the id; it is given back if it does not have to wait.
pub(crate) enum Lookup<R> {
    Unknown(R),
    Found(R, Arc<Process>),
    /// A start that is not finished. The request waits for it now.
    Deferred(StartReservation),
    /// A start that is not finished, and the request was refused.
    Refused,
}

/// The id that a start has taken in the table. The id may be freed and taken by another start before this start ends, so that a number
/// tells the two apart.
#[derive(Clone, Debug)]
pub(crate) struct StartReservation {
    id: ProcessId,
    number: u64,
    /// The tag of the process that the start makes.
    pub(crate) tag: Tag,
    /// Cancelled when the start is given up.
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
    /// Present when the start has made a process, while requests that have waited for it are handled.
    process: Option<Arc<Process>>,
    deferred: Vec<DeferredRequest>,
    argv: Vec<String>,
    /// Unix time of the request, in milliseconds.
    since_ms: u64,
}

impl TableEntry {
    fn summary(&self, id: &ProcessId) -> ProcessSummary {
        match self {
            Self::Live { process, .. } | Self::Starting(PendingStart { process: Some(process), .. }) => {
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

    /// Numbers count the starts of a session.
    fn number(&self) -> u64 {
        match self {
            Self::Live { number, .. }
            | Self::Starting(PendingStart { reservation: StartReservation { number, .. }, .. }) => *number,
        }
    }

    fn process(&self) -> Option<&Arc<Process>> {
        match self {
            Self::Live { process, .. } => Some(process),
            Self::Starting(start) => start.process.as_ref(),
        }
    }

    /// The start with this number, as long as it has made no process.
    fn without_process(&mut self, number: u64) -> Option<&mut PendingStart> {
        match self {
            Self::Starting(start) if start.reservation.number == number && start.process.is_none() => Some(start),
            _ => None,
        }
    }
}

/// Why a start cannot take its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReserveRefusal {
    /// A process or another start of the session has the id.
    Duplicate,
    /// The session has as many processes as it may (`--max-processes`).
    Full,
}

/// The processes and unfinished starts of a session.
#[derive(Default)]
pub(crate) struct Table {
    entries: Mutex<HashMap<ProcessId, TableEntry>>,
    last_number: AtomicU64,
}

impl Table {
    /// Takes an id for a start.
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
            process: None,
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

    /// The start has made a process. False if the start was given up.
    pub(crate) fn claim(&self, reservation: &StartReservation, process: &Arc<Process>) -> bool {
        let mut entries = self.entries.lock();
        let Some(start) =
            entries.get_mut(&reservation.id).and_then(|entry| entry.without_process(reservation.number))
        else {
            return false;
        };
        start.process = Some(Arc::clone(process));
        true
    }

    /// Takes the requests that have waited, in order; the caller handles them and calls this again. None: no request waits any more, and
    /// requests find the process from now on. So a later request cannot overtake one that has waited.
    pub(crate) fn settle(&self, process: &Arc<Process>) -> Option<Vec<DeferredRequest>> {
        let mut entries = self.entries.lock();
        // The entry is gone if the session ended meanwhile.
        let entry = entries.get_mut(&process.id)?;
        let TableEntry::Starting(start) = entry else { return None };
        if !start.process.as_ref().is_some_and(|made| Arc::ptr_eq(made, process)) {
            return None;
        }
        if start.deferred.is_empty() {
            *entry = TableEntry::Live { number: start.reservation.number, process: Arc::clone(process) };
            return None;
        }
        Some(std::mem::take(&mut start.deferred))
    }

    /// Frees the id of a start that has failed or is no longer wanted, cancels the start, and returns the requests that waited for it. None
    /// if the start has made a process, or was given up before.
    pub(crate) fn abandon(&self, reservation: &StartReservation) -> Option<Vec<DeferredRequest>> {
        let mut entries = self.entries.lock();
        let deferred =
            std::mem::take(&mut entries.get_mut(&reservation.id)?.without_process(reservation.number)?.deferred);
        entries.remove(&reservation.id);
        reservation.cancel.cancel();
        Some(deferred)
    }

    /// Cancels all starts that have made no process yet.
    pub(crate) fn cancel_starts(&self) {
        for entry in self.entries.lock().values() {
            if let TableEntry::Starting(PendingStart { process: None, reservation, .. }) = entry {
                reservation.cancel.cancel();
            }
        }
    }

    /// Frees the ids of all starts that have made no process yet. A process that they still make is killed.
    pub(crate) fn abandon_all(&self) {
        self.entries.lock().retain(|_, entry| entry.process().is_some());
    }

    /// Removes a process, unless its id belongs to another process by now.
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

    /// Whether a process is being started or is not closed yet. None: the table is empty.
    pub(crate) fn is_at_work(&self) -> Option<bool> {
        let entries = self.entries.lock();
        let is_closed = |entry: &TableEntry| {
            entry.process().is_some_and(|process| process.delivery(|delivery| delivery.log().is_closed()))
        };
        (!entries.is_empty()).then(|| !entries.values().all(is_closed))
    }

    /// All processes for `process/list`, in the order of their starts. The times of starts cannot tell the order, because many processes
    /// start within a millisecond.
    pub(crate) fn list(&self) -> Vec<ProcessSummary> {
        let entries = self.entries.lock();
        let mut in_order: Vec<_> = entries.iter().collect();
        in_order.sort_unstable_by_key(|(_, entry)| entry.number());
        in_order.into_iter().map(|(id, entry)| entry.summary(id)).collect()
    }

    /// Empties the table and returns its processes. A start that is not finished yet is given up.
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
