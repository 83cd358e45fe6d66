//! The threads that start commands. Each starts one command and ends, because a thread can make only one PID namespace. A
//! start can hang, for example while the kernel opens a program on a dead network mount, so another thread always waits for
//! the next request. The waiting thread has already made the namespaces of its command, which takes longer than the rest of a start.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use super::command::{CommandStarter, may_be_extra};
use super::isolation::PreparedNamespaces;
use super::signals;
use crate::channel::{self, ReceivedMessage};
use crate::message::StartRequest;

/// The stack of a thread. Its functions are few and small.
const STACK_BYTES: usize = 256 << 10;

/// How many threads wait for requests. While one of them starts a command, the other one can take the next request at once.
const WAITING_THREADS: usize = 2;

/// The pause before the launcher tries again to make a thread that it could not make.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Descriptors that come with every request: the socket for the answer and the three standard streams.
const REQUEST_DESCRIPTORS: usize = 4;

/// Exit code of the launcher when the server has closed the socket.
const SERVER_IS_GONE: i32 = 0;
/// Exit code of the launcher when the server has sent something that is no request, or when the socket has failed.
const NO_REQUEST: i32 = 1;

/// What the threads share.
struct StartThreads {
    starter: CommandStarter,
    /// The socket to the server. A thread that waits for a request holds the lock.
    socket: Mutex<OwnedFd>,
    demand: Mutex<ThreadDemand>,
    /// Wakes the thread that makes threads.
    demand_changed: Condvar,
}

struct ThreadDemand {
    /// Threads that wait for a request, or prepare to.
    waiting: usize,
    /// How many threads should wait. 1 until the first command was started, so that no other thread slows down this start.
    wanted: usize,
    /// Requests whose threads had no usable namespaces. Each gets another thread.
    unserved: Vec<(StartRequest, Vec<OwnedFd>)>,
}

/// Starts commands until the server closes the socket, which ends this process, or until it sends something that is no request.
pub(super) fn serve(socket: OwnedFd, starter: CommandStarter) -> ! {
    let demand = Mutex::new(ThreadDemand { waiting: 0, wanted: 1, unserved: Vec::new() });
    let threads =
        Arc::new(StartThreads { starter, socket: Mutex::new(socket), demand, demand_changed: Condvar::new() });
    loop {
        let unserved = {
            let demand = threads.demand.lock().unwrap_or_else(PoisonError::into_inner);
            let enough = |demand: &mut ThreadDemand| demand.unserved.is_empty() && demand.waiting >= demand.wanted;
            let waited = threads.demand_changed.wait_while(demand, enough);
            let mut demand = waited.unwrap_or_else(PoisonError::into_inner);
            let unserved = demand.unserved.pop();
            demand.waiting += usize::from(unserved.is_none());
            unserved
        };
        let shared = Arc::clone(&threads);
        if let Some((request, descriptors)) = unserved {
            // If no thread can be made, the socket for the answer is closed, which tells the server that nothing was started.
            let _nothing_started_without_a_thread = in_thread(move || {
                signals::block();
                shared.starter.start(shared.starter.make_ahead(), &request, &descriptors);
            });
        } else if !in_thread(move || shared.take_one_request()) {
            threads.demand.lock().unwrap_or_else(PoisonError::into_inner).waiting -= 1;
            std::thread::sleep(RETRY_PAUSE);
        }
    }
}

/// Whether the thread was made.
fn in_thread(work: impl FnOnce() + Send + 'static) -> bool {
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work).is_ok()
}

impl StartThreads {
    fn take_one_request(&self) {
        signals::block();
        let ahead = self.starter.make_ahead();
        let received = channel::receive(self.socket.lock().unwrap_or_else(PoisonError::into_inner).as_fd());
        self.stop_waiting();
        let ReceivedMessage { message, descriptors, lost_descriptors } = match received {
            Ok(Some(received)) => received,
            Ok(None) => std::process::exit(SERVER_IS_GONE),
            Err(_) => std::process::exit(NO_REQUEST),
        };
        // If this process has too many descriptors, some of the request's descriptors are lost. The socket for the answer is then closed,
        // which tells the server that nothing was started. The other commands go on.
        if !lost_descriptors {
            let Some(request) = checked(&message, &descriptors) else { std::process::exit(NO_REQUEST) };
            self.start(ahead, request, descriptors);
        }
        self.want_all();
    }

    fn start(
        &self,
        ahead: Result<Option<PreparedNamespaces>, Errno>,
        request: StartRequest,
        descriptors: Vec<OwnedFd>,
    ) {
        if ahead.as_ref().is_ok_and(|ahead| ahead.as_ref().is_none_or(PreparedNamespaces::exist)) {
            return self.starter.start(ahead, &request, &descriptors);
        }
        // The namespaces could not be made, which may succeed now, or somebody has killed their first process. A thread that has made a PID
        // namespace can make neither a second one nor another thread, so `serve` makes a thread for this request.
        self.demand.lock().unwrap_or_else(PoisonError::into_inner).unserved.push((request, descriptors));
        self.demand_changed.notify_one();
    }

    /// This thread has its request. If no other thread waits, one is made now, because this start may hang. Otherwise a thread is made
    /// after this start, because making it now would slow the start down.
    fn stop_waiting(&self) {
        let mut demand = self.demand.lock().unwrap_or_else(PoisonError::into_inner);
        demand.waiting -= 1;
        if demand.waiting == 0 {
            self.demand_changed.notify_one();
        }
    }

    /// Has threads made until [`WAITING_THREADS`] wait.
    fn want_all(&self) {
        self.demand.lock().unwrap_or_else(PoisonError::into_inner).wanted = WAITING_THREADS;
        self.demand_changed.notify_one();
    }
}

/// Decodes a request. None if the message is no valid request, or if the number of its descriptors is wrong.
fn checked(message: &[u8], descriptors: &[OwnedFd]) -> Option<StartRequest> {
    let request = StartRequest::decode(message).ok()?;
    let expected =
        REQUEST_DESCRIPTORS + usize::from(request.extra_descriptor.is_some()) + usize::from(request.enters_cgroup);
    let has_program = !request.argv.is_empty() && !request.candidates.is_empty();
    let is_valid = descriptors.len() == expected && has_program && request.extra_descriptor.is_none_or(may_be_extra);
    is_valid.then_some(request)
}
