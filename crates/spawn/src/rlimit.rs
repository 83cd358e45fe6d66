//! How a tag gets onto a process: as its soft limit of realtime CPU time, which is inherited over fork and exec, which anybody can read
//! and which limits nothing at such a height. A child inherits the limit we have at that moment, so ours is changed for the
//! length of one `posix_spawn`, by one thread at a time.

use std::fs;
use std::io;
use std::ptr;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::lock::lock;
use crate::tag::Tag;

/// A spawn that takes longer than this hangs in `exec`, for example on a dead network mount. Its child was made long ago and has
/// inherited what it needed, so that others need not wait for it.
const LONGEST_TURN: Duration = Duration::from_millis(250);

/// The limit belongs to the whole process and so does this, even if there is more than one `Spawner`.
static TURNS: Mutex<Turns> = Mutex::new(Turns { count: 0, current: None, original: libc::RLIM_INFINITY });
static TURN_ENDED: Condvar = Condvar::new();

struct Turns {
    count: u64,
    current: Option<Turn>,
    /// Our limit as it was before the current turn, or before the first of a row of turns that took over from each other.
    original: u64,
}

#[derive(Clone, Copy)]
struct Turn {
    number: u64,
    since: Instant,
}

/// Whether this process may set the limit as high as tags are.
pub(crate) fn can_be_set(tag: Tag) -> bool {
    let turn = begin_turn(Some(tag));
    let set = read(None).is_ok_and(|limit| limit == tag.as_limit());
    end_turn(turn);
    set
}

/// Runs `spawn`, whose child begins life with this tag, or with what we ourselves were started with.
pub(crate) fn with_inherited<E>(tag: Option<Tag>, spawn: impl FnOnce() -> Result<Pid, E>) -> Result<Pid, E> {
    let turn = begin_turn(tag);
    let spawned = spawn();
    let overtaken = end_turn(turn);
    if let (Ok(pid), Some(original)) = (&spawned, overtaken) {
        // Almost always right already; not if we were stopped, with the whole machine for example, before the child was made.
        let wanted = tag.map_or(original, Tag::as_limit);
        if read(Some(*pid)).is_ok_and(|limit| limit != wanted) {
            let _child_may_be_gone = write(Some(*pid), wanted);
        }
    }
    spawned
}

/// The tag of a process; none if it has none or is gone.
pub(crate) fn tag_of(pid: Pid) -> Option<Tag> {
    let limit = match read(Some(pid)) {
        // Asking for the limits of another user's process is refused, but not reading them.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => read_from_proc(pid)?,
        other => other.ok()?,
    };
    Tag::from_limit(limit)
}

/// The tag this server was itself started under, by another one.
pub(crate) fn own_tag() -> Option<Tag> {
    let turns = lock(&TURNS);
    let limit = match turns.current {
        Some(_) => turns.original,
        None => read(None).ok()?,
    };
    Tag::from_limit(limit)
}

fn begin_turn(tag: Option<Tag>) -> Turn {
    let mut turns = lock(&TURNS);
    while let Some(patience) = turns.current.and_then(|turn| LONGEST_TURN.checked_sub(turn.since.elapsed())) {
        turns = match TURN_ENDED.wait_timeout(turns, patience) {
            Ok((turns, _)) => turns,
            Err(poisoned) => poisoned.into_inner().0,
        };
    }
    if turns.current.is_none() {
        turns.original = read(None).unwrap_or(libc::RLIM_INFINITY);
    }
    turns.count += 1;
    let turn = Turn { number: turns.count, since: Instant::now() };
    turns.current = Some(turn);
    // Refused where the hard limit is too low; processes are then found by descent alone.
    let _refused = write(None, tag.map_or(turns.original, Tag::as_limit));
    turn
}

/// Restores our limit, or, if another turn has taken over, leaves that to it and says what our limit originally was.
fn end_turn(turn: Turn) -> Option<u64> {
    let mut turns = lock(&TURNS);
    if turns.current.is_none_or(|current| current.number != turn.number) {
        return Some(turns.original);
    }
    let _was_set_before = write(None, turns.original);
    turns.current = None;
    TURN_ENDED.notify_one();
    None
}

fn read(pid: Option<Pid>) -> io::Result<u64> {
    Ok(read_both(pid)?.rlim_cur)
}

fn read_both(pid: Option<Pid>) -> io::Result<libc::rlimit64> {
    let mut limits = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a null new limit means only to read, and the pointer to the old one is valid for writes.
    let code = unsafe { libc::prlimit64(Pid::as_raw(pid), libc::RLIMIT_RTTIME, ptr::null(), &mut limits) };
    if code == 0 { Ok(limits) } else { Err(io::Error::last_os_error()) }
}

fn write(pid: Option<Pid>, soft: u64) -> io::Result<()> {
    let limits = libc::rlimit64 { rlim_cur: soft, rlim_max: read_both(pid)?.rlim_max };
    // SAFETY: the pointer to the new limit is valid for reads, and a null old limit means that it is not wanted.
    let code = unsafe { libc::prlimit64(Pid::as_raw(pid), libc::RLIMIT_RTTIME, &limits, ptr::null_mut()) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn read_from_proc(pid: Pid) -> Option<u64> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    soft_realtime_limit(&limits)
}

fn soft_realtime_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max realtime timeout"))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(libc::RLIM_INFINITY),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tag::{Instance, SessionNumbers};
    use std::collections::HashSet;
    use std::thread;

    fn own_pid() -> Pid {
        rustix::process::getpid()
    }

    #[test]
    fn proc_and_prlimit_agree() {
        assert_eq!(read_from_proc(own_pid()), read(None).ok());
        assert_eq!(soft_realtime_limit("Max realtime timeout      12   unlimited   us\n"), Some(12));
    }

    #[test]
    fn our_own_limit_is_the_same_afterwards() {
        let before = read(None).unwrap();
        let tag = SessionNumbers::new(Instance::unused(&HashSet::new())).range().next();
        assert!(can_be_set(tag));
        assert_eq!(read(None).unwrap(), before);
    }

    #[test]
    fn a_stuck_turn_is_overtaken_and_leaves_our_limit_alone() {
        let range = SessionNumbers::new(Instance::unused(&HashSet::new())).range();
        let before = read(None).unwrap();
        let (stuck, quick) = (range.next(), range.next());
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (started, has_started) = std::sync::mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                with_inherited(Some(stuck), || {
                    started.send(()).unwrap();
                    released.recv().unwrap();
                    Err::<Pid, ()>(())
                })
            });
            has_started.recv().unwrap();
            let seen = with_inherited(Some(quick), || {
                assert_eq!(read(None).unwrap(), quick.as_limit());
                Err::<Pid, ()>(())
            });
            assert_eq!(seen, Err(()));
            assert_eq!(read(None).unwrap(), before);
            release.send(()).unwrap();
        });
        assert_eq!(read(None).unwrap(), before);
    }
}
