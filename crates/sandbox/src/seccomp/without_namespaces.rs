//! The second seccomp filter of commands in a Landlock sandbox, which has no namespaces. It refuses what mounts and namespaces
//! would prevent and Landlock does not: changing the attributes of files, changing other processes of the user, and talking to
//! them through System V IPC and message queues.

use libc::{c_long, sock_filter};

use super::program::{RefusedCalls, Rule};
use super::{FAILS, NOT_IMPLEMENTED};
use crate::landlock_plan::LandlockFiles;

/// Changes of files that Landlock does not know: permissions, owner, times and attributes.
const ATTRIBUTE_CHANGES: &[c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    REMOVEXATTRAT,
    FILE_SETATTR,
];

/// Calls that read from a file by its path and that Landlock does not check: they read attributes, or report changes in a directory.
const READS_BY_PATH: &[c_long] = &[
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    GETXATTRAT,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    LISTXATTRAT,
    FILE_GETATTR,
    libc::SYS_inotify_add_watch,
    libc::SYS_fanotify_mark,
];

/// System V IPC and message queues. All processes of a user share them, and Landlock does not know them.
const SHARED_OBJECTS: &[c_long] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// Calls that change the scheduling of the process or thread in their first argument. A filter cannot know which ids are threads of the
/// process that calls, so only 0 is allowed, which means the calling thread.
const SCHEDULING_CHANGES: &[c_long] =
    &[libc::SYS_sched_setaffinity, libc::SYS_sched_setscheduler, libc::SYS_sched_setparam, libc::SYS_sched_setattr];

// The same numbers on all architectures.
const FCHMODAT2: c_long = 452;
const SETXATTRAT: c_long = 463;
const GETXATTRAT: c_long = 464;
const LISTXATTRAT: c_long = 465;
const REMOVEXATTRAT: c_long = 466;
const FILE_GETATTR: c_long = 468;
const FILE_SETATTR: c_long = 469;

const NOT_SUPPORTED: u32 = libc::SECCOMP_RET_ERRNO | libc::EOPNOTSUPP as u32;
/// What a file answers to a request that it does not know.
const NOT_FOR_THIS_FILE: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOTTY as u32;

/// Requests of `ioctl` change files in many ways: flags, project numbers, whole subvolumes. Each file system has its own, so
/// only these groups are allowed: terminals and pipes, sockets, and random numbers. The group is the second byte.
const REQUEST_GROUP_MASK: u32 = 0xFF00;
const REQUEST_GROUPS: [u32; 3] = [0x5400, 0x8900, 0x5200];

/// Requests that only read: the flags of a file, its attributes, and where its data is.
const READING_REQUESTS: [u32; 3] = [0x8008_6601, 0x801C_581F, 0xC020_660B];

/// `PRIO_USER` and `IOPRIO_WHO_USER`: all processes of the user.
const PRIORITY_OF_USER: u32 = 2;
const IO_PRIORITY_OF_USER: u32 = 3;

/// The second filter of a Landlock sandbox. Each command also needs [`super::filter`].
pub(crate) fn filter_without_namespaces(files: &LandlockFiles) -> Vec<sock_filter> {
    let mut calls = RefusedCalls::default();
    for call in SHARED_OBJECTS {
        calls.refuse(*call, Rule::Always, NOT_IMPLEMENTED);
    }
    // Landlock does not check the calls that change the limits, the priority or the scheduling of another process. 0 means the process or
    // thread that calls.
    calls.refuse(libc::SYS_prlimit64, Rule::NoneOf(0, &[0]), FAILS);
    // The tag, by which the server finds and ends the processes of the command, is this limit. Reading it is allowed.
    calls.refuse(libc::SYS_prlimit64, Rule::IsWith(1, libc::RLIMIT_RTTIME, 2), FAILS);
    calls.refuse(libc::SYS_setrlimit, Rule::Is(0, libc::RLIMIT_RTTIME), FAILS);
    calls.refuse(libc::SYS_setpriority, Rule::NoneOf(1, &[0]), FAILS);
    calls.refuse(libc::SYS_setpriority, Rule::Is(0, PRIORITY_OF_USER), FAILS);
    calls.refuse(libc::SYS_ioprio_set, Rule::NoneOf(1, &[0]), FAILS);
    calls.refuse(libc::SYS_ioprio_set, Rule::Is(0, IO_PRIORITY_OF_USER), FAILS);
    for call in SCHEDULING_CHANGES {
        calls.refuse(*call, Rule::NoneOf(0, &[0]), FAILS);
    }
    if *files != LandlockFiles::Unrestricted {
        for call in ATTRIBUTE_CHANGES {
            calls.refuse(*call, Rule::Always, FAILS);
        }
        let others = Rule::NoneOfNorMasked(1, &READING_REQUESTS, REQUEST_GROUP_MASK, &REQUEST_GROUPS);
        calls.refuse(libc::SYS_ioctl, others, NOT_FOR_THIS_FILE);
    }
    if matches!(files, LandlockFiles::ReadSome(_)) {
        for call in READS_BY_PATH {
            calls.refuse(*call, Rule::Always, NOT_SUPPORTED);
        }
    }
    calls.to_filter()
}
