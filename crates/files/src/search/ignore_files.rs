//! Reading ignore files and the exclude files of git. `rules` decides to which directories their rules apply.
//!
//! A tree can contain something else under the name of an ignore file. Opening a FIFO or a file under a lease would block the thread, and
//! reading a link to an endless device would use up all memory. So these files are opened without waiting, and only regular files up to
//! a maximum size are read.

use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use grep_matcher::{Captures as _, Matcher as _};
use grep_regex::RegexMatcher;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{FileType, Statx};

use super::run::open;
use super::{SearchSummary, has_too_many_braces};
use crate::root::EnteredRoot;
use crate::stat::kind;

/// Largest ignore file or configuration of git that is read. Real ones are far smaller.
pub const MAX_FILE_BYTES: usize = 1 << 20;
/// Most lines of an ignore file. Each line becomes a regular expression, which can take 10 KB of memory.
pub const MAX_LINES: usize = 10_000;
/// Major and minor number of `/dev/null`. If an ignore file is a link to this device, or an environment
/// variable such as `GIT_CONFIG_GLOBAL` names the device, the file counts as missing.
const NULL_DEVICE: (u32, u32) = (1, 3);

/// The reason why rules cannot be used. `path` is an ignore file or a configuration of git that cannot be read
/// without waiting or within the limits, or a directory with too many rules.
#[derive(Debug)]
pub(super) struct UnreadableRules {
    pub(super) path: PathBuf,
    cause: UnreadableCause,
}

#[derive(Debug)]
enum UnreadableCause {
    /// The path is not a regular file, or the file exceeds one of the limits.
    NotOrdinaryFile,
    /// The directory and those above it have too many rules together.
    TooManyRules,
    /// Another program holds a lease on the file. A blocking open would wait until that program gives it up, for up to 45 seconds.
    Leased,
}

impl UnreadableRules {
    /// The directory and those above it have too many rules together.
    pub(super) fn too_many_rules(directory: &Path) -> Self {
        Self { path: directory.to_owned(), cause: UnreadableCause::TooManyRules }
    }

    /// The error text if a directory is not searched because of its rules.
    pub(super) fn why_directory_is_left_out(&self) -> &'static str {
        match self.cause {
            UnreadableCause::NotOrdinaryFile => {
                "not an ordinary file of at most 1 MiB and 10,000 lines with at most 1,000 braces each, so its directory is not searched; remove the file or search without ignore files"
            }
            UnreadableCause::TooManyRules => {
                "the ignore files of this directory and those above it have more than 20,000 rules, so this directory is not searched; remove some rules or search without ignore files"
            }
            UnreadableCause::Leased => {
                "another program holds a lease on this file, so its directory is not searched; search again later or without ignore files"
            }
        }
    }

    /// The error text if the search does not use the global excludes of git.
    pub(super) fn why_global_excludes_are_unused(&self) -> &'static str {
        match self.cause {
            UnreadableCause::NotOrdinaryFile | UnreadableCause::TooManyRules => {
                "not an ordinary file of at most 1 MiB, or a list of excludes with more than 10,000 lines or with more than 1,000 braces in a line, so the global excludes of git are not used; correct the file or search without ignore files"
            }
            UnreadableCause::Leased => {
                "another program holds a lease on this file, so the global excludes of git are not used; search again later or without ignore files"
            }
        }
    }
}

/// Reads the rules of an ignore file, for paths below `directory`. Empty if the file does not exist or may not be
/// read. Lines with syntax errors are skipped, and the first of them is added to the errors of `summary`.
pub(super) fn read_rules(
    inside: &EnteredRoot<'_>,
    path: &Path,
    directory: &Path,
    summary: &mut SearchSummary,
) -> Result<Gitignore, UnreadableRules> {
    let Some(bytes) = read(inside, path)? else { return Ok(Gitignore::empty()) };
    if exceeds_line_limits(&bytes) {
        return Err(UnreadableRules { path: path.to_owned(), cause: UnreadableCause::NotOrdinaryFile });
    }
    let mut builder = GitignoreBuilder::new(directory);
    let mut first_problem = None;
    for (index, line) in utf8_lines(&bytes).trim_start_matches('\u{feff}').lines().enumerate() {
        if let Err(error) = builder.add_line(None, line) {
            first_problem.get_or_insert_with(|| format!("line {}: {error}", index + 1));
        }
    }
    let rules = builder.build().unwrap_or_else(|error| {
        first_problem.get_or_insert_with(|| error.to_string());
        Gitignore::empty()
    });
    if let Some(problem) = first_problem {
        summary.add_error(path, problem);
    }
    Ok(rules)
}

/// The path of `info/exclude` of the git repository whose top is `directory`. In a worktree, `.git` is a file that
/// names a directory, and the file `commondir` there names the directory of the repository. `None` if one of these
/// two files does not name a directory, as in a submodule.
pub(super) fn exclude_file(inside: &EnteredRoot<'_>, directory: &Path) -> Result<Option<PathBuf>, UnreadableRules> {
    let git = directory.join(".git");
    if inside.is_directory(&git) {
        return Ok(Some(git.join("info/exclude")));
    }
    let Some(git_directory) =
        first_line(inside, &git)?.and_then(|line| line.strip_prefix("gitdir: ").map(PathBuf::from))
    else {
        return Ok(None);
    };
    let common = first_line(inside, &git_directory.join("commondir"))?
        .map(|line| if line.starts_with('.') { git_directory.join(line) } else { PathBuf::from(line) });
    Ok(common.map(|common| common.join("info/exclude")))
}

/// Reads the global excludes of git, for paths below `directory`. They are in the file that a configuration of git
/// names in `core.excludesFile`. The default is `git/ignore` in the configuration directory of the user.
pub(super) fn global_excludes(
    inside: &EnteredRoot<'_>,
    directory: &Path,
    summary: &mut SearchSummary,
) -> Result<Gitignore, UnreadableRules> {
    let home = std::env::home_dir();
    let user_directory = environment_path("XDG_CONFIG_HOME")
        .or_else(|| home.as_deref().map(|home| home.join(".config")))
        .map(|directory| directory.join("git"));
    let configurations = [
        environment_path("GIT_CONFIG_GLOBAL"),
        home.as_deref().map(|home| home.join(".gitconfig")),
        user_directory.as_deref().map(|directory| directory.join("config")),
        Some(environment_path("GIT_CONFIG_SYSTEM").unwrap_or_else(|| PathBuf::from("/etc/gitconfig"))),
    ];
    for configuration in configurations.into_iter().flatten() {
        let named = read(inside, &configuration)?.and_then(|bytes| named_excludes_file(&bytes, home.as_deref()));
        if let Some(named) = named {
            return read_rules(inside, &named, directory, summary);
        }
    }
    match user_directory {
        Some(user_directory) => read_rules(inside, &user_directory.join("ignore"), directory, summary),
        None => Ok(Gitignore::empty()),
    }
}

fn environment_path(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The value of `core.excludesFile` in a configuration of git, found by the same expression as in ripgrep, with
/// `home` in place of `~`.
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

/// The contents of a regular file. `None` if the file does not exist, is a directory or `/dev/null`, or reading it
/// fails.
fn read(inside: &EnteredRoot<'_>, path: &Path) -> Result<Option<Vec<u8>>, UnreadableRules> {
    let unreadable = |cause| Err(UnreadableRules { path: path.to_owned(), cause });
    // Opening a device can have side effects, even if the open does not wait. So the kind is checked before.
    let Ok(found) = inside.stat(path) else { return Ok(None) };
    match kind(&found) {
        FileType::RegularFile => {}
        FileType::Directory => return Ok(None),
        FileType::CharacterDevice if is_null_device(&found) => return Ok(None),
        _ => return unreadable(UnreadableCause::NotOrdinaryFile),
    }
    let file = match open(inside, path) {
        Ok(Some(file)) => file,
        Ok(None) => return unreadable(UnreadableCause::NotOrdinaryFile),
        Err(error) if error.kind() == ErrorKind::WouldBlock => return unreadable(UnreadableCause::Leased),
        Err(_) => return Ok(None),
    };
    let mut bytes = Vec::new();
    match file.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes) {
        Ok(_) if bytes.len() > MAX_FILE_BYTES => unreadable(UnreadableCause::NotOrdinaryFile),
        Ok(_) => Ok(Some(bytes)),
        Err(_) => Ok(None),
    }
}

fn is_null_device(device: &Statx) -> bool {
    (device.stx_rdev_major, device.stx_rdev_minor) == NULL_DEVICE
}

/// Whether an ignore file has too many lines, or a line with too many braces.
fn exceeds_line_limits(text: &[u8]) -> bool {
    let mut lines = text.split(|byte| *byte == b'\n').enumerate();
    lines.any(|(index, line)| index > MAX_LINES || has_too_many_braces(line))
}

fn first_line(inside: &EnteredRoot<'_>, path: &Path) -> Result<Option<String>, UnreadableRules> {
    let bytes = read(inside, path)?.unwrap_or_default();
    Ok(utf8_lines(&bytes).lines().next().map(str::to_owned))
}

/// The lines before the first one that is not UTF-8. Like ripgrep, a search ignores the rest of the file.
fn utf8_lines(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap_or_else(|error| {
        let valid = &bytes[..error.valid_up_to()];
        let whole_lines = valid.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        str::from_utf8(&valid[..whole_lines]).unwrap_or_default()
    })
}
