//! `logs`: what a process of a kept session has written, and with `-f` what it goes on to write. The process is neither ended nor made to
//! wait, and whoever else follows it misses nothing of what was only looked at.

use std::process::ExitCode;

use anyhow::Context as _;
use client::{ExecProcessEvent, ExecServerClient, ExecServerError, ExitStatus, ProcessId, ReadParams};

use super::args::LogsArgs;
use super::event_printer::EventPrinter;
use super::exit_code;
use super::reach::Destination;

/// Prints them.
pub(crate) async fn logs(args: LogsArgs) -> anyhow::Result<ExitCode> {
    let name = &args.session.session;
    let client = Destination::choose(&args.r#where)?.connect_to_session(name, None).await?;
    let id = ProcessId::from(args.id.as_str());
    let mut printer = EventPrinter::new(args.json);
    let result = if args.follow {
        follow(&client, &id, &mut printer).await
    } else {
        print_retained(&client, &id, &mut printer).await
    };
    client.close().await;
    match result {
        Err(error) if is_unknown(&error, &id) => {
            anyhow::bail!("there is no process `{id}` in the session `{name}`; `exec-server ps` lists them")
        }
        // Whoever read our output has seen enough.
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        result => result,
    }
}

fn is_unknown(error: &anyhow::Error, id: &ProcessId) -> bool {
    let unknown = format!("unknown process id {id}");
    matches!(error.downcast_ref(), Some(ExecServerError::Server { message, .. }) if *message == unknown)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

async fn print_retained(
    client: &ExecServerClient,
    id: &ProcessId,
    printer: &mut EventPrinter,
) -> anyhow::Result<ExitCode> {
    // While it is paused, to read is only to look. What it writes from now on is not for us.
    if client.capabilities().await?.process_flow {
        client.pause(id, true).await?;
    }
    let processes = client.processes().await?;
    let end = processes.iter().find(|process| process.process_id == *id).map_or(u64::MAX, |process| process.next_seq);
    let (mut after, mut seen, mut exit_is_told) = (0, 0, false);
    loop {
        let params = ReadParams { process_id: id.clone(), after_seq: Some(after), max_bytes: None, wait_ms: Some(0) };
        let page = client.read(params).await?;
        if page.gap {
            let dropped = page.dropped_bytes.unwrap_or(0).saturating_sub(seen);
            printer.dropped(dropped).await?;
            seen += dropped;
        }
        let exit = page.exit_code.filter(|_| page.exited).map(|code| ExitStatus {
            code,
            sandbox_denied: page.sandbox_denied,
            timed_out: page.timed_out,
        });
        for chunk in &page.chunks {
            if let Some(exit) = exit.filter(|_| !exit_is_told && page.exit_seq.is_some_and(|seq| seq < chunk.seq)) {
                printer.exited(exit).await?;
                exit_is_told = true;
            }
            printer.output(chunk.stream, &chunk.chunk.0).await?;
            seen += chunk.chunk.0.len() as u64;
        }
        let is_last = page.next_seq >= end || page.chunks.is_empty();
        if let Some(exit) = exit.filter(|_| is_last && !exit_is_told) {
            printer.exited(exit).await?;
        }
        if is_last {
            return Ok(ExitCode::SUCCESS);
        }
        after = page.next_seq - 1;
    }
}

async fn follow(client: &ExecServerClient, id: &ProcessId, printer: &mut EventPrinter) -> anyhow::Result<ExitCode> {
    let process = client.attach(id.clone()).await?;
    if process.lost_bytes() > 0 {
        printer.dropped(process.lost_bytes()).await?;
    }
    let mut events = process.events();
    let mut status = None;
    while let Some(event) = events.next().await {
        match event {
            ExecProcessEvent::Output(output) => printer.output(output.stream, &output.chunk).await?,
            ExecProcessEvent::Exited { exit_code, sandbox_denied, timed_out, .. } => {
                let sandbox_denied = sandbox_denied.unwrap_or(false);
                let exit = ExitStatus { code: exit_code, sandbox_denied, timed_out };
                printer.exited(exit).await?;
                status = Some(exit);
            }
            ExecProcessEvent::Closed { .. } => {}
            ExecProcessEvent::Failed(text) => {
                return Err(anyhow::Error::msg(text).context("cannot follow it further"));
            }
        }
    }
    let status = match status {
        Some(status) => status,
        // Its exit is older than what is retained.
        None => {
            let status = process.wait().await.context("it is not known how it ended")?;
            printer.exited(status).await?;
            status
        }
    };
    Ok(exit_code(status.code))
}
