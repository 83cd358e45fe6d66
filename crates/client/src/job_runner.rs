//! The task that does the background jobs of a client, the work that no caller waits for. If a connection is lost, an
//! unfinished job goes on over the next connection. The jobs are divided into lanes (see [`JobLane`]), and no lane
//! waits for another. When the client closes, the task does the remaining jobs and closes the connection. Start with
//! `run`.

mod forget;

use std::sync::Arc;
use std::time::Duration;

use protocol::fs::CloseParams;
use protocol::{HttpFlowParams, ProcessFlowParams, ProcessId, ProcessIdParams, ReadParams, StartResult, methods};
use tokio::task::JoinSet;

use crate::client_core::{CallOptions, ClientCore};
use crate::error::ExecServerError;
use crate::jobs::{BackgroundJob, JobLane};
use crate::process;
use crate::records::{Backlog, ProcessRecord};
use crate::rpc::{CallError, CallSlot, PendingCall};

/// How long a missing event may take to come before the client asks for it. Only old servers send events out of order.
const MISSING_EVENT_WAIT: Duration = Duration::from_millis(250);
/// After this many reads in a row without the missing event, the client stops following the process. The client waits
/// longer before each further read.
const MAX_FRUITLESS_READS: u32 = 5;
/// Wait before a job repeats a request that was refused because the connection had too many unanswered calls.
const BUSY_WAIT: Duration = Duration::from_millis(50);
/// How long a closing client works on its remaining jobs at most.
const LAST_JOBS_TIMEOUT: Duration = Duration::from_secs(2);

/// Does jobs until the client is closed. Then it does the remaining jobs and closes the connection.
pub(crate) async fn run(core: Arc<ClientCore>) {
    let mut lanes = JoinSet::new();
    lanes.spawn(terminate_all(Arc::clone(&core)));
    lanes.spawn(forget::forget_all(Arc::clone(&core)));
    let mut parallel = JoinSet::new();
    let jobs = core.inbound.jobs();
    loop {
        tokio::select! {
            biased;
            Some((job, unfinished)) = jobs.next(JobLane::Parallel) => {
                let core = Arc::clone(&core);
                parallel.spawn(async move {
                    do_job(&core, job).await;
                    // From now on the job counts as finished.
                    drop(unfinished);
                });
            }
            Some(_) = parallel.join_next() => {}
            () = core.closing.cancelled() => break,
        }
    }
    core.inbound.terminate_own_processes();
    while let Some((job, _)) = jobs.try_next(JobLane::Parallel) {
        let core = Arc::clone(&core);
        parallel.spawn(async move { do_job(&core, job).await });
    }
    let finish = async {
        while parallel.join_next().await.is_some() {}
        // The other lanes end only now, because the job of an abandoned start may have added a termination.
        jobs.drain();
        while lanes.join_next().await.is_some() {}
    };
    let _finished_or_timed_out = tokio::time::timeout(LAST_JOBS_TIMEOUT, finish).await;
    // Tasks that are out of time end here. One of them may be a termination, which has the connection's only slot for
    // cleanup calls. The last request of `core.stop` needs this slot.
    parallel.shutdown().await;
    lanes.shutdown().await;
    jobs.end();
    core.stop().await;
}

async fn do_job(core: &ClientCore, job: BackgroundJob) {
    match job {
        BackgroundJob::AbandonedStart { process, call } => settle_abandoned_start(core, process, call).await,
        BackgroundJob::FillHole(record) => fill_hole(core, &record).await,
        BackgroundJob::SendFlow(record) => send_flow(core, &record).await,
        BackgroundJob::SendBodyFlow(backlog) => send_body_flow(core, &backlog).await,
        BackgroundJob::CloseFile(handle) => close_file(core, handle).await,
        // Other lanes do these jobs.
        BackgroundJob::Terminate(_) | BackgroundJob::Forget(_) => {}
    }
}

/// Does the jobs of the lane `Terminations`: kills processes, one after the other. Each request is repeated over new
/// connections until the server has answered or the client has failed.
async fn terminate_all(core: Arc<ClientCore>) {
    let options = CallOptions { slot: CallSlot::Cleanup, ..CallOptions::WAIT };
    while let Some((job, _unfinished)) = core.inbound.jobs().next(JobLane::Terminations).await {
        let BackgroundJob::Terminate(process_id) = job else { continue };
        let params = ProcessIdParams { process_id };
        loop {
            match core.call_until_lost::<methods::ProcessTerminate>(&params, options).await {
                Ok(None) => continue,
                Ok(Some(_)) => tracing::debug!(process = %params.process_id, "terminated"),
                Err(error) => tracing::debug!(process = %params.process_id, %error, "cannot terminate"),
            }
            break;
        }
    }
}

/// Waits for the answer to a start whose caller has dropped the future. Then kills the process, unless the start was
/// never sent or the server has refused it.
async fn settle_abandoned_start(core: &ClientCore, process: ProcessId, call: PendingCall) {
    let answer = call.answer::<StartResult>().await;
    core.note_start_finished();
    if !matches!(answer, Err(CallError::NotSent | CallError::Failed(ExecServerError::Server { .. }))) {
        core.inbound.add_job(BackgroundJob::Terminate(process));
    }
}

/// A hole is a missing event before events that have come. Waits a short time for the server to push the missing
/// event, and then reads it.
async fn fill_hole(core: &ClientCore, record: &Arc<ProcessRecord>) {
    let mut fruitless_reads = 0;
    tokio::time::sleep(MISSING_EVENT_WAIT).await;
    while record.has_hole() && !record.is_over() {
        let last = record.last_seq();
        match process::read(core, ReadParams::after(record.id.clone(), record.last_seq())).await {
            Ok(answer) => core.catch_up(record, Ok(answer)),
            Err(ExecServerError::TooManyRequests(_)) => {
                tokio::time::sleep(BUSY_WAIT).await;
                continue;
            }
            Err(error @ ExecServerError::Server { .. }) => core.catch_up(record, Err(error)),
            // The client has failed, or cannot use the answer. If the process goes on, its next event adds this job
            // again.
            Err(error) => {
                tracing::debug!(process = %record.id, %error, "cannot ask for missing events");
                break;
            }
        }
        if record.last_seq() > last || record.is_over() {
            fruitless_reads = 0;
            continue;
        }
        fruitless_reads += 1;
        if fruitless_reads == MAX_FRUITLESS_READS {
            let missing = last + 1;
            core.fail_process(record, &format!("the server sent later events and does not have event {missing}"));
            break;
        }
        tokio::time::sleep(MISSING_EVENT_WAIT * fruitless_reads).await;
    }
    record.note_hole_filling_ended();
}

/// Asks the server to pause or resume the events of a process, until the server has confirmed what the record wants.
/// A process whose events are paused has to wait when the output that the server retains for it is full.
async fn send_flow(core: &ClientCore, record: &ProcessRecord) {
    match core.capabilities().await {
        Ok(capabilities) if capabilities.process_flow => {}
        // The server cannot pause events, so a subscriber that is too slow misses events and gets an error. The
        // record still counts this job as running, so no further job of this kind is added.
        Ok(_) => return,
        Err(_) => return record.note_flow_failed(),
    }
    loop {
        let paused = record.wants_pause();
        let params = ProcessFlowParams { process_id: record.id.clone(), paused };
        match core.call::<methods::ProcessFlow>(&params, CallOptions::WAIT).await {
            Ok(_) => {}
            // Giving up here could leave the process paused for ever.
            Err(ExecServerError::TooManyRequests(_)) if !record.is_over() => {
                tokio::time::sleep(BUSY_WAIT).await;
                continue;
            }
            Err(error) => {
                tracing::debug!(process = %record.id, %error, "cannot pause or resume a process");
                return record.note_flow_failed();
            }
        }
        let must_send_opposite = record.note_flow_confirmed(paused);
        if !must_send_opposite {
            return;
        }
    }
}

/// As [`send_flow`], for a streamed HTTP body.
async fn send_body_flow(core: &ClientCore, backlog: &Backlog) {
    loop {
        let paused = backlog.wants_pause();
        let params = HttpFlowParams { request_id: backlog.id().to_owned(), paused };
        match core.call::<methods::HttpFlow>(&params, CallOptions::WAIT).await {
            Ok(_) => {}
            Err(ExecServerError::TooManyRequests(_)) => {
                tokio::time::sleep(BUSY_WAIT).await;
                continue;
            }
            // The client has failed, and the body with it, or the server has refused. The backlog still counts this
            // job as running, so no further job of this kind is added.
            Err(_) => return,
        }
        let must_send_opposite = backlog.note_flow_confirmed(paused);
        if !must_send_opposite {
            return;
        }
    }
}

/// Closes a file, or cancels an upload. Many files are closed in parallel, so that closing keeps up with opening
/// however long a round trip takes.
async fn close_file(core: &ClientCore, handle_id: String) {
    let params = CloseParams { handle_id };
    loop {
        match core.call::<methods::FsClose>(&params, CallOptions::FILE_REQUEST).await {
            Err(ExecServerError::TooManyRequests(_)) => tokio::time::sleep(BUSY_WAIT).await,
            Err(error) => return tracing::debug!(%error, "cannot close a file"),
            Ok(_) => return,
        }
    }
}
