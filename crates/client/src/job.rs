//! What the client does beside its callers' calls, so that nothing is left behind and nothing stands still.

use std::sync::Arc;
use std::time::Duration;

use protocol::fs::CloseParams;
use protocol::{ProcessId, ProcessIdParams, ReadParams, methods};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::error::ExecServerError;
use crate::forget::{Forgotten, forget_all};
use crate::http::Backlog;
use crate::process::{self, entry::Entry};
use crate::rpc::{CallError, PendingCall, Slot};
use crate::shared::{CallOptions, Shared};

/// How long a missing event may take before it is asked for. Events are pushed in order; only an old server mixes them up.
const HOLE_PATIENCE: Duration = Duration::from_millis(250);
/// How many reads in a row may bring nothing of a missing event before the process fails. Each waits longer than the one before.
const FRUITLESS_READS: u32 = 5;
/// How long to wait for one of a thousand calls to end.
const BUSY_PATIENCE: Duration = Duration::from_millis(50);
/// How long a client that nobody uses any more takes to end what it has started.
const LAST_JOBS: Duration = Duration::from_secs(2);

/// One thing to do.
pub(crate) enum Job {
    /// End a process that nobody wants any more.
    Terminate(ProcessId),
    /// A start whose caller is gone: wait for its answer, then end the process.
    AbandonedStart { process: ProcessId, call: PendingCall },
    /// Ask for what should have been pushed.
    FillHole(Arc<Entry>),
    /// Tell a process to wait, or to go on.
    TellFlow(Arc<Entry>),
    /// Tell the body of an HTTP answer to wait, or to go on.
    TellBodyFlow(Arc<Backlog>),
    /// End something else that nobody wants any more.
    Forget(Forgotten),
    /// Close a file, or give up an upload, of this name.
    CloseFile(String),
}

/// Does jobs until the client is closed, and then those that are left.
pub(crate) async fn run(shared: Arc<Shared>, mut jobs: mpsc::UnboundedReceiver<Job>) {
    let mut running = JoinSet::new();
    // One at a time: a server keeps one place for them, and a thousand dropped handles are no reason for a thousand calls.
    let (terminations, to_terminate) = mpsc::unbounded_channel();
    running.spawn(terminate_all(Arc::clone(&shared), to_terminate));
    let (forgotten, to_forget) = mpsc::unbounded_channel();
    running.spawn(forget_all(Arc::clone(&shared), to_forget));
    let lanes = Lanes { terminations, forgotten };
    loop {
        tokio::select! {
            biased;
            job = jobs.recv() => {
                let Some(job) = job else { break };
                begin(&shared, job, &mut running, &lanes);
            }
            Some(_) = running.join_next() => {}
            () = shared.closing.cancelled() => break,
        }
    }
    shared.inbound.end_all_of_ours();
    while let Ok(job) = jobs.try_recv() {
        begin(&shared, job, &mut running, &lanes);
    }
    drop(lanes);
    let _out_of_time = tokio::time::timeout(LAST_JOBS, async { while running.join_next().await.is_some() {} }).await;
    // What is left has no more time, and its place is needed for the goodbye.
    running.shutdown().await;
    shared.stop().await;
}

/// What is done one after the other.
struct Lanes {
    terminations: mpsc::UnboundedSender<ProcessId>,
    forgotten: mpsc::UnboundedSender<Forgotten>,
}

fn begin(shared: &Arc<Shared>, job: Job, running: &mut JoinSet<()>, lanes: &Lanes) {
    match job {
        Job::Terminate(process) => {
            let _closed = lanes.terminations.send(process);
        }
        Job::AbandonedStart { process, call } => {
            running.spawn(abandoned_start(Arc::clone(shared), process, call, lanes.terminations.clone()));
        }
        Job::FillHole(entry) => {
            running.spawn(fill_hole(Arc::clone(shared), entry));
        }
        Job::TellFlow(entry) => {
            running.spawn(tell_flow(Arc::clone(shared), entry));
        }
        Job::TellBodyFlow(backlog) => {
            running.spawn(tell_body_flow(Arc::clone(shared), backlog));
        }
        Job::Forget(forgotten) => {
            let _closed = lanes.forgotten.send(forgotten);
        }
        Job::CloseFile(handle) => {
            running.spawn(close_file(Arc::clone(shared), handle));
        }
    }
}

/// Nobody reads these answers, so each request is repeated over new connections until the server has answered, or the client fails.
async fn terminate_all(shared: Arc<Shared>, mut processes: mpsc::UnboundedReceiver<ProcessId>) {
    while let Some(process) = processes.recv().await {
        let params = ProcessIdParams { process_id: process };
        let options = CallOptions { slot: Slot::Cleanup, ..CallOptions::WAIT };
        loop {
            match shared.call_until_lost::<methods::ProcessTerminate>(&params, options).await {
                Ok(None) => continue,
                Ok(Some(_)) => tracing::debug!(process = %params.process_id, "terminated"),
                Err(error) => tracing::debug!(process = %params.process_id, %error, "cannot terminate"),
            }
            break;
        }
    }
}

async fn abandoned_start(
    shared: Arc<Shared>,
    process: ProcessId,
    call: PendingCall,
    terminations: mpsc::UnboundedSender<ProcessId>,
) {
    let answer = call.answer::<protocol::StartResult>().await;
    shared.start_settled();
    if !matches!(answer, Err(CallError::NotSent | CallError::Failed(ExecServerError::Server { .. }))) {
        let _closed = terminations.send(process);
    }
}

async fn fill_hole(shared: Arc<Shared>, entry: Arc<Entry>) {
    let mut fruitless = 0;
    tokio::time::sleep(HOLE_PATIENCE).await;
    while entry.has_hole() && !entry.is_over() {
        let last = entry.last_seq();
        match process::read(&shared, ReadParams::after(entry.id.clone(), entry.last_seq())).await {
            Ok(answer) => shared.catch_up(&entry, Ok(answer)),
            Err(ExecServerError::TooManyRequests(_)) => {
                tokio::time::sleep(BUSY_PATIENCE).await;
                continue;
            }
            Err(error @ ExecServerError::Server { .. }) => shared.catch_up(&entry, Err(error)),
            // The next connection brings what is missing.
            Err(error) => {
                tracing::debug!(process = %entry.id, %error, "cannot ask for missing events");
                break;
            }
        }
        if entry.last_seq() > last || entry.is_over() {
            fruitless = 0;
            continue;
        }
        fruitless += 1;
        if fruitless == FRUITLESS_READS {
            let missing = last + 1;
            shared.fail_process(&entry, &format!("the server sent later events and does not have event {missing}"));
            break;
        }
        tokio::time::sleep(HOLE_PATIENCE * fruitless).await;
    }
    entry.hole_is_filled();
}

async fn tell_flow(shared: Arc<Shared>, entry: Arc<Entry>) {
    // An old server pushes as fast as it can; whoever is too slow then misses events and is told so.
    match shared.capabilities().await {
        Ok(capabilities) if capabilities.process_flow => {}
        // The flag stays: nobody is to try again.
        Ok(_) => return,
        Err(_) => return entry.flow_cannot_be_told(),
    }
    loop {
        let paused = entry.wants_pause();
        let params = protocol::ProcessFlowParams { process_id: entry.id.clone(), paused };
        match shared.call::<methods::ProcessFlow>(&params, CallOptions::WAIT).await {
            Ok(_) => {}
            // It would wait for ever if it is not told to go on.
            Err(ExecServerError::TooManyRequests(_)) if !entry.is_over() => {
                tokio::time::sleep(BUSY_PATIENCE).await;
                continue;
            }
            Err(error) => {
                tracing::debug!(process = %entry.id, %error, "cannot be made to wait or go on");
                return entry.flow_cannot_be_told();
            }
        }
        if !entry.flow_was_told(paused) {
            return;
        }
    }
}

async fn tell_body_flow(shared: Arc<Shared>, backlog: Arc<Backlog>) {
    loop {
        let paused = backlog.wants_pause();
        let params = protocol::HttpFlowParams { request_id: backlog.id().to_owned(), paused };
        match shared.call::<methods::HttpFlow>(&params, CallOptions::WAIT).await {
            Ok(_) => {}
            Err(ExecServerError::TooManyRequests(_)) => {
                tokio::time::sleep(BUSY_PATIENCE).await;
                continue;
            }
            // The body fails with the connection.
            Err(_) => return,
        }
        if !backlog.was_told(paused) {
            return;
        }
    }
}

/// All at once, so that files are closed as fast as they are opened, however far away they are.
async fn close_file(shared: Arc<Shared>, handle_id: String) {
    let params = CloseParams { handle_id };
    loop {
        match shared.call::<methods::FsClose>(&params, CallOptions::WAIT_FILES).await {
            Err(ExecServerError::TooManyRequests(_)) => tokio::time::sleep(BUSY_PATIENCE).await,
            Err(error) => return tracing::debug!(%error, "cannot close a file"),
            Ok(_) => return,
        }
    }
}
