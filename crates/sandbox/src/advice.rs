//! Explains why a launcher could not make a sandbox on this machine. The kernel only says "not permitted"; the settings that
//! are usually behind it can be read, and then the explanation says how to change them.

use std::fs;

use crate::message::{BuildFailure, BuildStep};

/// A sentence for people: why the sandbox could not be made and, if a known setting of the machine is the reason, the command that changes
/// the setting.
pub(crate) fn explain_failed_step(failure: &BuildFailure) -> String {
    explain(failure, &MachineSettings::read())
}

/// A sentence for people about namespaces of one command that could not be made, if a known limit of the machine is the reason.
pub fn explain_missing_namespaces(errno: i32) -> Option<String> {
    match errno {
        libc::ENOSPC => explain_full(&[NamespaceKind::Pid, NamespaceKind::Mount], &MachineSettings::read()),
        libc::EAGAIN => Some(TOO_FEW_PROCESSES.to_owned()),
        _ => None,
    }
}

const TOO_FEW_PROCESSES: &str = "the sandbox could not start a further process; raise the limit of processes of this user (`ulimit -u`), or that of the container";

/// The settings that decide whether namespaces can be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct MachineSettings {
    /// How many namespaces of each kind there may be: the settings `user.max_…_namespaces`.
    namespace_limits: Vec<(NamespaceKind, u64)>,
    /// `kernel.unprivileged_userns_clone` is 0, a setting of Debian and Arch.
    user_namespaces_only_for_root: bool,
    /// `kernel.apparmor_restrict_unprivileged_userns` is 1, a setting of Ubuntu.
    restricted_by_apparmor: bool,
    /// The AppArmor profile of this process. None if it has none.
    apparmor_profile: Option<String>,
    /// This process has a seccomp filter, as in most containers.
    has_filter: bool,
    is_root: bool,
}

/// The kinds of namespaces that a sandbox is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamespaceKind {
    User,
    Mount,
    Ipc,
    Network,
    Pid,
}

impl NamespaceKind {
    const ALL: [Self; 5] = [Self::User, Self::Mount, Self::Ipc, Self::Network, Self::Pid];

    /// The kinds that a step makes.
    fn of_step(step: BuildStep) -> &'static [Self] {
        match step {
            BuildStep::Namespaces => &[Self::User, Self::Mount, Self::Ipc, Self::Network],
            BuildStep::UserMapping => &[Self::User],
            BuildStep::DeviceFiles => &[Self::Pid],
            _ => &[],
        }
    }

    /// The name of the setting that limits their number, and the name for people.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::User => ("max_user_namespaces", "user"),
            Self::Mount => ("max_mnt_namespaces", "mount"),
            Self::Ipc => ("max_ipc_namespaces", "IPC"),
            Self::Network => ("max_net_namespaces", "network"),
            Self::Pid => ("max_pid_namespaces", "PID"),
        }
    }

    fn limit(self) -> Option<u64> {
        fs::read_to_string(format!("/proc/sys/user/{}", self.names().0)).ok()?.trim().parse().ok()
    }
}

/// A limit of namespaces that is large enough for many sandboxes.
const MANY_NAMESPACES: u64 = 15_000;

/// Explains why the kernel had no room for namespaces of these kinds.
fn explain_full(made: &[NamespaceKind], settings: &MachineSettings) -> Option<String> {
    let limits = settings.namespace_limits.iter().filter(|(kind, _)| made.contains(kind));
    let disabled: Vec<NamespaceKind> =
        limits.clone().filter(|(_, limit)| *limit == 0).map(|(kind, _)| *kind).collect();
    if !disabled.is_empty() {
        let kinds: Vec<&str> = disabled.iter().map(|kind| kind.names().1).collect();
        let changes: Vec<String> =
            disabled.iter().map(|kind| format!("user.{}={MANY_NAMESPACES}", kind.names().0)).collect();
        return Some(format!(
            "{} namespaces are disabled on this machine; enable them as root with `sysctl -w {}`",
            kinds.join(" and "),
            changes.join(" ")
        ));
    }
    // The kernel does not say which limit is reached. The lowest one is the most likely.
    let (kind, limit) = limits.min_by_key(|(_, limit)| *limit).copied().or(made.first().map(|kind| (*kind, 0)))?;
    let (setting, name) = kind.names();
    let more = limit.saturating_mul(2).max(MANY_NAMESPACES);
    Some(format!(
        "the limit of {name} namespaces is reached; raise it as root with `sysctl -w user.{setting}={more}`"
    ))
}

impl MachineSettings {
    fn read() -> Self {
        let setting = |path: &str, value: &str| fs::read_to_string(path).is_ok_and(|text| text.trim() == value);
        Self {
            namespace_limits: NamespaceKind::ALL.into_iter().filter_map(|kind| Some((kind, kind.limit()?))).collect(),
            user_namespaces_only_for_root: setting("/proc/sys/kernel/unprivileged_userns_clone", "0"),
            restricted_by_apparmor: setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
            apparmor_profile: fs::read_to_string("/proc/self/attr/apparmor/current")
                .ok()
                .map(|profile| profile.trim().to_owned())
                .filter(|profile| !profile.is_empty() && profile != "unconfined"),
            has_filter: fs::read_to_string("/proc/self/status").is_ok_and(|status| {
                status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
            }),
            is_root: rustix::process::geteuid().is_root(),
        }
    }
}

fn explain(failure: &BuildFailure, settings: &MachineSettings) -> String {
    let explained = match failure.errno {
        libc::ENOSPC => explain_full(NamespaceKind::of_step(failure.step), settings),
        libc::EPERM | libc::EACCES => explain_forbidden(failure.step, settings),
        libc::EAGAIN => {
            let makes_process =
                matches!(failure.step, BuildStep::UserMapping | BuildStep::DeviceFiles | BuildStep::Confinement);
            makes_process.then(|| TOO_FEW_PROCESSES.to_owned())
        }
        libc::EINVAL => makes_namespaces(failure.step).then(|| {
            "the kernel of this machine has no user namespaces; boot a kernel with CONFIG_USER_NS".to_owned()
        }),
        _ => None,
    };
    explained.unwrap_or_else(|| explain_step(failure))
}

fn makes_namespaces(step: BuildStep) -> bool {
    matches!(step, BuildStep::Namespaces | BuildStep::UserMapping)
}

/// Explains why the kernel did not permit a step.
fn explain_forbidden(step: BuildStep, settings: &MachineSettings) -> Option<String> {
    // AppArmor may allow a namespace, but give it no capabilities. Then the first step fails that needs one: the mapping, the loopback
    // interface or the first mount.
    let may_lack_capabilities = makes_namespaces(step) || matches!(step, BuildStep::Loopback | BuildStep::BaseTree);
    // This step makes a user namespace inside another one, which counts as unprivileged also if the server runs as root.
    let is_unprivileged = !settings.is_root || step == BuildStep::UserMapping;
    if makes_namespaces(step) && settings.user_namespaces_only_for_root && is_unprivileged {
        return Some(
            "unprivileged user namespaces are switched off on this machine; switch them on as root with `sysctl -w kernel.unprivileged_userns_clone=1`"
                .to_owned(),
        );
    }
    if may_lack_capabilities && settings.restricted_by_apparmor && !settings.is_root {
        return Some(
            "AppArmor restricts user namespaces on this machine; allow them as root with `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or give this program an AppArmor profile with the rule `userns`"
                .to_owned(),
        );
    }
    if may_lack_capabilities && let Some(profile) = &settings.apparmor_profile {
        return Some(format!(
            "the AppArmor profile {profile} of the server forbids making sandboxes; run the server unconfined, or give the profile the rules `userns`, `mount`, `umount` and `pivot_root`"
        ));
    }
    (makes_namespaces(step) && settings.has_filter).then(|| {
        "a seccomp filter, probably that of a container, forbids new namespaces; start the container with `--security-opt seccomp=unconfined`, or run the server outside of it"
            .to_owned()
    })
}

/// Names the step and the error, and says what to do as far as the error alone tells.
fn explain_step(failure: &BuildFailure) -> String {
    let error = std::io::Error::from_raw_os_error(failure.errno);
    let about = if failure.detail.is_empty() { String::new() } else { format!(" {}", failure.detail) };
    let is_refused = matches!(failure.errno, libc::EPERM | libc::EACCES | libc::ENOSYS);
    if failure.step == BuildStep::Confinement && is_refused {
        return format!(
            "a command cannot be confined{about} ({error}), probably because a seccomp filter around the server forbids it; run the server outside of its container, or with a filter that allows it"
        );
    }
    if failure.step == BuildStep::Mount && failure.errno == libc::EACCES {
        return format!(
            "the sandbox could not mount{about}: {error}; a directory above it is closed to the user of the server, also if that is root, because in a sandbox root has no rights in directories of other users"
        );
    }
    if failure.errno == libc::ENOSYS && failure.step == BuildStep::Landlock {
        return "the kernel of this machine has no Landlock, or a seccomp filter around this process forbids it; use Linux 6.12 or newer"
            .to_owned();
    }
    if failure.errno == libc::ENOSYS {
        return "the kernel of this machine, or a seccomp filter around this process, lacks a system call that a sandbox needs; use Linux 5.12 or newer"
            .to_owned();
    }
    let step = match failure.step {
        BuildStep::Namespaces => "make namespaces",
        BuildStep::UserMapping => "map the user into a namespace",
        BuildStep::BaseTree => "make the file tree",
        BuildStep::Mount => "mount",
        BuildStep::DeviceFiles => "make /dev and /proc",
        BuildStep::ChangeRoot => "change the root directory",
        BuildStep::Capabilities => "give up capabilities",
        BuildStep::Loopback => "set up the loopback interface",
        BuildStep::Landlock => "make the rules of Landlock",
        BuildStep::Confinement => "confine a command",
    };
    format!("the sandbox could not {step}{about}: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(step: BuildStep, errno: i32) -> BuildFailure {
        BuildFailure { step, errno, detail: String::new() }
    }

    #[test]
    fn each_setting_is_named_with_the_command_that_changes_it() {
        let none = MachineSettings::default();
        for (step, errno, settings, words) in [
            (
                BuildStep::Namespaces,
                libc::ENOSPC,
                MachineSettings { namespace_limits: vec![(NamespaceKind::User, 0)], ..none.clone() },
                "sysctl -w user.max_user_namespaces=15000",
            ),
            (
                BuildStep::Namespaces,
                libc::EPERM,
                MachineSettings { user_namespaces_only_for_root: true, ..none.clone() },
                "kernel.unprivileged_userns_clone=1",
            ),
            (
                BuildStep::BaseTree,
                libc::EACCES,
                MachineSettings { restricted_by_apparmor: true, ..none.clone() },
                "kernel.apparmor_restrict_unprivileged_userns=0",
            ),
            (
                BuildStep::Namespaces,
                libc::EPERM,
                MachineSettings { has_filter: true, ..none.clone() },
                "--security-opt seccomp=unconfined",
            ),
            (
                BuildStep::UserMapping,
                libc::EPERM,
                MachineSettings { user_namespaces_only_for_root: true, is_root: true, ..none.clone() },
                "kernel.unprivileged_userns_clone=1",
            ),
            (
                BuildStep::BaseTree,
                libc::EACCES,
                MachineSettings { apparmor_profile: Some("srv (enforce)".to_owned()), ..none.clone() },
                "the AppArmor profile srv (enforce) of the server",
            ),
            (BuildStep::Namespaces, libc::EINVAL, none.clone(), "CONFIG_USER_NS"),
            (BuildStep::Mount, libc::ENOSYS, none.clone(), "Linux 5.12"),
            (BuildStep::Confinement, libc::ENOSYS, none.clone(), "a seccomp filter around the server"),
        ] {
            let text = explain(&failure(step, errno), &settings);
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn the_limit_of_namespaces_that_is_too_low_is_named() {
        let explained = |step, limits: [u64; 5]| {
            let namespace_limits = NamespaceKind::ALL.into_iter().zip(limits).collect();
            explain(&failure(step, libc::ENOSPC), &MachineSettings { namespace_limits, ..Default::default() })
        };
        for (step, limits, expected) in [
            (
                BuildStep::Namespaces,
                [9, 0, 9, 9, 0],
                "mount namespaces are disabled on this machine; enable them as root with `sysctl -w user.max_mnt_namespaces=15000`",
            ),
            (
                BuildStep::Namespaces,
                [9, 9, 0, 0, 0],
                "IPC and network namespaces are disabled on this machine; enable them as root with `sysctl -w user.max_ipc_namespaces=15000 user.max_net_namespaces=15000`",
            ),
            (
                BuildStep::DeviceFiles,
                [0, 0, 0, 0, 0],
                "PID namespaces are disabled on this machine; enable them as root with `sysctl -w user.max_pid_namespaces=15000`",
            ),
            (
                BuildStep::Namespaces,
                [900, 900, 900, 7, 1],
                "the limit of network namespaces is reached; raise it as root with `sysctl -w user.max_net_namespaces=15000`",
            ),
            (
                BuildStep::UserMapping,
                [60_000, 1, 1, 1, 1],
                "the limit of user namespaces is reached; raise it as root with `sysctl -w user.max_user_namespaces=120000`",
            ),
        ] {
            assert_eq!(explained(step, limits), expected);
        }
        let mount = explained(BuildStep::Mount, [0; 5]);
        assert_eq!(
            mount, "the sandbox could not mount: No space left on device (os error 28)",
            "no namespace is made"
        );
    }

    #[test]
    fn too_few_processes_are_named() {
        for step in [BuildStep::UserMapping, BuildStep::DeviceFiles, BuildStep::Confinement] {
            let text = explain(&failure(step, libc::EAGAIN), &MachineSettings::default());
            assert!(text.contains("ulimit -u"), "{text}");
        }
        let refused =
            BuildFailure { step: BuildStep::UserMapping, errno: libc::EIO, detail: "for commands".to_owned() };
        assert_eq!(
            explain(&refused, &MachineSettings::default()),
            "the sandbox could not map the user into a namespace for commands: Input/output error (os error 5)"
        );
    }

    #[test]
    fn a_step_that_a_setting_does_not_concern_is_not_blamed_on_it() {
        let restricted = MachineSettings { restricted_by_apparmor: true, has_filter: true, ..Default::default() };
        for step in [BuildStep::Mount, BuildStep::Landlock, BuildStep::Capabilities, BuildStep::ChangeRoot] {
            let text = explain(&failure(step, libc::EACCES), &restricted);
            assert!(!text.contains("AppArmor") && text.contains("Permission denied"), "{text}");
        }
        let text = explain(&failure(BuildStep::Landlock, libc::ENOSYS), &restricted);
        assert!(text.contains("Linux 6.12") && !text.contains("5.12"), "{text}");
    }

    #[test]
    fn other_failures_name_the_step_the_path_and_the_error() {
        let failure = BuildFailure { step: BuildStep::Mount, errno: libc::EIO, detail: "/srv/x".to_owned() };
        assert_eq!(
            explain(&failure, &MachineSettings::default()),
            "the sandbox could not mount /srv/x: Input/output error (os error 5)"
        );
    }
}
