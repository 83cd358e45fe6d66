//! The one inotify instance of this process. The kernel allows only few instances for each user, so all watches share
//! one. A *watch* is one tree or file that a caller watches, with a thread of its own.
//!
//! The reading thread reads the events of the instance and puts them into the event queues of the watches that want
//! them. It does nothing else, so that no watch waits for another. The thread of a watch also calls
//! [`SharedInotify::read_events`] when it needs all events that the kernel has queued by now.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::WatchedDirectoryCount;
use super::event_queue::EventQueue;
use super::inotify_handle::{InotifyEvent, WatchDescriptor};
use super::subscriptions::{AdditionResult, Subscriptions, WatchId};
use crate::FileError;
use crate::root::{WatchablePath, read_kernel_setting};

/// Size of the buffer for one read: about a thousand events with names of ordinary length.
const READ_BYTES: usize = 64 << 10;
/// Size of the largest event: the header and a name.
const MAX_EVENT_BYTES: usize = 16 + 256;
/// Number of directories that a user is assumed to be allowed to watch if no limit can be read.
const DEFAULT_MAX_DIRECTORIES: usize = 8192;
/// Files that contain a limit on watched directories: for this user, and for this user in this user namespace.
const LIMIT_FILES: [&str; 2] = ["/proc/sys/fs/inotify/max_user_watches", "/proc/sys/user/max_inotify_watches"];

/// The instance in use, if there is any watch.
static CURRENT: Mutex<Weak<SharedInotify>> = Mutex::new(Weak::new());

/// The inotify instance and its reading thread. Every watch holds a reference; the thread ends when the last reference is dropped.
pub(super) struct SharedInotify {
    instance: Arc<InotifyInstance>,
    /// An eventfd that becomes readable when the reading thread must end.
    stop: Arc<OwnedFd>,
    /// Number of directories that the kernel lets this user watch. It is read from the kernel again before a
    /// directory is refused.
    limit: AtomicUsize,
}

struct InotifyInstance {
    inotify: OwnedFd,
    /// A thread holds this lock while it reads events and until it has dispatched them, so that events stay in order.
    buffer: Mutex<Vec<MaybeUninit<u8>>>,
    subscriptions: Mutex<Subscriptions>,
}

impl SharedInotify {
    /// The instance of this process, or a new one if there is none or if it has failed. `path` is only the path in an
    /// error.
    pub(super) fn current(path: &Path) -> Result<Arc<Self>, FileError> {
        Self::current_in(&CURRENT, path)
    }

    fn current_in(current: &Mutex<Weak<Self>>, path: &Path) -> Result<Arc<Self>, FileError> {
        let mut current = current.lock();
        if let Some(shared_inotify) =
            current.upgrade().filter(|shared_inotify| !shared_inotify.instance.subscriptions.lock().has_failed())
        {
            return Ok(shared_inotify);
        }
        let shared_inotify = Arc::new(Self::new().map_err(|error| start_error(error, path))?);
        *current = Arc::downgrade(&shared_inotify);
        Ok(shared_inotify)
    }

    fn new() -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let buffer = Mutex::new(vec![MaybeUninit::uninit(); READ_BYTES]);
        let instance = Arc::new(InotifyInstance { inotify, buffer, subscriptions: Mutex::default() });
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let (thread_instance, thread_stop) = (Arc::clone(&instance), Arc::clone(&stop));
        thread::Builder::new()
            .name("watches".into())
            .spawn(move || thread_instance.run_reporting_failure(|| thread_instance.run(&thread_stop)))?;
        Ok(Self { instance, stop, limit: AtomicUsize::new(max_directories()) })
    }

    pub(super) fn subscribe(&self, queue: Arc<EventQueue>, count: WatchedDirectoryCount) -> WatchId {
        self.instance.subscriptions.lock().subscribe(queue, count)
    }

    /// Removes a watch and its directories. Those that no other watch has are also removed from inotify.
    pub(super) fn unsubscribe(&self, watch: WatchId) {
        let descriptors = self.instance.subscriptions.lock().descriptors_of(watch);
        for descriptor in descriptors {
            self.remove_directory(watch, descriptor);
        }
        self.instance.subscriptions.lock().unsubscribe(watch);
    }

    /// Adds a directory to a watch. May block, on a network file system for example.
    pub(super) fn add_directory(
        &self,
        watch: WatchId,
        path: &WatchablePath<'_>,
        flags: WatchFlags,
    ) -> Result<WatchDescriptor, AddDirectoryError> {
        let InotifyInstance { inotify, subscriptions, .. } = &*self.instance;
        loop {
            let start = subscriptions.lock().begin_addition();
            // The kernel has one set of flags for a directory. `MASK_ADD` keeps those that other watches have asked
            // for.
            let descriptor = match path.add_to(inotify, flags | WatchFlags::MASK_ADD) {
                Ok(descriptor) => descriptor,
                Err(error) => {
                    subscriptions.lock().end_addition();
                    return Err(AddDirectoryError::Kernel(error));
                }
            };
            let limit = self.limit.load(Ordering::Relaxed);
            let mut subscriptions = subscriptions.lock();
            match subscriptions.finish_addition(start, watch, descriptor, flags, limit) {
                AdditionResult::Added => return Ok(descriptor),
                AdditionResult::Retry => {}
                AdditionResult::TooManyDirectories(watched) => {
                    if subscriptions.remove_if_unused(descriptor) {
                        self.remove_kernel_watch(descriptor);
                    }
                    drop(subscriptions);
                    let limit_now = max_directories();
                    self.limit.store(limit_now, Ordering::Relaxed);
                    if limit_now <= limit {
                        return Err(AddDirectoryError::TooManyDirectories { watched, limit });
                    }
                }
            }
        }
    }

    pub(super) fn remove_directory(&self, watch: WatchId, descriptor: WatchDescriptor) {
        let mut subscriptions = self.instance.subscriptions.lock();
        if subscriptions.remove(watch, descriptor) {
            // This is done under the lock, so that an addition that begins after the removal gets a new descriptor.
            self.remove_kernel_watch(descriptor);
        }
    }

    fn remove_kernel_watch(&self, descriptor: WatchDescriptor) {
        // Fails if the directory was removed, because the kernel has then removed the descriptor already.
        let _ignored = inotify::remove_watch(&self.instance.inotify, descriptor);
    }

    /// Reads all events that the kernel has queued by now, and puts them into the event queues of the watches.
    pub(super) fn read_events(&self) -> Result<(), Errno> {
        self.instance.read_events()
    }
}

impl Drop for SharedInotify {
    fn drop(&mut self) {
        // Cannot fail: this is the only write, so the counter of the eventfd does not overflow.
        let _ignored = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }
}

/// The reason why a directory was not added.
pub(super) enum AddDirectoryError {
    Kernel(Errno),
    /// A session is all watches with the same [`WatchedDirectoryCount`]. The session of this watch has `watched`
    /// directories, and the kernel lets this user watch `limit`. A session may watch only as many directories as are
    /// left free.
    TooManyDirectories {
        watched: usize,
        limit: usize,
    },
}

impl InotifyInstance {
    /// Runs the work of the reading thread. If the work fails or panics, every watch gets the error; otherwise the
    /// watches would wait for ever.
    fn run_reporting_failure(&self, work: impl FnOnce() -> Result<(), Errno>) {
        let ended = catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Errno::IO));
        if let Err(error) = ended {
            self.subscriptions.lock().fail(error);
        }
    }

    /// Reads events until the [`SharedInotify`] is dropped.
    fn run(&self, stop: &OwnedFd) -> Result<(), Errno> {
        loop {
            let mut ready = [PollFd::new(stop, PollFlags::IN), PollFd::new(&self.inotify, PollFlags::IN)];
            match poll(&mut ready, None) {
                Ok(_) if !ready[0].revents().is_empty() => return Ok(()),
                Ok(_) => self.read_events()?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn read_events(&self) -> Result<(), Errno> {
        let mut buffer = self.buffer.lock();
        // This reads the events that are queued now, and only few later ones. If it read until the queue is empty, it
        // would not return while a tree changes constantly, and the watch of another tree, which waits for the lock
        // of the buffer, could not deliver.
        let queued = usize::try_from(rustix::io::ioctl_fionread(&self.inotify)?).unwrap_or(usize::MAX);
        let mut reads_left = queued.div_ceil(READ_BYTES - MAX_EVENT_BYTES);
        let mut events = Vec::new();
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        while reads_left > 0 {
            match reader.next() {
                Ok(event) => events.push(InotifyEvent {
                    descriptor: event.wd(),
                    flags: event.events(),
                    cookie: event.cookie(),
                    name: event.file_name().map(|name| std::ffi::OsStr::from_bytes(name.to_bytes()).to_owned()),
                }),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            }
            if reader.is_buffer_empty() {
                reads_left -= 1;
                let mut subscriptions = self.subscriptions.lock();
                events.drain(..).for_each(|event| subscriptions.dispatch(event));
            }
        }
        Ok(())
    }
}

/// The number of directories that the kernel lets this user watch: the smallest limit in [`LIMIT_FILES`].
fn max_directories() -> usize {
    let read = |path: &&str| read_kernel_setting(path)?.trim().parse().ok();
    LIMIT_FILES.iter().filter_map(read).min().unwrap_or(DEFAULT_MAX_DIRECTORIES)
}

fn start_error(error: io::Error, path: &Path) -> FileError {
    if error.raw_os_error() != Some(Errno::MFILE.raw_os_error()) {
        return FileError::os(error, path);
    }
    FileError::failed_check(
        io::ErrorKind::QuotaExceeded,
        "no watch can be started; raise the sysctl fs.inotify.max_user_instances or the limit of open files",
        path,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_that_fails_reports_the_error_to_earlier_and_later_watches_and_is_replaced() {
        let (current, path) = (Mutex::new(Weak::new()), Path::new("/"));
        let failures: [fn() -> Result<(), Errno>; 2] = [|| Err(Errno::BADF), || panic!("on purpose")];
        for (failure, expected) in failures.into_iter().zip([Errno::BADF, Errno::IO]) {
            let shared_inotify = SharedInotify::current_in(&current, path).unwrap();
            assert!(
                Arc::ptr_eq(&shared_inotify, &SharedInotify::current_in(&current, path).unwrap()),
                "all watches share one instance"
            );
            let (before, after) = (Arc::new(EventQueue::default()), Arc::new(EventQueue::default()));
            shared_inotify.subscribe(Arc::clone(&before), WatchedDirectoryCount::default());
            shared_inotify.instance.run_reporting_failure(failure);
            shared_inotify.subscribe(Arc::clone(&after), WatchedDirectoryCount::default());
            for queue in [before, after] {
                assert_eq!(queue.take(&mut Vec::new()), Err(expected));
            }
            assert!(
                !Arc::ptr_eq(&shared_inotify, &SharedInotify::current_in(&current, path).unwrap()),
                "a failed instance delivers no events"
            );
        }
    }
}
