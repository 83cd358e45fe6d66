//! The cgroup of one server, in which it makes a cgroup for each tree with limits. Making it tries everything that a later
//! start needs, so that a problem is known before a client asks for a limit.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::base::{self, Controllers};
use super::leftovers::{is_at, lock, remove_directory_tree, remove_of_ended_servers};
use super::tree_cgroup::{CgroupLimits, TreeCgroup};
use super::{create_cgroup, server_directory};
use crate::descriptors::above_stdio;
use crate::exec_args::CStringArray;
use crate::rlimit::ChildLimits;
use crate::tag::{ServerInstance, Tag};
use crate::vfork::{self, FileActions};

/// How often the server makes its cgroup before it gives up. Another server that starts at the same time may take the new directory for a
/// leftover and remove it, until this server has locked it. Each further try fails only if yet another server starts.
const TRIES: usize = 16;

/// The cgroup of this server. Dropping it removes the cgroup if no process is left in it, and returns to the base if the server has
/// left it and no other server uses it.
#[derive(Debug)]
pub(crate) struct ServerCgroup {
    directory: PathBuf,
    controllers: Controllers,
    /// Number of the next tree.
    next_tree: AtomicU64,
    /// The directory, locked. The kernel unlocks it when the server has ended, in whatever way.
    _lock: OwnedFd,
}

impl ServerCgroup {
    /// Makes the cgroup of a server. The error says why cgroups cannot be used and what to do.
    pub(crate) fn new(instance: ServerInstance) -> Result<Self, String> {
        let base = base::choose()?;
        remove_of_ended_servers(&base.directory);
        let made = Self::in_base(&base.directory, instance);
        drop(base);
        made.inspect_err(|_| base::give_back())
    }

    /// Makes the cgroup of a server in a base that passes its controllers on.
    pub(super) fn in_base(base: &Path, instance: ServerInstance) -> Result<Self, String> {
        let directory = base.join(server_directory(instance));
        let failed = |error: io::Error| format!("cannot make the cgroup {}: {error}", directory.display());
        let mut made = Self::make(&directory);
        for _ in 1..TRIES {
            if !made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                break;
            }
            made = Self::make(&directory);
        }
        let server = made.map_err(failed)?;
        server
            .try_out()
            .map_err(|error| format!("cannot move a process into a cgroup below {}: {error}", base.display()))?;
        Ok(server)
    }

    fn make(directory: &Path) -> io::Result<Self> {
        create_cgroup(directory)?;
        Self::lock_and_set_up(directory).inspect_err(|_| {
            let _may_be_gone = fs::remove_dir(directory);
        })
    }

    fn lock_and_set_up(directory: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let locked =
            rustix::fs::open(directory, flags, Mode::empty()).map_err(io::Error::from).and_then(above_stdio)?;
        lock(&locked)?;
        // From here on no other server removes the directory, if it is still there.
        if !is_at(directory, &locked) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let controllers = Controllers::read(&directory.join("cgroup.controllers"))?;
        let server =
            Self { directory: directory.to_owned(), controllers, next_tree: AtomicU64::new(1), _lock: locked };
        for (is_there, word) in [(controllers.memory, "+memory"), (controllers.pids, "+pids")] {
            if is_there {
                fs::write(server.directory.join("cgroup.subtree_control"), word)?;
            }
        }
        // In a threaded hierarchy the cgroup cannot limit memory.
        let kind = fs::read_to_string(server.directory.join("cgroup.type"))?;
        if kind.trim() != "domain" {
            return Err(io::Error::other(format!("its type is `{}` and not `domain`", kind.trim())));
        }
        Ok(server)
    }

    /// Makes a cgroup with limits, lets a child enter it, and removes it. The child executes nothing.
    fn try_out(&self) -> io::Result<()> {
        let limits = CgroupLimits {
            memory_bytes: self.controllers.memory.then_some(1 << 30),
            pids: self.controllers.pids.then_some(16),
        };
        let cgroup = TreeCgroup::make(&self.next_tree_directory(), limits, None)?;
        let procs = cgroup.open_procs()?;
        let mut actions = FileActions::default();
        actions.enter_cgroup(procs.as_fd());
        let nothing = CStringArray::new(Vec::new());
        // No program has an empty path, so a child that has entered the cgroup fails with this error and ends.
        match vfork::spawn(c"", &nothing, &nothing, &actions, &ChildLimits::new(None, &[])) {
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) => Err(io::Error::other("a program without a name was executed")),
        }
    }

    pub(crate) fn controllers(&self) -> Controllers {
        self.controllers
    }

    /// A sentence about the controllers that this cgroup lacks. None if it has both.
    pub(crate) fn missing_controllers(&self) -> Option<String> {
        if self.controllers.memory && self.controllers.pids {
            return None;
        }
        // The cgroup of the server may be gone when somebody reads the sentence, but the base stays.
        let base = self.directory.parent().unwrap_or(&self.directory);
        Some(base::missing_controllers(base, self.controllers))
    }

    /// Makes the cgroup of a tree. The tree is killed and the cgroup removed together with the tree of `tag`.
    pub(crate) fn make_tree_cgroup(&self, limits: CgroupLimits, tag: Tag) -> io::Result<TreeCgroup> {
        TreeCgroup::make(&self.next_tree_directory(), limits, Some(tag))
    }

    fn next_tree_directory(&self) -> PathBuf {
        let number = self.next_tree.fetch_add(1, Ordering::Relaxed);
        self.directory.join(format!("tree-{number}"))
    }
}

impl Drop for ServerCgroup {
    fn drop(&mut self) {
        let _removed_or_left_for_the_guard = remove_directory_tree(&self.directory);
        base::give_back();
    }
}
