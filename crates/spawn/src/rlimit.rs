//! Limits of processes that matter here. A tag gets onto a process as its soft limit of realtime CPU time, which is inherited over
//! fork and exec, which anybody can read and which limits nothing at such a height. And the server has a higher limit of open files
//! than its children.

use std::fs;
use std::io;
use std::ptr;
use std::sync::OnceLock;

use rustix::process::Pid;

use crate::tag::Tag;

/// A limit as it is set in a child.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) resource: libc::__rlimit_resource_t,
    pub(crate) values: libc::rlimit64,
}

/// The limits of a child that are not those of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChildLimits {
    pub(crate) tag: Option<Limit>,
    pub(crate) open_files: Option<Limit>,
}

impl ChildLimits {
    /// With a tag, or with what we ourselves were started with.
    pub(crate) fn new(tag: Option<Tag>) -> Self {
        let tag = tag.and_then(|tag| {
            let hard = read(None, libc::RLIMIT_RTTIME).ok()?.rlim_max;
            let values = libc::rlimit64 { rlim_cur: tag.as_limit(), rlim_max: hard };
            Some(Limit { resource: libc::RLIMIT_RTTIME, values })
        });
        let open_files = ORIGINAL_OPEN_FILES.get().copied().flatten().and_then(|original| {
            // Somebody may have lowered the hard limit since; raising it again could be refused.
            let hard = read(None, libc::RLIMIT_NOFILE).ok()?.rlim_max.min(original.rlim_max);
            let values = libc::rlimit64 { rlim_cur: original.rlim_cur.min(hard), rlim_max: hard };
            Some(Limit { resource: libc::RLIMIT_NOFILE, values })
        });
        Self { tag, open_files }
    }
}

/// The limits of open files we were started with; none if they could not be raised. The limits belong to the whole process and so
/// does this, even if there is more than one `Spawner`.
static ORIGINAL_OPEN_FILES: OnceLock<Option<libc::rlimit64>> = OnceLock::new();

/// Raises our soft limit of open files to the hard limit: the usual soft limit of 1,024 is meant for programs that use `select`, and
/// a server with hundreds of processes needs more. Children get the old one, as they may be such programs.
pub(crate) fn raise_open_files() {
    ORIGINAL_OPEN_FILES.get_or_init(|| {
        let original = read(None, libc::RLIMIT_NOFILE).ok()?;
        let raised = libc::rlimit64 { rlim_cur: original.rlim_max, ..original };
        // SAFETY: the pointer to the new limit is valid for reads, and a null old limit means that it is not wanted.
        let code = unsafe { libc::prlimit64(0, libc::RLIMIT_NOFILE, &raised, ptr::null_mut()) };
        (code == 0).then_some(original)
    });
}

/// How many descriptors a table of this process may have; 0 if that is not known.
pub(crate) fn open_files() -> usize {
    read(None, libc::RLIMIT_NOFILE).map_or(0, |limits| usize::try_from(limits.rlim_cur).unwrap_or(usize::MAX))
}

/// Whether children of this process may have a limit as high as tags are.
pub(crate) fn can_be_set(tag: Tag) -> bool {
    read(None, libc::RLIMIT_RTTIME).is_ok_and(|limits| limits.rlim_max >= tag.as_limit())
}

/// The tag of a process; none if it has none or is gone.
pub(crate) fn tag_of(pid: Pid) -> Option<Tag> {
    let limit = match read(Some(pid), libc::RLIMIT_RTTIME) {
        // Asking for the limits of another user's process is refused, but not reading them.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => read_from_proc(pid)?,
        other => other.ok()?.rlim_cur,
    };
    Tag::from_limit(limit)
}

/// The tag this server was itself started under, by another one.
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
    fn proc_and_prlimit_agree() {
        let own = read(None, libc::RLIMIT_RTTIME).unwrap().rlim_cur;
        assert_eq!(read_from_proc(rustix::process::getpid()), Some(own));
        assert_eq!(soft_realtime_limit("Max realtime timeout      12   unlimited   us\n"), Some(12));
    }

    #[test]
    fn open_files_are_raised_once_and_children_keep_what_was_before() {
        let before = read(None, libc::RLIMIT_NOFILE).unwrap();
        raise_open_files();
        raise_open_files();
        assert_eq!(read(None, libc::RLIMIT_NOFILE).unwrap().rlim_cur, before.rlim_max);
        let limits = ChildLimits::new(None);
        assert!(limits.tag.is_none());
        assert_eq!(limits.open_files.unwrap().values.rlim_cur, before.rlim_cur);
    }
}
