//! `attach`: brings a process of a kept session to the foreground of this terminal. A kept session outlives the
//! command that made it.

use std::process::ExitCode;

use anyhow::Context as _;
use client::{ExecServerClient, ProcessState, ProcessSummary};

use super::args::AttachArgs;
use super::destination::{Destination, leave};
use super::foreground::{EndOfInput, Foreground, Goodbye};
use super::kept_session::{SessionCreation, SessionUse};
use super::print::report;
use super::reattach_hint::{ReattachHint, run_in_foreground};
use super::signals::Signals;

/// Prints the retained output of the process, and then goes on as `run` does.
pub(crate) async fn attach(args: AttachArgs) -> anyhow::Result<ExitCode> {
    let destination = Destination::choose(&args.target)?;
    let client =
        destination.connect_to_session(&args.session.session, SessionCreation::Never, SessionUse::Attach).await?;
    let ended = attach_with(&client, &args).await;
    // Closes the connection, unless the server no longer answers.
    leave(client, ended.as_ref().map_or(Goodbye::InOrder, |(_, goodbye)| *goodbye)).await;
    ended.map(|(code, _)| code)
}

async fn attach_with(client: &ExecServerClient, args: &AttachArgs) -> anyhow::Result<(ExitCode, Goodbye)> {
    let session = args.session.session.as_str();
    let processes = client.processes().await?;
    let chosen = match args.id.as_deref() {
        Some(id) => processes.iter().find(|process| process.process_id.as_str() == id).with_context(|| {
            format!("there is no process `{id}` in the session `{session}`; there are: {}", ids(processes.iter()))
        })?,
        None => only_running(&processes, session)?,
    };
    let process = client.attach(chosen.process_id.clone()).await?;
    if process.lost_bytes() > 0 {
        report(&format!("the first {} bytes of output are no longer retained", process.lost_bytes()));
    }
    let capabilities = client.capabilities().await?;
    let foreground = Foreground {
        client,
        process: &process,
        server: &capabilities,
        timeout: None,
        tty: chosen.tty,
        json: false,
        is_kept: true,
        // `attach` with an empty stdin only looks at the process.
        end_of_input: EndOfInput::PassedIfAnyInput,
        // A program that runs may have drawn its screen on another terminal.
        redraw: chosen.state == ProcessState::Running,
    };
    let hint = ReattachHint { target: &args.target, session, id: process.process_id() };
    run_in_foreground(foreground, &mut Signals::listen()?, Some(&hint)).await
}

/// The process that is running or starting, if there is exactly one.
fn only_running<'a>(processes: &'a [ProcessSummary], session: &str) -> anyhow::Result<&'a ProcessSummary> {
    let has_not_ended =
        |process: &&ProcessSummary| matches!(process.state, ProcessState::Running | ProcessState::Starting);
    let mut running = processes.iter().filter(has_not_ended);
    match (running.next(), running.next()) {
        (Some(only), None) => Ok(only),
        (None, _) if processes.is_empty() => anyhow::bail!("the session `{session}` has no process"),
        (None, _) => anyhow::bail!(
            "no process of the session `{session}` is running; name one that has ended: {}",
            ids(processes.iter())
        ),
        (Some(_), Some(_)) => anyhow::bail!(
            "several processes of the session `{session}` are running; name one of: {}",
            ids(processes.iter().filter(has_not_ended))
        ),
    }
}

fn ids<'a>(processes: impl Iterator<Item = &'a ProcessSummary>) -> String {
    let ids: Vec<&str> = processes.map(|process| process.process_id.as_str()).collect();
    if ids.is_empty() { "none".to_owned() } else { ids.join(", ") }
}
