//! Resource limits of processes. The server finds its processes by their tag. The tag of a process is its soft
//! limit of realtime CPU time (`RLIMIT_RTTIME`): it is inherited over fork and exec, other processes can read it, and
//! tags are so large that they limit nothing. The limit of open files is raised for the server but not for its
//! children. A client can ask for further limits (see `limits`). This module sets and reads limits; `tag` knows what a tag consists of.

use std::fs;
use std::io;
use std::ptr;
use std::sync::OnceLock;

use rustix::process::Pid;

use crate::tag::Tag;

/// A resource limit to set in a child.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResourceLimit {
    pub(crate) resource: libc::__rlimit_resource_t,
    pub(crate) values: libc::rlimit64,
}

/// The limits in which a child differs from the server. Plain data, so that it can be sent to the process that starts the child. The child
/// inherits every other limit of the server.
#[derive(Clone, Debug)]
pub(crate) struct ChildLimits {
    /// Set before anything else, so that the child is found by its tag even if it hangs later. None: the child gets no
    /// tag, and inherits the limit of the server, which may be the tag of an outer server.
    pub(crate) tag: Option<ResourceLimit>,
    /// Set in this order, after the descriptors of the child are in place: a lower limit of open files would forbid some
    /// of their numbers.
    pub(crate) others: Vec<ResourceLimit>,
}

impl ChildLimits {
    /// The limits of a child with this tag, and the limits that were asked for.
    pub(crate) fn new(tag: Option<Tag>, asked: &[ResourceLimit]) -> Self {
        let tag = tag.and_then(|tag| {
            let hard = read(None, libc::RLIMIT_RTTIME).ok()?.rlim_max;
            let values = libc::rlimit64 { rlim_cur: tag.as_limit(), rlim_max: hard };
            Some(ResourceLimit { resource: libc::RLIMIT_RTTIME, values })
        });
        let limits_open_files = asked.iter().any(|limit| limit.resource == libc::RLIMIT_NOFILE);
        let original = ORIGINAL_OPEN_FILES.get().copied().flatten().filter(|_| !limits_open_files).map(|original| {
            // The hard limit may have been lowered since the server started, and raising it again could be refused.
            let hard = hard_limit_for_children(libc::RLIMIT_NOFILE);
            let values = libc::rlimit64 { rlim_cur: original.rlim_cur.min(hard), rlim_max: hard };
            ResourceLimit { resource: libc::RLIMIT_NOFILE, values }
        });
        Self { tag, others: original.into_iter().chain(asked.iter().copied()).collect() }
    }

    /// Makes the hard limit of open files lower than the limit of this process. The kernel counts the descriptors that the processes of a user
    /// have sent over Unix sockets and that were not received yet, and a process that sends one compares the count with its own limit of open
    /// files. A child with a lower limit cannot keep this process from sending descriptors.
    pub(crate) fn leave_descriptors_in_flight(mut self) -> Self {
        let Ok(own) = read(None, libc::RLIMIT_NOFILE) else { return self };
        // At a low limit, most of the descriptors are left to the child.
        let most = own.rlim_cur - DESCRIPTORS_IN_FLIGHT.min(own.rlim_cur / 8 * 3);
        let lowered = |values: libc::rlimit64| libc::rlimit64 {
            rlim_cur: values.rlim_cur.min(most),
            rlim_max: values.rlim_max.min(most),
        };
        match self.others.iter_mut().find(|limit| limit.resource == libc::RLIMIT_NOFILE) {
            Some(limit) => limit.values = lowered(limit.values),
            None => self.others.push(ResourceLimit { resource: libc::RLIMIT_NOFILE, values: lowered(own) }),
        }
        self
    }
}

/// By how much the limit of a sandboxed command is lower than that of the server. A command that has reached its limit can exceed it once,
/// by the 253 descriptors of one message. The rest is left to the server and the launchers of its sandboxes.
const DESCRIPTORS_IN_FLIGHT: u64 = 512;

impl ResourceLimit {
    /// The number of the resource, the soft and the hard limit.
    pub(crate) fn numbers(&self) -> (u32, u64, u64) {
        (self.resource, self.values.rlim_cur, self.values.rlim_max)
    }
}

/// The highest hard limit that a child can have without privileges.
pub(crate) fn hard_limit_for_children(resource: libc::__rlimit_resource_t) -> u64 {
    let own = read(None, resource).map_or(libc::RLIM_INFINITY, |limits| limits.rlim_max);
    let original = ORIGINAL_OPEN_FILES.get().copied().flatten().filter(|_| resource == libc::RLIMIT_NOFILE);
    original.map_or(own, |original| own.min(original.rlim_max))
}

/// The soft limit of a process. None if it cannot be read.
pub(crate) fn soft_limit(pid: Pid, resource: libc::__rlimit_resource_t) -> Option<u64> {
    read(Some(pid), resource).ok().map(|limits| limits.rlim_cur)
}

/// The name of a resource, as in `getrlimit(2)`.
pub(crate) fn name(resource: libc::__rlimit_resource_t) -> &'static str {
    match resource {
        libc::RLIMIT_AS => "RLIMIT_AS",
        libc::RLIMIT_CPU => "RLIMIT_CPU",
        libc::RLIMIT_FSIZE => "RLIMIT_FSIZE",
        libc::RLIMIT_NOFILE => "RLIMIT_NOFILE",
        libc::RLIMIT_RTTIME => "RLIMIT_RTTIME",
        _ => "a resource limit",
    }
}

/// The limits of open files that this process was started with. None if they could not be raised. There is one value for all `Spawner`s,
/// because limits belong to the whole process.
static ORIGINAL_OPEN_FILES: OnceLock<Option<libc::rlimit64>> = OnceLock::new();

/// Raises the soft limit of open files of this process to the hard limit. The usual soft limit is 1,024, for programs that use `select`,
/// and a server with hundreds of processes needs more. Children get the old limit, because they may be such programs.
pub(crate) fn raise_open_files() {
    ORIGINAL_OPEN_FILES.get_or_init(|| {
        let original = read(None, libc::RLIMIT_NOFILE).ok()?;
        let raised = libc::rlimit64 { rlim_cur: original.rlim_max, ..original };
        // SAFETY: the pointer to the new limit is valid for reads, and a null old limit means that it is not wanted.
        let code = unsafe { libc::prlimit64(0, libc::RLIMIT_NOFILE, &raised, ptr::null_mut()) };
        (code == 0).then_some(original)
    });
}

/// How many descriptors this process may have open. 0 if that is not known.
pub(crate) fn max_open_files() -> usize {
    read(None, libc::RLIMIT_NOFILE).map_or(0, |limits| usize::try_from(limits.rlim_cur).unwrap_or(usize::MAX))
}

/// Whether children of this process can have this tag. The error is a sentence that says what is in the way and what to do.
pub(crate) fn check_tag(tag: Tag) -> Result<(), String> {
    match read(None, libc::RLIMIT_RTTIME) {
        Ok(limits) if limits.rlim_max >= tag.as_limit() => Ok(()),
        Ok(_) => Err("the hard limit of realtime CPU time is set, so a process that detaches itself may survive its end; start the server without this limit (`ulimit -H -R unlimited` as root)".to_owned()),
        Err(error) => Err(format!(
            "the system call `prlimit` fails ({error}), probably because of a seccomp filter around the server, so a process that detaches itself may survive its end; allow this call, or run the server outside of its container"
        )),
    }
}

/// The tag of a process. None if the process has no tag, does not exist, or cannot be read.
pub(crate) fn tag_of(pid: Pid) -> Option<Tag> {
    let limit = match read(Some(pid), libc::RLIMIT_RTTIME) {
        // `prlimit` is refused for a process of another user, but its limits can be read from `/proc`.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => read_from_proc(pid)?,
        other => other.ok()?.rlim_cur,
    };
    Tag::from_limit(limit)
}

/// The tag of this process, if another server has started it.
pub(crate) fn own_tag() -> Option<Tag> {
    Tag::from_limit(read(None, libc::RLIMIT_RTTIME).ok()?.rlim_cur)
}

fn read(pid: Option<Pid>, resource: libc::__rlimit_resource_t) -> io::Result<libc::rlimit64> {
    let mut limits = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a null new limit means only to read, and the pointer to the old one is valid for writes.
    let code = unsafe { libc::prlimit64(Pid::as_raw(pid), resource, ptr::null(), &mut limits) };
    if code == 0 { Ok(limits) } else { Err(io::Error::last_os_error()) }
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

    #[test]
    fn limits_from_proc_and_from_prlimit_are_equal() {
        let own = read(None, libc::RLIMIT_RTTIME).unwrap().rlim_cur;
        assert_eq!(read_from_proc(rustix::process::getpid()), Some(own));
        assert_eq!(soft_realtime_limit("Max realtime timeout      12   unlimited   us\n"), Some(12));
    }

    #[test]
    fn the_limit_of_open_files_is_raised_for_the_server_only() {
        let before = read(None, libc::RLIMIT_NOFILE).unwrap();
        raise_open_files();
        // A second call must not take the raised limit for the original one.
        raise_open_files();
        assert_eq!(read(None, libc::RLIMIT_NOFILE).unwrap().rlim_cur, before.rlim_max);
        let limits = ChildLimits::new(None, &[]);
        assert!(limits.tag.is_none());
        assert_eq!(limits.others[0].values.rlim_cur, before.rlim_cur);
        // A limit that was asked for replaces the original one.
        let values = libc::rlimit64 { rlim_cur: 7, rlim_max: 7 };
        let asked = [ResourceLimit { resource: libc::RLIMIT_NOFILE, values }];
        let limits = ChildLimits::new(None, &asked).leave_descriptors_in_flight();
        assert_eq!(limits.others.iter().map(|limit| limit.values.rlim_cur).collect::<Vec<_>>(), [7]);
        let lower = ChildLimits::new(None, &[]).leave_descriptors_in_flight().others[0].values;
        assert!(lower.rlim_max < before.rlim_max && lower.rlim_cur <= before.rlim_cur, "{lower:?}");
    }
}
