//! The thread that ends processes. It exists before the first process is started and does nothing else, so that ending one
//! never waits for a thread that others keep busy or that the machine no longer gives. It serves all who ask with one census of
//! the machine after the other; whoever asks meanwhile joins at the next.
//!
//! It has a descriptor table of its own, so that it can look at processes when clients have used up the descriptors of the server.
//! Whatever needs the common table, which is answering and reaping, is done for it by a second thread.

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

use crate::children::children;
use crate::descriptors::{above_stdio, leave_common_table};
use crate::error::{SurvivalReason, Survivors};
use crate::hunt::{AfterPass, Hunt, Hunts, Purpose};
use crate::lock::lock;
use crate::tag::Scope;

type Outcome = Result<(), Survivors>;
type Answer = oneshot::Sender<Outcome>;

/// The thread, as others see it. It ends when this is dropped and all it was asked for is done.
#[derive(Debug)]
pub(crate) struct Ender {
    desk: Arc<Desk>,
}

#[derive(Debug)]
struct Desk {
    requests: Mutex<Requests>,
    /// An eventfd that is readable while something has changed in `requests`.
    changed: OwnedFd,
}

#[derive(Debug, Default)]
struct Requests {
    waiting: Vec<(Scope, Purpose, Answer)>,
    is_closed: bool,
}

/// The end of processes that was asked for. It comes whether or not it is waited for.
#[derive(Debug)]
pub struct KillFuture(oneshot::Receiver<Outcome>);

impl Future for KillFuture {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let unanswered = |_| {
            let reason = SurvivalReason::ProcUnreadable(io::Error::other(
                "the thread that ends processes has failed; its log says why",
            ));
            Err(Survivors { pids: Vec::new(), reason })
        };
        Poll::Ready(ready!(Pin::new(&mut self.0).poll(context)).unwrap_or_else(unanswered))
    }
}

impl Ender {
    pub(crate) fn start() -> io::Result<Self> {
        let changed = above_stdio(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)?;
        let desk = Arc::new(Desk { requests: Mutex::default(), changed });
        let (errands, to_do) = channel();
        let kept_open = Arc::clone(&desk);
        let run_errands = move || {
            to_do.iter().for_each(run_errand);
            // The other thread has ended. It must not be the one that closes the descriptor: it would do so in its own table.
            drop(kept_open);
        };
        thread::Builder::new().name("ender-errands".into()).spawn(run_errands)?;
        let of_thread = Arc::clone(&desk);
        let work = move || {
            // SAFETY: from here on this thread uses no descriptor that was open before but that of the desk, and closes none:
            // whoever has asked is answered, and children are reaped, by the other thread.
            let _stays_in_common_table = unsafe { leave_common_table(of_thread.changed.as_raw_fd()) };
            // A panic leaves those unanswered that were being served, which they are told. Later ones are served again.
            while catch_unwind(AssertUnwindSafe(|| serve(&of_thread, &errands))).is_err() {}
            drop(of_thread);
            drop(errands);
        };
        thread::Builder::new().name("ender".into()).spawn(work)?;
        Ok(Self { desk })
    }

    pub(crate) fn ask(&self, scope: Scope, purpose: Purpose) -> KillFuture {
        let (answer, answered) = oneshot::channel();
        lock(&self.desk.requests).waiting.push((scope, purpose, answer));
        self.desk.note_change();
        KillFuture(answered)
    }
}

impl Drop for Ender {
    fn drop(&mut self) {
        lock(&self.desk.requests).is_closed = true;
        self.desk.note_change();
    }
}

impl Desk {
    fn note_change(&self) {
        // It can only fail when it is readable already.
        let _is_readable = rustix::io::write(&self.changed, &1_u64.to_ne_bytes());
    }

    /// Moves new requests to the hunts. False if none are left and none will come.
    fn take(&self, hunts: &mut Hunts<Asker>, errands: &Sender<Errand>) -> bool {
        let _was_not_readable = rustix::io::read(&self.changed, &mut [0; 8]);
        let mut requests = lock(&self.requests);
        for (scope, purpose, answer) in requests.waiting.drain(..) {
            hunts.add(Hunt::new(scope, purpose), Asker { answer: Some(answer), errands: errands.clone() });
        }
        !(requests.is_closed && hunts.is_empty())
    }
}

/// What the thread that ends processes has done by the other one.
enum Errand {
    Reap(Vec<Pid>),
    /// Without an outcome, whoever has asked learns that there is none.
    Answer(Answer, Option<Outcome>),
}

fn run_errand(errand: Errand) {
    // A panic, of which the log tells, costs this errand only.
    let _panicked = catch_unwind(AssertUnwindSafe(|| match errand {
        Errand::Reap(pids) => children().reap_strangers(&pids),
        Errand::Answer(answer, Some(outcome)) => {
            let _nobody_may_wait = answer.send(outcome);
        }
        Errand::Answer(unanswered, None) => drop(unanswered),
    }));
}

/// Whoever has asked for a hunt. Answered by the other thread, also if this is dropped in a panic.
struct Asker {
    answer: Option<Answer>,
    errands: Sender<Errand>,
}

impl Asker {
    fn tell(mut self, outcome: Outcome) {
        self.send(Some(outcome));
    }

    fn send(&mut self, outcome: Option<Outcome>) {
        if let Some(answer) = self.answer.take() {
            // The other thread ends after this one.
            let _is_there = self.errands.send(Errand::Answer(answer, outcome));
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.send(None);
    }
}

fn serve(desk: &Desk, errands: &Sender<Errand>) {
    let mut hunts = Hunts::default();
    while desk.take(&mut hunts, errands) {
        if hunts.is_empty() {
            let _changed = rustix::event::poll(&mut [PollFd::new(&desk.changed, PollFlags::IN)], None);
            continue;
        }
        let AfterPass { over, ended_children } = hunts.pass();
        // Before the answers: whoever gets one finds no zombie of its tree.
        let _is_there = errands.send(Errand::Reap(ended_children));
        for (asker, outcome) in over {
            asker.tell(outcome);
        }
        if !hunts.is_empty() {
            hunts.rest(Some(desk.changed.as_fd()));
        }
    }
}
