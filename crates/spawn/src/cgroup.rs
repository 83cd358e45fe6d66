//! Cgroups (version 2), for limits that the kernel enforces for a whole tree: memory, and the number of processes. A *tree* is a
//! process that the server has started, and its descendants. Only a process with such a limit gets a cgroup, because
//! moving a process into one can take milliseconds.
//!
//! ```text
//! base                         the cgroup of the server, or its parent; chosen by `base`
//! ├── exec-server-self         the server itself, if it had to make room in the base
//! └── exec-server-INSTANCE     one for each server, made and removed by `server_cgroup`
//!     └── tree-1               one for each tree with limits, see `tree_cgroup`
//! ```
//!
//! The server has its directory locked. If it is killed, the guard (see `guard`) or the next server removes the
//! directory. When the server ends, it and its guard leave the base as it was, unless another server uses it. Start with
//! [`ServerCgroup::new`]. Errors of type `String` are sentences for people, which say what to change.

mod base;
mod leftovers;
mod location;
mod server_cgroup;
mod tree_cgroup;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;

pub(crate) use base::{Controllers, give_back};
pub(crate) use leftovers::remove_after_server_end;
pub(crate) use server_cgroup::ServerCgroup;
pub(crate) use tree_cgroup::{CgroupCounts, CgroupLimits, TreeCgroup, kill_cgroups, remove_empty_cgroups};

use crate::tag::ServerInstance;

/// How the directories of servers begin.
const SERVER_PREFIX: &str = "exec-server-";

/// Checks whether this machine lets a server that is started in the same way as this process limit the memory and the number
/// of processes of whole trees. The error is a sentence that says what is missing and what to do. This makes a cgroup and removes it.
///
/// The answer is about this process, in its own cgroup. A process that is not dedicated to a server (see
/// [`HostProcess`](crate::HostProcess)) does not leave its cgroup to make room, and a server that is a service of its own may
/// do so. So run this in the way in which the server is run.
pub fn check_cgroups() -> Result<(), String> {
    let server = ServerCgroup::new(ServerInstance::unused(&std::collections::HashSet::new()))?;
    server.missing_controllers().map_or(Ok(()), Err)
}

/// Makes a cgroup. The kernel says only "try again" if there may be no further cgroup, so the error then says what is in the way.
fn create_cgroup(directory: &Path) -> io::Result<()> {
    fs::create_dir(directory).map_err(|error| explained(error, directory))
}

fn explained(error: io::Error, directory: &Path) -> io::Error {
    if error.raw_os_error() != Some(libc::EAGAIN) {
        return error;
    }
    let text = format!(
        "cgroup.max.descendants or cgroup.max.depth of a cgroup above {} allows no further cgroup below it; set it to a \
         higher number",
        directory.display()
    );
    io::Error::new(error.kind(), text)
}

fn server_directory(instance: ServerInstance) -> OsString {
    let mut name = OsString::from(SERVER_PREFIX);
    name.push(instance.to_argument());
    name
}

#[cfg(test)]
mod tests;
