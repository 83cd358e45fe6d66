//! The thread that kills processes. It is started before the first process and does nothing else, so that a kill
//! never waits for a busy thread and works when the machine has no more threads to give. Each request is a *hunt*,
//! which kills or signals all processes of some trees; a tree is a process that the server has started, and its
//! descendants. Hunts work in *passes*. A pass lists all processes of the machine once, for all hunts, and signals
//! those that belong to a hunt; see `hunt`. A request that arrives during a pass takes part from the next pass on.
//!
//! The thread has its own descriptor table, so that it can read `/proc` when clients have used up the descriptors of the server. Replies
//! and reaping need the table of the other threads, so the kill thread delegates them to a second thread. Start with [`KillThread`].

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::thread;

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::process::Pid;
use tokio::sync::oneshot;

use crate::cgroup::kill_cgroups;
use crate::children::children;
use crate::descriptors::{above_stdio, leave_shared_table};
use crate::error::{SurvivalReason, Survivors};
use crate::hunt::{Hunt, HuntPurpose, Hunts, PassSummary};
use crate::lock::lock;
use crate::tag::Scope;

type KillResult = Result<(), Survivors>;
type ReplySender = oneshot::Sender<KillResult>;

/// The handle of the thread. The thread ends when this is dropped and all requests are done.
#[derive(Debug)]
pub(crate) struct KillThread {
    queue: Arc<KillQueue>,
}

#[derive(Debug)]
struct KillQueue {
    requests: Mutex<Requests>,
    /// An eventfd that becomes readable when `requests` changes.
    changed: OwnedFd,
}

#[derive(Debug, Default)]
struct Requests {
    waiting: Vec<(Scope, HuntPurpose, ReplySender)>,
    is_closed: bool,
}

/// Completes when the requested kill or signal is done. The kill goes on if this is dropped. The error names the processes that are left.
#[derive(Debug)]
pub struct KillFuture(oneshot::Receiver<KillResult>);

impl Future for KillFuture {
    type Output = KillResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let no_reply = |_| {
            let reason = SurvivalReason::ProcUnreadable(io::Error::other(
                "the thread that kills processes has panicked; the log of the server says why",
            ));
            Err(Survivors { pids: Vec::new(), reason })
        };
        Poll::Ready(ready!(Pin::new(&mut self.0).poll(context)).unwrap_or_else(no_reply))
    }
}

impl KillThread {
    pub(crate) fn start() -> io::Result<Self> {
        let changed = above_stdio(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)?;
        let queue = Arc::new(KillQueue { requests: Mutex::default(), changed });
        let (delegate, tasks) = channel();
        let kept_open = Arc::clone(&queue);
        let run_tasks = move || {
            tasks.iter().for_each(run_task);
            // The kill thread has ended. The eventfd must be closed here, because the kill thread would close it in its own table only.
            drop(kept_open);
        };
        thread::Builder::new().name("kill-delegate".into()).spawn(run_tasks)?;
        let thread_queue = Arc::clone(&queue);
        let work = move || {
            // SAFETY: of the descriptors that are open now, this thread uses only the eventfd of the queue from here on, and it closes none
            // of them. The other thread sends the replies and reaps the children. If the call fails, as on kernels before 5.9, this thread
            // goes on with the table that all threads share.
            let _own_table_or_error = unsafe { leave_shared_table(thread_queue.changed.as_raw_fd()) };
            // After a panic, the requests that were being served fail, and later requests are served again.
            while catch_unwind(AssertUnwindSafe(|| serve(&thread_queue, &delegate))).is_err() {}
            drop(thread_queue);
            drop(delegate);
        };
        thread::Builder::new().name("kill".into()).spawn(work)?;
        Ok(Self { queue })
    }

    pub(crate) fn request(&self, scope: Scope, purpose: HuntPurpose) -> KillFuture {
        let (reply, result) = oneshot::channel();
        lock(&self.queue.requests).waiting.push((scope, purpose, reply));
        self.queue.notify();
        KillFuture(result)
    }
}

impl Drop for KillThread {
    fn drop(&mut self) {
        lock(&self.queue.requests).is_closed = true;
        self.queue.notify();
    }
}

impl KillQueue {
    fn notify(&self) {
        // Writing fails only if the eventfd is already readable.
        let _already_readable = rustix::io::write(&self.changed, &1_u64.to_ne_bytes());
    }

    /// Moves new requests to the hunts. Returns false if no hunt is left and no request will come.
    fn take_requests(&self, hunts: &mut Hunts<Requester>, delegate: &Sender<DelegatedTask>) -> bool {
        let _read_or_not_readable = rustix::io::read(&self.changed, &mut [0; 8]);
        let (waiting, is_closed) = {
            let mut requests = lock(&self.requests);
            (std::mem::take(&mut requests.waiting), requests.is_closed)
        };
        for (scope, purpose, reply) in waiting {
            // One write ends all processes of a cgroup. The hunt then finds processes that are in no cgroup.
            if matches!(purpose, HuntPurpose::Kill { .. }) {
                kill_cgroups(&scope);
            }
            hunts.add(Hunt::new(scope, purpose), Requester { reply: Some(reply), delegate: delegate.clone() });
        }
        !(is_closed && hunts.is_empty())
    }
}

/// Work that the kill thread leaves to the second thread, because it needs the descriptor table that all other threads share.
enum DelegatedTask {
    Reap(Vec<Pid>),
    /// Without a result, the requester gets an error.
    Reply(ReplySender, Option<KillResult>),
}

fn run_task(task: DelegatedTask) {
    // After a panic, which the log reports, the thread goes on with the next task.
    let _done_or_panicked = catch_unwind(AssertUnwindSafe(|| match task {
        DelegatedTask::Reap(pids) => children().reap_all_unclaimed(&pids),
        DelegatedTask::Reply(reply, Some(result)) => {
            let _future_may_be_dropped = reply.send(result);
        }
        DelegatedTask::Reply(reply, None) => drop(reply),
    }));
}

/// Sends the result of a hunt to its [`KillFuture`], through the second thread. If this is dropped without a result, as in a panic, the
/// future gets an error.
struct Requester {
    reply: Option<ReplySender>,
    delegate: Sender<DelegatedTask>,
}

impl Requester {
    fn finish(mut self, result: KillResult) {
        self.send(Some(result));
    }

    fn send(&mut self, result: Option<KillResult>) {
        if let Some(reply) = self.reply.take() {
            // This cannot fail: the second thread ends after this one.
            let _sent = self.delegate.send(DelegatedTask::Reply(reply, result));
        }
    }
}

impl Drop for Requester {
    fn drop(&mut self) {
        self.send(None);
    }
}

fn serve(queue: &KillQueue, delegate: &Sender<DelegatedTask>) {
    let mut hunts = Hunts::default();
    while queue.take_requests(&mut hunts, delegate) {
        if hunts.is_empty() {
            let _ready_or_interrupted = rustix::event::poll(&mut [PollFd::new(&queue.changed, PollFlags::IN)], None);
            continue;
        }
        let PassSummary { finished, ended_children } = hunts.pass();
        // Reaping comes before the replies, so that a requester finds no zombie of its tree.
        let _sent = delegate.send(DelegatedTask::Reap(ended_children));
        for (requester, result) in finished {
            requester.finish(result);
        }
        if !hunts.is_empty() {
            hunts.wait_for_next_pass(Some(queue.changed.as_fd()));
        }
    }
}
