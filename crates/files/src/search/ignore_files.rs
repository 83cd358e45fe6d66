//! What stands where the walker looks for rules of what to ignore. It opens these files by itself and reads them to their end, so a FIFO
//! would hold a thread for ever, and a link to an endless device, which any repository can contain, would take all memory. A directory with
//! such a thing is not entered, and the global excludes of git are not used if one of them, or a configuration of git, is such a thing. Whoever swaps a file for one at the right moment is not kept from it.

use std::fs::{self, Metadata};
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::gitignore::gitconfig_excludes_path;
use parking_lot::Mutex;

use super::{MAX_BRACES, RIPGREP_IGNORE, SearchEnd, SearchFailure, has_too_many_braces};

/// Far more than anybody writes.
const LARGEST: u64 = 1 << 20;
/// Each line becomes an expression, which can take 10 KB.
const MOST_LINES: usize = 10_000;
/// What the first line of a file that says where something is may take.
const LONGEST_LINE: u64 = 8 << 10;

/// Directories that were left out of a search, as its errors.
#[derive(Clone, Debug, Default)]
pub(super) struct LeftOut(Arc<Mutex<SearchEnd>>);

impl LeftOut {
    /// Whether a directory can be entered. One that cannot is noted.
    pub(super) fn admits(&self, directory: &Path) -> bool {
        let Some(path) = unreadable(directory) else { return true };
        self.note(path, REFUSAL);
        false
    }

    /// Notes a file that is not used.
    pub(super) fn note(&self, path: PathBuf, why: &str) {
        self.0.lock().note(SearchFailure { path, text: why.to_owned() });
    }

    /// What was noted since the last time.
    pub(super) fn take(&self) -> SearchEnd {
        std::mem::take(&mut self.0.lock())
    }
}

/// Why nothing below a directory is searched.
pub(super) const REFUSAL: &str = "not an ordinary file of at most 1 MiB and 10,000 lines with at most 1,000 braces each, so its directory is not searched; remove it or search without ignore files";

/// Why a search goes without the global excludes of git.
pub(super) const GLOBAL_REFUSAL: &str = "not an ordinary file of at most 1 MiB, or a list of excludes with more than 10,000 lines or with more than 1,000 braces in a line, so the global excludes of git are not used; correct the file or search without ignore files";

/// `makedev(1, 3)`: `/dev/null`, by which people say that there is no configuration.
const NULL_DEVICE: u64 = 0x103;

/// The first of git's own files that must not be read: its configurations for the user and for the machine, which the walker reads to learn
/// where the global excludes are, and then these themselves.
pub(super) fn unreadable_of_git() -> Option<PathBuf> {
    git_configurations().find(is_configuration_trap).or_else(|| gitconfig_excludes_path().filter(is_trap))
}

/// Where the walker looks for configurations of git.
fn git_configurations() -> impl Iterator<Item = PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = std::env::home_dir();
    let user_configurations = variable("XDG_CONFIG_HOME").or_else(|| home.as_ref().map(|home| home.join(".config")));
    let of_machine = variable("GIT_CONFIG_SYSTEM").unwrap_or_else(|| PathBuf::from("/etc/gitconfig"));
    [
        variable("GIT_CONFIG_GLOBAL"),
        home.map(|home| home.join(".gitconfig")),
        user_configurations.map(|directory| directory.join("git/config")),
        Some(of_machine),
    ]
    .into_iter()
    .flatten()
}

fn is_configuration_trap(path: &PathBuf) -> bool {
    let is_null = |found: &Metadata| found.file_type().is_char_device() && found.rdev() == NULL_DEVICE;
    fs::metadata(path).is_ok_and(|found| !found.is_dir() && !is_readable(&found) && !is_null(&found))
}

/// The first thing in a directory that looks like an ignore file and must not be read.
pub(super) fn unreadable(directory: &Path) -> Option<PathBuf> {
    let own = [".gitignore", ".ignore", RIPGREP_IGNORE].into_iter().map(|name| directory.join(name)).find(is_trap);
    own.or_else(|| unreadable_exclude(&directory.join(".git")))
}

/// The same for what the repository itself excludes, which may be elsewhere.
fn unreadable_exclude(git: &Path) -> Option<PathBuf> {
    let found = fs::metadata(git).ok()?;
    if found.is_dir() {
        return Some(git.join("info/exclude")).filter(is_trap);
    }
    if !is_readable(&found) {
        return Some(git.to_owned());
    }
    let git_directory = PathBuf::from(first_line(git)?.strip_prefix("gitdir: ")?);
    let pointer = git_directory.join("commondir");
    if is_trap(&pointer) {
        return Some(pointer);
    }
    let common = git_directory.join(first_line(&pointer)?);
    Some(common.join("info/exclude")).filter(is_trap)
}

fn is_trap(path: &PathBuf) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_dir() && (!is_readable(&found) || costs_too_much(path, &found)))
}

/// Whether it has too many lines, or a line with too many braces.
fn costs_too_much(path: &Path, found: &Metadata) -> bool {
    // Most are shorter than that many braces, and need not be read twice.
    if found.len() <= MAX_BRACES as u64 {
        return false;
    }
    let Ok(text) = fs::File::open(path).and_then(|file| {
        let mut text = Vec::new();
        file.take(LARGEST).read_to_end(&mut text).map(|_| text)
    }) else {
        return false;
    };
    let mut lines = 0;
    text.split(|byte| *byte == b'\n').any(|line| {
        lines += 1;
        lines > MOST_LINES + 1 || has_too_many_braces(line)
    })
}

fn is_readable(found: &Metadata) -> bool {
    found.is_file() && found.len() <= LARGEST
}

fn first_line(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(LONGEST_LINE).read_to_end(&mut bytes).ok()?;
    String::from_utf8(bytes).ok()?.lines().next().map(str::to_owned)
}
