//! Opening a connection: the request `initialize`, which opens or resumes a session (the server's state of this
//! client). If the session is resumed after a lost connection, the client also reads all events that it missed. Start
//! with [`open`] and [`resume`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use protocol::{
    EnvironmentInfo, InitializeParams, Method, NoResult, ReadParams, ReadResult, SessionId, notification,
};
use recovery::Generation;
use tokio_util::task::TaskTracker;

use crate::client_core::{ClientCore, capabilities_in};
use crate::connector::ServerConnector;
use crate::error::ExecServerError;
use crate::inbound::Inbound;
use crate::options::ExecServerClientConnectOptions;
use crate::records::{Feed, ProcessRecord};
use crate::rpc::{CallError, CallSlot, Rpc};

/// How many reads are sent before the client waits for the first answer.
const READS_AT_ONCE: usize = 512;

/// The bytes that all reads of missed events together ask for, after a connection was lost during these reads. Each
/// further loss halves the number.
const PAGES_BYTES: u64 = 16 * 1024;
/// Each read asks for at least this many bytes.
const SMALLEST_PAGE_BYTES: u64 = 1024;
const MOST_HALVINGS: u32 = (PAGES_BYTES / SMALLEST_PAGE_BYTES).ilog2();

/// Makes a connection and opens a new session, or resumes the session `resume`. `takeover` says whether to take that
/// session over from another client that is attached to it. `tasks` owns the tasks of the connection. Also returns
/// the id of the session, which is `None` from an old server.
pub(crate) async fn open(
    connector: &dyn ServerConnector,
    options: &ExecServerClientConnectOptions,
    inbound: &Arc<Inbound>,
    tasks: &TaskTracker,
    resume: Option<&SessionId>,
    takeover: bool,
) -> Result<(Arc<Rpc>, Option<SessionId>), ExecServerError> {
    let timeout = options.connect_timeout;
    let connection = tokio::time::timeout(timeout, connector.connect())
        .await
        .map_err(|_| ExecServerError::WebSocketConnectTimeout { url: connector.address(), timeout })??;
    let handler = Arc::clone(inbound);
    let rpc = Rpc::start(connection, handler, options.silence_timeout, tasks);
    let close_on_drop = CloseOnDrop(Some(&rpc));
    let timeout = options.initialize_timeout;
    let session = tokio::time::timeout(timeout, initialize(&rpc, options, resume, takeover))
        .await
        .map_err(|_| ExecServerError::InitializeTimedOut { timeout })??;
    close_on_drop.disarm();
    Ok((rpc, session))
}

async fn initialize(
    rpc: &Arc<Rpc>,
    options: &ExecServerClientConnectOptions,
    resume: Option<&SessionId>,
    takeover: bool,
) -> Result<Option<SessionId>, ExecServerError> {
    let params = InitializeParams {
        client_name: options.client_name.clone(),
        resume_session_id: resume.cloned(),
        keep_for_ms: options.keep_for.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        takeover,
        observe: options.observe,
    };
    let answer: protocol::InitializeResult =
        fail_if_lost(rpc, rpc.call(Method::Initialize.name(), &params, CallSlot::Ordinary).await)?;
    if let (Some(wanted), Some(got)) = (resume, &answer.session_id)
        && wanted != got
    {
        return Err(ExecServerError::Protocol(format!("exec-server initialized an unexpected session {got}")));
    }
    rpc.notify(notification::INITIALIZED, &NoResult {});
    Ok(answer.session_id)
}

/// The result of a call during the handshake. A lost connection becomes an error, because then the attempt to connect
/// has failed.
fn fail_if_lost<R>(rpc: &Rpc, result: Result<R, CallError>) -> Result<R, ExecServerError> {
    result.map_err(|error| match error {
        CallError::Failed(error) => error,
        CallError::NotSent | CallError::Lost => ExecServerError::Disconnected(rpc.disconnect_text()),
    })
}

/// Resumes the session over a new connection and reads the missed events of every process and every watch. If the
/// events of a process are lost, only that process fails. An error of this function means that the session could not
/// be resumed over this connection.
pub(crate) async fn resume(core: &ClientCore, generation: Generation) -> Result<Arc<Rpc>, ExecServerError> {
    let session = core.session.get();
    let takeover = false;
    let (rpc, _) = open(&*core.connector, &core.options, &core.inbound, &core.tasks, session, takeover).await?;
    let close_on_drop = CloseOnDrop(Some(&rpc));
    let processes = core.inbound.recoverable();
    let page = page_size(core, &rpc, processes.len()).await?;
    let mut progress = CatchUpProgress::default();
    for batch in processes.chunks(READS_AT_ONCE) {
        let caught_up = catch_up(core, &rpc, batch, page, &mut progress).await;
        if progress.has_output {
            // The recovery gets more time.
            core.attempt_progressed(generation);
        }
        if let Err(error) = caught_up {
            // If output has come, the reads are small enough.
            core.broken_catch_ups.fetch_add(u32::from(!progress.has_output), Ordering::Relaxed);
            return Err(error);
        }
    }
    resume_watches(core, &rpc).await?;
    close_on_drop.disarm();
    Ok(rpc)
}

/// The limit of each read, whose answer is then one page of the missed events. There is no limit until a connection
/// was lost during the catch-up, the reads of missed events. Then small pages let each connection bring some
/// progress. Servers without the capability `readGaps` never get a limit: they do not say the sequence number of the
/// exit, so the client could not tell one page from the whole answer.
async fn page_size(core: &ClientCore, rpc: &Arc<Rpc>, processes: usize) -> Result<Option<PageSize>, ExecServerError> {
    let broken = core.broken_catch_ups.load(Ordering::Relaxed);
    if broken == 0 {
        return Ok(None);
    }
    let capabilities = match core.known_capabilities() {
        Some(known) => known.clone(),
        None => {
            let info = rpc.call::<EnvironmentInfo>(Method::EnvironmentInfo.name(), &(), CallSlot::Ordinary).await;
            let received = capabilities_in(fail_if_lost(rpc, info))?;
            // The capabilities are remembered, so that not every connection has to carry them again.
            core.set_capabilities(&received);
            received
        }
    };
    let bytes = (PAGES_BYTES >> broken.saturating_sub(1).min(MOST_HALVINGS)) / (processes as u64).max(1);
    let size = PageSize { bytes: bytes.max(SMALLEST_PAGE_BYTES), cuts_chunks: capabilities.read_parts };
    Ok(capabilities.read_gaps.then_some(size))
}

/// The limit of one read.
#[derive(Clone, Copy)]
struct PageSize {
    bytes: u64,
    /// Whether the server sends a chunk (the output of one event) in parts if the chunk is larger than `bytes`.
    cuts_chunks: bool,
}

#[derive(Default)]
struct CatchUpProgress {
    /// Some output has come over this connection.
    has_output: bool,
}

/// Reads the missed events of these processes. A process is read again if only a part of a chunk has come.
async fn catch_up(
    core: &ClientCore,
    rpc: &Arc<Rpc>,
    processes: &[Arc<ProcessRecord>],
    page: Option<PageSize>,
    progress: &mut CatchUpProgress,
) -> Result<(), ExecServerError> {
    // A pause of the events ends with the connection over which the client asked for it.
    processes.iter().for_each(|record| record.feed(Feed::forget_pause));
    let mut waiting = processes.to_vec();
    while !waiting.is_empty() {
        waiting = read_once(core, rpc, &waiting, page, progress).await?;
    }
    Ok(())
}

/// Sends one read for each process, and then waits for all answers. Returns the processes for which only a part of a
/// chunk has come.
async fn read_once(
    core: &ClientCore,
    rpc: &Arc<Rpc>,
    processes: &[Arc<ProcessRecord>],
    page: Option<PageSize>,
    progress: &mut CatchUpProgress,
) -> Result<Vec<Arc<ProcessRecord>>, ExecServerError> {
    let mut reads = Vec::with_capacity(processes.len());
    for record in processes {
        let params = ReadParams {
            max_bytes: page.map(|page| page.bytes),
            part: page.filter(|page| page.cuts_chunks).map(|_| record.begun_part()),
            ..ReadParams::after(record.id.clone(), record.last_seq())
        };
        reads.push(fail_if_lost(rpc, rpc.begin(Method::ProcessRead.name(), &params, CallSlot::Ordinary).await)?);
    }
    // The server counts the events of an answer that has come as received, and may drop them. So each answer is used,
    // even after another answer was lost.
    let (mut outcome, mut partial) = (Ok(()), Vec::new());
    for (record, read) in processes.iter().zip(reads) {
        match read.answer::<ReadResult>().await {
            Ok(answer) => {
                progress.has_output |= !answer.chunks.is_empty();
                partial.extend(answer.partial.then(|| Arc::clone(record)));
                core.catch_up(record, Ok(answer));
            }
            Err(CallError::Failed(error)) => core.catch_up(record, Err(error)),
            lost @ Err(_) => outcome = fail_if_lost(rpc, lost.map(drop)),
        }
    }
    outcome.map(|()| partial)
}

/// Asks for the missed changes of every watch. A watch that the server no longer knows is begun again. If a watch fails, only that watch
/// ends.
async fn resume_watches(core: &ClientCore, rpc: &Arc<Rpc>) -> Result<(), ExecServerError> {
    let watches = core.inbound.watches.recoverable();
    let mut calls = Vec::with_capacity(watches.len());
    for record in &watches {
        calls.push(fail_if_lost(
            rpc,
            rpc.begin(Method::FsWatch.name(), &record.resume_params(), CallSlot::Ordinary).await,
        )?);
    }
    for (record, call) in watches.iter().zip(calls) {
        let resumed = match call.answer::<NoResult>().await {
            Err(CallError::Failed(error)) if error.is_not_found() => {
                record.note_lost_by_server();
                rpc.call::<NoResult>(Method::FsWatch.name(), &record.begin_params(), CallSlot::Ordinary).await
            }
            other => other,
        };
        match resumed {
            Ok(_) => {}
            Err(CallError::Failed(error)) => record.fail(error),
            lost @ Err(_) => fail_if_lost(rpc, lost.map(drop))?,
        }
    }
    Ok(())
}

/// Closes a connection whose handshake fails or is given up.
struct CloseOnDrop<'a>(Option<&'a Rpc>);

impl CloseOnDrop<'_> {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(rpc) = self.0 {
            rpc.close("the attempt to connect was given up");
        }
    }
}
