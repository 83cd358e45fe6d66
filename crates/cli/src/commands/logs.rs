//! `logs`: prints the retained output of a process of a kept session, and with `-f` the output that follows. It observes the session, so it
//! neither ends the process nor makes it wait, however slowly the output is read, and another client can attach meanwhile. Output that is
//! dropped before it was read is counted.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use client::{
    ExecProcessEvent, ExecServerClient, ExecServerError, ExitStatus, ProcessId, ProcessOutputChunk, ReadParams,
};
use protocol::{OutputChunk, error_kind};

use super::args::LogsArgs;
use super::destination::Destination;
use super::event_printer::EventPrinter;
use super::exit_code;
use super::foreground::BROKEN_PIPE;
use super::kept_session::{SessionCreation, SessionUse};
use super::print::{is_broken_pipe, reader_is_gone};
use super::reattach_hint::ReattachHint;

/// How long the server may wait for new output before it answers without any.
const LONGEST_WAIT_MS: u64 = 30_000;
/// Pause after an answer without new output. A server that does not wait itself would be asked without a pause.
const POLL_PAUSE: Duration = Duration::from_millis(200);

/// Prints the output. With `-f` it returns the exit code of the process.
pub(crate) async fn logs(args: LogsArgs) -> anyhow::Result<ExitCode> {
    let name = &args.session.session;
    let client = Destination::choose(&args.target)?
        .connect_to_session(name, SessionCreation::Never, SessionUse::Observe)
        .await?;
    let id = ProcessId::from(args.id.as_str());
    let mut printer = EventPrinter::new(args.json);
    let observes = client.observes().await?;
    let printing = async {
        match (args.follow, observes) {
            // On a server that cannot be observed, this command has taken the session over and receives its events.
            (true, false) => follow(&client, &id, &mut printer).await,
            (true, true) => print_pages(&client, &id, &mut printer, StopAt::Closed).await,
            (false, observes) => print_retained(&client, &id, &mut printer, observes).await,
        }
    };
    let result = tokio::select! {
        result = printing => result,
        () = reader_is_gone() => Ok(ExitCode::from(BROKEN_PIPE)),
    };
    let hint = ReattachHint { target: &args.target, session: name, id: &id };
    let result = if args.follow { result.map_err(|error| hint.following(error, &client)) } else { result };
    client.close().await;
    match result {
        Err(error) if is_unknown_process(&error) => {
            anyhow::bail!("there is no process `{id}` in the session `{name}`; `exec-server ps` lists them")
        }
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::from(BROKEN_PIPE)),
        result => result,
    }
}

fn is_unknown_process(error: &anyhow::Error) -> bool {
    let refusal = error.downcast_ref::<ExecServerError>();
    refusal.is_some_and(|refusal| refusal.is_of_kind(error_kind::UNKNOWN_PROCESS))
}

async fn print_retained(
    client: &ExecServerClient,
    id: &ProcessId,
    printer: &mut EventPrinter,
    observes: bool,
) -> anyhow::Result<ExitCode> {
    // This command had to take the session over. While the process is paused, reading its output does not acknowledge it, so the output
    // stays retained for others.
    if !observes && client.capabilities().await?.process_flow {
        client.pause(id, true).await?;
    }
    // Without `-f`, output that is written from now on is not printed.
    let processes = client.processes().await?;
    let end = processes.iter().find(|process| process.process_id == *id).map_or(u64::MAX, |process| process.next_seq);
    print_pages(client, id, printer, StopAt::Seq(end)).await
}

/// Where printing stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopAt {
    /// Before the event with this number.
    Seq(u64),
    /// When the process is closed, so that no output can follow.
    Closed,
}

/// Reads and prints the retained output page by page. With [`StopAt::Closed`] it returns the exit code of the process.
async fn print_pages(
    client: &ExecServerClient,
    id: &ProcessId,
    printer: &mut EventPrinter,
    stop_at: StopAt,
) -> anyhow::Result<ExitCode> {
    let (mut after, mut seen) = (0, 0);
    let (mut exit, mut exit_seq) = (None, u64::MAX);
    let mut exit_is_printed = false;
    let wait_ms = if stop_at == StopAt::Closed { LONGEST_WAIT_MS } else { 0 };
    loop {
        let params = ReadParams { wait_ms: Some(wait_ms), ..ReadParams::after(id.clone(), after) };
        let page = client.read(params).await?;
        let is_further = page.next_seq > after + 1;
        anyhow::ensure!(
            is_further || page.chunks.is_empty(),
            "the server repeats output of the process `{id}` that it has sent before"
        );
        if page.gap {
            let dropped = page.dropped_bytes.unwrap_or(0).saturating_sub(seen);
            printer.dropped(dropped).await?;
            seen = seen.saturating_add(dropped);
        }
        if let (None, true, Some(code)) = (exit, page.exited, page.exit_code) {
            exit_seq = page.exit_seq.unwrap_or(u64::MAX);
            exit = Some(ExitStatus { code, sandbox_denied: page.sandbox_denied, timed_out: page.timed_out });
        }
        let is_last = match stop_at {
            StopAt::Seq(end) => page.next_seq >= end || page.chunks.is_empty(),
            StopAt::Closed => page.closed && page.chunks.is_empty(),
        };
        for OutputChunk { seq, stream, chunk } in page.chunks {
            // Descendants may have written after the process had exited.
            if let Some(exit) = exit.filter(|_| exit_seq < seq && !exit_is_printed) {
                exit_is_printed = true;
                printer.event(&exited(exit_seq, exit)).await?;
            }
            seen = seen.saturating_add(chunk.0.len() as u64);
            let output = ProcessOutputChunk { seq, stream, chunk: chunk.0.into() };
            printer.event(&ExecProcessEvent::Output(output)).await?;
        }
        if let Some(exit) = exit.filter(|_| (is_last || exit_seq < page.next_seq) && !exit_is_printed) {
            exit_is_printed = true;
            printer.event(&exited(exit_seq, exit)).await?;
        }
        if is_last {
            // Prints an incomplete character that was held back for JSON, whether or not the process goes on.
            printer.event(&ExecProcessEvent::Closed { seq: page.next_seq }).await?;
            return match (stop_at, exit) {
                (StopAt::Seq(_), _) => Ok(ExitCode::SUCCESS),
                (StopAt::Closed, Some(exit)) => Ok(exit_code::of_command(exit)),
                (StopAt::Closed, None) => anyhow::bail!("the server did not say how the process `{id}` ended"),
            };
        }
        if is_further {
            after = page.next_seq - 1;
        } else {
            tokio::time::sleep(POLL_PAUSE).await;
        }
    }
}

fn exited(seq: u64, exit: ExitStatus) -> ExecProcessEvent {
    let ExitStatus { code: exit_code, sandbox_denied, timed_out } = exit;
    ExecProcessEvent::Exited { seq, exit_code, sandbox_denied: Some(sandbox_denied), timed_out }
}

async fn follow(client: &ExecServerClient, id: &ProcessId, printer: &mut EventPrinter) -> anyhow::Result<ExitCode> {
    let process = client.attach(id.clone()).await?;
    if process.lost_bytes() > 0 {
        printer.dropped(process.lost_bytes()).await?;
    }
    let mut events = process.events();
    let mut exited = None;
    while let Some(event) = events.next().await {
        printer.event(&event).await?;
        match event {
            ExecProcessEvent::Exited { exit_code: code, sandbox_denied, timed_out, .. } => {
                exited = Some(ExitStatus { code, sandbox_denied: sandbox_denied.unwrap_or(false), timed_out });
            }
            ExecProcessEvent::Failed(text) => {
                return Err(anyhow::Error::msg(text).context("cannot follow the process any longer"));
            }
            ExecProcessEvent::Output(_) | ExecProcessEvent::Closed { .. } => {}
        }
    }
    let status = match exited {
        Some(status) => status,
        // The exit is older than the retained events.
        None => process.wait().await.context("the server did not say how the process ended")?,
    };
    Ok(exit_code::of_command(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_process_is_told_by_its_kind_and_not_by_its_words() {
        let refusal = |data: Option<&str>| {
            let data = data.map(|kind| Box::new(protocol::ErrorData::of_kind(kind)));
            anyhow::Error::new(ExecServerError::Server { code: -32600, message: "no such thing".to_owned(), data })
        };
        assert!(is_unknown_process(&refusal(Some("unknownProcess"))));
        assert!(!is_unknown_process(&refusal(Some("sessionResumedElsewhere"))));
        assert!(!is_unknown_process(&refusal(None)));
    }
}
