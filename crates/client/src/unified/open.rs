//! Commands that were started and not forgotten, within a bound.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::AbortOnDropHandle;

use super::error::UnifiedExecError;
use super::record::Record;
use super::request::ExecSessionId;
use crate::process::ExecProcess;

/// Ended sessions whose exit code an error can still tell.
const REMEMBERED: usize = 256;

/// A command that was started. Dropping it ends what still runs of it.
pub(super) struct OpenCommand {
    pub(super) id: ExecSessionId,
    pub(super) process: ExecProcess,
    pub(super) record: Arc<Record>,
    pub(super) takes_input: bool,
    pub(super) _place: OwnedSemaphorePermit,
    /// It holds on to the client, so it must not outlive the process.
    pub(super) _collecting: AbortOnDropHandle<()>,
}

pub(super) struct OpenCommands {
    limit: usize,
    places: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    commands: HashMap<ExecSessionId, Kept>,
    uses: u64,
    ended: VecDeque<(ExecSessionId, Option<i32>)>,
}

struct Kept {
    command: Arc<OpenCommand>,
    last_use: u64,
}

impl OpenCommands {
    pub(super) fn new(limit: usize) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        Self { limit, places: Arc::new(Semaphore::new(limit)), state: Mutex::default() }
    }

    /// A place for another command, if need be that of one that has ended.
    pub(super) fn place(&self) -> Result<OwnedSemaphorePermit, UnifiedExecError> {
        loop {
            if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
                return Ok(place);
            }
            let Some(ended) = self.state.lock().remove_ended() else {
                return Err(UnifiedExecError::TooManySessions(self.limit));
            };
            drop(ended);
        }
    }

    pub(super) fn keep(&self, command: Arc<OpenCommand>) {
        let mut state = self.state.lock();
        let last_use = state.next_use();
        state.commands.insert(command.id, Kept { command, last_use });
    }

    pub(super) fn find(&self, id: ExecSessionId) -> Result<Arc<OpenCommand>, UnifiedExecError> {
        let mut state = self.state.lock();
        let last_use = state.next_use();
        if let Some(kept) = state.commands.get_mut(&id) {
            kept.last_use = last_use;
            return Ok(Arc::clone(&kept.command));
        }
        let ended = state.ended.iter().find(|(ended, _)| *ended == id);
        Err(match ended {
            Some((session, exit_code)) => UnifiedExecError::SessionEnded { session: *session, exit_code: *exit_code },
            None => UnifiedExecError::UnknownSession(id),
        })
    }

    /// Everything about it was told.
    pub(super) fn forget(&self, id: ExecSessionId, exit_code: Option<i32>) {
        let mut state = self.state.lock();
        let command = state.remove(id, exit_code);
        drop(state);
        drop(command);
    }

    pub(super) fn ids(&self) -> Vec<ExecSessionId> {
        let mut ids: Vec<_> = self.state.lock().commands.keys().copied().collect();
        ids.sort_unstable();
        ids
    }
}

impl State {
    fn next_use(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    fn remove_ended(&mut self) -> Option<Arc<OpenCommand>> {
        let ended = self.commands.values().filter(|kept| kept.command.record.is_over());
        let oldest = ended.min_by_key(|kept| kept.last_use)?;
        let (id, exit) = (oldest.command.id, oldest.command.record.peek(0).exit);
        self.remove(id, exit.map(|exit| exit.code))
    }

    fn remove(&mut self, id: ExecSessionId, exit_code: Option<i32>) -> Option<Arc<OpenCommand>> {
        let kept = self.commands.remove(&id)?;
        if self.ended.len() == REMEMBERED {
            self.ended.pop_front();
        }
        self.ended.push_back((id, exit_code));
        Some(kept.command)
    }
}
