//! Decides in which order the jobs of a thread pool are begun, and when the pool gets another thread. This is a value
//! without side effects: the time is passed in, threads are only counted, and jobs are opaque.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// The rules for adding threads to a pool, beyond the threads that it always keeps, and for sharing them out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolGrowth {
    /// While there are fewer threads than this, a thread is added as soon as no thread is free for a job. The number should follow the
    /// number of processors: with more threads, jobs that compute are no faster, and the rest of the server waits for a processor, or for
    /// a lock of the allocator whose holder waits for a processor.
    pub(crate) eager_threads: usize,
    /// From `eager_threads` on, a thread is added only if jobs wait, and for this time no job was begun and no thread
    /// was added. Then the threads are taken to hang, for example on a dead network mount.
    pub(crate) hang_timeout: Duration,
    /// Largest number of threads that work for one owner at once. Further jobs of this owner wait, even if a thread
    /// is free.
    pub(crate) most_per_owner: usize,
}

/// Identifies for whom a job is done: a session, or the server itself. Threads are shared out between owners, so that an owner with few
/// jobs does not wait for all the jobs of an owner with many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct JobOwner(pub(super) u64);

impl JobOwner {
    /// The server itself.
    pub(crate) const SERVER: Self = Self(0);
}

/// Jobs that wait, and the number of threads for them.
pub(super) struct WorkQueue<J> {
    /// Contains only owners that have an unfinished job.
    owners: HashMap<JobOwner, OwnedJobs<J>>,
    /// Number of threads that run.
    threads: usize,
    /// Number of threads that were requested and do not run yet. The request can fail.
    starting: usize,
    most_threads: usize,
    growth: PoolGrowth,
    /// Number of threads that wait for a job.
    pub(super) idle: usize,
    /// When a job was last begun, or a thread was last added.
    last_progress: Option<Instant>,
}

/// The unfinished jobs of one owner.
struct OwnedJobs<J> {
    waiting: VecDeque<J>,
    running: usize,
    /// Time that threads have spent on jobs of this owner. An owner that began with zero would be preferred until it
    /// had caught up, so a new owner begins with the smallest value of the other owners.
    spent: Duration,
}

/// A job for a thread to run, and the record of it.
pub(super) struct StartedJob<J> {
    pub(super) job: J,
    pub(super) running_job: RunningJob,
}

/// The record of a job that was begun. The thread that runs the job passes the record to [`WorkQueue::end`]
/// afterwards.
#[derive(Clone, Copy)]
pub(super) struct RunningJob {
    owner: JobOwner,
    began: Instant,
}

impl<J> WorkQueue<J> {
    /// A queue without jobs. `threads` is the number of threads that the caller starts at once.
    pub(super) fn new(threads: usize, most_threads: usize, growth: PoolGrowth) -> Self {
        Self { owners: HashMap::new(), threads, starting: 0, most_threads, growth, idle: 0, last_progress: None }
    }

    /// The number of jobs that could begin now if threads were free.
    pub(super) fn ready(&self) -> usize {
        let ready = |jobs: &OwnedJobs<J>| jobs.waiting.len().min(self.growth.most_per_owner - jobs.running);
        self.owners.values().map(ready).sum()
    }

    pub(super) fn push(&mut self, owner: JobOwner, job: J) {
        let least_spent = || self.owners.values().map(|jobs| jobs.spent).min().unwrap_or_default();
        let spent = if self.owners.contains_key(&owner) { Duration::ZERO } else { least_spent() };
        let jobs =
            self.owners.entry(owner).or_insert_with(|| OwnedJobs { waiting: VecDeque::new(), running: 0, spent });
        jobs.waiting.push_back(job);
    }

    /// Takes the next job: of the owner for whom the fewest threads work now, and among equals of the owner for whom
    /// threads have worked for the shortest time. None if no job waits, or only jobs of owners that have as many
    /// threads as they may.
    pub(super) fn begin(&mut self, now: Instant) -> Option<StartedJob<J>> {
        let most = self.growth.most_per_owner;
        let may_begin = |jobs: &OwnedJobs<J>| !jobs.waiting.is_empty() && jobs.running < most;
        let ready = self.owners.iter_mut().filter(|(_, jobs)| may_begin(jobs));
        let (owner, jobs) = ready.min_by_key(|(owner, jobs)| (jobs.running, jobs.spent, **owner))?;
        let job = jobs.waiting.pop_front()?;
        jobs.running += 1;
        self.last_progress = Some(now);
        Some(StartedJob { job, running_job: RunningJob { owner: *owner, began: now } })
    }

    /// A job is done. The queue forgets its owner if the owner has no other job.
    pub(super) fn end(&mut self, running_job: RunningJob, now: Instant) {
        let Some(jobs) = self.owners.get_mut(&running_job.owner) else { return };
        jobs.running -= 1;
        jobs.spent += now.saturating_duration_since(running_job.began);
        if jobs.running == 0 && jobs.waiting.is_empty() {
            self.owners.remove(&running_job.owner);
        }
    }

    /// Returns true if the caller has to start another thread, and counts that thread as starting. A new thread
    /// counts as progress, because on a busy machine it may take a while until it runs. So hanging threads lead to
    /// one more thread only after `hang_timeout` has passed again.
    pub(super) fn claim_thread(&mut self, now: Instant) -> bool {
        let is_stuck = || {
            let since_progress = self.last_progress.map(|at| now.saturating_duration_since(at));
            self.idle == 0 && since_progress.is_none_or(|since| since >= self.growth.hang_timeout)
        };
        let (ready, threads) = (self.ready(), self.threads + self.starting);
        let is_short = self.idle < ready && threads < self.growth.eager_threads;
        let is_wanted = ready > 0 && threads < self.most_threads && (is_short || is_stuck());
        if is_wanted {
            self.last_progress = Some(now);
            self.starting += 1;
        }
        is_wanted
    }

    /// A requested thread runs now. It was counted in `starting` until now, so that no other thread ended before the
    /// new one ran.
    pub(super) fn note_thread_started(&mut self) {
        self.starting -= 1;
        self.threads += 1;
    }

    /// A thread that was to be started could not be created.
    pub(super) fn note_thread_failed(&mut self) {
        self.starting -= 1;
    }

    /// Called by a thread that has done `last_job`. Returns true if the thread has to end: more than `eager_threads`
    /// threads run, and after `last_job` began, another job was begun or another thread was requested. So other
    /// threads do the work.
    pub(super) fn retire_thread_after(&mut self, last_job: RunningJob) -> bool {
        let is_spare =
            self.threads > self.growth.eager_threads && self.last_progress.is_some_and(|at| at > last_job.began);
        self.threads -= usize::from(is_spare);
        is_spare
    }

    /// Called by a thread that was idle for long. Returns true if the thread has to end: no job is ready, and more than `kept_threads`
    /// threads run.
    pub(super) fn retire_idle_thread(&mut self, kept_threads: usize) -> bool {
        let is_spare = self.ready() == 0 && self.threads > kept_threads;
        self.threads -= usize::from(is_spare);
        is_spare
    }

    /// A thread ends because the pool is closed.
    pub(super) fn note_thread_ended(&mut self) {
        self.threads -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST_THREADS: usize = 64;
    const HANG_TIMEOUT: Duration = Duration::from_millis(250);
    const OWNER: JobOwner = JobOwner(1);
    const OTHER_OWNER: JobOwner = JobOwner(2);

    fn queue(threads: usize, eager_threads: usize) -> WorkQueue<&'static str> {
        capped_queue(threads, eager_threads, MOST_THREADS)
    }

    fn capped_queue(threads: usize, eager_threads: usize, most_per_owner: usize) -> WorkQueue<&'static str> {
        let growth = PoolGrowth { eager_threads, hang_timeout: HANG_TIMEOUT, most_per_owner };
        WorkQueue::new(threads, MOST_THREADS, growth)
    }

    /// The number of threads that are requested when a thousand callers ask at the same time whether one is needed.
    fn claim_threads(queue: &mut WorkQueue<&'static str>, now: Instant) -> usize {
        (0..1000).filter(|_| queue.claim_thread(now)).count()
    }

    #[test]
    fn a_burst_of_jobs_adds_one_thread_at_a_time_while_threads_hang_up_to_the_limit() {
        let now = Instant::now();
        let mut queue = queue(1, 1);
        (0..1000).for_each(|_| queue.push(OWNER, "hangs"));
        queue.begin(now).unwrap();
        assert_eq!(claim_threads(&mut queue, now), 0, "the thread has just begun with a job");
        let later = now + HANG_TIMEOUT;
        assert_eq!(claim_threads(&mut queue, later), 1, "the first job hangs, and the new thread does not run yet");
        queue.note_thread_started();
        queue.begin(later).unwrap();
        let much_later = later + HANG_TIMEOUT;
        assert_eq!(claim_threads(&mut queue, much_later), 1, "the second job hangs as well");
        queue.threads = MOST_THREADS;
        assert_eq!(claim_threads(&mut queue, much_later + HANG_TIMEOUT), 0, "the pool has all its threads");
    }

    #[test]
    fn threads_are_added_at_once_up_to_eager_threads_and_no_more_while_jobs_begin() {
        let now = Instant::now();
        let mut queue = queue(2, 4);
        (0..1000).for_each(|_| queue.push(OWNER, "needs a processor"));
        let mut running: VecDeque<_> = (0..2).map(|_| queue.begin(now).unwrap().running_job).collect();
        assert_eq!(claim_threads(&mut queue, now), 2);
        (0..2).for_each(|_| queue.note_thread_started());
        running.extend((0..2).map(|_| queue.begin(now).unwrap().running_job));
        for step in 1..100 {
            let now = now + HANG_TIMEOUT / 2 * step;
            queue.end(running.pop_front().unwrap(), now);
            running.push_back(queue.begin(now).unwrap().running_job);
            assert_eq!(claim_threads(&mut queue, now), 0, "jobs are begun, so the threads do not hang");
        }
    }

    #[test]
    fn a_thread_that_has_hung_ends_if_an_added_thread_does_its_work() {
        let now = Instant::now();
        let mut queue = queue(1, 1);
        (0..10).for_each(|_| queue.push(OWNER, "slow"));
        let first = queue.begin(now).unwrap();
        let later = now + HANG_TIMEOUT;
        assert!(queue.claim_thread(later));
        queue.note_thread_started();
        let second = queue.begin(later).unwrap();
        queue.end(second.running_job, later);
        assert!(!queue.retire_thread_after(second.running_job), "the first job still hangs");
        let third = queue.begin(later + HANG_TIMEOUT).unwrap();
        queue.end(first.running_job, later + HANG_TIMEOUT);
        assert!(queue.retire_thread_after(first.running_job), "the other thread has begun another job");
        assert!(!queue.retire_thread_after(third.running_job), "no thread but this one is left");
    }

    #[test]
    fn the_last_thread_does_not_end_before_the_new_thread_runs() {
        let now = Instant::now();
        let mut queue = queue(1, 1);
        (0..2).for_each(|_| queue.push(OWNER, "slow"));
        let first = queue.begin(now).unwrap();
        let later = now + HANG_TIMEOUT;
        assert!(queue.claim_thread(later));
        queue.end(first.running_job, later);
        assert!(!queue.retire_thread_after(first.running_job), "the other thread does not run yet");
        queue.note_thread_failed();
        assert_eq!(queue.threads, 1);
    }

    #[test]
    fn an_owner_whose_jobs_hang_leaves_threads_to_others() {
        let mut now = Instant::now();
        let mut queue = capped_queue(1, 1, 4);
        (0..100).for_each(|_| queue.push(OWNER, "hangs"));
        let mut hanging: Vec<_> = queue.begin(now).map(|begun| begun.running_job).into_iter().collect();
        for _ in 0..10 {
            now += HANG_TIMEOUT;
            if queue.claim_thread(now) {
                queue.note_thread_started();
                hanging.push(queue.begin(now).unwrap().running_job);
            }
        }
        assert_eq!((hanging.len(), queue.threads), (4, 4), "a further thread could begin no job");
        queue.push(OTHER_OWNER, "quick");
        now += HANG_TIMEOUT;
        assert!(queue.claim_thread(now));
        queue.note_thread_started();
        assert_eq!(queue.begin(now).unwrap().job, "quick");
        assert!(queue.begin(now).is_none(), "the first owner already has as many threads as it may have");
        queue.end(hanging.pop().unwrap(), now);
        assert_eq!(queue.begin(now).unwrap().job, "hangs");
    }

    #[test]
    fn no_thread_is_added_while_no_job_waits_or_a_thread_is_idle() {
        for eager_threads in [1, 4] {
            let now = Instant::now();
            let mut queue = queue(1, eager_threads);
            assert!(!queue.claim_thread(now), "no job waits");
            queue.push(OWNER, "waits");
            queue.idle = 1;
            assert!(!queue.claim_thread(now), "an idle thread can take the job");
        }
    }

    #[test]
    fn an_owner_with_few_jobs_does_not_wait_for_all_jobs_of_another_owner() {
        let mut now = Instant::now();
        let mut queue = queue(2, 2);
        (0..100).for_each(|_| queue.push(OWNER, "many"));
        let mut running =
            VecDeque::from([queue.begin(now).unwrap().running_job, queue.begin(now).unwrap().running_job]);
        let mut order = Vec::new();
        for step in 0..10 {
            if step % 5 == 0 {
                queue.push(OTHER_OWNER, "few");
            }
            now += HANG_TIMEOUT;
            queue.end(running.pop_front().unwrap(), now);
            let begun = queue.begin(now).unwrap();
            order.push(begun.job);
            running.push_back(begun.running_job);
        }
        assert_eq!(order, ["few", "many", "many", "many", "many", "few", "many", "many", "many", "many"]);
    }

    #[test]
    fn owners_with_many_jobs_get_equal_shares_of_the_thread_time() {
        let mut now = Instant::now();
        let mut queue = queue(1, 1);
        for owner in [OWNER, OTHER_OWNER] {
            (0..10).for_each(|_| queue.push(owner, if owner == OWNER { "slow" } else { "quick" }));
        }
        let mut spent = HashMap::new();
        for _ in 0..10 {
            let begun = queue.begin(now).unwrap();
            let cost = if begun.job == "slow" { HANG_TIMEOUT * 3 } else { HANG_TIMEOUT };
            *spent.entry(begun.job).or_insert(Duration::ZERO) += cost;
            now += cost;
            queue.end(begun.running_job, now);
        }
        let difference = spent["slow"].abs_diff(spent["quick"]);
        assert!(difference <= HANG_TIMEOUT * 3, "{spent:?}");
    }

    #[test]
    fn nothing_is_remembered_of_an_owner_whose_jobs_are_done() {
        let now = Instant::now();
        let mut queue = queue(1, 1);
        queue.push(OWNER, "once");
        let begun = queue.begin(now).unwrap();
        assert_eq!(queue.ready(), 0);
        queue.end(begun.running_job, now);
        assert!(queue.owners.is_empty());
    }
}
