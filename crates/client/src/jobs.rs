//! Background jobs and their queue. A job is work that no caller waits for: cleaning up on the server after a dropped
//! handle, reading missing events, pausing and resuming the events of a process or a streamed HTTP body. `job_runner`
//! does the work.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use protocol::ProcessId;
use tokio::sync::Notify;

use crate::records::{Backlog, ProcessRecord};
use crate::rpc::PendingCall;

/// While this many jobs are unfinished, the client creates nothing whose end needs a job: no process, file, watch,
/// search or HTTP request. Handles that exist can still add jobs, because dropping a handle cannot wait. So the queue
/// holds at most this many jobs, plus a few for each handle that existed when the limit was reached.
pub(crate) const MAX_JOBS: usize = 16_384;

/// One piece of background work.
pub(crate) enum BackgroundJob {
    /// Kill a process that no handle uses any more, or that the client cannot follow any longer.
    Terminate(ProcessId),
    /// Wait for the answer to a process start whose caller has dropped the future, and kill the process unless the
    /// start has failed.
    AbandonedStart { process: ProcessId, call: PendingCall },
    /// Fill a hole: read the events that are missing before events that have come.
    FillHole(Arc<ProcessRecord>),
    /// Ask the server to pause or resume the events of a process.
    SendFlow(Arc<ProcessRecord>),
    /// Ask the server to pause or resume a streamed HTTP body.
    SendBodyFlow(Arc<Backlog>),
    /// Ask the server to end an HTTP request, a watch or a search that no handle uses any more.
    Forget(Forgotten),
    /// Close the file, or cancel the upload, with this handle id.
    CloseFile(String),
}

/// The id of an HTTP request, a watch or a search that no handle uses any more.
#[derive(Debug)]
pub(crate) enum Forgotten {
    Request(String),
    Watch(String),
    Search(String),
}

/// A group of jobs with a queue of its own, so that no lane waits for another. A lane does its jobs one after the
/// other, or all at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobLane {
    /// [`BackgroundJob::Terminate`], one after the other, because a connection reserves one slot for such calls.
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

/// The waiting jobs of a client, and the number of its unfinished jobs.
#[derive(Default)]
pub(crate) struct JobQueue {
    state: Mutex<JobQueueState>,
    /// A job was added, or the phase has changed.
    changed: Notify,
    /// A job was finished, or the queue has ended.
    finished: Notify,
}

#[derive(Default)]
struct JobQueueState {
    /// Indexed by [`JobLane`].
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
    /// No job is accepted any more.
    Ended,
}

impl JobQueue {
    /// Adds a job. Does not wait, because most jobs are added by a `drop`.
    pub(crate) fn add(&self, job: BackgroundJob) {
        let mut state = self.state.lock();
        // After the end of the queue the client closes its connection, so the job could not be done.
        if state.phase != JobQueuePhase::Ended {
            state.unfinished += 1;
            state.waiting[job.lane() as usize].push_back(job);
            drop(state);
            self.changed.notify_waiters();
        }
    }

    /// Whether [`MAX_JOBS`] jobs are unfinished, so that nothing may be created whose end needs a job. A queue that
    /// has ended is never full.
    pub(crate) fn is_full(&self) -> bool {
        let state = self.state.lock();
        state.unfinished >= MAX_JOBS && state.phase != JobQueuePhase::Ended
    }

    /// Waits until the queue is no longer full.
    pub(crate) async fn wait_for_room(&self) {
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

    /// Drops all waiting jobs, and all jobs that are added later.
    pub(crate) fn end(&self) {
        let dropped = {
            let mut state = self.state.lock();
            state.phase = JobQueuePhase::Ended;
            std::mem::take(&mut state.waiting)
        };
        // The lock was released before, so that a `drop` which adds a job cannot deadlock.
        drop(dropped);
        self.changed.notify_waiters();
        self.finished.notify_waiters();
    }
}

/// Belongs to one job, which counts as unfinished until this value is dropped.
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
    async fn a_full_queue_has_room_when_a_job_is_finished_or_the_queue_has_ended() {
        let queue = Arc::new(JobQueue::default());
        for number in 0..MAX_JOBS {
            queue.add(BackgroundJob::CloseFile(number.to_string()));
        }
        assert!(queue.is_full());
        let (_, unfinished) = queue.next(JobLane::Parallel).await.unwrap();
        assert!(queue.is_full(), "the job is still being done");
        let mut room = Box::pin(queue.wait_for_room());
        assert!(tokio::time::timeout(std::time::Duration::ZERO, &mut room).await.is_err());
        drop(unfinished);
        room.await;
        queue.add(BackgroundJob::CloseFile("one more".to_owned()));
        assert!(queue.is_full());
        queue.end();
        queue.wait_for_room().await;
        assert!(queue.next(JobLane::Parallel).await.is_none());
    }

    #[tokio::test]
    async fn each_lane_gets_only_its_own_jobs_and_ends_when_they_are_done() {
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
