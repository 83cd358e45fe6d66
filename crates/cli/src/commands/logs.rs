//! `logs`: prints the retained output of a process of a kept session, which outlives the command that made it, and
//! with `-f` the output that follows. If the server drops output before it was read, a line says how many bytes are
//! missing. The command observes the session: another client can stay attached, and the process never waits, however
//! slowly the output is read. On a server without the capability `sessionObserve`, the command takes the session
//! over.

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
use super::print::{is_broken_pipe, wait_until_stdout_closes};
use super::reattach_hint::ReattachHint;

/// How long the server may wait for new output before it answers without any.
const LONGEST_WAIT_MS: u64 = 30_000;
/// Pause after an answer without new output, for a server that answers at once although it may wait.
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
            // On a server without `sessionObserve`, this command has taken the session over and receives its events.
            (true, false) => follow_events(&client, &id, &mut printer).await,
            (true, true) => print_pages(&client, &id, &mut printer, StopAt::Closed).await,
            (false, observes) => print_retained(&client, &id, &mut printer, observes).await,
        }
    };
    let result = tokio::select! {
        result = printing => result,
        () = wait_until_stdout_closes() => Ok(ExitCode::from(BROKEN_PIPE)),
    };
    let hint = ReattachHint { target: &args.target, session: name, id: &id };
    let result = if args.follow { result.map_err(|error| hint.follow_error(error, &client)) } else { result };
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
    // If this command had to take the session over, its reads would acknowledge the output, which the server could
    // then drop. While the events of the process are paused, reads acknowledge nothing.
    if !observes && client.capabilities().await?.process_flow {
        client.pause(id, true).await?;
    }
    // Without `-f`, this command does not wait for more output: it stops at the end that the output has now.
    let processes = client.processes().await?;
    let end = processes.iter().find(|process| process.process_id == *id).map_or(u64::MAX, |process| process.next_seq);
    print_pages(client, id, printer, StopAt::Seq(end)).await
}

/// The point at which printing stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopAt {
    /// After the page with the last event before this number. Later output on the same page is printed too.
    Seq(u64),
    /// When the process is closed, so that no output can follow.
    Closed,
}

/// Reads and prints the retained output page by page. With [`StopAt::Closed`] it also prints the output that follows,
/// and returns the exit code of the process.
async fn print_pages(
    client: &ExecServerClient,
    id: &ProcessId,
    printer: &mut EventPrinter,
    stop_at: StopAt,
) -> anyhow::Result<ExitCode> {
    // The number of the last event that was read, and how many bytes of output were printed or reported as dropped.
    let (mut after, mut seen_bytes) = (0, 0);
    let (mut exit, mut exit_seq) = (None, u64::MAX);
    let mut exit_is_printed = false;
    let wait_ms = if stop_at == StopAt::Closed { LONGEST_WAIT_MS } else { 0 };
    loop {
        let params = ReadParams { wait_ms: Some(wait_ms), ..ReadParams::after(id.clone(), after) };
        let page = client.read(params).await?;
        let has_advanced = page.next_seq > after + 1;
        anyhow::ensure!(
            has_advanced || page.chunks.is_empty(),
            "the server repeats output of the process `{id}` that it has sent before"
        );
        if page.gap {
            let dropped = page.dropped_bytes.unwrap_or(0).saturating_sub(seen_bytes);
            printer.print_dropped(dropped).await?;
            seen_bytes = seen_bytes.saturating_add(dropped);
        }
        if exit.is_none() {
            exit = ExitStatus::of_answer(&page);
            exit_seq = page.exit_seq.unwrap_or(u64::MAX);
        }
        let is_last = match stop_at {
            StopAt::Seq(end) => page.next_seq >= end || page.chunks.is_empty(),
            StopAt::Closed => page.closed && page.chunks.is_empty(),
        };
        for OutputChunk { seq, stream, chunk } in page.chunks {
            // Descendants may have written after the process had exited. The exit is printed before their output.
            if let Some(exit) = exit.as_ref().filter(|_| exit_seq < seq && !exit_is_printed) {
                exit_is_printed = true;
                printer.print_event(&exited(exit_seq, exit)).await?;
            }
            seen_bytes = seen_bytes.saturating_add(chunk.0.len() as u64);
            let output = ProcessOutputChunk { seq, stream, chunk: chunk.0.into() };
            printer.print_event(&ExecProcessEvent::Output(output)).await?;
        }
        if let Some(exit) = exit.as_ref().filter(|_| (is_last || exit_seq < page.next_seq) && !exit_is_printed) {
            exit_is_printed = true;
            printer.print_event(&exited(exit_seq, exit)).await?;
        }
        if is_last {
            // The printer treats this as the end of the output, and prints an incomplete character that it has held
            // back for JSON. The process itself may go on.
            printer.print_event(&ExecProcessEvent::Closed { seq: page.next_seq }).await?;
            return match (stop_at, exit) {
                (StopAt::Seq(_), _) => Ok(ExitCode::SUCCESS),
                (StopAt::Closed, Some(exit)) => Ok(exit_code::of_command(&exit)),
                (StopAt::Closed, None) => anyhow::bail!("the server did not say how the process `{id}` ended"),
            };
        }
        if has_advanced {
            after = page.next_seq - 1;
        } else {
            tokio::time::sleep(POLL_PAUSE).await;
        }
    }
}

/// The event that reports this exit.
fn exited(seq: u64, exit: &ExitStatus) -> ExecProcessEvent {
    ExecProcessEvent::Exited {
        seq,
        exit_code: exit.code,
        sandbox_denied: Some(exit.sandbox_denied),
        sandbox_denials: exit.sandbox_denials.clone(),
        timed_out: exit.timed_out,
        resources: exit.resources,
    }
}

/// Prints the output until the process is closed, on a server without `sessionObserve`. Returns the exit code of the
/// process.
async fn follow_events(
    client: &ExecServerClient,
    id: &ProcessId,
    printer: &mut EventPrinter,
) -> anyhow::Result<ExitCode> {
    let process = client.attach(id.clone()).await?;
    if process.lost_bytes() > 0 {
        printer.print_dropped(process.lost_bytes()).await?;
    }
    let mut events = process.events();
    let mut exited = None;
    while let Some(event) = events.next().await {
        printer.print_event(&event).await?;
        match event {
            ExecProcessEvent::Exited { .. } => exited = event.exit_status(),
            ExecProcessEvent::Failed(text) => {
                return Err(anyhow::Error::msg(text).context("cannot follow the process any longer"));
            }
            ExecProcessEvent::Output(_) | ExecProcessEvent::Closed { .. } => {}
        }
    }
    let status = match exited {
        Some(status) => status,
        // The exit is older than the events that the server still retained.
        None => process.wait().await.context("the server did not say how the process ended")?,
    };
    Ok(exit_code::of_command(&status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_process_is_recognized_by_the_kind_of_the_error_and_not_by_its_text() {
        let refusal = |data: Option<&str>| {
            let data = data.map(|kind| Box::new(protocol::ErrorData::of_kind(kind)));
            anyhow::Error::new(ExecServerError::Server { code: -32600, message: "no such thing".to_owned(), data })
        };
        assert!(is_unknown_process(&refusal(Some("unknownProcess"))));
        assert!(!is_unknown_process(&refusal(Some("sessionResumedElsewhere"))));
        assert!(!is_unknown_process(&refusal(None)));
    }
}
