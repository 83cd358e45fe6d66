//! The first process (init process) of a command's PID namespace. When it ends, the kernel kills every process of the namespace,
//! so no descendant of a command can outlive the init process. It mounts the `/proc` of the namespace, reaps orphans, and ends when the
//! server has reaped the command and no orphan is left, or when the launcher has ended. It has no
//! capability, and only three descriptors: a socket to the server, a pipe from the launcher, and one that reports ended children.
//!
//! The process shares the memory of the launcher, because copying the memory would take longer than everything else that a start
//! needs. So it uses a stack of its own, makes only raw system calls, and calls nothing that could allocate or panic. Commands
//! cannot reach this memory: the launcher is not dumpable, so the kernel lets no unprivileged process look into its memory.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::thread::futex;

use super::number;
use super::raw_call::{close_all_but, raw_call};
use super::signals::{DEFAULT_ACTION, SIGNAL_SET_BYTES};

/// The stack of an init process. Its functions are few and small.
const STACK_BYTES: usize = 16 << 10;

/// Values of [`InitSlot::state`].
const FREE: u32 = 0;
const STARTING: u32 = 1;
const READY: u32 = 2;

/// What an init process needs to know.
#[derive(Clone, Copy)]
struct InitPlan {
    /// A socket. The server has the other end, and shuts it down when it has reaped the command.
    server: RawFd,
    /// A pipe. The launcher has the other end, which is closed when the launcher ends.
    launcher: RawFd,
    /// How `/proc` is mounted. None: it cannot be mounted.
    proc_flags: Option<libc::c_ulong>,
}

/// The memory of one init process, and later of others. It is never freed, because no thread waits for the end of an init process.
struct InitSlot {
    /// Whether a [`NamespaceInit`] refers to the slot, also if its process has ended.
    is_referred_to: AtomicBool,
    /// [`FREE`] when no process uses the slot. The kernel sets it to this value when the process has ended.
    state: AtomicU32,
    /// Why the last process of the slot did not become ready.
    failure: AtomicI32,
    plan: UnsafeCell<InitPlan>,
    stack: UnsafeCell<Box<[MaybeUninit<u8>]>>,
}

// SAFETY: the plan and the stack are used only by the thread that has changed the state from `FREE`, and by the process that it starts.
unsafe impl Sync for InitSlot {}

/// All slots. Their number is the largest number of init processes that has ever existed at once.
#[derive(Default)]
pub(super) struct InitSlots {
    slots: Mutex<Vec<&'static InitSlot>>,
}

/// The first process of a PID namespace, which waits for the command.
pub(super) struct NamespaceInit {
    slot: &'static InitSlot,
    pid: libc::pid_t,
}

impl InitSlots {
    /// A slot for another process. Its state is [`STARTING`].
    fn take(&self) -> &'static InitSlot {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = |slot: &InitSlot| {
            !slot.is_referred_to.load(Ordering::Acquire) && slot.state.load(Ordering::Acquire) == FREE
        };
        if let Some(slot) = slots.iter().find(|slot| is_free(slot)) {
            slot.state.store(STARTING, Ordering::Relaxed);
            slot.is_referred_to.store(true, Ordering::Relaxed);
            return slot;
        }
        let slot: &'static InitSlot = Box::leak(Box::new(InitSlot {
            is_referred_to: AtomicBool::new(true),
            state: AtomicU32::new(STARTING),
            failure: AtomicI32::new(0),
            plan: UnsafeCell::new(InitPlan { server: -1, launcher: -1, proc_flags: None }),
            stack: UnsafeCell::new(Box::new_uninit_slice(STACK_BYTES)),
        }));
        slots.push(slot);
        slot
    }

    /// Makes the first process of the PID namespace that the children of this thread get, and waits until it is ready. All signals must be
    /// blocked in this thread. `server` is the end of a connection whose other end the server gets. `launcher` is the end of a pipe
    /// whose other end only the launcher has.
    pub(super) fn start(
        &self,
        server: OwnedFd,
        launcher: BorrowedFd<'_>,
        proc_flags: Option<libc::c_ulong>,
    ) -> Result<NamespaceInit, Errno> {
        let slot = self.take();
        let mut init = NamespaceInit { slot, pid: 0 };
        slot.failure.store(libc::EAGAIN, Ordering::Relaxed);
        let plan = InitPlan { server: number(&server), launcher: number(&launcher), proc_flags };
        // SAFETY: this thread has taken the slot, and no process uses it yet.
        let top = unsafe {
            slot.plan.get().write(plan);
            (*slot.stack.get()).as_mut_ptr_range().end
        };
        let flags = libc::CLONE_VM | libc::CLONE_CHILD_CLEARTID | libc::SIGCHLD;
        let nothing = ptr::null_mut::<c_void>();
        let argument = ptr::from_ref(slot).cast_mut().cast();
        // SAFETY: the process uses a stack that nothing else uses, and values that are never freed.
        init.pid =
            unsafe { libc::clone(init_main, top.cast(), flags, argument, nothing, nothing, slot.state.as_ptr()) };
        if init.pid < 0 {
            let error = std::io::Error::last_os_error();
            slot.state.store(FREE, Ordering::Release);
            return Err(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN));
        }
        // The process has its own copy of the descriptor.
        drop(server);
        loop {
            match slot.state.load(Ordering::Acquire) {
                READY => return Ok(init),
                STARTING => {
                    // Woken by the process, or by the kernel when the process has ended.
                    let _woken_or_changed = futex::wait(&slot.state, futex::Flags::empty(), STARTING, None);
                }
                _ => return Err(Errno::from_raw_os_error(slot.failure.load(Ordering::Relaxed))),
            }
        }
    }
}

impl Drop for NamespaceInit {
    fn drop(&mut self) {
        self.slot.is_referred_to.store(false, Ordering::Release);
    }
}

impl NamespaceInit {
    /// Whether the process waits for its command. Otherwise somebody has killed it.
    pub(super) fn is_ready(&self) -> bool {
        self.slot.state.load(Ordering::Acquire) == READY
    }

    /// Lets the server find the process by the tag of the command.
    pub(super) fn set_tag(&self, (resource, soft, hard): (u32, u64, u64)) -> Result<(), Errno> {
        // If somebody has killed the process, another process may have its PID already.
        if !self.is_ready() {
            return Err(Errno::SRCH);
        }
        let values = libc::rlimit64 { rlim_cur: soft, rlim_max: hard };
        let resource = resource as libc::__rlimit_resource_t;
        // SAFETY: the pointer to the new limit is valid for reads, and a null old limit means that it is not wanted.
        match unsafe { libc::prlimit64(self.pid, resource, &values, ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::SRCH)),
        }
    }
}

/// The function that `clone` calls in the new process.
extern "C" fn init_main(argument: *mut c_void) -> c_int {
    // SAFETY: the argument is the slot of this process, which is never freed.
    let slot = unsafe { &*argument.cast::<InitSlot>() };
    // SAFETY: the plan was written before this process was made, and nobody writes it while this process runs.
    let plan = unsafe { &*slot.plan.get() };
    let code = match prepare(plan) {
        Ok(children) => {
            slot.state.store(READY, Ordering::Release);
            // SAFETY: the address is valid, and waking reads nothing from it.
            let _nobody_may_wait =
                unsafe { raw_call(libc::SYS_futex, [slot.state.as_ptr() as usize, FUTEX_WAKE, 1, 0, 0]) };
            serve(plan, children);
            0
        }
        Err(error) => {
            slot.failure.store(error, Ordering::Relaxed);
            1
        }
    };
    // SAFETY: ends this process only, without running handlers of the launcher.
    let _does_not_return = unsafe { raw_call(libc::SYS_exit_group, [code, 0, 0, 0, 0]) };
    0
}

const FUTEX_WAKE: usize = libc::FUTEX_WAKE as usize;

/// Mounts `/proc` and gives up everything that this process does not need. Returns a descriptor that is readable when a child has ended.
fn prepare(plan: &InitPlan) -> Result<RawFd, i32> {
    let address = |text: &'static CStr| text.as_ptr() as usize;
    let child_ended = 1_u64 << (libc::SIGCHLD - 1);
    // SAFETY: the calls take numbers, and pointers to values that live during the call.
    unsafe {
        raw_call(libc::SYS_setsid, [0; 5])?;
        // The name in process listings.
        raw_call(libc::SYS_prctl, [libc::PR_SET_NAME as usize, address(c"exec-init"), 0, 0, 0])?;
        if let Some(flags) = plan.proc_flags {
            let kind = address(c"proc");
            raw_call(libc::SYS_mount, [kind, address(c"/proc"), kind, flags as usize, 0])?;
        }
        // The launcher ignores this signal. With the default action, this process can see it.
        let action = DEFAULT_ACTION.as_ptr() as usize;
        raw_call(libc::SYS_rt_sigaction, [libc::SIGCHLD as usize, action, 0, SIGNAL_SET_BYTES, 0])?;
        close_all_but(0, &mut [plan.server, plan.launcher]);
        let flags = (libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) as usize;
        let mask = &raw const child_ended as usize;
        let children = raw_call(libc::SYS_signalfd4, [usize::MAX, mask, SIGNAL_SET_BYTES, flags, 0])?;
        super::confinement::drop_held()?;
        Ok(children as RawFd)
    }
}

/// Reaps orphans until the namespace may end.
fn serve(plan: &InitPlan, children: RawFd) {
    let mut command_runs = true;
    loop {
        let wanted = |descriptor, events| libc::pollfd { fd: descriptor, events, revents: 0 };
        // `ppoll` ignores a negative descriptor, and reports that the launcher's end was closed even if no event is asked for.
        let server = if command_runs { plan.server } else { -1 };
        let mut polled = [wanted(server, libc::POLLRDHUP), wanted(plan.launcher, 0), wanted(children, libc::POLLIN)];
        // SAFETY: the array has the given length and lives during the call. Without a time it waits for ever.
        let changed = unsafe { raw_call(libc::SYS_ppoll, [polled.as_mut_ptr() as usize, polled.len(), 0, 0, 0]) };
        match changed {
            Ok(_) => {}
            Err(libc::EINTR) => continue,
            // This process cannot do its work, so the namespace ends.
            Err(_) => return,
        }
        if polled[1].revents != 0 {
            return;
        }
        command_runs &= polled[0].revents == 0;
        if polled[2].revents != 0 {
            let mut signals = [0_u8; 512];
            let buffer = signals.as_mut_ptr() as usize;
            // SAFETY: the buffer is valid for writes of its length.
            let _nothing_left = unsafe { raw_call(libc::SYS_read, [children as usize, buffer, signals.len(), 0, 0]) };
        }
        if !reap() && !command_runs {
            return;
        }
    }
}

/// Reaps the orphans that have ended. Returns whether any are left.
fn reap() -> bool {
    const OPTIONS: usize = (libc::WNOHANG | libc::__WALL) as usize;
    const ANY: usize = usize::MAX;
    loop {
        // SAFETY: a null status means that it is not wanted.
        match unsafe { raw_call(libc::SYS_wait4, [ANY, 0, OPTIONS, 0, 0]) } {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error != libc::ECHILD,
        }
    }
}
