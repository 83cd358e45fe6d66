//! The files and directories that the threads of a search still have to look at. A thread takes the newest of them, so that the search
//! goes deep before it goes wide, and keeps the rules of few directories in memory.

use parking_lot::{Condvar, Mutex};

/// Tasks that any thread takes and adds.
#[derive(Debug)]
pub(super) struct TaskStack<T> {
    tasks: Mutex<Tasks<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct Tasks<T> {
    waiting: Vec<T>,
    /// Threads that work on a task, and may add others.
    busy: usize,
    is_closed: bool,
}

impl<T> TaskStack<T> {
    pub(super) fn of(first: impl IntoIterator<Item = T>) -> Self {
        Self {
            tasks: Mutex::new(Tasks { waiting: first.into_iter().collect(), busy: 0, is_closed: false }),
            changed: Condvar::new(),
        }
    }

    /// Takes a task, and waits for one while another thread may still add some. `None` when all is done.
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

    /// Says that a thread has done the task that it took, and adds what it came by. The thread must take a task next.
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
            // This thread takes it.
            0 | 1 => {}
            2 => drop(self.changed.notify_one()),
            _ => drop(self.changed.notify_all()),
        }
    }

    /// Lets every thread end after its present task.
    pub(super) fn close(&self) {
        let mut tasks = self.tasks.lock();
        tasks.is_closed = true;
        tasks.waiting.clear();
        drop(tasks);
        self.changed.notify_all();
    }
}
