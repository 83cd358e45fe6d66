//! Work that the client does on its own, so that nothing is left behind on the server and nothing stands still: what a job is, and the
//! queue of jobs. `job_runner` does the work.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use protocol::ProcessId;
use tokio::sync::Notify;

use crate::records::{Backlog, ProcessRecord};
use crate::rpc::PendingCall;

/// Unfinished jobs above which the client creates nothing that could need another one. Dropping a handle cannot wait, so a job is always
/// taken; the queue is at most this long, plus one job for each handle that existed when the limit was reached.
pub(crate) const MAX_JOBS: usize = 16_384;

/// One piece of background work.
pub(crate) enum BackgroundJob {
    /// Kill a process that has no user any more.
    Terminate(ProcessId),
    /// Wait for the answer to a start whose caller has gone away, then kill the process.
    AbandonedStart { process: ProcessId, call: PendingCall },
    /// Read events that should have been pushed.
    FillHole(Arc<ProcessRecord>),
    /// Tell the server to pause or resume the events of a process.
    SendFlow(Arc<ProcessRecord>),
    /// Tell the server to pause or resume a streamed HTTP body.
    SendBodyFlow(Arc<Backlog>),
    /// Tell the server to end something else that has no user any more.
    Forget(Forgotten),
    /// Close the file, or cancel the upload, with this handle id.
    CloseFile(String),
}

/// Something that has no user any more, by its id.
#[derive(Debug)]
pub(crate) enum Forgotten {
    Request(String),
    Watch(String),
    Search(String),
}

/// In which order jobs are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobLane {
    /// [`BackgroundJob::Terminate`], one after the other, because a connection keeps one slot for them.
    Terminations,
    /// [`BackgroundJob::Forget`], one after the other: a thousand dropped handles are no reason for a thousand calls at once.
    Forgotten,
    /// All other jobs, at the same time.
    Parallel,
}

impl BackgroundJob {
    fn lane(&self) -> JobLane {
        match self {
            Self::Terminate(_) => JobLane::Terminations,
            Self::Forget(_) => JobLane::Forgotten,
            _ => JobLane::Parallel,
        }
    }
}

/// The jobs of a client that wait, and the number of those that are unfinished.
#[derive(Default)]
pub(crate) struct JobQueue {
    state: Mutex<JobQueueState>,
    /// A job was added, or the phase has changed.
    changed: Notify,
    finished: Notify,
}

#[derive(Default)]
struct JobQueueState {
    waiting: [VecDeque<BackgroundJob>; 3],
    /// Jobs that wait or are being done.
    unfinished: usize,
    phase: JobQueuePhase,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum JobQueuePhase {
    #[default]
    Open,
    /// The client is closing: a lane ends when it is empty.
    Draining,
    /// No job is taken any more.
    Ended,
}

impl JobQueue {
    /// Adds a job. Does not wait, because most jobs are added by a `drop`.
    pub(crate) fn add(&self, job: BackgroundJob) {
        let mut state = self.state.lock();
        // After the end of the client there is nothing left to clean up.
        if state.phase != JobQueuePhase::Ended {
            state.unfinished += 1;
            state.waiting[job.lane() as usize].push_back(job);
            drop(state);
            self.changed.notify_waiters();
        }
    }

    /// Whether so many jobs are unfinished that nothing may be created that could need another one.
    pub(crate) fn is_full(&self) -> bool {
        let state = self.state.lock();
        state.unfinished >= MAX_JOBS && state.phase != JobQueuePhase::Ended
    }

    /// Waits until the queue is no longer full.
    pub(crate) async fn has_room(&self) {
        loop {
            let finished = self.finished.notified();
            if !self.is_full() {
                return;
            }
            finished.await;
        }
    }

    /// Waits for a job of this lane. Returns `None` when the client is closing and the lane is empty.
    pub(crate) async fn next(self: &Arc<Self>, lane: JobLane) -> Option<(BackgroundJob, UnfinishedJob)> {
        loop {
            let changed = self.changed.notified();
            if let Some(job) = self.try_next(lane) {
                return Some(job);
            }
            if self.state.lock().phase != JobQueuePhase::Open {
                return None;
            }
            changed.await;
        }
    }

    /// The next job of this lane, if one waits.
    pub(crate) fn try_next(self: &Arc<Self>, lane: JobLane) -> Option<(BackgroundJob, UnfinishedJob)> {
        let job = self.state.lock().waiting[lane as usize].pop_front()?;
        Some((job, UnfinishedJob(Arc::clone(self))))
    }

    /// Lets every lane end when it is empty.
    pub(crate) fn drain(&self) {
        self.state.lock().phase = JobQueuePhase::Draining;
        self.changed.notify_waiters();
    }

    /// Drops the jobs that wait, and those that are added later.
    pub(crate) fn end(&self) {
        let dropped = {
            let mut state = self.state.lock();
            state.phase = JobQueuePhase::Ended;
            std::mem::take(&mut state.waiting)
        };
        // Without the lock: dropping a job may drop a handle, which adds one.
        drop(dropped);
        self.changed.notify_waiters();
        self.finished.notify_waiters();
    }
}

/// A job counts as unfinished until this is dropped.
pub(crate) struct UnfinishedJob(Arc<JobQueue>);

impl Drop for UnfinishedJob {
    fn drop(&mut self) {
        self.0.state.lock().unfinished -= 1;
        self.0.finished.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_queue_has_room_when_a_job_is_finished() {
        let queue = Arc::new(JobQueue::default());
        for number in 0..MAX_JOBS {
            queue.add(BackgroundJob::CloseFile(number.to_string()));
        }
        assert!(queue.is_full());
        let (_, unfinished) = queue.next(JobLane::Parallel).await.unwrap();
        assert!(queue.is_full(), "the job is still being done");
        let mut room = Box::pin(queue.has_room());
        assert!(tokio::time::timeout(std::time::Duration::ZERO, &mut room).await.is_err());
        drop(unfinished);
        room.await;
        queue.add(BackgroundJob::CloseFile("one more".to_owned()));
        assert!(queue.is_full());
        queue.end();
        queue.has_room().await;
        assert!(queue.next(JobLane::Parallel).await.is_none());
    }

    #[tokio::test]
    async fn lanes_do_not_wait_for_each_other() {
        let queue = Arc::new(JobQueue::default());
        queue.add(BackgroundJob::Forget(Forgotten::Search("s".into())));
        queue.add(BackgroundJob::Terminate("p".into()));
        assert!(queue.try_next(JobLane::Parallel).is_none());
        assert!(matches!(queue.next(JobLane::Terminations).await, Some((BackgroundJob::Terminate(_), _))));
        queue.drain();
        assert!(queue.next(JobLane::Terminations).await.is_none());
        assert!(matches!(queue.next(JobLane::Forgotten).await, Some((BackgroundJob::Forget(_), _))));
    }
}
