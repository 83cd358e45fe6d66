//! `kill`: ends processes of a kept session, which outlives the command that made it, or sends them a signal.

use std::process::ExitCode;

use anyhow::Context as _;
use client::{ExecServerClient, ProcessId, ProcessState, ProcessSummary, Signal};

use super::args::KillArgs;
use super::destination::Destination;
use super::kept_session::{SessionCreation, SessionUse};
use super::print::print;

/// Signals, their names in the protocol, and the names that shells use.
const SIGNALS: &[(Signal, &str, &str)] = &[
    (Signal::Interrupt, "interrupt", "INT"),
    (Signal::Hangup, "hangup", "HUP"),
    (Signal::Quit, "quit", "QUIT"),
    (Signal::Terminate, "terminate", "TERM"),
    (Signal::Kill, "kill", "KILL"),
    (Signal::User1, "user1", "USR1"),
    (Signal::User2, "user2", "USR2"),
    (Signal::Stop, "stop", "STOP"),
    (Signal::Continue, "continue", "CONT"),
];

/// Ends or signals each process in turn. If that fails for one process, the others are still ended or signalled.
pub(crate) async fn kill(args: KillArgs) -> anyhow::Result<ExitCode> {
    let signal = args.signal.as_deref().map(signal_named).transpose()?;
    let name = &args.session.session;
    let client = Destination::choose(&args.target)?
        .connect_to_session(name, SessionCreation::Never, SessionUse::Observe)
        .await?;
    let result = kill_all(&client, &args.ids, signal, name).await;
    client.close().await;
    Ok(if result? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns false if one of the processes could not be ended or signalled. The errors are printed.
async fn kill_all(
    client: &ExecServerClient,
    ids: &[String],
    signal: Option<Signal>,
    session: &str,
) -> anyhow::Result<bool> {
    // In the protocol, ending a process that does not exist succeeds. A person who types such an id has made a
    // mistake.
    let known = client.processes().await?;
    let mut all_done = true;
    for id in ids {
        let outcome = match known.iter().find(|process| process.process_id.as_str() == id) {
            Some(process) => kill_one(client, process, signal).await,
            None => Err(anyhow::anyhow!(
                "there is no process `{id}` in the session `{session}`; `exec-server ps` lists them"
            )),
        };
        match outcome {
            Ok(words) => print(&format!("{id}: {words}\n")).await?,
            Err(error) => {
                crate::report_error(&error);
                all_done = false;
            }
        }
    }
    Ok(all_done)
}

/// Ends or signals one process, and returns the words that tell the user so.
async fn kill_one(
    client: &ExecServerClient,
    process: &ProcessSummary,
    signal: Option<Signal>,
) -> anyhow::Result<String> {
    let id: &ProcessId = &process.process_id;
    match signal {
        // The server would accept the signal, and no process would get it.
        Some(signal) if matches!(process.state, ProcessState::Exited | ProcessState::Closed) => {
            anyhow::bail!("{id} had exited; {} was not sent", name_of(signal))
        }
        Some(signal) => {
            client.signal(id, signal).await?;
            Ok(format!("{} sent", name_of(signal)))
        }
        None => {
            let was_running = client.terminate(id).await?.running;
            Ok(if was_running { "was running, ended" } else { "had exited" }.to_owned())
        }
    }
}

/// The signal of this name: a name of the protocol, or a name that shells use, in upper or lower case, with or
/// without `SIG`.
fn signal_named(name: &str) -> anyhow::Result<Signal> {
    let upper = name.to_ascii_uppercase();
    let short = upper.strip_prefix("SIG").unwrap_or(&upper);
    let found = SIGNALS.iter().find(|(_, of_protocol, of_shells)| *of_protocol == name || *of_shells == short);
    found.map(|(signal, ..)| *signal).with_context(|| {
        let names: Vec<&str> = SIGNALS.iter().map(|(_, of_protocol, _)| *of_protocol).collect();
        format!("there is no signal `{name}`; there are {}", names.join(", "))
    })
}

/// The name of the signal in the protocol.
fn name_of(signal: Signal) -> &'static str {
    SIGNALS.iter().find(|(known, ..)| *known == signal).map_or("signal", |(_, of_protocol, _)| of_protocol)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_has_the_name_of_the_protocol_or_of_shells_and_no_other() {
        for name in ["user1", "USR1", "usr1", "SIGUSR1", "sigusr1"] {
            assert_eq!(signal_named(name).unwrap(), Signal::User1, "{name}");
        }
        let error = signal_named("winch").unwrap_err().to_string();
        assert!(error.starts_with("there is no signal `winch`; there are interrupt, hangup"), "{error}");
    }

    #[test]
    fn the_first_name_of_each_signal_is_that_of_the_protocol() {
        for (signal, name, _) in SIGNALS {
            assert_eq!(serde_json::to_string(signal).unwrap(), format!("\"{name}\""));
        }
    }
}
