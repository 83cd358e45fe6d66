//! Makes the text of `--version`: the version of the package, and the commit it was built from if that can be found out.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the commit where neither git nor an archive does, for whoever builds a package.
const COMMIT_VARIABLE: &str = "EXEC_SERVER_COMMIT";

/// Holds the commit in an archive that was made by `git archive`, and a placeholder elsewhere.
const ARCHIVED_COMMIT: &str = "archived-commit.txt";

/// Digits of a commit that are shown.
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
    // Sources that were unpacked inside a repository of somebody else do not belong to its commits.
    let top = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != Path::new("../..").canonicalize().ok()? {
        return None;
    }
    watch_commits();
    git(&["rev-parse", "HEAD"]).map(|commit| commit.chars().take(COMMIT_DIGITS).collect())
}

/// Makes cargo run this script again when another commit is checked out. The log of HEAD, which each worktree has for itself, changes then
/// and at no other time. Without such a log these are HEAD, the branch, and the file that may hold the branch instead. Cargo takes a file
/// that does not exist for one that has changed, so only those that exist are named.
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
