//! `watch`: prints one line for each change to a file, or to files below a directory, in an environment, which is a
//! machine with a server.

use anyhow::Context as _;
use std::path::Path;
use std::process::ExitCode;

use client::{ChangeKind, Changes, ExecServerClient, FileChange, PathUri};
use serde_json::json;

use super::args::WatchArgs;
use super::destination::leave;
use super::foreground::{BROKEN_PIPE, Goodbye};
use super::print::{print, report, wait_until_stdout_closes};
use super::remote_path::RemotePath;
use super::signals::Signals;
use crate::terminal_text::readable;

/// Prints changes until a signal ends us, the reader of our output closes the pipe, or the watched file or directory
/// is gone.
pub(crate) async fn watch(args: WatchArgs) -> anyhow::Result<ExitCode> {
    let path = RemotePath::parse(&args.path);
    let client = path.destination(&args.target)?.connect().await?;
    let uri = path.uri(&client).await?;
    // From here on, a signal must not leave the watch on the server.
    let mut signals = Signals::listen()?;
    let printing = async {
        tokio::select! {
            ended = print_changes(&client, &uri, &args) => ended.map(|()| ExitCode::SUCCESS),
            () = wait_until_stdout_closes() => Ok(ExitCode::from(BROKEN_PIPE)),
        }
    };
    let ended = signals.or_fatal(printing).await;
    leave(client, Goodbye::InOrder).await;
    ended.unwrap_or_else(|fatal| Ok(ExitCode::from(fatal.exit_code())))
}

/// Prints changes until the server ends the watch, which it does when the watched file or directory is gone.
async fn print_changes(client: &ExecServerClient, uri: &PathUri, args: &WatchArgs) -> anyhow::Result<()> {
    let watching = client.watch(uri, !args.no_recursive).await;
    let mut watch = watching.with_context(|| format!("cannot watch {}", path_text(uri)))?;
    while let Some(changes) = watch.recv().await {
        print(&lines(&changes?, args.json)).await?;
    }
    report(&format!("{} is gone", path_text(uri)));
    Ok(())
}

/// One line for each change, after a line for an overflow, which means that some changes are missing.
fn lines(changes: &Changes, as_json: bool) -> String {
    let mut lines = String::new();
    if changes.overflow {
        let line = if as_json { json!({"type": "overflow"}).to_string() } else { "overflow".to_owned() };
        lines.extend([&line, "\n"]);
    }
    for change in &changes.changes {
        let line = if as_json { json_line(change) } else { line(change) };
        lines.extend([&line, "\n"]);
    }
    lines
}

fn line(change: &FileChange) -> String {
    let slash = if change.is_directory { "/" } else { "" };
    let path = format!("{}{slash}", path_text(&change.path));
    match (&change.from, kind_name(change.kind)) {
        (Some(from), name) => format!("{name} {}{slash} -> {path}", path_text(from)),
        (None, name) => format!("{name} {path}"),
    }
}

fn json_line(change: &FileChange) -> String {
    let mut line =
        json!({"type": kind_name(change.kind), "path": path_text(&change.path), "isDirectory": change.is_directory});
    if let Some(from) = &change.from {
        line["from"] = path_text(from).into();
    }
    line.to_string()
}

fn kind_name(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Created => "created",
        ChangeKind::Modified => "modified",
        ChangeKind::Removed => "removed",
        ChangeKind::Renamed => "renamed",
    }
}

/// The path as text on one line, whatever characters it has.
fn path_text(path: &PathUri) -> String {
    let native = path.to_native().unwrap_or_else(|_| Path::new(path.as_str()).to_owned());
    readable(&native.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_and_an_overflow_is_a_line() {
        let change = |path: &str, kind, from: Option<&str>| FileChange {
            path: path.parse().unwrap(),
            kind,
            from: from.map(|from| from.parse().unwrap()),
            is_directory: from.is_some(),
        };
        let changes = vec![
            change("file:///a%0Ab", ChangeKind::Created, None),
            change("file:///new", ChangeKind::Renamed, Some("file:///old")),
        ];
        let changes = Changes { changes, overflow: true };
        assert_eq!(lines(&changes, false), "overflow\ncreated /a\\nb\nrenamed /old/ -> /new/\n");
        let first = r#"{"isDirectory":false,"path":"/a\\nb","type":"created"}"#;
        assert_eq!(lines(&changes, true).lines().nth(1), Some(first));
    }
}
