//! The stack of files and directories that the threads of a search have yet to examine. A thread takes the task that was added last. So
//! the search goes depth first, and only the ignore rules of a few directories have to be in memory at a time.

use parking_lot::{Condvar, Mutex};

/// A stack of tasks that several threads take from and add to.
#[derive(Debug)]
pub(super) struct TaskStack<T> {
    tasks: Mutex<Tasks<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct Tasks<T> {
    waiting: Vec<T>,
    /// Number of threads that perform a task now and may add further tasks.
    busy: usize,
    is_closed: bool,
}

impl<T> TaskStack<T> {
    pub(super) fn new(first: impl IntoIterator<Item = T>) -> Self {
        Self {
            tasks: Mutex::new(Tasks { waiting: first.into_iter().collect(), busy: 0, is_closed: false }),
            changed: Condvar::new(),
        }
    }

    /// Takes a task. If there is none, waits while a busy thread may still add one. `None` when all tasks are done or the stack is closed.
    pub(super) fn take(&self) -> Option<T> {
        let mut tasks = self.tasks.lock();
        loop {
            if tasks.is_closed {
                return None;
            }
            if let Some(task) = tasks.waiting.pop() {
                tasks.busy += 1;
                return Some(task);
            }
            if tasks.busy == 0 {
                return None;
            }
            self.changed.wait(&mut tasks);
        }
    }

    /// Marks the task that this thread took as done, and adds new tasks. The thread must call [`take`](Self::take) next.
    pub(super) fn finish(&self, added: Vec<T>) {
        let added_count = added.len();
        let mut tasks = self.tasks.lock();
        tasks.busy -= 1;
        if !tasks.is_closed {
            tasks.waiting.extend(added);
        }
        let is_done = tasks.busy == 0 && tasks.waiting.is_empty();
        drop(tasks);
        match added_count {
            _ if is_done => drop(self.changed.notify_all()),
            // This thread takes one of the added tasks itself, so only the others need a waiting thread.
            0 | 1 => {}
            2 => drop(self.changed.notify_one()),
            _ => drop(self.changed.notify_all()),
        }
    }

    /// Drops all waiting tasks and lets every thread end after its current task.
    pub(super) fn close(&self) {
        let mut tasks = self.tasks.lock();
        tasks.is_closed = true;
        tasks.waiting.clear();
        drop(tasks);
        self.changed.notify_all();
    }
}
