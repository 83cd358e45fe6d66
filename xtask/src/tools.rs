//! Installs the programs that the chores need: Debian packages with apt-get, and the test runner with cargo. So no
//! test has to be skipped because a program is missing.

use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::step::{cargo, run};

/// Programs that tests or tidy start, each with the Debian package that has it.
const PROGRAMS: &[(&str, &str)] = &[
    ("bash", "bash"),
    ("curl", "curl"),
    ("git", "git"),
    ("node", "nodejs"),
    ("openssl", "openssl"),
    ("perl", "perl-base"),
    ("protoc", "protobuf-compiler"),
    ("python3", "python3"),
    ("setsid", "util-linux"),
    ("sh", "dash"),
    ("ssh", "openssh-client"),
    ("ssh-keygen", "openssh-client"),
    ("sshd", "openssh-server"),
    ("unshare", "util-linux"),
    ("vi", "vim-tiny"),
    ("zsh", "zsh"),
];

/// The program that runs the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runner {
    /// Runs each test in a process of its own, with a deadline.
    Nextest,
    /// Part of every Rust installation. It has no deadline for a test.
    CargoTest,
}

/// The folder of programs such as `sshd`. It is not in the `PATH` of every user.
const SYSTEM_PROGRAM_FOLDER: &str = "/usr/sbin";

/// Installs those of [`PROGRAMS`] that are missing. If it cannot, the error says what to install.
pub(crate) fn install_programs_for_tests() -> Result<()> {
    install_missing_programs(PROGRAMS)
}

/// Installs those of `programs`, each given with its Debian package, that are missing. If it cannot, the error says
/// what to install.
pub(crate) fn install_missing_programs(programs: &[(&'static str, &'static str)]) -> Result<()> {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":");
    path.push(SYSTEM_PROGRAM_FOLDER);
    let packages = missing_packages(programs, &path);
    if packages.is_empty() { Ok(()) } else { install_packages(&packages) }
}

/// Installs Debian packages. If this process may not install them, the error says which to install.
pub(crate) fn install_packages(packages: &[&str]) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let wanted = packages.join(" ");
    if !is_root()? || !is_on_path("apt-get", &path) {
        bail!("programs are missing; install them with `apt-get install {wanted}` as root");
    }
    println!("    installing {wanted}");
    let install = || run(apt_get("install").args(["-y", "--no-install-recommends"]).args(packages));
    // The lists of packages are updated only if the present lists do not suffice.
    if install().is_err() {
        run(&mut apt_get("update"))?;
        install()?;
    }
    Ok(())
}

/// Nextest, which is installed if it is missing, or `cargo test` if nextest cannot be installed.
pub(crate) fn test_runner() -> Runner {
    let is_there = || cargo(&["nextest", "--version"]).output().is_ok_and(|run| run.status.success());
    if is_there() {
        return Runner::Nextest;
    }
    println!("    installing cargo-nextest");
    match run(&mut cargo(&["install", "cargo-nextest", "--locked"])) {
        Ok(()) if is_there() => Runner::Nextest,
        _ => {
            println!(
                "    cargo-nextest cannot be installed, so `cargo test` runs the tests, without a deadline on each"
            );
            Runner::CargoTest
        }
    }
}

fn apt_get(verb: &str) -> Command {
    let mut command = Command::new("apt-get");
    command.arg(verb).env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn missing_packages<'a>(programs: &[(&str, &'a str)], path: &OsStr) -> Vec<&'a str> {
    let missing = programs.iter().filter(|(program, _)| !is_on_path(program, path));
    let mut packages: Vec<&str> = missing.map(|(_, package)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn is_on_path(program: &str, path: &OsStr) -> bool {
    std::env::split_paths(path).any(|folder| is_executable(&folder.join(program)))
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Whether this process runs as root. The folder of a process in `/proc` belongs to its effective user.
fn is_root() -> Result<bool> {
    let own = std::fs::metadata("/proc/self").context("cannot read /proc/self; mount /proc")?;
    Ok(own.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_on_the_path_is_missing() {
        let programs = [("sh", "dash"), ("no-such-program-anywhere", "its-package")];
        let path = std::env::var_os("PATH").unwrap();
        assert_eq!(missing_packages(&programs, &path), ["its-package"]);
        assert_eq!(missing_packages(&programs, OsStr::new("")), ["dash", "its-package"]);
    }

    #[test]
    fn a_file_that_cannot_be_executed_and_a_folder_are_no_programs() {
        assert!(!is_executable(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml").as_path()));
        assert!(!is_executable(Path::new(env!("CARGO_MANIFEST_DIR"))));
    }
}
