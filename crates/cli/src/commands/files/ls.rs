//! `ls`: lists files, and with `-l` their modes, sizes and times.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal as _;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;
use std::sync::Arc;

use client::{FileMetadata, FileTime};
use tokio::task::JoinSet;

use super::super::print::{print_bytes, report};
use super::args::LsArgs;
use super::file_hosts::{FileHosts, PlainPaths};
use super::file_kind::{FileKind, SymlinkPolicy, inspect};
use super::host_path::HostPath;
use crate::terminal_text::readable;

/// The number of files whose metadata is asked for at once.
const REQUESTS_AT_ONCE: usize = 64;

/// Lists the paths in turn. If one cannot be listed, the others still are.
pub(crate) async fn ls(args: LsArgs) -> anyhow::Result<ExitCode> {
    let mut hosts = FileHosts::new(&args.target, &args.sandbox, PlainPaths::FollowFlags)?;
    let paths = hosts.resolve(&args.paths).await?;
    let listing = Listing { long: args.long, all: args.all, is_terminal: std::io::stdout().is_terminal() };
    let mut code = ExitCode::SUCCESS;
    let mut out = Vec::new();
    for path in &paths {
        let listed = match paths.len() {
            1 => listing.list(path, &mut out).await,
            _ => listing.list_with_heading(path, &mut out).await,
        };
        if let Err(sentence) = listed {
            report(&sentence);
            code = ExitCode::FAILURE;
        }
    }
    print_bytes(&out).await?;
    hosts.close().await;
    Ok(code)
}

/// How paths are listed.
#[derive(Clone, Copy)]
struct Listing {
    /// Whether `-l` was given: one line for each file, with its metadata.
    long: bool,
    /// Whether `-a` was given: names that begin with a dot are listed too.
    all: bool,
    /// Whether stdout is a terminal.
    is_terminal: bool,
}

impl Listing {
    /// Adds the path and what is in it, after an empty line if another path comes before.
    async fn list_with_heading(self, path: &HostPath, out: &mut Vec<u8>) -> Result<(), String> {
        let mut body = Vec::new();
        self.list(path, &mut body).await?;
        if !out.is_empty() {
            out.push(b'\n');
        }
        self.put_name(path.typed.as_os_str(), out);
        out.extend_from_slice(b":\n");
        out.extend(body);
        Ok(())
    }

    async fn list(self, path: &HostPath, out: &mut Vec<u8>) -> Result<(), String> {
        let unreadable = |error| path.failure("read", &error);
        // A link to a directory is listed as a directory, except with `-l` and without a slash at its end: then the
        // link itself is described.
        let links = if self.long && !path.means_directory() { SymlinkPolicy::Keep } else { SymlinkPolicy::Follow };
        let rows = match inspect(path, links).await {
            Ok(FileKind::Directory(_)) => self.rows(path).await?,
            Ok(found) => vec![(path.typed.clone().into(), Some(found))],
            // It may be a link that leads nowhere.
            Err(_) => {
                vec![(path.typed.clone().into(), Some(inspect(path, SymlinkPolicy::Keep).await.map_err(unreadable)?))]
            }
        };
        let width = rows.iter().map(|(_, found)| size_of(found.as_ref()).len()).max().unwrap_or(0);
        for (name, found) in rows {
            if self.long {
                out.extend(description(found.as_ref(), width).into_bytes());
            }
            self.put_name(&name, out);
            if self.long
                && let Some(FileKind::Link(target)) = &found
            {
                out.extend_from_slice(b" -> ");
                self.put_name(target, out);
            }
            out.push(b'\n');
        }
        Ok(())
    }

    /// The files in a directory, in the order of their names. The kind is `None` without `-l`, and if it cannot be
    /// found out.
    async fn rows(self, path: &HostPath) -> Result<Vec<(OsString, Option<FileKind>)>, String> {
        let mut names = path.names().await.map_err(|error| path.failure("list", &error))?;
        names.retain(|name| self.all || !name.as_bytes().starts_with(b"."));
        names.sort();
        if !self.long {
            return Ok(names.into_iter().map(|name| (name, None)).collect());
        }
        let path = Arc::new(path.clone());
        let mut rows: Vec<(OsString, Option<FileKind>)> = Vec::with_capacity(names.len());
        let mut inspections = JoinSet::new();
        let mut names = names.into_iter();
        loop {
            while inspections.len() < REQUESTS_AT_ONCE
                && let Some(name) = names.next()
            {
                let path = Arc::clone(&path);
                inspections.spawn(async move {
                    let found = inspect(&path.join(&name), SymlinkPolicy::Keep).await;
                    (name, found.ok())
                });
            }
            match inspections.join_next().await {
                Some(row) => rows.extend(row.ok()),
                None => break,
            }
        }
        rows.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(rows)
    }

    /// Adds a name: readable on a terminal, and unchanged for a program.
    fn put_name(self, name: &OsStr, out: &mut Vec<u8>) {
        if self.is_terminal {
            out.extend(readable(&name.to_string_lossy()).into_bytes());
        } else {
            out.extend_from_slice(name.as_bytes());
        }
    }
}

fn metadata_of(found: Option<&FileKind>) -> Option<&FileMetadata> {
    match found? {
        FileKind::File(metadata) | FileKind::Directory(metadata) | FileKind::Special(metadata) => Some(metadata),
        // Machines report the metadata of the link's target, which would be wrong for the link.
        FileKind::Link(_) => None,
    }
}

fn size_of(found: Option<&FileKind>) -> String {
    metadata_of(found).map_or_else(|| "-".to_owned(), |metadata| metadata.size.to_string())
}

fn description(found: Option<&FileKind>, width: usize) -> String {
    let kind = match found {
        Some(FileKind::Directory(_)) => 'd',
        Some(FileKind::Link(_)) => 'l',
        Some(FileKind::File(_)) => '-',
        Some(FileKind::Special(_)) | None => '?',
    };
    let metadata = metadata_of(found);
    let time = metadata.map_or_else(
        || format!("{:19}", "-"),
        |metadata| {
            let ms = metadata.modified_at_ms;
            date(metadata.mtime.unwrap_or(FileTime { secs: ms.div_euclid(1000), nanos: 0 }).secs)
        },
    );
    let bits = match found {
        // Access through a link depends on its target. Other `ls` programs show a link with all permissions, too.
        Some(FileKind::Link(_)) => permissions(Some(0o777)),
        _ => permissions(metadata.and_then(|metadata| metadata.mode)),
    };
    format!("{kind}{bits}  {:>width$}  {time}  ", size_of(found))
}

fn permissions(mode: Option<u32>) -> String {
    let Some(mode) = mode else { return "?????????".to_owned() };
    let mut text: Vec<char> =
        (0..9).map(|bit| if mode & (0o400 >> bit) != 0 { ['r', 'w', 'x'][bit % 3] } else { '-' }).collect();
    for (bit, at, letter) in [(0o4000, 2, 's'), (0o2000, 5, 's'), (0o1000, 8, 't')] {
        if mode & bit != 0 {
            text[at] = if text[at] == 'x' { letter } else { letter.to_ascii_uppercase() };
        }
    }
    text.into_iter().collect()
}

/// The time as `2026-01-31 23:59:59`, in UTC.
fn date(seconds: i64) -> String {
    let (days, time) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days since the first of March of the year 0. With years that begin in March, a leap day is the last day of its
    // year. An era is 400 years, after which the calendar repeats.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", time / 3600, time / 60 % 60, time % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_since_1970_become_a_date_and_a_time() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00"),
            (-1, "1969-12-31 23:59:59"),
            (951_827_696, "2000-02-29 12:34:56"),
            (1_798_761_599, "2026-12-31 23:59:59"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(date(seconds), expected);
        }
    }

    #[test]
    fn permissions_become_letters_and_unknown_ones_question_marks() {
        assert_eq!(permissions(Some(0o644)), "rw-r--r--");
        assert_eq!(permissions(Some(0o4711)), "rws--x--x");
        assert_eq!(permissions(Some(0o1770)), "rwxrwx--T");
        assert_eq!(permissions(None), "?????????");
    }
}
