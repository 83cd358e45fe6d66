//! Makes the text of `--version`: the version of the package, and the commit it was built from if that can be found out.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Variable that names the commit if the sources are neither a git checkout nor a git archive, for builders of packages.
const COMMIT_VARIABLE: &str = "EXEC_SERVER_COMMIT";

/// File that holds the commit in an archive that `git archive` has made, and a placeholder in all other copies.
const ARCHIVED_COMMIT: &str = "archived-commit.txt";

/// Digits of the commit that `--version` shows.
const COMMIT_DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={ARCHIVED_COMMIT}");
    println!("cargo::rerun-if-env-changed={COMMIT_VARIABLE}");
    let package = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let version = match from_variable().or_else(from_archive).or_else(from_git) {
        Some(commit) => format!("{package} ({commit})"),
        None => package,
    };
    println!("cargo::rustc-env=EXEC_SERVER_VERSION={version}");
}

fn from_variable() -> Option<String> {
    std::env::var(COMMIT_VARIABLE).ok().map(|commit| commit.trim().to_owned()).filter(|commit| !commit.is_empty())
}

fn from_archive() -> Option<String> {
    let commit = std::fs::read_to_string(ARCHIVED_COMMIT).ok()?.trim().to_owned();
    let is_commit = commit.len() >= COMMIT_DIGITS && commit.chars().all(|c| c.is_ascii_hexdigit());
    is_commit.then(|| commit[..COMMIT_DIGITS].to_owned())
}

fn from_git() -> Option<String> {
    // If the sources were unpacked inside another repository, its commit says nothing about them.
    let top = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != Path::new("../..").canonicalize().ok()? {
        return None;
    }
    watch_commits();
    git(&["rev-parse", "HEAD"]).map(|commit| commit.chars().take(COMMIT_DIGITS).collect())
}

/// Makes cargo run this script again when another commit is checked out. The log of HEAD, which each worktree has for itself, changes only
/// then. Without such a log, the files to watch are HEAD, the branch, and the file that may hold the branch instead. Only files that exist
/// are named, because cargo takes a missing file for a changed one.
fn watch_commits() {
    let path_of =
        |name: &str| git(&["rev-parse", "--git-path", name]).map(PathBuf::from).filter(|path| path.exists());
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    let watched: Vec<PathBuf> = match path_of("logs/HEAD") {
        Some(log) => vec![log],
        None => {
            [Some("HEAD"), branch.as_deref(), Some("packed-refs")].into_iter().flatten().filter_map(path_of).collect()
        }
    };
    for path in watched {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
