//! The processes of a session by id, and the requests that wait for a start to finish.
//!
//! A process id goes through three steps: [`ProcessTable::reserve`] before the start, [`ProcessTable::claim`] when
//! the process exists, and [`ProcessTable::take_deferred`] until all requests that waited for the start are handled.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use protocol::{ProcessId, ProcessState, ProcessSummary, WireError};
use spawn::Tag;

use crate::process::{Process, now_ms};
use crate::start_cancel::StartCancel;

/// Handles a request that arrived while its process was being started. This is a function, because this module does not know requests.
pub(crate) type DeferredRequest = Box<dyn FnOnce(StartOutcome) + Send>;

/// The result of the start for which a request has waited.
pub(crate) enum StartOutcome {
    Started(Arc<Process>),
    /// A `process/terminate` has cancelled the start. An error means that a process of the start could not be killed;
    /// the `process/terminate` is answered with it.
    Cancelled(Result<(), WireError>),
    /// The start has failed. The request must not look the id up again, because the id may belong to a later process
    /// by now.
    Failed,
}

/// The result of looking up a process id. `R` is the request that names the id; it is returned if it does not have to wait.
pub(crate) enum Lookup<R> {
    Unknown(R),
    Found(R, Arc<Process>),
    /// The process is being started. The request now waits for the end of the start.
    Deferred(StartReservation),
    /// The process is being started, and the request was not allowed to wait.
    Refused,
}

/// The reservation of an id for a start. The id may be freed and reserved by another start before this start ends; `number` distinguishes
/// the two starts.
#[derive(Clone, Debug)]
pub(crate) struct StartReservation {
    id: ProcessId,
    number: u64,
    /// The tag of the process to start: a number that its descendants inherit, and by which they are found and killed.
    pub(crate) tag: Tag,
    /// Cancels the start.
    pub(crate) cancel: StartCancel,
}

impl StartReservation {
    pub(crate) fn id(&self) -> &ProcessId {
        &self.id
    }
}

enum TableEntry {
    /// The process is being started, or requests that waited for the start are still being handled.
    Starting(PendingStart),
    /// The process is started, and no request waits for the start any more.
    Live { number: u64, process: Arc<Process> },
}

struct PendingStart {
    reservation: StartReservation,
    /// Some after the start has made the process, while requests that waited for it are handled.
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

    /// The number of the start. The starts of a session are counted from 1.
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

    /// The start with this number. None if it has made its process, or if this is the entry of another start.
    fn unfinished_start(&mut self, number: u64) -> Option<&mut PendingStart> {
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
pub(crate) struct ProcessTable {
    entries: Mutex<HashMap<ProcessId, TableEntry>>,
    last_number: AtomicU64,
}

impl ProcessTable {
    /// Reserves an id for a start.
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

    /// Finds the process that a request names. If the process is still being started, `defer` turns the request into a function that is
    /// called after the start, or refuses it with None.
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

    /// The start has made a process. Returns false if the id was freed meanwhile: the start was abandoned, or the
    /// session has ended.
    pub(crate) fn claim(&self, reservation: &StartReservation, process: &Arc<Process>) -> bool {
        let mut entries = self.entries.lock();
        let Some(start) =
            entries.get_mut(&reservation.id).and_then(|entry| entry.unfinished_start(reservation.number))
        else {
            return false;
        };
        start.process = Some(Arc::clone(process));
        true
    }

    /// Takes the requests that waited for the start, in order. The caller handles them and calls this again. None: no
    /// request waits any more, and from now on requests find the process. So a later request cannot overtake a
    /// request that has waited.
    pub(crate) fn take_deferred(&self, process: &Arc<Process>) -> Option<Vec<DeferredRequest>> {
        let mut entries = self.entries.lock();
        // There is no entry if the session ended meanwhile.
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

    /// Cancels a start that has failed or is no longer wanted, frees its id, and returns the requests that waited for
    /// it. None if the start has made a process, or its id was freed before.
    pub(crate) fn abandon(&self, reservation: &StartReservation) -> Option<Vec<DeferredRequest>> {
        let mut entries = self.entries.lock();
        let deferred =
            std::mem::take(&mut entries.get_mut(&reservation.id)?.unfinished_start(reservation.number)?.deferred);
        entries.remove(&reservation.id);
        reservation.cancel.cancel();
        Some(deferred)
    }

    /// Cancels all starts that have made no process yet. Their ids stay reserved.
    pub(crate) fn cancel_starts(&self) {
        for entry in self.entries.lock().values() {
            if let TableEntry::Starting(PendingStart { process: None, reservation, .. }) = entry {
                reservation.cancel.cancel();
            }
        }
    }

    /// Frees the ids of all starts that have made no process yet. A process that such a start still makes cannot be
    /// claimed and is killed.
    pub(crate) fn free_ids_of_starts(&self) {
        self.entries.lock().retain(|_, entry| entry.process().is_some());
    }

    /// Removes a process for whose start no request waits any more, unless its id belongs to another process by now.
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

    /// Whether a process is being started or is not closed. None: the table is empty.
    pub(crate) fn has_open_process(&self) -> Option<bool> {
        let entries = self.entries.lock();
        let is_closed = |entry: &TableEntry| {
            entry.process().is_some_and(|process| process.delivery(|delivery| delivery.log().is_closed()))
        };
        (!entries.is_empty()).then(|| !entries.values().all(is_closed))
    }

    /// All processes for `process/list`, in the order of their starts. The number of the start gives the order, because several processes
    /// can start within a millisecond.
    pub(crate) fn list(&self) -> Vec<ProcessSummary> {
        let entries = self.entries.lock();
        let mut in_order: Vec<_> = entries.iter().collect();
        in_order.sort_unstable_by_key(|(_, entry)| entry.number());
        in_order.into_iter().map(|(id, entry)| entry.summary(id)).collect()
    }

    /// Empties the table and returns its processes. A process that an unfinished start still makes cannot be claimed
    /// and is killed.
    pub(crate) fn clear(&self) -> Vec<Arc<Process>> {
        let entries = std::mem::take(&mut *self.entries.lock());
        entries.values().filter_map(TableEntry::process).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_tag() -> Tag {
        spawn::Spawner::new(spawn::HostProcess::shared(), None).unwrap().session_tags().next()
    }

    #[tokio::test]
    async fn an_abandoned_start_frees_its_id_and_does_not_affect_a_later_start_with_that_id() {
        let table = ProcessTable::default();
        let id = ProcessId::from("p");
        let tag = new_tag();
        let first = table.reserve(&id, vec![], tag, 1).unwrap();
        assert!(table.abandon(&first).is_some());
        assert!(first.cancel.is_cancelled());
        let second = table.reserve(&id, vec![], tag, 1).unwrap();
        assert!(table.abandon(&first).is_none(), "the first start does not own the id any more");
        let lookup = || table.find_or_defer(&id, (), |()| Some(Box::new(|_| ())));
        assert!(matches!(lookup(), Lookup::Deferred(_)));
        assert!(!second.cancel.is_cancelled());
        assert_eq!(table.abandon(&second).map(|waiting| waiting.len()), Some(1));
        assert!(matches!(lookup(), Lookup::Unknown(())));
    }

    #[tokio::test]
    async fn a_reserved_id_and_a_start_beyond_the_limit_are_refused() {
        let table = ProcessTable::default();
        let id = ProcessId::from("p");
        let tag = new_tag();
        let _reservation = table.reserve(&id, vec![], tag, 1).unwrap();
        assert_eq!(table.reserve(&id, vec![], tag, 2).err(), Some(ReserveRefusal::Duplicate));
        assert_eq!(table.reserve(&ProcessId::from("q"), vec![], tag, 1).err(), Some(ReserveRefusal::Full));
    }
}
