//! The thread that ends processes. It exists before the first process is started and does nothing else, so that ending one
//! never waits for a thread that others keep busy or that the machine no longer gives. It serves all who ask with one census of
//! the machine after the other; whoever asks meanwhile joins at the next.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::thread;

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use tokio::sync::oneshot;

use crate::descriptors::above_stdio;
use crate::error::{Survival, Survivors};
use crate::hunt::{Hunt, Hunts, Purpose};
use crate::lock::lock;
use crate::tag::Scope;

type Answer = oneshot::Sender<Result<(), Survivors>>;

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
pub struct Ending(oneshot::Receiver<Result<(), Survivors>>);

impl Future for Ending {
    type Output = Result<(), Survivors>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let unanswered = |_| {
            let reason =
                Survival::Unseen(io::Error::other("the thread that ends processes has failed; its log says why"));
            Err(Survivors { pids: Vec::new(), reason })
        };
        Poll::Ready(ready!(Pin::new(&mut self.0).poll(context)).unwrap_or_else(unanswered))
    }
}

impl Ender {
    pub(crate) fn start() -> io::Result<Self> {
        let changed = above_stdio(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)?;
        let desk = Arc::new(Desk { requests: Mutex::default(), changed });
        let of_thread = Arc::clone(&desk);
        let work = move || {
            // A panic leaves those unanswered that were being served, which they are told. Later ones are served again.
            while catch_unwind(AssertUnwindSafe(|| serve(&of_thread))).is_err() {}
        };
        thread::Builder::new().name("ender".into()).spawn(work)?;
        Ok(Self { desk })
    }

    pub(crate) fn ask(&self, scope: Scope, purpose: Purpose) -> Ending {
        let (answer, answered) = oneshot::channel();
        lock(&self.desk.requests).waiting.push((scope, purpose, answer));
        self.desk.note_change();
        Ending(answered)
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
    fn take(&self, hunts: &mut Hunts<Answer>) -> bool {
        let _was_not_readable = rustix::io::read(&self.changed, &mut [0; 8]);
        let mut requests = lock(&self.requests);
        for (scope, purpose, answer) in requests.waiting.drain(..) {
            hunts.add(Hunt::new(scope, purpose), answer);
        }
        !(requests.is_closed && hunts.is_empty())
    }
}

fn serve(desk: &Desk) {
    let mut hunts = Hunts::default();
    while desk.take(&mut hunts) {
        if hunts.is_empty() {
            let _changed = rustix::event::poll(&mut [PollFd::new(&desk.changed, PollFlags::IN)], None);
            continue;
        }
        for (answer, result) in hunts.pass() {
            let _nobody_may_wait = answer.send(result);
        }
        if !hunts.is_empty() {
            hunts.rest(Some(desk.changed.as_fd()));
        }
    }
}
