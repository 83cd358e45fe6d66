//! `env`: lists the environments (the machines that commands can choose), says which one commands use and why, and
//! checks with `--check` that each can be reached. `env show` shows one environment. Texts of the configuration and of
//! servers are printed with visible escape sequences, so that they cannot act on the terminal.

mod environment_list;
mod reachability;
mod shown_environment;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use client::EnvironmentInfo;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::args::{EnvArgs, EnvCommand};
use super::print::print;
use super::signals::Signals;
use super::table;
use crate::terminal_text::{json_line, readable, wrapped};
use environment_list::{EnvironmentList, ListedEnvironment};
use reachability::{CheckResult, ReachedServer, check_all, offered_extensions};

/// The longest text of a server that is printed, in characters. Linux has no longer paths (`PATH_MAX`), so only a faulty
/// or hostile server sends more.
const LONGEST_SERVER_TEXT: usize = 4096;

pub(crate) async fn env(args: EnvArgs) -> anyhow::Result<ExitCode> {
    if let Some(EnvCommand::Show(args)) = args.command {
        return shown_environment::show(args).await;
    }
    let list = EnvironmentList::load(&args.target)?;
    if !args.check {
        let text = if args.json { json_line(&list.json(|_| None)) } else { listing(&list) };
        print(&text).await?;
        return Ok(ExitCode::SUCCESS);
    }
    // A signal must not leave behind the server programs that the check has started.
    let mut signals = Signals::listen()?;
    match signals.or_fatal(check(&list, args.timeout.0, args.json)).await {
        Ok(all_reached) => Ok(if all_reached? { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
        Err(fatal) => Ok(ExitCode::from(fatal.exit_code())),
    }
}

/// Checks the environments, several at a time, and prints the results in the order of the list. Returns whether all
/// were reached.
async fn check(list: &EnvironmentList, timeout: Duration, is_json: bool) -> anyhow::Result<bool> {
    let destinations = list.environments.iter().map(|environment| environment.destination.clone());
    let mut checks: JoinSet<(usize, CheckResult)> = check_all(destinations, timeout);
    let mut results = BTreeMap::new();
    let mut printed = 0;
    while let Some(checked) = checks.join_next().await {
        let (index, checked) = checked?;
        results.insert(index, checked);
        while !is_json
            && let (Some(environment), Some(checked)) = (list.environments.get(printed), results.get(&printed))
        {
            print(&described(environment, checked)).await?;
            printed += 1;
        }
    }
    if is_json {
        print(&json_line(&list.json(|index| results.get(&index).map(checked_json)))).await?;
    } else {
        let separator = if list.environments.is_empty() { "" } else { "\n" };
        print(&format!("{separator}{}\n", list.choice_sentence())).await?;
    }
    Ok(results.values().all(Result::is_ok))
}

fn listing(list: &EnvironmentList) -> String {
    let heading = ["NAME", "REACHED BY"].map(str::to_owned);
    let row = |environment: &ListedEnvironment| [environment.label(), readable(&environment.destination.address())];
    let rows: Vec<_> = std::iter::once(heading).chain(list.environments.iter().map(row)).collect();
    let table = if list.environments.is_empty() { String::new() } else { table::aligned(&rows, None) + "\n" };
    format!("{table}{}\n", list.choice_sentence())
}

/// One environment for people: how it is reached, and below that the result of the check.
fn described(environment: &ListedEnvironment, checked: &CheckResult) -> String {
    let mut lines = vec![format!("{}: {}", environment.label(), readable(&environment.destination.address()))];
    match checked {
        Err(reason) => lines.push(format!("  cannot be reached: {}", readable(&shortened(reason)))),
        Ok(ReachedServer { connecting, round_trip, path, info }) => {
            lines.push(format!("  connected in {connecting:.1?}, one request took {round_trip:.1?}"));
            lines.extend(path.map(|path| format!("  path: {path}")));
            match info {
                Some(info) => lines.extend(described_server(info)),
                None => lines.push("  the server cannot be asked about itself, so it has no extensions".to_owned()),
            }
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn described_server(info: &EnvironmentInfo) -> [String; 2] {
    let offered = offered_extensions(&info.capabilities);
    let offered = if offered.is_empty() { "none".to_owned() } else { offered.join(", ") };
    let directory = directory(info).unwrap_or_else(|| "unknown".to_owned());
    let capabilities = format!("  capabilities: {offered}");
    [
        format!("  shell {}, directory {}", readable(&shortened(&info.shell.path)), readable(&directory)),
        // In a pipe the list is one line, so that grep finds it as a whole.
        table::terminal_width().map_or(capabilities.clone(), |width| wrapped(&capabilities, 0, 4, width)),
    ]
}

/// The working directory of the server: a path, or the URI if this system has no such paths.
fn directory(info: &EnvironmentInfo) -> Option<String> {
    let uri = info.cwd.as_ref()?;
    let path = uri.to_native().map_or_else(|_| uri.as_str().to_owned(), |path| path.to_string_lossy().into_owned());
    Some(shortened(&path))
}

/// The first [`LONGEST_SERVER_TEXT`] characters of a text of a server, with a mark if the text is longer.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST_SERVER_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn checked_json(checked: &CheckResult) -> Value {
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    match checked {
        Err(reason) => json!({"isReachable": false, "reason": shortened(reason)}),
        Ok(ReachedServer { connecting, round_trip, path, info }) => json!({
            "isReachable": true,
            "path": path.map(|path| path.to_string()),
            "connectMs": milliseconds(*connecting),
            "roundTripMs": milliseconds(*round_trip),
            "shell": info.as_ref().map(|EnvironmentInfo { shell, .. }| {
                json!({"name": shortened(&shell.name), "path": shortened(&shell.path)})
            }),
            "directory": info.as_ref().and_then(directory),
            "capabilities": info.as_ref().map(|info| offered_extensions(&info.capabilities)).unwrap_or_default(),
        }),
    }
}
