//! Executing one path, with what the kernel leaves to whoever calls it: scripts without a first line that says what they are, and
//! files that are busy for a moment only.

use std::ffi::CStr;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use crate::image::Image;
use crate::rlimit::ChildLimits;
use crate::vfork::{self, Executing, FileActions};

/// A program that was written a moment ago is busy as long as any child that was started meanwhile has not closed its copy of the
/// descriptor, which it does when it executes. One that is busy for longer is being written.
const BUSY_PAUSES_MS: [u64; 5] = [1, 2, 4, 8, 16];

pub(crate) fn execute(
    path: &CStr,
    image: &Image,
    actions: &FileActions,
    limits: &ChildLimits,
) -> Result<Executing, Errno> {
    for pause in BUSY_PAUSES_MS {
        match execute_once(path, image, actions, limits) {
            Err(Errno::TXTBSY) => thread::sleep(Duration::from_millis(pause)),
            other => return other,
        }
    }
    execute_once(path, image, actions, limits)
}

fn execute_once(path: &CStr, image: &Image, actions: &FileActions, limits: &ChildLimits) -> Result<Executing, Errno> {
    match vfork::spawn(path, &image.argv, &image.env, actions, limits) {
        Err(Errno::NOEXEC) => {
            let (shell, argv) = image.as_script(path);
            vfork::spawn(shell, &argv, &image.env, actions, limits)
        }
        other => other,
    }
}
