//! `search`: searches files of an environment, which is a machine with a server, and prints the matches as ripgrep
//! does.

mod match_printer;

use anyhow::Context as _;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;

use client::{ExecServerClient, SearchCase, SearchParams};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use super::args::SearchArgs;
use super::foreground::BROKEN_PIPE;
use super::print::is_broken_pipe;
use super::progress::{DRAW_INTERVAL, ProgressLine};
use super::remote_path::{RemotePath, requested_sandbox};
use super::signals::Signals;
use crate::colours;
use crate::terminal_text::json_line;
use match_printer::{ContextLines, MatchPrinter, MatchStyle};

/// Exit codes, as ripgrep has them.
const FOUND: u8 = 0;
const NOT_FOUND: u8 = 1;
const FAILED: u8 = 2;

/// Counts over all searched paths.
#[derive(Default)]
struct SearchTotals {
    /// How many files with matches, or parts of such files, have come. With `--files`, how many files.
    matches: u64,
    errors: u64,
}

/// Searches every path. The exit codes are those of ripgrep, except after a signal or if the pipe of our stdout was
/// closed.
pub(crate) async fn search(args: SearchArgs) -> ExitCode {
    let mut totals = SearchTotals::default();
    let progress = ProgressLine::of_search();
    let searched = match Signals::listen_except_stop() {
        Ok(mut signals) => signals.or_fatal(search_all(&args, &mut totals, &progress)).await,
        Err(error) => Ok(Err(error.into())),
    };
    progress.clear();
    let searched = match searched {
        Ok(searched) => searched,
        Err(fatal) => return ExitCode::from(fatal.exit_code()),
    };
    let code = match searched {
        Ok(()) if totals.errors > 0 => FAILED,
        Ok(()) if totals.matches > 0 => FOUND,
        Ok(()) => NOT_FOUND,
        Err(error) if is_broken_pipe(&error) => BROKEN_PIPE,
        Err(error) => {
            crate::report_error(&error);
            FAILED
        }
    };
    ExitCode::from(code)
}

/// Searches one path after the other. Neighbouring paths in the same environment share a connection.
async fn search_all(args: &SearchArgs, totals: &mut SearchTotals, progress: &ProgressLine) -> anyhow::Result<()> {
    let (pattern, paths) = args.pattern_and_paths()?;
    // The empty path is the working directory of the server.
    let paths = if paths.is_empty() { vec![String::new()] } else { paths };
    let mut connected: Option<(Option<String>, ExecServerClient)> = None;
    for path in paths.iter().map(|text| RemotePath::parse(text)) {
        let client = match connected.take() {
            Some((environment, client)) if environment == path.environment => client,
            other => {
                if let Some((_, client)) = other {
                    client.close().await;
                }
                path.destination(&args.target)?.connect().await?
            }
        };
        search_one(args, pattern.as_deref(), &path, &client, totals, progress).await?;
        connected = Some((path.environment, client));
    }
    if let Some((_, client)) = connected {
        client.close().await;
    }
    Ok(())
}

async fn search_one(
    args: &SearchArgs,
    pattern: Option<&str>,
    path: &RemotePath,
    client: &ExecServerClient,
    totals: &mut SearchTotals,
    progress: &ProgressLine,
) -> anyhow::Result<()> {
    let root = path.uri(client).await?;
    let native = root.to_native()?;
    let context = args.context();
    let sandbox = requested_sandbox(&args.sandbox, client).await?;
    let params = SearchParams { sandbox, ..params(args, pattern, root, context) };
    let mut search = client.search(params).await?;
    let style = MatchStyle {
        is_terminal: io::stdout().is_terminal(),
        has_colours: colours::are_wanted_on(&io::stdout()),
        names_only: args.files_with_matches,
    };
    let mut printer = MatchPrinter::new(&native, &path.path, context, style);
    let mut stdout = tokio::io::stdout();
    let mut draw = tokio::time::interval(DRAW_INTERVAL);
    let mut last_path = None;
    loop {
        let file = tokio::select! {
            file = search.recv() => file,
            _ = draw.tick() => {
                progress.draw(false);
                continue;
            }
        };
        let Some(file) = file else { break };
        let file = file.with_context(|| format!("cannot search {}", path.path.display()))?;
        totals.matches += 1;
        // The server may send the lines of a file in several parts.
        if last_path.as_ref() != Some(&file.path) {
            progress.add_found_file();
            last_path = Some(file.path.clone());
        }
        let bytes = if args.json { json_line(&json!({"file": file})).into_bytes() } else { printer.render(&file) };
        progress.print(&mut stdout, bytes).await?;
    }
    if let Some(result) = search.result() {
        for error in &result.errors {
            let path = error.path.as_ref().and_then(|path| path.to_native().ok()).unwrap_or_default();
            progress.report(&format!("{}: {}", path.display(), error.message));
        }
        totals.errors += result.error_count;
        if args.json {
            progress.print(&mut stdout, json_line(&json!({"result": result})).into_bytes()).await?;
        }
    }
    stdout.flush().await?;
    Ok(())
}

fn params(args: &SearchArgs, pattern: Option<&str>, root: client::PathUri, context: ContextLines) -> SearchParams {
    // The server has one number for the lines before and after a match. The printer leaves out the surplus.
    let lines = context.before.max(context.after);
    SearchParams {
        pattern: pattern.map(str::to_owned),
        fixed_strings: args.fixed_strings,
        case: match (args.ignore_case, args.smart_case) {
            (true, _) => SearchCase::Insensitive,
            (false, true) => SearchCase::Smart,
            (false, false) => SearchCase::Sensitive,
        },
        word: args.word_regexp,
        globs: args.glob.clone(),
        hidden: args.hidden,
        respect_ignore: !args.no_ignore,
        max_matches_per_file: if args.files_with_matches { Some(1) } else { args.max_count },
        context_lines: (lines > 0).then_some(lines),
        ..SearchParams::below(root)
    }
}

impl SearchArgs {
    /// The pattern, which `--files` does not have, and the paths to search.
    fn pattern_and_paths(&self) -> anyhow::Result<(Option<String>, Vec<String>)> {
        if self.files {
            return Ok((None, self.words.clone()));
        }
        let (pattern, paths) = self.words.split_first().ok_or_else(|| {
            anyhow::anyhow!("there is nothing to search for; give a PATTERN, or --files to list files")
        })?;
        Ok((Some(pattern.clone()), paths.to_vec()))
    }

    fn context(&self) -> ContextLines {
        if self.files_with_matches {
            return ContextLines::default();
        }
        let both = self.context.unwrap_or(0);
        ContextLines { before: self.before_context.unwrap_or(both), after: self.after_context.unwrap_or(both) }
    }
}

/// The path of a found file as the user expects it: `root` at its start is replaced by the path that was typed.
fn display_path(root: &Path, typed: &Path, found: &Path) -> std::path::PathBuf {
    match found.strip_prefix(root) {
        Ok(below) if below.as_os_str().is_empty() => typed.to_owned(),
        Ok(below) => typed.join(below),
        Err(_) => found.to_owned(),
    }
}
