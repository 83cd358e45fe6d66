//! The order in which blocking work is begun, and when a thread is added for it. A value: the time is passed in, and it knows neither
//! threads nor what the work is.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// When a thread is added to those that stay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth {
    /// Below this number of threads, one is added as soon as none is free for a job. Jobs that need a processor go no faster with more
    /// threads than processors, and then everything else in the server waits for a processor, or for a lock of the allocator whose holder
    /// waits for one.
    pub(crate) at_once: usize,
    /// From that number on, a thread is added when jobs wait and no job has been begun for so long: the threads hang, for example on a
    /// dead network mount.
    pub(crate) patience: Duration,
    /// How many threads may work for one asker at once. Further jobs of this asker wait, also if a thread is free.
    pub(crate) most_per_asker: usize,
}

/// For whom work is done: a session, or the server itself. Threads are shared out between askers, so that an asker with few jobs does not
/// wait for all the jobs of an asker with many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Asker(pub(super) u64);

impl Asker {
    /// The server itself.
    pub(crate) const SERVER: Self = Self(0);
}

/// Jobs that wait, and the number of threads for them.
pub(super) struct WorkQueue<J> {
    /// Only askers with a job that is not done.
    askers: HashMap<Asker, AskedJobs<J>>,
    /// Threads that run.
    threads: usize,
    /// Threads that are being added and do not run yet. The machine may give none.
    coming: usize,
    most_threads: usize,
    growth: Growth,
    /// Threads that wait for a job.
    pub(super) idle: usize,
    /// When a job was last begun, or a thread was last added.
    last_progress: Option<Instant>,
}

/// The jobs of one asker that are not done.
struct AskedJobs<J> {
    waiting: VecDeque<J>,
    running: usize,
    /// How long threads have worked for this asker. An asker that comes begins with what the thriftiest of the others has.
    spent: Duration,
}

/// A job that a thread has begun.
pub(super) struct Begun<J> {
    pub(super) job: J,
    pub(super) stub: JobStub,
}

/// What the queue must be told when the job is done.
#[derive(Clone, Copy)]
pub(super) struct JobStub {
    asker: Asker,
    began: Instant,
}

impl<J> WorkQueue<J> {
    pub(super) fn new(threads: usize, most_threads: usize, growth: Growth) -> Self {
        Self { askers: HashMap::new(), threads, coming: 0, most_threads, growth, idle: 0, last_progress: None }
    }

    /// How many jobs a thread could begin now.
    pub(super) fn ready(&self) -> usize {
        let ready = |jobs: &AskedJobs<J>| jobs.waiting.len().min(self.growth.most_per_asker - jobs.running);
        self.askers.values().map(ready).sum()
    }

    pub(super) fn push(&mut self, asker: Asker, job: J) {
        let least_spent = || self.askers.values().map(|jobs| jobs.spent).min().unwrap_or_default();
        let spent = if self.askers.contains_key(&asker) { Duration::ZERO } else { least_spent() };
        let jobs =
            self.askers.entry(asker).or_insert_with(|| AskedJobs { waiting: VecDeque::new(), running: 0, spent });
        jobs.waiting.push_back(job);
    }

    /// The next job: of the asker for whom the fewest threads work, and among those of the asker who has had the least time of them.
    pub(super) fn begin(&mut self, now: Instant) -> Option<Begun<J>> {
        let most = self.growth.most_per_asker;
        let may_begin = |jobs: &AskedJobs<J>| !jobs.waiting.is_empty() && jobs.running < most;
        let those_ready = self.askers.iter_mut().filter(|(_, jobs)| may_begin(jobs));
        let (asker, jobs) = those_ready.min_by_key(|(asker, jobs)| (jobs.running, jobs.spent, **asker))?;
        let job = jobs.waiting.pop_front()?;
        jobs.running += 1;
        self.last_progress = Some(now);
        Some(Begun { job, stub: JobStub { asker: *asker, began: now } })
    }

    pub(super) fn end(&mut self, stub: JobStub, now: Instant) {
        let Some(jobs) = self.askers.get_mut(&stub.asker) else { return };
        jobs.running -= 1;
        jobs.spent += now.saturating_duration_since(stub.began);
        if jobs.running == 0 && jobs.waiting.is_empty() {
            self.askers.remove(&stub.asker);
        }
    }

    /// Counts another thread as coming if one is wanted. Until it runs, which can take a while on a busy machine, no further one is added
    /// to threads that hang.
    pub(super) fn claim_thread(&mut self, now: Instant) -> bool {
        let is_stuck = || {
            let since_progress = self.last_progress.map(|at| now.saturating_duration_since(at));
            self.idle == 0 && since_progress.is_none_or(|since| since >= self.growth.patience)
        };
        let (ready, threads) = (self.ready(), self.threads + self.coming);
        let is_short = self.idle < ready && threads < self.growth.at_once;
        let is_wanted = ready > 0 && threads < self.most_threads && (is_short || is_stuck());
        if is_wanted {
            self.last_progress = Some(now);
            self.coming += 1;
        }
        is_wanted
    }

    /// A thread that was coming runs. Before this, no other thread may end in its favour.
    pub(super) fn note_thread(&mut self) {
        self.coming -= 1;
        self.threads += 1;
    }

    /// A thread that was coming could not be made.
    pub(super) fn note_no_thread(&mut self) {
        self.coming -= 1;
    }

    /// Gives up a thread that has done a job. True if it was added because others hung and another job was begun since this one: then
    /// enough threads do not hang.
    pub(super) fn spares_thread(&mut self, last_job: JobStub) -> bool {
        let is_spare = self.threads > self.growth.at_once && self.last_progress.is_some_and(|at| at > last_job.began);
        self.threads -= usize::from(is_spare);
        is_spare
    }

    /// Gives up a thread that was idle for long, unless it is one of those that stay.
    pub(super) fn spares_idle_thread(&mut self, kept_threads: usize) -> bool {
        let is_spare = self.ready() == 0 && self.threads > kept_threads;
        self.threads -= usize::from(is_spare);
        is_spare
    }

    /// A thread has ended.
    pub(super) fn forget_thread(&mut self) {
        self.threads -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST_THREADS: usize = 64;
    const PATIENCE: Duration = Duration::from_millis(250);
    const ONE: Asker = Asker(1);
    const OTHER: Asker = Asker(2);

    fn queue(threads: usize, at_once: usize) -> WorkQueue<&'static str> {
        capped_queue(threads, at_once, MOST_THREADS)
    }

    fn capped_queue(threads: usize, at_once: usize, most_per_asker: usize) -> WorkQueue<&'static str> {
        WorkQueue::new(threads, MOST_THREADS, Growth { at_once, patience: PATIENCE, most_per_asker })
    }

    /// How many threads are added when so many ask for one at the same time.
    fn claimed(queue: &mut WorkQueue<&'static str>, now: Instant) -> usize {
        (0..1000).filter(|_| queue.claim_thread(now)).count()
    }

    #[test]
    fn a_burst_adds_one_thread_at_a_time_to_those_that_hang() {
        let now = Instant::now();
        let mut queue = queue(1, 1);
        (0..1000).for_each(|_| queue.push(ONE, "hangs"));
        queue.begin(now).unwrap();
        assert_eq!(claimed(&mut queue, now), 0, "the thread has just begun with a job");
        let later = now + PATIENCE;
        assert_eq!(claimed(&mut queue, later), 1, "that job hangs, and the new thread has not run yet");
        queue.note_thread();
        queue.begin(later).unwrap();
        let much_later = later + PATIENCE;
        assert_eq!(claimed(&mut queue, much_later), 1, "the second job hangs as well");
        queue.threads = MOST_THREADS;
        assert_eq!(claimed(&mut queue, much_later + PATIENCE), 0);
    }

    #[test]
    fn few_threads_are_added_at_once() {
        let now = Instant::now();
        let mut queue = queue(2, 4);
        (0..1000).for_each(|_| queue.push(ONE, "needs a processor"));
        let mut running: VecDeque<_> = (0..2).map(|_| queue.begin(now).unwrap().stub).collect();
        assert_eq!(claimed(&mut queue, now), 2);
        (0..2).for_each(|_| queue.note_thread());
        running.extend((0..2).map(|_| queue.begin(now).unwrap().stub));
        for step in 1..100 {
            let now = now + PATIENCE / 2 * step;
            queue.end(running.pop_front().unwrap(), now);
            running.push_back(queue.begin(now).unwrap().stub);
            assert_eq!(claimed(&mut queue, now), 0, "jobs are begun, so the threads do not hang");
        }
    }

    #[test]
    fn a_thread_that_was_added_to_others_that_seemed_to_hang_ends_when_they_do_not() {
        let now = Instant::now();
        let mut queue = queue(1, 1);
        (0..10).for_each(|_| queue.push(ONE, "slow"));
        let first = queue.begin(now).unwrap();
        let later = now + PATIENCE;
        assert!(queue.claim_thread(later));
        queue.note_thread();
        let second = queue.begin(later).unwrap();
        queue.end(second.stub, later);
        assert!(!queue.spares_thread(second.stub), "the first still hangs");
        let third = queue.begin(later + PATIENCE).unwrap();
        queue.end(first.stub, later + PATIENCE);
        assert!(queue.spares_thread(first.stub), "the other thread has begun another job");
        assert!(!queue.spares_thread(third.stub), "no thread but this one is left");
    }

    #[test]
    fn the_last_thread_does_not_end_in_favour_of_one_that_may_never_come() {
        let now = Instant::now();
        let mut queue = queue(1, 1);
        (0..2).for_each(|_| queue.push(ONE, "slow"));
        let first = queue.begin(now).unwrap();
        let later = now + PATIENCE;
        assert!(queue.claim_thread(later));
        queue.end(first.stub, later);
        assert!(!queue.spares_thread(first.stub), "the other thread does not run yet");
        queue.note_no_thread();
        assert_eq!(queue.threads, 1);
    }

    #[test]
    fn an_asker_whose_jobs_hang_leaves_threads_to_others() {
        let mut now = Instant::now();
        let mut queue = capped_queue(1, 1, 4);
        (0..100).for_each(|_| queue.push(ONE, "hangs"));
        let mut hanging: Vec<_> = queue.begin(now).map(|begun| begun.stub).into_iter().collect();
        for _ in 0..10 {
            now += PATIENCE;
            if queue.claim_thread(now) {
                queue.note_thread();
                hanging.push(queue.begin(now).unwrap().stub);
            }
        }
        assert_eq!((hanging.len(), queue.threads), (4, 4), "no thread is added that could begin nothing");
        queue.push(OTHER, "quick");
        now += PATIENCE;
        assert!(queue.claim_thread(now));
        queue.note_thread();
        assert_eq!(queue.begin(now).unwrap().job, "quick");
        assert!(queue.begin(now).is_none(), "the jobs of the first wait for one another");
        queue.end(hanging.pop().unwrap(), now);
        assert_eq!(queue.begin(now).unwrap().job, "hangs");
    }

    #[test]
    fn no_thread_is_added_for_nothing() {
        for at_once in [1, 4] {
            let now = Instant::now();
            let mut queue = queue(1, at_once);
            assert!(!queue.claim_thread(now), "nothing waits");
            queue.push(ONE, "waits");
            queue.idle = 1;
            assert!(!queue.claim_thread(now), "a thread waits for it");
        }
    }

    #[test]
    fn an_asker_with_few_jobs_waits_for_no_queue_of_another() {
        let mut now = Instant::now();
        let mut queue = queue(2, 2);
        (0..100).for_each(|_| queue.push(ONE, "many"));
        let mut running = VecDeque::from([queue.begin(now).unwrap().stub, queue.begin(now).unwrap().stub]);
        let mut order = Vec::new();
        for step in 0..10 {
            if step % 5 == 0 {
                queue.push(OTHER, "few");
            }
            now += PATIENCE;
            queue.end(running.pop_front().unwrap(), now);
            let begun = queue.begin(now).unwrap();
            order.push(begun.job);
            running.push_back(begun.stub);
        }
        assert_eq!(order, ["few", "many", "many", "many", "many", "few", "many", "many", "many", "many"]);
    }

    #[test]
    fn askers_with_many_jobs_take_turns() {
        let mut now = Instant::now();
        let mut queue = queue(1, 1);
        for asker in [ONE, OTHER] {
            (0..10).for_each(|_| queue.push(asker, if asker == ONE { "slow" } else { "quick" }));
        }
        let mut spent = HashMap::new();
        for _ in 0..10 {
            let begun = queue.begin(now).unwrap();
            let cost = if begun.job == "slow" { PATIENCE * 3 } else { PATIENCE };
            *spent.entry(begun.job).or_insert(Duration::ZERO) += cost;
            now += cost;
            queue.end(begun.stub, now);
        }
        let difference = spent["slow"].abs_diff(spent["quick"]);
        assert!(difference <= PATIENCE * 3, "{spent:?}");
    }

    #[test]
    fn nothing_is_remembered_of_an_asker_whose_jobs_are_done() {
        let now = Instant::now();
        let mut queue = queue(1, 1);
        queue.push(ONE, "once");
        let begun = queue.begin(now).unwrap();
        assert_eq!(queue.ready(), 0);
        queue.end(begun.stub, now);
        assert!(queue.askers.is_empty());
    }
}
