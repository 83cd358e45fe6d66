//! `logs`: what a process of a kept session has written, and with `-f` what it goes on to write. The process is neither ended nor made to
//! wait, and whoever else follows it misses nothing of what was only looked at.

use std::process::ExitCode;

use anyhow::Context as _;
use client::{
    ExecProcessEvent, ExecServerClient, ExecServerError, ExitStatus, ProcessId, ProcessOutputChunk, ReadParams,
};
use protocol::{OutputChunk, error_kind};

use super::args::LogsArgs;
use super::event_printer::EventPrinter;
use super::reach::Destination;
use super::status;

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
        Err(error) if is_unknown_process(&error) => {
            anyhow::bail!("there is no process `{id}` in the session `{name}`; `exec-server ps` lists them")
        }
        // Whoever read our output has seen enough.
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        result => result,
    }
}

fn is_unknown_process(error: &anyhow::Error) -> bool {
    let refusal = error.downcast_ref::<ExecServerError>();
    refusal.is_some_and(|refusal| refusal.is_of_kind(error_kind::UNKNOWN_PROCESS))
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
    let (mut after, mut seen, mut exit) = (0, 0, None);
    loop {
        let params = ReadParams { process_id: id.clone(), after_seq: Some(after), max_bytes: None, wait_ms: Some(0) };
        let page = client.read(params).await?;
        if page.gap {
            let dropped = page.dropped_bytes.unwrap_or(0).saturating_sub(seen);
            printer.dropped(dropped).await?;
            seen += dropped;
        }
        if exit.is_none() {
            exit = page.exit_code.filter(|_| page.exited).map(|exit_code| ExecProcessEvent::Exited {
                seq: page.exit_seq.unwrap_or(u64::MAX),
                exit_code,
                sandbox_denied: Some(page.sandbox_denied),
                timed_out: page.timed_out,
            });
        }
        let is_last = page.next_seq >= end || page.chunks.is_empty();
        for OutputChunk { seq, stream, chunk } in page.chunks {
            // Descendants may have written after it had exited.
            let is_before =
                matches!(&exit, Some(ExecProcessEvent::Exited { seq: exit, .. }) if (after..seq).contains(exit));
            if let Some(exit) = exit.as_ref().filter(|_| is_before) {
                printer.event(exit).await?;
            }
            seen += chunk.0.len() as u64;
            after = seq;
            let output = ProcessOutputChunk { seq, stream, chunk: chunk.0.into() };
            printer.event(&ExecProcessEvent::Output(output)).await?;
        }
        if is_last {
            let is_after = matches!(&exit, Some(ExecProcessEvent::Exited { seq, .. }) if *seq > after);
            if let Some(exit) = exit.as_ref().filter(|_| is_after) {
                printer.event(exit).await?;
            }
            // Nothing more is printed, whether or not it goes on.
            printer.event(&ExecProcessEvent::Closed { seq: page.next_seq }).await?;
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
    let mut exited = None;
    while let Some(event) = events.next().await {
        printer.event(&event).await?;
        match event {
            ExecProcessEvent::Exited { exit_code: code, sandbox_denied, timed_out, .. } => {
                exited = Some(ExitStatus { code, sandbox_denied: sandbox_denied.unwrap_or(false), timed_out });
            }
            ExecProcessEvent::Failed(text) => {
                return Err(anyhow::Error::msg(text).context("cannot follow it further"));
            }
            ExecProcessEvent::Output(_) | ExecProcessEvent::Closed { .. } => {}
        }
    }
    let status = match exited {
        Some(status) => status,
        // Its exit is older than what is retained.
        None => process.wait().await.context("it is not known how it ended")?,
    };
    Ok(status::of_command(status))
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
