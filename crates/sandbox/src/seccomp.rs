//! The filter of system calls that every command in a sandbox gets. It refuses what could lead out of the sandbox or
//! into another process: making namespaces and mounts, tracing, kernel keyrings, io_uring, faked terminal input, sockets
//! that the policy does not allow, and others. The constants below and the function `filter` are the whole list of rules;
//! calls of other calling conventions are refused too.
//!
//! The module `program` makes of the rules what the kernel understands.

mod program;
mod without_namespaces;

use libc::{c_long, sock_filter};

use self::program::{RefusedCalls, Rule};
use crate::plan::SandboxNetwork;

pub(crate) use without_namespaces::filter_without_namespaces;

/// A refused call fails with this error.
const FAILS: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
/// For calls that programs replace by an older call if the kernel does not have them.
const NOT_IMPLEMENTED: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

/// All kinds of namespaces that `clone` can make.
const NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;
/// `unshare` has one more kind, whose bit means something else in `clone`.
const TIME_NAMESPACE: u32 = 0x80;

/// The type of a socket without its flags.
const SOCKET_TYPE_MASK: u32 = 0xF;

const OPEN_TREE_ATTR: c_long = 467;

/// Calls that are refused under every policy.
const ALWAYS_REFUSED: &[(c_long, &str)] = &[
    // Other processes.
    (libc::SYS_ptrace, "ptrace"),
    (libc::SYS_process_vm_readv, "process_vm_readv"),
    (libc::SYS_process_vm_writev, "process_vm_writev"),
    (libc::SYS_pidfd_getfd, "pidfd_getfd"),
    (libc::SYS_kcmp, "kcmp"),
    // Mounts and namespaces.
    (libc::SYS_mount, "mount"),
    (libc::SYS_umount2, "umount2"),
    (libc::SYS_pivot_root, "pivot_root"),
    (libc::SYS_chroot, "chroot"),
    (libc::SYS_setns, "setns"),
    (libc::SYS_open_tree, "open_tree"),
    (libc::SYS_move_mount, "move_mount"),
    (libc::SYS_fsopen, "fsopen"),
    (libc::SYS_fsconfig, "fsconfig"),
    (libc::SYS_fsmount, "fsmount"),
    (libc::SYS_fspick, "fspick"),
    (libc::SYS_mount_setattr, "mount_setattr"),
    (OPEN_TREE_ATTR, "open_tree_attr"),
    // Files by number instead of by path.
    (libc::SYS_open_by_handle_at, "open_by_handle_at"),
    // Keyrings belong to the user, not to the sandbox.
    (libc::SYS_keyctl, "keyctl"),
    (libc::SYS_add_key, "add_key"),
    (libc::SYS_request_key, "request_key"),
    // Parts of the kernel with a long record of errors that lead to privileges.
    (libc::SYS_bpf, "bpf"),
    (libc::SYS_perf_event_open, "perf_event_open"),
    (libc::SYS_userfaultfd, "userfaultfd"),
    // The whole machine.
    (libc::SYS_kexec_load, "kexec_load"),
    (libc::SYS_kexec_file_load, "kexec_file_load"),
    (libc::SYS_init_module, "init_module"),
    (libc::SYS_finit_module, "finit_module"),
    (libc::SYS_delete_module, "delete_module"),
    (libc::SYS_reboot, "reboot"),
    (libc::SYS_swapon, "swapon"),
    (libc::SYS_swapoff, "swapoff"),
    (libc::SYS_acct, "acct"),
    (libc::SYS_quotactl, "quotactl"),
    (libc::SYS_quotactl_fd, "quotactl_fd"),
    (libc::SYS_settimeofday, "settimeofday"),
    (libc::SYS_clock_settime, "clock_settime"),
    (libc::SYS_sethostname, "sethostname"),
    (libc::SYS_setdomainname, "setdomainname"),
    (libc::SYS_syslog, "syslog"),
];

/// io_uring: the kernel carries out what a program puts into a ring without asking the filter. Programs do without io_uring if it fails, so these
/// refusals are not reported.
const QUIETLY_REFUSED: &[c_long] = &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// Calls that are refused depending on their arguments.
const SOMETIMES_REFUSED: &[(c_long, &str)] = &[
    (libc::SYS_clone, "clone"),
    (libc::SYS_unshare, "unshare"),
    (libc::SYS_ioctl, "ioctl"),
    (libc::SYS_socket, "socket"),
    (libc::SYS_socketpair, "socketpair"),
    (libc::SYS_connect, "connect"),
    (libc::SYS_prlimit64, "prlimit64"),
    (libc::SYS_fcntl, "fcntl"),
];

/// The name of a system call that the filter can refuse and report.
pub(crate) fn name_of(call: c_long) -> Option<&'static str> {
    let known = ALWAYS_REFUSED.iter().chain(SOMETIMES_REFUSED);
    known.into_iter().find(|(number, _)| *number == call).map(|(_, name)| *name)
}

/// What the kernel does with a refused call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The call fails.
    Fails,
    /// The kernel asks the process that has the descriptor of the filter, which then lets the call fail. The kernel does not allow this
    /// if an outer filter of this process does the same, as in some containers.
    IsReported,
}

/// The flag of the system call `seccomp` for a filter that asks a process about calls.
const ASKING_FILTER: u32 = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER as u32;

/// TIOCSTI puts input into a terminal, as if the user had typed it. TIOCLINUX can do so on a console.
const REFUSED_TERMINAL_REQUESTS: [u32; 2] = [0x5412, 0x541C];

const UNIX: u32 = libc::AF_UNIX as u32;
const INTERNET: [u32; 2] = [libc::AF_INET as u32, libc::AF_INET6 as u32];
/// Applies to sockets that need no connection to send. The kernel makes a datagram socket of a raw Unix socket too, so the rule names the types that
/// are harmless.
const WITHOUT_CONNECTION: Rule =
    Rule::MaskedNoneOf(1, SOCKET_TYPE_MASK, &[libc::SOCK_STREAM as u32, libc::SOCK_SEQPACKET as u32]);

/// The filter for a network.
pub(crate) fn filter(network: SandboxNetwork, refusal: Refusal) -> Vec<sock_filter> {
    let refused = match refusal {
        Refusal::Fails => FAILS,
        Refusal::IsReported => libc::SECCOMP_RET_USER_NOTIF,
    };
    let mut calls = RefusedCalls::default();
    for (call, _) in ALWAYS_REFUSED {
        calls.refuse(*call, Rule::Always, refused);
    }
    for call in QUIETLY_REFUSED {
        calls.refuse(*call, Rule::Always, FAILS);
    }
    calls.refuse(libc::SYS_clone3, Rule::Always, NOT_IMPLEMENTED);
    calls.refuse(libc::SYS_clone, Rule::AnyBit(0, NAMESPACES), refused);
    calls.refuse(libc::SYS_unshare, Rule::AnyBit(0, NAMESPACES | TIME_NAMESPACE), refused);
    // 0 is the process that calls. A command could change the limits of the first process of its PID namespace, and one of them is the tag
    // by which the server finds that process.
    calls.refuse(libc::SYS_prlimit64, Rule::NoneOf(0, &[0]), refused);
    // A command must not add a filter that asks a process about calls: the newer of two such filters decides, so it could allow what this one
    // refuses. The kernel forbids a second such filter only while the server has the descriptor of this one. The refusal is not reported,
    // because then such a filter could decide about it.
    calls.refuse(libc::SYS_seccomp, Rule::AnyBit(1, ASKING_FILTER), FAILS);
    // A lease on a file lets every process that opens the file wait, also outside of the sandbox. A descriptor for reading is enough for one.
    calls.refuse(libc::SYS_fcntl, Rule::Is(1, libc::F_SETLEASE as u32), refused);
    for request in REFUSED_TERMINAL_REQUESTS {
        calls.refuse(libc::SYS_ioctl, Rule::Is(1, request), refused);
    }
    // A Unix datagram socket can send to every socket that has a path, also outside of the sandbox, and the filter does not see the address.
    // So they are refused. Other Unix sockets need `connect` for that, which is refused too.
    calls.refuse(libc::SYS_socketpair, Rule::NoneOf(0, &[UNIX]), refused);
    calls.refuse(libc::SYS_socketpair, WITHOUT_CONNECTION, refused);
    match network {
        SandboxNetwork::None => {
            calls.refuse(libc::SYS_socket, Rule::NoneOf(0, &[UNIX]), refused);
            calls.refuse(libc::SYS_socket, WITHOUT_CONNECTION, refused);
            calls.refuse(libc::SYS_connect, Rule::Always, refused);
        }
        // The filter cannot tell to what kind of socket a `connect` belongs, so Unix sockets can only be made in pairs.
        SandboxNetwork::Host | SandboxNetwork::LoopbackOnly => {
            calls.refuse(libc::SYS_socket, Rule::NoneOf(0, &INTERNET), refused);
        }
    }
    calls.to_filter()
}

#[cfg(test)]
mod tests {
    use crate::landlock_plan::LandlockFiles;

    #[cfg(target_arch = "x86_64")]
    use super::program::X32_BIT;
    use super::program::{AND, ARCHITECTURE, JUMP_IF_ANY_BIT, JUMP_IF_AT_LEAST, JUMP_IF_EQUAL, LOAD, RETURN};
    use super::*;

    /// Executes a program as the kernel does, as far as the filter uses its instructions.
    fn execute(program: &[sock_filter], architecture: u32, call: c_long, arguments: [u64; 6]) -> u32 {
        let mut data = [0_u8; 64];
        data[0..4].copy_from_slice(&(call as u32).to_ne_bytes());
        data[4..8].copy_from_slice(&architecture.to_ne_bytes());
        for (number, argument) in arguments.iter().enumerate() {
            data[16 + 8 * number..][..8].copy_from_slice(&argument.to_ne_bytes());
        }
        let (mut register, mut at) = (0_u32, 0_usize);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            let jump = |condition: bool| usize::from(if condition { jt } else { jf });
            match code {
                LOAD => register = u32::from_ne_bytes(data[k as usize..][..4].try_into().unwrap()),
                AND => register &= k,
                JUMP_IF_EQUAL => at += jump(register == k),
                JUMP_IF_ANY_BIT => at += jump(register & k != 0),
                JUMP_IF_AT_LEAST => at += jump(register >= k),
                RETURN => return k,
                _ => panic!("unknown instruction {code}"),
            }
        }
    }

    fn verdict(network: SandboxNetwork, call: c_long, arguments: &[u64]) -> u32 {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        let verdict = execute(&filter(network, Refusal::Fails), ARCHITECTURE, call, all);
        // The kernel asks about the same calls that fail otherwise, except for the quiet ones.
        let reported = execute(&filter(network, Refusal::IsReported), ARCHITECTURE, call, all);
        let is_told = verdict == FAILS && !QUIETLY_REFUSED.contains(&call) && call != libc::SYS_seccomp;
        assert_eq!(reported, if is_told { libc::SECCOMP_RET_USER_NOTIF } else { verdict });
        verdict
    }

    const ALLOWED: u32 = libc::SECCOMP_RET_ALLOW;
    const NETWORKS: [SandboxNetwork; 3] = [SandboxNetwork::Host, SandboxNetwork::None, SandboxNetwork::LoopbackOnly];
    /// The kernel ignores the upper half of an argument that is an `int`, so it must not change a verdict.
    const GARBAGE: [u64; 4] = [0, 1 << 32, 0x5A5A_5A5A << 32, 0xFFFF_FFFF << 32];

    #[test]
    fn a_filter_fits_into_the_kernel_and_every_jump_stays_inside() {
        for (network, refusal) in
            NETWORKS.into_iter().flat_map(|network| [(network, Refusal::Fails), (network, Refusal::IsReported)])
        {
            let program = filter(network, refusal);
            assert!(program.len() < 256, "a jump could be too far");
            for (index, step) in program.iter().enumerate() {
                assert!(index + 1 + usize::from(step.jt.max(step.jf)) < program.len() || step.code == RETURN);
            }
            assert_eq!(program.last().map(|last| last.code), Some(RETURN));
        }
        for files in [LandlockFiles::ReadEverything, LandlockFiles::ReadSome(Vec::new())] {
            assert!(filter_without_namespaces(&files).len() < 256);
        }
    }

    #[test]
    fn calls_that_lead_out_are_refused_and_ordinary_ones_are_not() {
        for network in NETWORKS {
            for call in ALWAYS_REFUSED.iter().map(|(call, _)| call).chain(QUIETLY_REFUSED) {
                assert_eq!(verdict(network, *call, &[]), FAILS, "{call}");
                assert_eq!(verdict(network, *call, &[u64::MAX; 6]), FAILS, "{call}");
            }
            assert_eq!(verdict(network, libc::SYS_clone3, &[]), NOT_IMPLEMENTED);
            for garbage in GARBAGE {
                assert_eq!(verdict(network, libc::SYS_prlimit64, &[garbage]), ALLOWED);
                assert_eq!(verdict(network, libc::SYS_prlimit64, &[1 | garbage]), FAILS);
                // F_SETLEASE, and F_SETLK.
                assert_eq!(verdict(network, libc::SYS_fcntl, &[3, 1024 | garbage]), FAILS);
                assert_eq!(verdict(network, libc::SYS_fcntl, &[3, 6 | garbage]), ALLOWED);
                // A filter that asks nobody can only refuse more.
                assert_eq!(verdict(network, libc::SYS_seccomp, &[1, 1 | garbage]), ALLOWED);
                assert_eq!(verdict(network, libc::SYS_seccomp, &[1, 9 | garbage]), FAILS);
            }
            for call in [libc::SYS_read, libc::SYS_openat, libc::SYS_execve, libc::SYS_bind, libc::SYS_accept4] {
                assert_eq!(verdict(network, call, &[u64::MAX; 6]), ALLOWED, "{call}");
            }
        }
    }

    #[test]
    fn calls_of_another_calling_convention_never_get_through() {
        let program = filter(SandboxNetwork::None, Refusal::Fails);
        for architecture in [0, 0x4000_0003, 0xC000_003E ^ 1, ARCHITECTURE ^ 0x8000_0000] {
            assert_eq!(execute(&program, architecture, libc::SYS_read, [0; 6]), libc::SECCOMP_RET_KILL_PROCESS);
        }
        #[cfg(target_arch = "x86_64")]
        for call in [libc::SYS_read, libc::SYS_ptrace, 512, 547] {
            let x32 = call | c_long::from(X32_BIT);
            assert_eq!(execute(&program, ARCHITECTURE, x32, [0; 6]), NOT_IMPLEMENTED);
        }
    }

    #[test]
    fn each_kind_of_namespace_is_refused_alone_and_together_with_other_flags() {
        let kinds = (0..32).map(|bit| 1_u32 << bit).filter(|bit| NAMESPACES & bit != 0);
        for flag in kinds {
            for rest in [0, libc::SIGCHLD as u64, libc::CLONE_VM as u64, u64::MAX ^ u64::from(NAMESPACES)] {
                for garbage in GARBAGE {
                    let flags = u64::from(flag) | rest | garbage;
                    assert_eq!(verdict(SandboxNetwork::None, libc::SYS_clone, &[flags]), FAILS, "{flags:x}");
                    assert_eq!(verdict(SandboxNetwork::None, libc::SYS_unshare, &[flags]), FAILS, "{flags:x}");
                }
            }
        }
        assert_eq!(verdict(SandboxNetwork::None, libc::SYS_unshare, &[u64::from(TIME_NAMESPACE)]), FAILS);
        // A thread, and `fork`. The signal of `clone` can have the bit that means a namespace for `unshare`.
        for flags in [0x003D_0F00, 17, 0x0120_0011, 0x80] {
            assert_eq!(verdict(SandboxNetwork::None, libc::SYS_clone, &[flags]), ALLOWED, "{flags:x}");
        }
        assert_eq!(verdict(SandboxNetwork::None, libc::SYS_unshare, &[libc::CLONE_FILES as u64]), ALLOWED);
    }

    #[test]
    fn faked_terminal_input_is_refused_whatever_the_upper_half_is() {
        for garbage in GARBAGE {
            for request in REFUSED_TERMINAL_REQUESTS {
                let arguments = [0, u64::from(request) | garbage];
                assert_eq!(verdict(SandboxNetwork::Host, libc::SYS_ioctl, &arguments), FAILS);
            }
            // TIOCGWINSZ, and one that has the refused number in its upper half.
            assert_eq!(verdict(SandboxNetwork::Host, libc::SYS_ioctl, &[0, 0x5413 | garbage]), ALLOWED);
        }
        assert_eq!(verdict(SandboxNetwork::Host, libc::SYS_ioctl, &[0, 0x5412 << 32]), ALLOWED);
    }

    /// Which sockets can be made: every family, every type with every flag, and any upper half.
    #[test]
    fn only_the_sockets_of_the_network_can_be_made() {
        let flags = [0, libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK].map(|flags| flags as u64);
        for network in NETWORKS {
            for family in 0..64_u64 {
                for kind in 0..16_u64 {
                    for argument in flags.iter().flat_map(|flags| GARBAGE.map(|garbage| kind | flags | garbage)) {
                        let is_unix = family == u64::from(UNIX);
                        let needs_connection =
                            kind == libc::SOCK_STREAM as u64 || kind == libc::SOCK_SEQPACKET as u64;
                        let is_internet = INTERNET.map(u64::from).contains(&family);
                        let pair = is_unix && needs_connection;
                        let single = if network == SandboxNetwork::None { pair } else { is_internet };
                        let expected = |allowed: bool| if allowed { ALLOWED } else { FAILS };
                        for garbage in GARBAGE {
                            let arguments = [family | garbage, argument];
                            let made = verdict(network, libc::SYS_socket, &arguments);
                            assert_eq!(made, expected(single), "{network:?} {arguments:x?}");
                            assert_eq!(verdict(network, libc::SYS_socketpair, &arguments), expected(pair));
                        }
                    }
                }
            }
        }
        assert_eq!(verdict(SandboxNetwork::None, libc::SYS_connect, &[3]), FAILS);
        assert_eq!(verdict(SandboxNetwork::Host, libc::SYS_connect, &[3]), ALLOWED);
        assert_eq!(verdict(SandboxNetwork::LoopbackOnly, libc::SYS_connect, &[3]), ALLOWED);
    }

    #[test]
    fn without_namespaces_a_command_changes_no_attributes_and_no_other_process() {
        let (all, some) = (LandlockFiles::ReadEverything, LandlockFiles::ReadSome(Vec::new()));
        let verdict = |files: &LandlockFiles, call: c_long, arguments: [u64; 2]| {
            let program = filter_without_namespaces(files);
            execute(&program, ARCHITECTURE, call, [arguments[0], arguments[1], 0, 0, 0, 0])
        };
        for garbage in GARBAGE {
            assert_eq!(verdict(&all, libc::SYS_prlimit64, [1 | garbage, 0]), FAILS);
            assert_eq!(verdict(&all, libc::SYS_prlimit64, [garbage, 0]), ALLOWED);
            assert_eq!(verdict(&all, libc::SYS_setpriority, [garbage, 7 | garbage]), FAILS);
            assert_eq!(verdict(&all, libc::SYS_setpriority, [2 | garbage, garbage]), FAILS, "all of the user");
            assert_eq!(verdict(&all, libc::SYS_setpriority, [garbage, garbage]), ALLOWED);
            // TCGETS, FIONREAD of a socket, and reading the flags of a file. Then changing the flags.
            for request in [0x5401, 0x8906, 0x8008_6601] {
                assert_eq!(verdict(&all, libc::SYS_ioctl, [0, request | garbage]), ALLOWED, "{request:x}");
            }
            assert_ne!(verdict(&all, libc::SYS_ioctl, [0, 0x4008_6602 | garbage]), ALLOWED);
            assert_eq!(verdict(&LandlockFiles::Unrestricted, libc::SYS_ioctl, [0, 0x4008_6602 | garbage]), ALLOWED);
        }
        for call in [libc::SYS_fchmodat, libc::SYS_fchownat, libc::SYS_utimensat, libc::SYS_setxattr] {
            assert_eq!(verdict(&all, call, [0, 0]), FAILS);
            assert_eq!(verdict(&LandlockFiles::Unrestricted, call, [0, 0]), ALLOWED);
        }
        assert_eq!(verdict(&all, libc::SYS_getxattr, [0, 0]), ALLOWED);
        assert_ne!(verdict(&some, libc::SYS_getxattr, [0, 0]), ALLOWED);
        assert_eq!(verdict(&some, libc::SYS_read, [0, 0]), ALLOWED);
    }
}
