//! Executes a file in a new child, with two additions to what the kernel does. A script without a `#!` line runs in the shell. A file that
//! is open for writing (`ETXTBSY`) is tried again for a short time.

use std::ffi::CStr;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use crate::exec_args::ExecArgs;
use crate::rlimit::ChildLimits;
use crate::vfork::{self, FileActions, StartedChild};

/// Waits before each new try, in milliseconds. A file that was just written stays busy while another child, which was
/// started at the same time, has a copy of the descriptor that wrote the file. That child closes its copy when it
/// executes its own program. A file that is busy for longer is really being written.
const BUSY_RETRY_WAITS_MS: [u64; 5] = [1, 2, 4, 8, 16];

pub(crate) fn execute(
    path: &CStr,
    args: &ExecArgs,
    actions: &FileActions,
    limits: &ChildLimits,
) -> Result<StartedChild, Errno> {
    for wait in BUSY_RETRY_WAITS_MS {
        match execute_once(path, args, actions, limits) {
            Err(Errno::TXTBSY) => thread::sleep(Duration::from_millis(wait)),
            other => return other,
        }
    }
    execute_once(path, args, actions, limits)
}

fn execute_once(
    path: &CStr,
    args: &ExecArgs,
    actions: &FileActions,
    limits: &ChildLimits,
) -> Result<StartedChild, Errno> {
    match vfork::spawn(path, &args.argv, &args.env, actions, limits) {
        Err(Errno::NOEXEC) => {
            let (shell, argv) = args.as_script(path);
            vfork::spawn(shell, &argv, &args.env, actions, limits)
        }
        other => other,
    }
}
