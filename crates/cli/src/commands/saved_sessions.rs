//! Remembers kept sessions, which outlive the command that made them, by their names: one file for each session of
//! each server. The files hold the ids of the sessions. Others could take a session over if they knew its id, so only
//! the user can read the files.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use client::SessionId;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

/// The longest name of a session, in characters.
const LONGEST_NAME: usize = 64;
/// Largest number of earlier sessions of one name that are remembered.
const MAX_FORMER_SESSIONS: usize = 1000;

/// The content of a file: a line with the id of the session, and a line with the time for which the server keeps the
/// session, in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionRecord {
    pub(crate) session: SessionId,
    /// Time for which the session outlives its last connection. `None` if the file does not say.
    pub(crate) keep: Option<Duration>,
}

impl SessionRecord {
    /// `None` if the text has no id.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().map(str::trim);
        let session = lines.next().filter(|line| !line.is_empty()).map(SessionId::from)?;
        let keep = lines.next().and_then(|line| line.parse().ok()).map(Duration::from_millis);
        Some(Self { session, keep })
    }

    fn text(&self) -> String {
        let keep = self.keep.map(|keep| format!("{}\n", keep.as_millis())).unwrap_or_default();
        format!("{}\n{keep}", self.session)
    }
}

/// Loads the session of this name on the server at `url`. `None` if none is saved, or the file has no id.
pub(crate) fn load(name: &str, url: &str) -> anyhow::Result<Option<SessionRecord>> {
    let path = path_of(name, url)?;
    match fs::read_to_string(&path) {
        Ok(text) => Ok(SessionRecord::parse(&text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Saves a session under this name, in place of an earlier one.
pub(crate) fn save(name: &str, url: &str, record: &SessionRecord) -> anyhow::Result<()> {
    let path = path_of(name, url)?;
    // Another command may read the file at this moment, so it is replaced as a whole.
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let write = || -> std::io::Result<()> {
        make_private_directory(path.parent().unwrap_or(Path::new(".")))?;
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(record.text().as_bytes())?;
        fs::rename(&new, &path)
    };
    write().with_context(|| {
        let _best_effort = fs::remove_file(&new);
        format!("cannot write {}", path.display())
    })
}

/// Sets the modification time of the file to now. [`has_expired`] takes it for the time at which the session was last
/// used.
pub(crate) fn touch(name: &str, url: &str) -> anyhow::Result<()> {
    let path = path_of(name, url)?;
    // The session can be used although the file cannot be written.
    let _best_effort = fs::File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
    Ok(())
}

/// Renames the file of a session that the server at `url` does not have, and returns the new name of the session. The
/// server that has the session may answer at this address again later. `None` if nothing was renamed: the session has
/// expired, or another command has saved a new session under this name.
pub(crate) fn set_aside(name: &str, url: &str, record: &SessionRecord) -> anyhow::Result<Option<String>> {
    let path = path_of(name, url)?;
    if load(name, url)?.as_ref() != Some(record) || has_expired(&path, record) {
        return Ok(None);
    }
    for former in former_names(name) {
        let new_path = path_of(&former, url)?;
        if load(&former, url)?.is_some_and(|old| has_expired(&new_path, &old)) {
            fs::remove_file(&new_path).with_context(|| format!("cannot remove {}", new_path.display()))?;
        }
        match rename_without_replacing(&path, &new_path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            renamed => {
                renamed.with_context(|| format!("cannot rename {} to {}", path.display(), new_path.display()))?;
                return Ok(Some(former));
            }
        }
    }
    anyhow::bail!(
        "the session `{name}` belongs to another server, and {MAX_FORMER_SESSIONS} former sessions of this name are \
         remembered already; give another --session"
    )
}

/// Whether the session was last used longer ago than the server keeps it. False if the record does not say how
/// long that is.
fn has_expired(path: &Path, record: &SessionRecord) -> bool {
    let used = fs::metadata(path).and_then(|metadata| metadata.modified());
    let unused = used.map(|used| used.elapsed().unwrap_or_default()).unwrap_or_default();
    record.keep.is_some_and(|keep| keep < unused)
}

/// Names for sessions that had this name before: `NAME.former`, `NAME.former-2` and so on. A long name is shortened.
fn former_names(name: &str) -> impl Iterator<Item = String> {
    (1..=MAX_FORMER_SESSIONS).map(move |number| {
        let ending = if number == 1 { ".former".to_owned() } else { format!(".former-{number}") };
        let kept: String = name.chars().take(LONGEST_NAME - ending.len()).collect();
        kept + &ending
    })
}

/// Renames a file. It is an error if a file of the new name exists.
fn rename_without_replacing(from: &Path, to: &Path) -> std::io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // This file system cannot check and rename in one step.
        Err(Errno::INVAL | Errno::NOSYS) if to.try_exists()? => Err(std::io::ErrorKind::AlreadyExists.into()),
        Err(Errno::INVAL | Errno::NOSYS) => fs::rename(from, to),
        renamed => Ok(renamed?),
    }
}

/// Makes a directory, and those above it that are missing. Other users cannot look into the new directories.
pub(crate) fn make_private_directory(path: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The directory for files that outlive a command.
pub(crate) fn state_directory() -> anyhow::Result<PathBuf> {
    let directory_in = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = directory_in("XDG_STATE_HOME").or_else(|| directory_in("HOME").map(|home| home.join(".local/state")));
    Ok(state
        .context("there is no directory for sessions and keys; set XDG_STATE_HOME or HOME to an absolute path")?
        .join("exec-server"))
}

/// Checks that a session can have this name.
pub(crate) fn check_name(name: &str) -> anyhow::Result<()> {
    let is_plain = !name.is_empty()
        && name.len() <= LONGEST_NAME
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    anyhow::ensure!(
        is_plain && !name.starts_with('.'),
        "`{name}` is no name for a session; use up to {LONGEST_NAME} letters, digits, `-`, `_` and `.`, and no \
         `.` at the start"
    );
    Ok(())
}

fn path_of(name: &str, url: &str) -> anyhow::Result<PathBuf> {
    check_name(name)?;
    Ok(state_directory()?.join("sessions").join(directory_name(url)).join(name))
}

/// The name of the directory for the sessions of one server: its URL, in which every byte but ASCII letters, digits,
/// `-` and `.` is written as `_` and two hexadecimal digits.
fn directory_name(url: &str) -> String {
    url.bytes().fold(String::new(), |mut name, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' => name.push(byte.into()),
            other => name.push_str(&format!("_{other:02x}")),
        }
        name
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_may_lack_the_time_but_not_the_id() {
        for keep in [None, Some(Duration::from_secs(3600))] {
            let record = SessionRecord { session: "s".into(), keep };
            assert_eq!(SessionRecord::parse(&record.text()), Some(record));
        }
        assert_eq!(SessionRecord::parse("\n"), None);
    }

    #[test]
    fn former_names_are_numbered_and_valid() {
        assert_eq!(former_names("a").take(3).collect::<Vec<_>>(), ["a.former", "a.former-2", "a.former-3"]);
        let long = "x".repeat(LONGEST_NAME);
        let names: Vec<String> = former_names(&long).collect();
        assert!(names.iter().all(|name| check_name(name).is_ok() && name.starts_with("xxx")), "{names:?}");
    }

    #[test]
    fn each_server_has_a_directory_of_its_own() {
        assert_eq!(directory_name("ws://a:1/x"), "ws_3a_2f_2fa_3a1_2fx");
        assert_ne!(directory_name("unix:///a/b"), directory_name("unix:///a_b"));
    }
}
