//! The open commands, which later calls can find by their ids. A command is open while it runs, and after its end
//! until a call has returned the end. The number of open commands is limited.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::AbortOnDropHandle;

use super::error::UnifiedExecError;
use super::record::CommandRecord;
use super::request::ExecSessionId;
use crate::process::ExecProcess;

/// How many ended sessions are remembered with their exit codes, for error messages.
const REMEMBERED_SESSIONS: usize = 256;

/// A command that was started. Dropping the value kills the command if it still runs.
pub(super) struct OpenCommand {
    pub(super) id: ExecSessionId,
    pub(super) process: ExecProcess,
    pub(super) record: Arc<CommandRecord>,
    /// Whether calls can write to the command.
    pub(super) takes_input: bool,
    pub(super) _permit: OwnedSemaphorePermit,
    /// The task that passes the events of the command to `record`. It keeps the client open, so it must not outlive
    /// this value.
    pub(super) _collecting: AbortOnDropHandle<()>,
}

pub(super) struct OpenCommands {
    limit: usize,
    permits: Arc<Semaphore>,
    table: Mutex<OpenCommandTable>,
}

#[derive(Default)]
struct OpenCommandTable {
    commands: HashMap<ExecSessionId, KeptCommand>,
    /// Counts the calls that use any command, to find the command that was not used for the longest time.
    uses: u64,
    /// Ended sessions and their exit codes, oldest first.
    ended: VecDeque<(ExecSessionId, Option<i32>)>,
}

struct KeptCommand {
    command: Arc<OpenCommand>,
    /// The value of `uses` at the last call that used this command.
    last_use: u64,
}

impl OpenCommands {
    pub(super) fn new(limit: usize) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        Self { limit, permits: Arc::new(Semaphore::new(limit)), table: Mutex::default() }
    }

    /// A permit for another command. If all permits are in use, removes commands that have ended until a permit is
    /// free. Fails if no command that has ended is left.
    pub(super) fn permit(&self) -> Result<OwnedSemaphorePermit, UnifiedExecError> {
        loop {
            if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
                return Ok(permit);
            }
            let Some(ended) = self.table.lock().remove_ended() else {
                return Err(UnifiedExecError::TooManySessions(self.limit));
            };
            // Frees the permit of the command, unless another call still uses the command.
            drop(ended);
        }
    }

    /// Adds a command, so that later calls find it.
    pub(super) fn keep(&self, command: Arc<OpenCommand>) {
        let mut table = self.table.lock();
        let last_use = table.next_use();
        table.commands.insert(command.id, KeptCommand { command, last_use });
    }

    pub(super) fn find(&self, id: ExecSessionId) -> Result<Arc<OpenCommand>, UnifiedExecError> {
        let mut table = self.table.lock();
        let last_use = table.next_use();
        if let Some(kept) = table.commands.get_mut(&id) {
            kept.last_use = last_use;
            return Ok(Arc::clone(&kept.command));
        }
        let ended = table.ended.iter().find(|(ended, _)| *ended == id);
        Err(match ended {
            Some((session, exit_code)) => UnifiedExecError::SessionEnded { session: *session, exit_code: *exit_code },
            None => UnifiedExecError::UnknownSession(id),
        })
    }

    /// Removes a command whose end a call has returned, and remembers its exit code.
    pub(super) fn forget(&self, id: ExecSessionId, exit_code: Option<i32>) {
        let mut table = self.table.lock();
        let command = table.remove(id, exit_code);
        drop(table);
        drop(command);
    }

    pub(super) fn ids(&self) -> Vec<ExecSessionId> {
        let mut ids: Vec<_> = self.table.lock().commands.keys().copied().collect();
        ids.sort_unstable();
        ids
    }
}

impl OpenCommandTable {
    fn next_use(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    fn remove_ended(&mut self) -> Option<Arc<OpenCommand>> {
        let ended = self.commands.values().filter(|kept| kept.command.record.is_over());
        let longest_unused = ended.min_by_key(|kept| kept.last_use)?;
        let (id, exit) = (longest_unused.command.id, longest_unused.command.record.peek(0).exit);
        self.remove(id, exit.map(|exit| exit.code))
    }

    fn remove(&mut self, id: ExecSessionId, exit_code: Option<i32>) -> Option<Arc<OpenCommand>> {
        let kept = self.commands.remove(&id)?;
        if self.ended.len() == REMEMBERED_SESSIONS {
            self.ended.pop_front();
        }
        self.ended.push_back((id, exit_code));
        Some(kept.command)
    }
}
