//! `watch`: prints one line for each change to a file, or to files below a directory, in an environment, which is a
//! machine with a server.

use anyhow::Context as _;
use std::path::PathBuf;
use std::process::ExitCode;

use client::{ChangeKind, Changes, ExecServerClient, FileChange, PathUri, SandboxContext};
use serde_json::{Value, json};

use super::args::WatchArgs;
use super::destination::leave;
use super::foreground::{BROKEN_PIPE, Goodbye};
use super::print::{print, report, wait_until_stdout_closes};
use super::remote_path::{RemotePath, requested_sandbox};
use super::signals::Signals;
use crate::terminal_text::{json_line, readable};

/// Prints changes until a signal ends us, the reader of our output closes the pipe, or the watched file or directory
/// is gone.
pub(crate) async fn watch(args: WatchArgs) -> anyhow::Result<ExitCode> {
    let path = RemotePath::parse(&args.path);
    let client = path.destination(&args.target)?.connect().await?;
    let uri = path.uri(&client).await?;
    let sandbox = requested_sandbox(&args.sandbox, &client).await?;
    // From here on, a signal must not leave the watch on the server.
    let mut signals = Signals::listen()?;
    let printing = async {
        tokio::select! {
            ended = print_changes(&client, &uri, &args, sandbox.as_ref()) => ended.map(|()| ExitCode::SUCCESS),
            () = wait_until_stdout_closes() => Ok(ExitCode::from(BROKEN_PIPE)),
        }
    };
    let ended = signals.or_fatal(printing).await;
    leave(client, Goodbye::InOrder).await;
    ended.unwrap_or_else(|fatal| Ok(ExitCode::from(fatal.exit_code())))
}

/// Prints changes until the server ends the watch, which it does when the watched file or directory is gone.
async fn print_changes(
    client: &ExecServerClient,
    uri: &PathUri,
    args: &WatchArgs,
    sandbox: Option<&SandboxContext>,
) -> anyhow::Result<()> {
    let watching = client.watch_in_sandbox(uri, !args.no_recursive, sandbox).await;
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
        lines += &if as_json { json_line(&json!({"type": "overflow"})) } else { "overflow\n".to_owned() };
    }
    for change in &changes.changes {
        lines += &if as_json { json_line(&json_of(change)) } else { line(change) + "\n" };
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

fn json_of(change: &FileChange) -> Value {
    let path = |uri: &PathUri| native(uri).to_string_lossy().into_owned();
    let mut value =
        json!({"type": kind_name(change.kind), "path": path(&change.path), "isDirectory": change.is_directory});
    if let Some(from) = &change.from {
        value["from"] = path(from).into();
    }
    value
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
    readable(&native(path).to_string_lossy())
}

/// The path, or the URI if this system has no such paths.
fn native(path: &PathUri) -> PathBuf {
    path.to_native().unwrap_or_else(|_| PathBuf::from(path.as_str()))
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
    }

    #[test]
    fn json_has_the_path_itself_and_no_character_that_acts_on_a_terminal() {
        let printed = |uri: &str| {
            let created = ChangeKind::Created;
            let change = FileChange { path: uri.parse().unwrap(), kind: created, from: None, is_directory: false };
            lines(&Changes { changes: vec![change], overflow: false }, true)
        };
        for (uri, path) in [
            ("file:///a%0Ab", r"/a\nb"),
            ("file:///a%5Cnb", r"/a\\nb"),
            ("file:///%C2%9B%7F%E2%80%AE", r"/\u009b\u007f\u202e"),
        ] {
            let expected = format!("{{\"isDirectory\":false,\"path\":\"{path}\",\"type\":\"created\"}}\n");
            assert_eq!(printed(uri), expected);
        }
    }
}
