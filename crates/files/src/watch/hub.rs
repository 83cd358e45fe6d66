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
use super::inbox::Inbox;
use super::kernel::{Event, Number};
use super::routes::{Addition, Routes, WatchNumber};
use crate::FileError;

/// About a thousand events with names of ordinary length.
const READ_BYTES: usize = 64 << 10;
/// The longest event: its head and a name.
const LONGEST_EVENT: usize = 16 + 256;
/// What the kernel allows where it does not say how many directories a user may watch.
const LEAST_DIRECTORIES: usize = 8192;
/// Where it says so: for this user, and for all users of this namespace.
const LIMITS: [&str; 2] = ["/proc/sys/fs/inotify/max_user_watches", "/proc/sys/user/max_inotify_watches"];

/// The hub that is in use, if any watch is.
static CURRENT: Mutex<Weak<Hub>> = Mutex::new(Weak::new());

/// Held by the watches. The thread ends with the last of them.
pub(super) struct Hub {
    instance: Arc<Instance>,
    stop: Arc<OwnedFd>,
    /// Directories that the kernel lets this user watch. Looked up again before a watch is refused.
    limit: AtomicUsize,
}

struct Instance {
    inotify: OwnedFd,
    /// Whoever has it reads, and tells what was read before somebody else reads.
    buffer: Mutex<Vec<MaybeUninit<u8>>>,
    routes: Mutex<Routes>,
}

impl Hub {
    /// The hub of this process; `path` is what is going to be watched. A hub that has failed is not handed out: watches that begin
    /// later get a new one.
    pub(super) fn current(path: &Path) -> Result<Arc<Self>, FileError> {
        Self::current_of(&CURRENT, path)
    }

    fn current_of(current: &Mutex<Weak<Self>>, path: &Path) -> Result<Arc<Self>, FileError> {
        let mut current = current.lock();
        if let Some(hub) = current.upgrade().filter(|hub| !hub.instance.routes.lock().has_failed()) {
            return Ok(hub);
        }
        let hub = Arc::new(Self::new().map_err(|error| refusal(error, path))?);
        *current = Arc::downgrade(&hub);
        Ok(hub)
    }

    fn new() -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let buffer = Mutex::new(vec![MaybeUninit::uninit(); READ_BYTES]);
        let instance = Arc::new(Instance { inotify, buffer, routes: Mutex::default() });
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let (reading, stopped) = (Arc::clone(&instance), Arc::clone(&stop));
        thread::Builder::new()
            .name("watches".into())
            .spawn(move || reading.tell_failure(|| reading.run(&stopped)))?;
        Ok(Self { instance, stop, limit: AtomicUsize::new(most_directories()) })
    }

    pub(super) fn join(&self, inbox: Arc<Inbox>, share: WatchedDirectoryCount) -> WatchNumber {
        self.instance.routes.lock().join(inbox, share)
    }

    /// Forgets a watch and all its directories.
    pub(super) fn leave(&self, watch: WatchNumber) {
        let numbers = self.instance.routes.lock().numbers_of(watch);
        for number in numbers {
            self.remove(watch, number);
        }
        self.instance.routes.lock().leave(watch);
    }

    /// Tells a watch of a directory from now on. May block, on a network for example.
    pub(super) fn add(&self, watch: WatchNumber, path: &Path, flags: WatchFlags) -> Result<Number, AddError> {
        let Instance { inotify, routes, .. } = &*self.instance;
        loop {
            let ticket = routes.lock().begin_addition();
            // The kernel has one set of flags for a directory, whoever asks.
            let number = match inotify::add_watch(inotify, path, flags | WatchFlags::MASK_ADD) {
                Ok(number) => number,
                Err(error) => {
                    routes.lock().abandon_addition();
                    return Err(AddError::Kernel(error));
                }
            };
            let limit = self.limit.load(Ordering::Relaxed);
            let mut routes = routes.lock();
            match routes.finish_addition(ticket, watch, number, flags, limit) {
                Addition::Added => return Ok(number),
                Addition::Again => {}
                Addition::TooMany(taken) => {
                    if routes.is_unused(number) {
                        self.forget(number);
                    }
                    drop(routes);
                    let limit_now = most_directories();
                    self.limit.store(limit_now, Ordering::Relaxed);
                    if limit_now <= limit {
                        return Err(AddError::TooMany { taken, limit });
                    }
                }
            }
        }
    }

    pub(super) fn remove(&self, watch: WatchNumber, number: Number) {
        let mut routes = self.instance.routes.lock();
        if routes.remove(watch, number) {
            // Under the lock: whoever adds this directory now must get another number.
            self.forget(number);
        }
    }

    fn forget(&self, number: Number) {
        // Fails if the directory itself is gone, and the watch with it.
        let _gone_already = inotify::remove_watch(&self.instance.inotify, number);
    }

    /// Puts everything that the kernel has told by now into the inboxes.
    pub(super) fn pump(&self) -> Result<(), Errno> {
        self.instance.pump()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // Cannot fail: nobody else writes, so the counter has room.
        let _written = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }
}

/// Why a directory is not watched.
pub(super) enum AddError {
    Kernel(Errno),
    /// The session has `taken` directories, and the kernel allows `limit` in all.
    TooMany {
        taken: usize,
        limit: usize,
    },
}

impl Instance {
    /// Does the work of the thread, and tells every watch if it fails or panics: a watch that hears nothing would take it for peace.
    fn tell_failure(&self, work: impl FnOnce() -> Result<(), Errno>) {
        let ended = catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Errno::IO));
        if let Err(error) = ended {
            self.routes.lock().fail(error);
        }
    }

    /// Reads until the hub is dropped.
    fn run(&self, stop: &OwnedFd) -> Result<(), Errno> {
        loop {
            let mut ready = [PollFd::new(stop, PollFlags::IN), PollFd::new(&self.inotify, PollFlags::IN)];
            match poll(&mut ready, None) {
                Ok(_) if !ready[0].revents().is_empty() => return Ok(()),
                Ok(_) => self.pump()?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn pump(&self) -> Result<(), Errno> {
        let mut buffer = self.buffer.lock();
        // What comes while this is read is for the next time: otherwise a busy tree could keep a watch of another one from telling.
        let queued = usize::try_from(rustix::io::ioctl_fionread(&self.inotify)?).unwrap_or(usize::MAX);
        let mut fills_left = queued.div_ceil(READ_BYTES - LONGEST_EVENT);
        let mut events = Vec::new();
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        while fills_left > 0 {
            match reader.next() {
                Ok(event) => events.push(Event {
                    number: event.wd(),
                    flags: event.events(),
                    cookie: event.cookie(),
                    name: event.file_name().map(|name| std::ffi::OsStr::from_bytes(name.to_bytes()).to_owned()),
                }),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            }
            if reader.is_buffer_empty() {
                fills_left -= 1;
                let mut routes = self.routes.lock();
                events.drain(..).for_each(|event| routes.tell(event));
            }
        }
        Ok(())
    }
}

fn most_directories() -> usize {
    let read = |path: &&str| std::fs::read_to_string(path).ok()?.trim().parse().ok();
    LIMITS.iter().filter_map(read).min().unwrap_or(LEAST_DIRECTORIES)
}

fn refusal(error: io::Error, path: &Path) -> FileError {
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
        let (slot, path) = (Mutex::new(Weak::new()), Path::new("/"));
        let works: [fn() -> Result<(), Errno>; 2] = [|| Err(Errno::BADF), || panic!("a mistake in the hub")];
        for (work, expected) in works.into_iter().zip([Errno::BADF, Errno::IO]) {
            let hub = Hub::current_of(&slot, path).unwrap();
            assert!(Arc::ptr_eq(&hub, &Hub::current_of(&slot, path).unwrap()), "one for all watches");
            let (before, after) = (Arc::new(Inbox::default()), Arc::new(Inbox::default()));
            hub.join(Arc::clone(&before), WatchedDirectoryCount::default());
            hub.instance.tell_failure(work);
            hub.join(Arc::clone(&after), WatchedDirectoryCount::default());
            for inbox in [before, after] {
                assert_eq!(inbox.take(&mut Vec::new()), Err(expected));
            }
            assert!(!Arc::ptr_eq(&hub, &Hub::current_of(&slot, path).unwrap()), "it would tell nothing");
        }
    }
}
