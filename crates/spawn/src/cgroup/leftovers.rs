//! Removes cgroups that have no processes any more, above all those of servers that were killed. A cgroup with a process
//! in it cannot be removed, so nothing is lost by trying.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::location::CgroupLocation;
use super::tree_cgroup::kill_directory;
use super::{SERVER_PREFIX, server_directory};
use crate::tag::ServerInstance;

/// The deepest nesting of cgroups that is removed. A process of a tree may have nested cgroups below that of its tree, and this
/// bounds the recursion.
const DEEPEST: usize = 16;

/// How often a server tries to lock a directory. Another server that takes the directory for a leftover has it locked while it removes it.
const LOCK_TRIES: usize = 1000;
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// Removes a cgroup and all cgroups below it. Fails if a process is in one of them, after it has removed the others.
pub(super) fn remove_directory_tree(directory: &Path) -> io::Result<()> {
    remove_down_to(directory, DEEPEST)
}

fn remove_down_to(directory: &Path, depth: usize) -> io::Result<()> {
    match fs::remove_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(_) if depth > 0 => {}
        other => return other,
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // A cgroup is a directory, and its files vanish with it. A link is never followed.
        if entry.file_type()?.is_dir() {
            let _then_this_one_cannot_be_removed_either = remove_down_to(&entry.path(), depth - 1);
        }
    }
    fs::remove_dir(directory)
}

/// Removes the cgroups of servers that have ended without removing them. A running server has its directory locked.
pub(super) fn remove_of_ended_servers(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let instance = name.to_str().and_then(|name| name.strip_prefix(SERVER_PREFIX));
        if instance.and_then(ServerInstance::from_argument).is_none() {
            continue;
        }
        // The lock is held until the directory is removed. So a server that has just made the directory waits, and then makes it again.
        if let Some(_lock) = lock_if_unlocked(&entry.path()) {
            let _processes_may_be_left = remove_directory_tree(&entry.path());
        }
    }
}

/// Locks a directory. Does not wait for the lock without a limit, because any process that can open the directory could hold it.
pub(super) fn lock(directory: &OwnedFd) -> io::Result<()> {
    let try_lock = || rustix::fs::flock(directory, FlockOperation::NonBlockingLockExclusive);
    for _ in 1..LOCK_TRIES {
        match try_lock() {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            locked => return Ok(locked?),
        }
    }
    Ok(try_lock()?)
}

/// Locks a directory. None if a server has locked it, or if that cannot be found out.
fn lock_if_unlocked(directory: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(directory, flags, Mode::empty()).ok()?;
    rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive).ok()?;
    // Another server may have removed the directory before it was locked here, and its owner may have made it again.
    is_at(directory, &opened).then_some(opened)
}

/// Whether `opened` is the directory that is at this path now.
pub(super) fn is_at(path: &Path, opened: &OwnedFd) -> bool {
    let (Ok(there), Ok(opened)) = (rustix::fs::lstat(path), rustix::fs::fstat(opened)) else { return false };
    (there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino)
}

/// Kills what is left in the cgroups of a server that has ended, calls `kill_the_rest`, and removes the cgroups. The guard
/// uses this. It is in the same cgroup as its server was, so it finds the same places.
pub(crate) fn remove_after_server_end(instance: ServerInstance, kill_the_rest: impl FnOnce()) {
    let location = CgroupLocation::find().ok();
    let places = location.iter().flat_map(|location| {
        // The server may have moved to a cgroup below the base before it started the guard.
        [Some(location.own.as_path()), location.parent()].into_iter().flatten()
    });
    let directories: Vec<_> =
        places.map(|place| place.join(server_directory(instance))).filter(|directory| directory.is_dir()).collect();
    directories.iter().for_each(|directory| kill_directory(directory));
    kill_the_rest();
    for directory in directories {
        let _processes_may_be_left = remove_directory_tree(&directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_that_cannot_be_removed_does_not_keep_its_siblings() {
        let base = tempfile::tempdir().unwrap();
        for number in 0..20 {
            let directory = base.path().join(number.to_string()).join("below");
            fs::create_dir_all(&directory).unwrap();
            // A directory with a file cannot be removed, like a cgroup with a process.
            if number % 2 == 0 {
                fs::write(directory.join("file"), "").unwrap();
            }
        }
        assert!(remove_directory_tree(base.path()).is_err());
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 10);
    }
}
