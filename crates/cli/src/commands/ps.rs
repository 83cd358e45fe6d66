//! `ps`: lists the processes of a kept session, which outlives the command that made it, as a table for people or as
//! JSON for programs.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use client::{ProcessState, ProcessSummary};

use super::args::PsArgs;
use super::destination::Destination;
use super::kept_session::{SessionCreation, SessionUse};
use super::print::{print, report};
use super::table;
use crate::terminal_text::{json_line, readable};

pub(crate) async fn ps(args: PsArgs) -> anyhow::Result<ExitCode> {
    let name = &args.session.session;
    let client = Destination::choose(&args.target)?
        .connect_to_session(name, SessionCreation::Never, SessionUse::Observe)
        .await?;
    let processes = client.processes().await;
    client.close().await;
    let processes = processes?;
    if args.json {
        print(&json_line(&serde_json::to_value(&processes)?)).await?;
    } else if processes.is_empty() {
        report(&format!("there are no processes in the session `{name}`"));
    } else {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        print(&rendered(&processes, now, table::terminal_width())).await?;
    }
    Ok(ExitCode::SUCCESS)
}

const HEADINGS: [&str; 6] = ["ID", "STATE", "PID", "STARTED", "OUTPUT", "COMMAND"];

/// A table of the processes. Lines are cut after `width` characters, if it is given.
fn rendered(processes: &[ProcessSummary], now: Duration, width: Option<usize>) -> String {
    let rows = processes.iter().map(|process| {
        [
            readable(process.process_id.as_str()),
            state(process),
            process.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            format!("{} ago", age(now.saturating_sub(Duration::from_millis(process.started_at_ms)))),
            size(process.output_bytes),
            process.argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
        ]
    });
    let rows: Vec<[String; 6]> = std::iter::once(HEADINGS.map(str::to_owned)).chain(rows).collect();
    table::aligned(&rows, width)
}

fn state(process: &ProcessSummary) -> String {
    let code = process.exit_code.map(|code| format!(" {code}")).unwrap_or_default();
    match process.state {
        ProcessState::Starting => "starting".to_owned(),
        ProcessState::Running => "running".to_owned(),
        // The process has exited, but a descendant holds its output streams open.
        ProcessState::Exited => format!("exited{code}, open"),
        ProcessState::Closed => format!("exited{code}"),
    }
}

fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut amount, mut unit) = (bytes as f64, 0);
    while amount >= 1024.0 && unit + 1 < units.len() {
        amount /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes}B") } else { format!("{amount:.1}{}", units[unit]) }
}

/// The word on one line, for a command line that a person can type. It is in quotes unless all its characters count
/// as plain here.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "_-./=:,+@%…".contains(c));
    if is_plain { word.to_owned() } else { format!("'{}'", readable(word).replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(id: &str, state: ProcessState, exit_code: Option<i32>, argv: &[&str]) -> ProcessSummary {
        ProcessSummary {
            process_id: id.into(),
            argv: argv.iter().map(|&word| word.to_owned()).collect(),
            pid: Some(4711),
            started_at_ms: 1_000_000,
            state,
            exit_code,
            next_seq: 1,
            output_bytes: 1536,
            oldest_seq: None,
            tty: false,
        }
    }

    #[test]
    fn columns_are_aligned_and_the_command_is_cut() {
        let processes = [
            process("1", ProcessState::Running, None, &["sh", "-c", "echo 'a\nb'"]),
            process("build", ProcessState::Closed, Some(143), &["make"]),
        ];
        let now = Duration::from_millis(1_000_000) + Duration::from_secs(7200);
        let wide = "\
ID     STATE       PID   STARTED  OUTPUT  COMMAND
1      running     4711  2h ago   1.5KiB  sh -c 'echo '\\''a\\nb'\\'''
build  exited 143  4711  2h ago   1.5KiB  make
";
        assert_eq!(rendered(&processes, now, None), wide);
        let narrow = rendered(&processes, now, Some(48));
        assert_eq!(narrow.lines().nth(1), Some("1      running     4711  2h ago   1.5KiB  sh -c…"));
    }

    #[test]
    fn ages_and_sizes_have_one_number_and_one_unit() {
        let ages = [0, 59, 60, 3599, 3600, 86_399, 86_400 * 10];
        assert_eq!(
            ages.map(|seconds| age(Duration::from_secs(seconds))),
            ["0s", "59s", "1m", "59m", "1h", "23h", "10d"]
        );
        assert_eq!([0, 1023, 1024, 5 << 30].map(size), ["0B", "1023B", "1.0KiB", "5.0GiB"]);
    }

    #[test]
    fn an_exited_process_with_open_streams_is_shown_as_open() {
        let exited = process("1", ProcessState::Exited, Some(0), &["sh"]);
        assert_eq!(state(&exited), "exited 0, open");
    }
}
