//! Explains why a sandbox could not be made on this machine, and what to do about it. The kernel only says "not
//! permitted"; the settings that are usually behind it can be read.

use std::fs;

use crate::message::{BuildFailure, BuildStep};
use crate::resident::BuildError;

/// A sentence for people: why the sandbox could not be made and, if a known setting of the machine is the reason, the command that changes
/// the setting.
pub fn explain_build_error(error: &BuildError) -> String {
    match error {
        BuildError::Step(failure) => explain(failure, &MachineSettings::read()),
        BuildError::Launcher(_) => error.to_string(),
    }
}

/// The settings that decide whether namespaces can be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct MachineSettings {
    /// `user.max_user_namespaces` is 0.
    no_user_namespaces: bool,
    /// `kernel.unprivileged_userns_clone` is 0, a setting of Debian and Arch.
    user_namespaces_only_for_root: bool,
    /// `kernel.apparmor_restrict_unprivileged_userns` is 1, a setting of Ubuntu.
    restricted_by_apparmor: bool,
    /// This process has a seccomp filter, as in most containers.
    has_filter: bool,
    is_root: bool,
}

impl MachineSettings {
    fn read() -> Self {
        let setting = |path: &str, value: &str| fs::read_to_string(path).is_ok_and(|text| text.trim() == value);
        Self {
            no_user_namespaces: setting("/proc/sys/user/max_user_namespaces", "0"),
            user_namespaces_only_for_root: setting("/proc/sys/kernel/unprivileged_userns_clone", "0"),
            restricted_by_apparmor: setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
            has_filter: fs::read_to_string("/proc/self/status").is_ok_and(|status| {
                status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
            }),
            is_root: rustix::process::geteuid().is_root(),
        }
    }
}

fn explain(failure: &BuildFailure, settings: &MachineSettings) -> String {
    let error = std::io::Error::from_raw_os_error(failure.errno);
    let forbidden = matches!(failure.errno, libc::EPERM | libc::EACCES);
    let makes_namespaces = matches!(failure.step, BuildStep::Namespaces | BuildStep::UserMapping);
    // AppArmor may allow a namespace, but give it no capabilities. Then the first step fails that needs one: the mapping, the loopback
    // interface or the first mount.
    let may_lack_capabilities = makes_namespaces || matches!(failure.step, BuildStep::Loopback | BuildStep::BaseTree);
    if makes_namespaces && settings.no_user_namespaces {
        return "user namespaces are disabled on this machine; enable them as root with `sysctl -w user.max_user_namespaces=15000`"
            .to_owned();
    }
    if makes_namespaces && failure.errno == libc::ENOSPC {
        return "the limit of user namespaces is reached; raise it as root with `sysctl -w user.max_user_namespaces=15000`"
            .to_owned();
    }
    if makes_namespaces && forbidden && settings.user_namespaces_only_for_root && !settings.is_root {
        return "only root may make user namespaces on this machine; allow them as root with `sysctl -w kernel.unprivileged_userns_clone=1`"
            .to_owned();
    }
    if may_lack_capabilities && forbidden && settings.restricted_by_apparmor && !settings.is_root {
        return "AppArmor restricts user namespaces on this machine; allow them as root with `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or give this program an AppArmor profile with the rule `userns`"
            .to_owned();
    }
    if makes_namespaces && forbidden && settings.has_filter {
        return "a seccomp filter, probably that of a container, forbids new namespaces; start the container with `--security-opt seccomp=unconfined`, or run the server outside of it"
            .to_owned();
    }
    if makes_namespaces && failure.errno == libc::EINVAL {
        return "the kernel of this machine has no user namespaces; boot a kernel with CONFIG_USER_NS".to_owned();
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
    };
    let about = if failure.detail.is_empty() { String::new() } else { format!(" {}", failure.detail) };
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
                MachineSettings { no_user_namespaces: true, ..none.clone() },
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
            (BuildStep::Namespaces, libc::EINVAL, none.clone(), "CONFIG_USER_NS"),
            (BuildStep::Mount, libc::ENOSYS, none.clone(), "Linux 5.12"),
        ] {
            let text = explain(&failure(step, errno), &settings);
            assert!(text.contains(words), "{text}");
        }
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
