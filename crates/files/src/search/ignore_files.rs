//! Reading the files that say what a search leaves out: ignore files, and where git keeps its own. Any tree can hold something else in the
//! place of such a file. A FIFO, or a file with a lease, would hold a thread that opens it and waits; a link to an endless device would
//! take all memory. So these files are opened without waiting, only regular files are read, and only up to a limit. Which directory they
//! count for is decided in `rules`.

use std::fs::{self, Metadata};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use grep_matcher::{Captures as _, Matcher as _};
use grep_regex::RegexMatcher;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::run::open;
use super::{SearchSummary, has_too_many_braces};

/// Bytes of an ignore file: far more than anybody writes.
const LARGEST: usize = 1 << 20;
/// Each line becomes an expression, which can take 10 KB.
const MOST_LINES: usize = 10_000;
/// `makedev(1, 3)`: `/dev/null`, by which people say that there is no file.
const NULL_DEVICE: u64 = 0x103;

/// A file that should say what to leave out, and cannot be read without waiting or within the limits.
#[derive(Debug)]
pub(super) struct UnreadableRules {
    pub(super) path: PathBuf,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    /// It is something else than a regular file, too large or too costly.
    NotOrdinary,
    /// The directories above have so many rules that these would be too many.
    TooManyInForce,
    /// The kernel asks another program first whether the file may be opened, which can take 45 seconds.
    Leased,
}

impl UnreadableRules {
    /// The rules of this directory and those above it are too many together.
    pub(super) fn beyond_limit(directory: &Path) -> Self {
        Self { path: directory.to_owned(), cause: Cause::TooManyInForce }
    }

    /// Why nothing below the directory of the file is searched.
    pub(super) fn why_directory_is_left_out(&self) -> &'static str {
        match self.cause {
            Cause::NotOrdinary => {
                "not an ordinary file of at most 1 MiB and 10,000 lines with at most 1,000 braces each, so its directory is not searched; remove it or search without ignore files"
            }
            Cause::TooManyInForce => {
                "the ignore files of this directory and those above it have more than 20,000 rules, so it is not searched; remove some or search without ignore files"
            }
            Cause::Leased => {
                "another program holds a lease on this file, so its directory is not searched; search again later or without ignore files"
            }
        }
    }

    /// Why a search goes without the global excludes of git.
    pub(super) fn why_global_excludes_are_unused(&self) -> &'static str {
        match self.cause {
            Cause::NotOrdinary | Cause::TooManyInForce => {
                "not an ordinary file of at most 1 MiB, or a list of excludes with more than 10,000 lines or with more than 1,000 braces in a line, so the global excludes of git are not used; correct the file or search without ignore files"
            }
            Cause::Leased => {
                "another program holds a lease on this file, so the global excludes of git are not used; search again later or without ignore files"
            }
        }
    }
}

/// The rules of an ignore file, for paths below `directory`. There are none if the file does not exist or may not be read. A line that is
/// no rule is skipped; the first such line is noted.
pub(super) fn rules(path: &Path, directory: &Path, notes: &mut SearchSummary) -> Result<Gitignore, UnreadableRules> {
    let Some(bytes) = read(path)? else { return Ok(Gitignore::empty()) };
    if costs_too_much(&bytes) {
        return Err(UnreadableRules { path: path.to_owned(), cause: Cause::NotOrdinary });
    }
    let mut builder = GitignoreBuilder::new(directory);
    let mut first_fault = None;
    for (index, line) in utf8_lines(&bytes).trim_start_matches('\u{feff}').lines().enumerate() {
        if let Err(error) = builder.add_line(None, line) {
            first_fault.get_or_insert_with(|| format!("line {}: {error}", index + 1));
        }
    }
    let rules = builder.build().unwrap_or_else(|error| {
        first_fault.get_or_insert_with(|| error.to_string());
        Gitignore::empty()
    });
    if let Some(fault) = first_fault {
        notes.note_error(path, fault);
    }
    Ok(rules)
}

/// Where a repository with its top at `directory` keeps its own excludes. A worktree keeps them elsewhere, and its `.git` is a file
/// that says where.
pub(super) fn exclude_file(directory: &Path) -> Result<Option<PathBuf>, UnreadableRules> {
    let git = directory.join(".git");
    if git.is_dir() {
        return Ok(Some(git.join("info/exclude")));
    }
    let Some(git_directory) = first_line(&git)?.and_then(|line| line.strip_prefix("gitdir: ").map(PathBuf::from))
    else {
        return Ok(None);
    };
    let common = first_line(&git_directory.join("commondir"))?
        .map(|line| if line.starts_with('.') { git_directory.join(line) } else { PathBuf::from(line) });
    Ok(common.map(|common| common.join("info/exclude")))
}

/// The global excludes of git, for paths below `directory`: of the file that a configuration of git names, or of the usual one.
pub(super) fn global_excludes(directory: &Path, notes: &mut SearchSummary) -> Result<Gitignore, UnreadableRules> {
    let home = std::env::home_dir();
    let user_configurations = variable("XDG_CONFIG_HOME")
        .or_else(|| home.as_deref().map(|home| home.join(".config")))
        .map(|at| at.join("git"));
    let configurations = [
        variable("GIT_CONFIG_GLOBAL"),
        home.as_deref().map(|home| home.join(".gitconfig")),
        user_configurations.as_deref().map(|at| at.join("config")),
        Some(variable("GIT_CONFIG_SYSTEM").unwrap_or_else(|| PathBuf::from("/etc/gitconfig"))),
    ];
    for configuration in configurations.into_iter().flatten() {
        let named = read(&configuration)?.and_then(|bytes| named_excludes_file(&bytes, home.as_deref()));
        if let Some(named) = named {
            return rules(&named, directory, notes);
        }
    }
    match user_configurations {
        Some(at) => rules(&at.join("ignore"), directory, notes),
        None => Ok(Gitignore::empty()),
    }
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// What a configuration of git says for `core.excludesFile`, found as ripgrep finds it.
fn named_excludes_file(configuration: &[u8], home: Option<&Path>) -> Option<PathBuf> {
    let setting = RegexMatcher::new(r#"(?im-u)^\s*excludesfile\s*=\s*"?\s*(\S+?)\s*"?\s*$"#).ok()?;
    let mut captures = setting.new_captures().ok()?;
    setting.captures(configuration, &mut captures).ok()?;
    let named = str::from_utf8(&configuration[captures.get(1)?]).ok()?;
    Some(PathBuf::from(match home {
        Some(home) => named.replace('~', &home.to_string_lossy()),
        None => named.to_owned(),
    }))
}

/// The content of a regular file. `None` if there is no file, or a directory, or no permission.
fn read(path: &Path) -> Result<Option<Vec<u8>>, UnreadableRules> {
    let unreadable = |cause| Err(UnreadableRules { path: path.to_owned(), cause });
    // Even an open that does not wait can be an act of its own for a device, so nothing else than a file is opened on purpose.
    match fs::metadata(path) {
        Err(_) => return Ok(None),
        Ok(found) if found.is_dir() || is_null_device(&found) => return Ok(None),
        Ok(found) if !found.is_file() => return unreadable(Cause::NotOrdinary),
        Ok(_) => {}
    }
    let file = match open(path) {
        Ok(Some(file)) => file,
        Ok(None) => return unreadable(Cause::NotOrdinary),
        Err(error) if error.kind() == ErrorKind::WouldBlock => return unreadable(Cause::Leased),
        Err(_) => return Ok(None),
    };
    let mut bytes = Vec::new();
    match file.take(LARGEST as u64 + 1).read_to_end(&mut bytes) {
        Ok(_) if bytes.len() > LARGEST => unreadable(Cause::NotOrdinary),
        Ok(_) => Ok(Some(bytes)),
        Err(_) => Ok(None),
    }
}

fn is_null_device(found: &Metadata) -> bool {
    found.file_type().is_char_device() && found.rdev() == NULL_DEVICE
}

/// Whether it has too many lines, or a line with too many braces.
fn costs_too_much(text: &[u8]) -> bool {
    let mut lines = text.split(|byte| *byte == b'\n').enumerate();
    lines.any(|(index, line)| index > MOST_LINES || has_too_many_braces(line))
}

fn first_line(path: &Path) -> Result<Option<String>, UnreadableRules> {
    let bytes = read(path)?.unwrap_or_default();
    Ok(utf8_lines(&bytes).lines().next().map(str::to_owned))
}

/// The lines before the first one that is not UTF-8. As ripgrep, a search uses no more of a file.
fn utf8_lines(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap_or_else(|error| {
        let valid = &bytes[..error.valid_up_to()];
        let whole_lines = valid.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        str::from_utf8(&valid[..whole_lines]).unwrap_or_default()
    })
}
