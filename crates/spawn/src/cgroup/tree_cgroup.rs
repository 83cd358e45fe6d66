//! The cgroup of one tree: sets its limits, reads its counters, kills all of its processes at once, and removes it. Cgroups whose
//! tree still has processes when their [`TreeCgroup`] is dropped are kept in a list and removed later.

use std::fs;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use rustix::fs::{Mode, OFlags};

use super::create_cgroup;
use super::leftovers::remove_directory_tree;
use crate::descriptors::above_stdio;
use crate::lock::lock;
use crate::tag::{Scope, Tag};

/// Limits that a cgroup enforces. `None` means that there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CgroupLimits {
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) pids: Option<u64>,
}

/// What the counters of a cgroup say about the processes that were in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CgroupCounts {
    pub(crate) peak_memory_bytes: Option<u64>,
    pub(crate) peak_pids: Option<u64>,
    /// How often the memory that this cgroup may use was used up.
    pub(crate) own_ooms: u64,
    /// How many processes of this cgroup and of those below it the kernel has killed because some memory was used up: that of
    /// the cgroup, of one above it, or of the machine.
    pub(crate) oom_kills: u64,
    /// How many times a process could not start another one because of the limit. Kernels before 6.11 count the limits of the cgroups
    /// above too.
    pub(crate) refused_forks: u64,
}

/// The cgroup of a tree.
#[derive(Debug)]
pub(crate) struct TreeCgroup {
    directory: PathBuf,
}

/// A cgroup of a tree that can be killed by its tag. `is_dropped` is set when its [`TreeCgroup`] was dropped.
#[derive(Debug)]
struct RegisteredCgroup {
    tag: Tag,
    directory: PathBuf,
    is_dropped: bool,
}

/// One list for the whole process, even if there is more than one `Spawner`: the thread that kills processes finds cgroups by tag.
static REGISTRY: Mutex<Vec<RegisteredCgroup>> = Mutex::new(Vec::new());

fn registry() -> MutexGuard<'static, Vec<RegisteredCgroup>> {
    lock(&REGISTRY)
}

impl TreeCgroup {
    /// Makes the directory and sets the limits. Without a tag, no kill finds the cgroup.
    pub(super) fn make(directory: &Path, limits: CgroupLimits, tag: Option<Tag>) -> io::Result<Self> {
        create_cgroup(directory)?;
        let cgroup = Self { directory: directory.to_owned() };
        if let Some(tag) = tag {
            registry().push(RegisteredCgroup { tag, directory: directory.to_owned(), is_dropped: false });
        }
        cgroup.set_limits(limits)?;
        Ok(cgroup)
    }

    fn set_limits(&self, limits: CgroupLimits) -> io::Result<()> {
        if let Some(bytes) = limits.memory_bytes {
            self.write("memory.max", bytes)?;
            // Otherwise a tree could use as much again in swap. Kernels without swap accounting have no such file.
            self.write_if_there("memory.swap.max", 0)?;
            // A tree of which the kernel has killed only one process is in a state that no program expects.
            self.write_if_there("memory.oom.group", 1)?;
        }
        limits.pids.map_or(Ok(()), |pids| self.write("pids.max", pids))
    }

    /// The file to which a process writes 0 to enter the cgroup.
    pub(crate) fn open_procs(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        above_stdio(rustix::fs::open(self.directory.join("cgroup.procs"), flags, Mode::empty())?)
    }

    /// Reads the counters. One that cannot be read is missing or 0: kernels before 5.19 have no `memory.peak`, and kernels before 6.1
    /// have no `pids.peak`.
    pub(crate) fn counts(&self) -> CgroupCounts {
        let number = |file| self.read(file).and_then(|text| text.trim().parse().ok());
        let event = |file, name| self.read(file).and_then(|text| event_count(&text, name));
        // The files for this cgroup alone are newer (5.2 and 6.11). The others also count the cgroups that the tree has made below.
        let own_event = |local, file, name| event(local, name).or_else(|| event(file, name)).unwrap_or(0);
        CgroupCounts {
            peak_memory_bytes: number("memory.peak"),
            peak_pids: number("pids.peak"),
            own_ooms: own_event("memory.events.local", "memory.events", "oom"),
            oom_kills: event("memory.events", "oom_kill").unwrap_or(0),
            refused_forks: own_event("pids.events.local", "pids.events", "max"),
        }
    }

    #[cfg(test)]
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.directory.join(file)).ok()
    }

    fn write(&self, file: &str, value: u64) -> io::Result<()> {
        let path = self.directory.join(file);
        write_existing(&path, value)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    }

    fn write_if_there(&self, file: &str, value: u64) -> io::Result<()> {
        match self.write(file, value) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

impl Drop for TreeCgroup {
    fn drop(&mut self) {
        let is_removed = remove_directory_tree(&self.directory).is_ok();
        let mut registry = registry();
        if is_removed {
            registry.retain(|cgroup| cgroup.directory != self.directory);
        }
        for cgroup in registry.iter_mut().filter(|cgroup| cgroup.directory == self.directory) {
            cgroup.is_dropped = true;
        }
    }
}

fn event_count(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Kills all processes in the cgroups of the trees in scope. The kernel kills all processes of a cgroup at once, so a tree
/// that forks quickly cannot escape. Trees without a cgroup are killed by `hunt`.
pub(crate) fn kill_cgroups(scope: &Scope) {
    let in_scope: Vec<PathBuf> = registry()
        .iter()
        .filter(|cgroup| scope.contains(cgroup.tag))
        .map(|cgroup| cgroup.directory.clone())
        .collect();
    for directory in in_scope {
        kill_directory(&directory);
    }
}

/// Kills all processes in a cgroup and in those below it.
pub(super) fn kill_directory(directory: &Path) {
    // Kernels before 5.14 have no such file. There the processes are found one by one, as everywhere else.
    let _killed_or_removed = write_existing(&directory.join("cgroup.kill"), 1);
}

/// Writes a number to a file of a cgroup. The kernel makes these files, so a missing one is not created.
fn write_existing(path: &Path, value: u64) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(path)?.write_all(value.to_string().as_bytes())
}

/// Removes the cgroups whose [`TreeCgroup`] was dropped and whose processes have ended since. Costs nothing if there are none.
pub(crate) fn remove_empty_cgroups() {
    registry().retain(|cgroup| !cgroup.is_dropped || remove_directory_tree(&cgroup.directory).is_err());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with files like those of a cgroup with both controllers.
    fn imitated(files: &[(&str, &str)]) -> (tempfile::TempDir, TreeCgroup) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let cgroup = TreeCgroup { directory: folder.path().to_owned() };
        (folder, cgroup)
    }

    #[test]
    fn limits_are_written_to_the_files_of_the_kernel() {
        let files = ["memory.max", "memory.swap.max", "memory.oom.group", "pids.max"];
        let (folder, cgroup) = imitated(&files.map(|file| (file, "")));
        cgroup.set_limits(CgroupLimits { memory_bytes: Some(4096), pids: Some(3) }).unwrap();
        let written = files.map(|file| fs::read_to_string(folder.path().join(file)).unwrap());
        assert_eq!(written, ["4096", "0", "1", "3"]);
    }

    #[test]
    fn a_limit_without_its_controller_fails_and_only_the_files_about_swap_and_groups_may_be_missing() {
        let limits = CgroupLimits { memory_bytes: Some(4096), pids: None };
        let (_folder, cgroup) = imitated(&[("memory.max", "")]);
        cgroup.set_limits(limits).unwrap();
        let (_folder, cgroup) = imitated(&[]);
        let error = cgroup.set_limits(limits).unwrap_err();
        assert!(error.to_string().contains("memory.max"), "{error}");
        assert!(cgroup.set_limits(CgroupLimits { memory_bytes: None, pids: Some(1) }).is_err());
    }

    #[test]
    fn counters_are_read_and_missing_ones_are_none() {
        let (_folder, cgroup) = imitated(&[
            ("memory.peak", "1048576\n"),
            ("pids.peak", "12\n"),
            ("memory.events", "low 0\nhigh 0\nmax 9\noom 1\noom_kill 2\noom_group_kill 1\n"),
            ("pids.events", "max 5\n"),
        ]);
        let expected = CgroupCounts {
            peak_memory_bytes: Some(1 << 20),
            peak_pids: Some(12),
            own_ooms: 1,
            oom_kills: 2,
            refused_forks: 5,
        };
        assert_eq!(cgroup.counts(), expected);
        assert_eq!(imitated(&[]).1.counts(), CgroupCounts::default());
    }

    #[test]
    fn limits_of_other_cgroups_are_not_counted_if_the_kernel_tells_them_apart() {
        let (_folder, cgroup) = imitated(&[
            ("memory.events", "low 0\nhigh 0\nmax 9\noom 7\noom_kill 2\n"),
            ("memory.events.local", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n"),
            ("pids.events", "max 5\n"),
            ("pids.events.local", "max 0\n"),
        ]);
        let expected = CgroupCounts { oom_kills: 2, ..CgroupCounts::default() };
        assert_eq!(cgroup.counts(), expected);
    }

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let events = "low 0\nhigh 4\noom 2\noom_kill 1\noom_group_kill 7\n";
        assert_eq!(event_count(events, "oom_kill"), Some(1));
        assert_eq!(event_count(events, "oom"), Some(2));
        assert_eq!(event_count(events, "max"), None);
        assert_eq!(event_count("max 12\nmax.imposed 3\n", "max"), Some(12));
        assert_eq!(event_count("max x\n", "max"), None);
    }
}
