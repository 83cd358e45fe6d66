//! The one inotify instance of this process. The kernel gives a user few of them, so all watches share it: one thread reads its events
//! and puts them into the inboxes of the watches that want them. It does nothing else, so that no watch waits for another.

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

/// About a thousand events with names of ordinary length.
const READ_BYTES: usize = 64 << 10;
/// The longest event: its head and a name.
const MAX_EVENT_BYTES: usize = 16 + 256;
/// What the kernel allows where it does not say how many directories a user may watch.
const DEFAULT_MAX_DIRECTORIES: usize = 8192;
/// Where it says so: for this user, and for all users of this namespace.
const LIMIT_FILES: [&str; 2] = ["/proc/sys/fs/inotify/max_user_watches", "/proc/sys/user/max_inotify_watches"];

/// The hub that is in use, if any watch is.
static CURRENT: Mutex<Weak<SharedInotify>> = Mutex::new(Weak::new());

/// Held by the watches. The thread ends with the last of them.
pub(super) struct SharedInotify {
    instance: Arc<InotifyInstance>,
    stop: Arc<OwnedFd>,
    /// Directories that the kernel lets this user watch. Looked up again before a watch is refused.
    limit: AtomicUsize,
}

struct InotifyInstance {
    inotify: OwnedFd,
    /// Whoever has it reads, and tells what was read before somebody else reads.
    buffer: Mutex<Vec<MaybeUninit<u8>>>,
    subscriptions: Mutex<Subscriptions>,
}

impl SharedInotify {
    /// The hub of this process; `path` is what is going to be watched. A hub that has failed is not handed out: watches that begin
    /// later get a new one.
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
        let (reading, stopped) = (Arc::clone(&instance), Arc::clone(&stop));
        thread::Builder::new()
            .name("watches".into())
            .spawn(move || reading.run_reporting_failure(|| reading.run(&stopped)))?;
        Ok(Self { instance, stop, limit: AtomicUsize::new(max_directories()) })
    }

    pub(super) fn subscribe(&self, queue: Arc<EventQueue>, count: WatchedDirectoryCount) -> WatchId {
        self.instance.subscriptions.lock().subscribe(queue, count)
    }

    /// Forgets a watch and all its directories.
    pub(super) fn unsubscribe(&self, watch: WatchId) {
        let descriptors = self.instance.subscriptions.lock().descriptors_of(watch);
        for descriptor in descriptors {
            self.remove_directory(watch, descriptor);
        }
        self.instance.subscriptions.lock().unsubscribe(watch);
    }

    /// Tells a watch of a directory from now on. May block, on a network for example.
    pub(super) fn add_directory(
        &self,
        watch: WatchId,
        path: &Path,
        flags: WatchFlags,
    ) -> Result<WatchDescriptor, AddDirectoryError> {
        let InotifyInstance { inotify, subscriptions, .. } = &*self.instance;
        loop {
            let start = subscriptions.lock().begin_addition();
            // The kernel has one set of flags for a directory, whoever asks.
            let descriptor = match inotify::add_watch(inotify, path, flags | WatchFlags::MASK_ADD) {
                Ok(descriptor) => descriptor,
                Err(error) => {
                    subscriptions.lock().abandon_addition();
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
            // Under the lock: whoever adds this directory now must get another number.
            self.remove_kernel_watch(descriptor);
        }
    }

    fn remove_kernel_watch(&self, descriptor: WatchDescriptor) {
        // Fails if the directory itself is gone, and the watch with it.
        let _gone_already = inotify::remove_watch(&self.instance.inotify, descriptor);
    }

    /// Puts everything that the kernel has told by now into the inboxes.
    pub(super) fn read_events(&self) -> Result<(), Errno> {
        self.instance.read_events()
    }
}

impl Drop for SharedInotify {
    fn drop(&mut self) {
        // Cannot fail: nobody else writes, so the counter has room.
        let _written = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }
}

/// Why a directory is not watched.
pub(super) enum AddDirectoryError {
    Kernel(Errno),
    /// The session has `taken` directories, and the kernel allows `limit` in all.
    TooManyDirectories {
        watched: usize,
        limit: usize,
    },
}

impl InotifyInstance {
    /// Does the work of the thread, and tells every watch if it fails or panics: a watch that hears nothing would take it for peace.
    fn run_reporting_failure(&self, work: impl FnOnce() -> Result<(), Errno>) {
        let ended = catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Errno::IO));
        if let Err(error) = ended {
            self.subscriptions.lock().fail(error);
        }
    }

    /// Reads until the hub is dropped.
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
        // What comes while this is read is for the next time: otherwise a busy tree could keep a watch of another one from telling.
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

fn max_directories() -> usize {
    let read = |path: &&str| std::fs::read_to_string(path).ok()?.trim().parse().ok();
    LIMIT_FILES.iter().filter_map(read).min().unwrap_or(DEFAULT_MAX_DIRECTORIES)
}

fn start_error(error: io::Error, path: &Path) -> FileError {
    if error.raw_os_error() != Some(Errno::MFILE.raw_os_error()) {
        return FileError::os(error, path);
    }
    FileError::check(
        io::ErrorKind::QuotaExceeded,
        "no watch can be started; raise the sysctl fs.inotify.max_user_instances or the limit of open files",
        path,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_that_fails_tells_its_watches_and_is_replaced() {
        let (entry, path) = (Mutex::new(Weak::new()), Path::new("/"));
        let works: [fn() -> Result<(), Errno>; 2] =
            [|| Err(Errno::BADF), || panic!("a mistake in the shared_inotify")];
        for (work, expected) in works.into_iter().zip([Errno::BADF, Errno::IO]) {
            let shared_inotify = SharedInotify::current_in(&entry, path).unwrap();
            assert!(
                Arc::ptr_eq(&shared_inotify, &SharedInotify::current_in(&entry, path).unwrap()),
                "one for all watches"
            );
            let (before, after) = (Arc::new(EventQueue::default()), Arc::new(EventQueue::default()));
            shared_inotify.subscribe(Arc::clone(&before), WatchedDirectoryCount::default());
            shared_inotify.instance.run_reporting_failure(work);
            shared_inotify.subscribe(Arc::clone(&after), WatchedDirectoryCount::default());
            for queue in [before, after] {
                assert_eq!(queue.take(&mut Vec::new()), Err(expected));
            }
            assert!(
                !Arc::ptr_eq(&shared_inotify, &SharedInotify::current_in(&entry, path).unwrap()),
                "it would tell nothing"
            );
        }
    }
}
