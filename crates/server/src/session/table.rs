//! The processes of a session by id, with the requests that wait for a start to finish.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::{ProcessId, ProcessState, ProcessSummary};

use crate::connection::Connection;
use crate::process::{Process, now_ms};

/// A request that came while its process was being started.
pub(crate) struct Deferred {
    pub(crate) connection: Arc<Connection>,
    pub(crate) message: Bytes,
}

/// What an id stands for.
pub(crate) enum Lookup {
    /// Nothing.
    Unknown,
    /// A start that is not finished.
    Starting,
    /// A process.
    Found(Arc<Process>),
}

enum Slot {
    Starting { deferred: Vec<Deferred>, cancelled: bool, argv: Vec<String>, since_ms: u64 },
    Live(Arc<Process>),
}

impl Slot {
    fn summary(&self, id: &ProcessId) -> ProcessSummary {
        match self {
            Self::Live(process) => process.summary(),
            Self::Starting { argv, since_ms, .. } => ProcessSummary {
                process_id: id.clone(),
                argv: argv.clone(),
                pid: None,
                started_at_ms: *since_ms,
                state: ProcessState::Starting,
                exit_code: None,
                next_seq: 1,
                output_bytes: 0,
                oldest_seq: None,
            },
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
}

impl Table {
    /// Takes an id for a start. Of two at once exactly one succeeds.
    pub(crate) fn reserve(&self, id: &ProcessId, argv: &[String], limit: usize) -> Result<(), Refusal> {
        let mut slots = self.slots.lock();
        if slots.contains_key(id) {
            return Err(Refusal::Duplicate);
        }
        if slots.len() >= limit {
            return Err(Refusal::Full);
        }
        let (argv, since_ms) = (argv.to_vec(), now_ms());
        slots.insert(id.clone(), Slot::Starting { deferred: Vec::new(), cancelled: false, argv, since_ms });
        Ok(())
    }

    pub(crate) fn lookup(&self, id: &ProcessId) -> Lookup {
        match self.slots.lock().get(id) {
            None => Lookup::Unknown,
            Some(Slot::Starting { .. }) => Lookup::Starting,
            Some(Slot::Live(process)) => Lookup::Found(Arc::clone(process)),
        }
    }

    /// Lets a request wait for the start of `id`, at most `limit` of them. Gives it back if nothing is being started.
    pub(crate) fn defer(&self, id: &ProcessId, request: Deferred, limit: usize) -> Result<(), Deferred> {
        match self.slots.lock().get_mut(id) {
            Some(Slot::Starting { deferred, .. }) if deferred.len() < limit => {
                deferred.push(request);
                Ok(())
            }
            _ => Err(request),
        }
    }

    /// Takes the requests that waited, in order. None: there are none left, and the process stands in the table now,
    /// so that later requests cannot overtake.
    pub(crate) fn settle(&self, process: &Arc<Process>) -> Option<Vec<Deferred>> {
        let mut slots = self.slots.lock();
        match slots.get_mut(&process.id) {
            Some(Slot::Starting { deferred, .. }) if !deferred.is_empty() => Some(std::mem::take(deferred)),
            Some(slot) => {
                *slot = Slot::Live(Arc::clone(process));
                None
            }
            // The session ended meanwhile.
            None => None,
        }
    }

    /// Marks an unfinished start as unwanted. False if there is none.
    pub(crate) fn cancel_start(&self, id: &ProcessId) -> bool {
        match self.slots.lock().get_mut(id) {
            Some(Slot::Starting { cancelled, .. }) => {
                *cancelled = true;
                true
            }
            _ => false,
        }
    }

    /// Whether the start is still wanted.
    pub(crate) fn start_is_wanted(&self, id: &ProcessId) -> bool {
        matches!(self.slots.lock().get(id), Some(Slot::Starting { cancelled: false, .. }))
    }

    /// Frees the id of a failed start and returns who waited for it.
    pub(crate) fn abandon(&self, id: &ProcessId) -> Vec<Deferred> {
        match self.slots.lock().remove(id) {
            Some(Slot::Starting { deferred, .. }) => deferred,
            _ => Vec::new(),
        }
    }

    /// Forgets a process, unless its id is in use by another one now.
    pub(crate) fn forget(&self, process: &Arc<Process>) {
        let mut slots = self.slots.lock();
        if matches!(slots.get(&process.id), Some(Slot::Live(current)) if Arc::ptr_eq(current, process)) {
            slots.remove(&process.id);
            if slots.is_empty() {
                slots.shrink_to_fit();
            }
        }
    }

    pub(crate) fn processes(&self) -> Vec<Arc<Process>> {
        let slots = self.slots.lock();
        slots
            .values()
            .filter_map(|slot| if let Slot::Live(process) = slot { Some(process) } else { None })
            .cloned()
            .collect()
    }

    /// Every process of the session for a person to look at, oldest first.
    pub(crate) fn list(&self) -> Vec<ProcessSummary> {
        let slots = self.slots.lock();
        let mut list: Vec<_> = slots.iter().map(|(id, slot)| slot.summary(id)).collect();
        list.sort_by(|a, b| (a.started_at_ms, &a.process_id).cmp(&(b.started_at_ms, &b.process_id)));
        list
    }

    /// Empties the table. Starts that are not finished find their place gone.
    pub(crate) fn clear(&self) -> Vec<Arc<Process>> {
        let slots = std::mem::take(&mut *self.slots.lock());
        slots
            .into_values()
            .filter_map(|slot| if let Slot::Live(process) = slot { Some(process) } else { None })
            .collect()
    }
}
