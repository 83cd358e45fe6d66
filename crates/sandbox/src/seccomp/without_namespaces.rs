//! A second filter, for commands in a sandbox without namespaces. It refuses what mounts and namespaces would keep a
//! command from, and what Landlock does not: changing the attributes of files, reaching other processes of the user, and
//! talking to them through System V IPC and message queues.

use libc::{c_long, sock_filter};

use super::{AND, Assembler, FAILS, JUMP_IF_EQUAL, LOAD, NOT_IMPLEMENTED, OFFSET_ARGUMENTS, OFFSET_NUMBER, Rule};
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

/// Calls that read from a file by its path, beside Landlock: attributes, and what happens in a directory.
const READS_BY_PATH: &[c_long] = &[
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    GETXATTRAT,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    LISTXATTRAT,
    libc::SYS_inotify_add_watch,
    libc::SYS_fanotify_mark,
];

/// Objects that all processes of a user share, because they have no path.
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

// The same numbers on all architectures.
const FCHMODAT2: c_long = 452;
const SETXATTRAT: c_long = 463;
const GETXATTRAT: c_long = 464;
const LISTXATTRAT: c_long = 465;
const REMOVEXATTRAT: c_long = 466;
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

/// The filter. The other one is needed too.
pub(crate) fn filter_without_namespaces(files: &LandlockFiles) -> Vec<sock_filter> {
    let mut program = Assembler::default();
    program.begin();
    for call in SHARED_OBJECTS {
        program.refuse(*call, Rule::Always, NOT_IMPLEMENTED);
    }
    // 0 is the process that calls. It may not change other processes, and these three calls do not ask Landlock.
    program.refuse(libc::SYS_prlimit64, Rule::NoneOf(0, &[0]), FAILS);
    program.refuse(libc::SYS_setpriority, Rule::NoneOf(1, &[0]), FAILS);
    program.refuse(libc::SYS_setpriority, Rule::Is(0, PRIORITY_OF_USER), FAILS);
    program.refuse(libc::SYS_ioprio_set, Rule::NoneOf(1, &[0]), FAILS);
    program.refuse(libc::SYS_ioprio_set, Rule::Is(0, IO_PRIORITY_OF_USER), FAILS);
    if *files != LandlockFiles::Unrestricted {
        for call in ATTRIBUTE_CHANGES {
            program.refuse(*call, Rule::Always, FAILS);
        }
        allow_few_requests(&mut program);
    }
    if matches!(files, LandlockFiles::ReadSome(_)) {
        for call in READS_BY_PATH {
            program.refuse(*call, Rule::Always, NOT_SUPPORTED);
        }
    }
    program.finish()
}

/// Refuses each `ioctl` that is neither one of [`READING_REQUESTS`] nor of [`REQUEST_GROUPS`].
fn allow_few_requests(program: &mut Assembler) {
    let mut body = Assembler::default();
    body.add(LOAD, OFFSET_ARGUMENTS + 8);
    for (index, request) in READING_REQUESTS.iter().enumerate() {
        // Over the remaining requests, the mask, the groups and the return.
        let left = READING_REQUESTS.len() - index - 1 + 1 + REQUEST_GROUPS.len() + 1;
        body.jump(JUMP_IF_EQUAL, *request, left as u8, 0);
    }
    body.add(AND, REQUEST_GROUP_MASK);
    body.unless_one_of(&REQUEST_GROUPS, NOT_FOR_THIS_FILE);
    body.add(LOAD, OFFSET_NUMBER);
    program.jump(JUMP_IF_EQUAL, libc::SYS_ioctl as u32, 0, body.program.len() as u8);
    program.program.append(&mut body.program);
}
