//! Makes the text of `--version`: the version of the package, and the commit that the program is built from, if it
//! can be found.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Environment variable in which a builder of packages can name the commit, for sources that are neither a git
/// checkout nor made by `git archive`. The variable takes precedence over a commit that this script finds.
const COMMIT_VARIABLE: &str = "EXEC_SERVER_COMMIT";

/// File into which `git archive` writes the commit. In a checkout the file holds a placeholder.
const ARCHIVED_COMMIT: &str = "archived-commit.txt";

/// Digits that `--version` shows of a commit that this script finds. The value of [`COMMIT_VARIABLE`] is shown whole.
const COMMIT_DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={ARCHIVED_COMMIT}");
    println!("cargo::rerun-if-env-changed={COMMIT_VARIABLE}");
    let package = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let version = match commit_from_variable().or_else(commit_from_archive).or_else(commit_from_git) {
        Some(commit) => format!("{package} ({commit})"),
        None => package,
    };
    println!("cargo::rustc-env=EXEC_SERVER_VERSION={version}");
}

fn commit_from_variable() -> Option<String> {
    std::env::var(COMMIT_VARIABLE).ok().map(|commit| commit.trim().to_owned()).filter(|commit| !commit.is_empty())
}

fn commit_from_archive() -> Option<String> {
    let commit = std::fs::read_to_string(ARCHIVED_COMMIT).ok()?.trim().to_owned();
    let is_commit = commit.len() >= COMMIT_DIGITS && commit.chars().all(|c| c.is_ascii_hexdigit());
    is_commit.then(|| commit[..COMMIT_DIGITS].to_owned())
}

fn commit_from_git() -> Option<String> {
    // If the sources were unpacked inside another repository, the commit of that repository says nothing about them.
    let top = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != Path::new("../..").canonicalize().ok()? {
        return None;
    }
    watch_commits();
    git(&["rev-parse", "HEAD"]).map(|commit| commit.chars().take(COMMIT_DIGITS).collect())
}

/// Makes cargo run this script again when HEAD moves to another commit. Then git appends a line to the log of HEAD,
/// so cargo watches that file; each worktree has its own. If there is no such log, cargo watches HEAD, the file of
/// the branch, and `packed-refs`, in which git may keep the branch instead. Only files that exist are named, because
/// cargo takes a missing file for a changed one.
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
