//! The first words over a new connection, and catching up with what was missed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use protocol::{
    EnvironmentInfo, InitializeParams, Method, NoResult, ReadParams, ReadResult, SessionId, notification,
};

use recovery::Generation;

use crate::connector::Connector;
use crate::error::ExecServerError;
use crate::inbound::Inbound;
use crate::options::ExecServerClientConnectOptions;
use crate::process::entry::Entry;
use crate::rpc::{CallError, Rpc, Slot};
use crate::shared::{Shared, known_capabilities};
use crate::watch;

/// Reads that are asked for before the first answer is waited for.
const READS_AT_ONCE: usize = 512;

/// What all of them are to bring together where connections do not hold, and what one brings at least. Each connection that breaks
/// all the same halves it.
const PAGES_BYTES: u64 = 16 * 1024;
const SMALLEST_PAGE: u64 = 1024;
const MOST_HALVINGS: u32 = (PAGES_BYTES / SMALLEST_PAGE).ilog2();

/// Connects and opens the session, or resumes `resume`.
pub(crate) async fn open(
    connector: &dyn Connector,
    options: &ExecServerClientConnectOptions,
    inbound: &Arc<Inbound>,
    resume: Option<&SessionId>,
    takeover: bool,
) -> Result<(Arc<Rpc>, Option<SessionId>), ExecServerError> {
    let timeout = options.connect_timeout;
    let connection = tokio::time::timeout(timeout, connector.connect())
        .await
        .map_err(|_| ExecServerError::WebSocketConnectTimeout { url: connector.place(), timeout })??;
    let rpc = Rpc::start(connection, Arc::clone(inbound), options.silence_timeout);
    let closes_if_dropped = CloseOnDrop(Some(&rpc));
    let timeout = options.initialize_timeout;
    let session = tokio::time::timeout(timeout, initialize(&rpc, options, resume, takeover))
        .await
        .map_err(|_| ExecServerError::InitializeTimedOut { timeout })??;
    closes_if_dropped.disarm();
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
        answered(rpc, rpc.call(Method::Initialize.name(), &params, Slot::Ordinary).await)?;
    if let (Some(wanted), Some(got)) = (resume, &answer.session_id)
        && wanted != got
    {
        return Err(ExecServerError::Protocol(format!("exec-server initialized an unexpected session {got}")));
    }
    rpc.notify(notification::INITIALIZED, &NoResult {});
    Ok(answer.session_id)
}

/// A call over a connection that is not the client's yet: its loss is the attempt's failure.
fn answered<R>(rpc: &Rpc, result: Result<R, CallError>) -> Result<R, ExecServerError> {
    result.map_err(|error| match error {
        CallError::Failed(error) => error,
        CallError::NotSent | CallError::Lost => ExecServerError::Disconnected(rpc.disconnect_text()),
    })
}

/// Resumes the session over a new connection and brings every process up to date. Fails only if the connection does.
pub(crate) async fn resume(shared: &Shared, generation: Generation) -> Result<Arc<Rpc>, ExecServerError> {
    let session = shared.session.get();
    let (rpc, _) = open(&*shared.connector, &shared.options, &shared.inbound, session, false).await?;
    let closes_if_dropped = CloseOnDrop(Some(&rpc));
    let processes = shared.inbound.recoverable();
    let page = page_size(shared, &rpc, processes.len()).await?;
    let mut progress = CatchUpProgress::default();
    for some in processes.chunks(READS_AT_ONCE) {
        let caught_up = catch_up(shared, &rpc, some, page, &mut progress).await;
        if progress.has_come_further {
            shared.attempt_progressed(generation);
        }
        if let Err(error) = caught_up {
            // A size with which something has come is small enough.
            shared.broken_catch_ups.fetch_add(u32::from(!progress.has_come_further), Ordering::Relaxed);
            return Err(error);
        }
    }
    take_up_watches(shared, &rpc).await?;
    closes_if_dropped.disarm();
    Ok(rpc)
}

/// Where connections break before they have carried everything that was missed, it is asked for in small pieces, so that each connection
/// brings us further. Only for servers that tell the place of an exit: with others a part cannot be told from the whole. They push the
/// rest.
async fn page_size(shared: &Shared, rpc: &Arc<Rpc>, processes: usize) -> Result<Option<PageSize>, ExecServerError> {
    let broken = shared.broken_catch_ups.load(Ordering::Relaxed);
    if broken == 0 {
        return Ok(None);
    }
    let capabilities = match shared.capabilities_so_far() {
        Some(known) => known.clone(),
        None => {
            let info = rpc.call::<EnvironmentInfo>(Method::EnvironmentInfo.name(), &(), Slot::Ordinary).await;
            let asked = known_capabilities(answered(rpc, info))?;
            // What there is to say is not worth the bytes of every connection.
            shared.learn_capabilities(&asked);
            asked
        }
    };
    let share = (PAGES_BYTES >> broken.saturating_sub(1).min(MOST_HALVINGS)) / (processes as u64).max(1);
    let size = PageSize { bytes: share.max(SMALLEST_PAGE), cuts_chunks: capabilities.read_parts };
    Ok(capabilities.read_gaps.then_some(size))
}

/// How much of a process is asked for at once.
#[derive(Clone, Copy)]
struct PageSize {
    bytes: u64,
    /// The server sends parts of a chunk that is larger.
    cuts_chunks: bool,
}

/// Whether an attempt to catch up has brought anything.
#[derive(Default)]
struct CatchUpProgress {
    has_come_further: bool,
}

/// Reads every process, and those again of which only a part of a chunk has come.
async fn catch_up(
    shared: &Shared,
    rpc: &Arc<Rpc>,
    processes: &[Arc<Entry>],
    page: Option<PageSize>,
    progress: &mut CatchUpProgress,
) -> Result<(), ExecServerError> {
    processes.iter().for_each(|entry| entry.feed(super::process::feed::Feed::forget_pause));
    let mut waiting = processes.to_vec();
    while !waiting.is_empty() {
        waiting = read_once(shared, rpc, &waiting, page, progress).await?;
    }
    Ok(())
}

/// All reads are on their way before the first answer is waited for. Returns the processes of which only a part has come.
async fn read_once(
    shared: &Shared,
    rpc: &Arc<Rpc>,
    processes: &[Arc<Entry>],
    page: Option<PageSize>,
    progress: &mut CatchUpProgress,
) -> Result<Vec<Arc<Entry>>, ExecServerError> {
    let mut reads = Vec::with_capacity(processes.len());
    for entry in processes {
        let params = ReadParams {
            max_bytes: page.map(|page| page.bytes),
            part: page.filter(|page| page.cuts_chunks).map(|_| entry.begun_part()),
            ..ReadParams::after(entry.id.clone(), entry.last_seq())
        };
        reads.push(answered(rpc, rpc.begin(Method::ProcessRead.name(), &params, Slot::Ordinary).await)?);
    }
    // An answer that has come counts as received, so none is passed over because another one is lost.
    let (mut outcome, mut partial) = (Ok(()), Vec::new());
    for (entry, read) in processes.iter().zip(reads) {
        match read.answer::<ReadResult>().await {
            Ok(answer) => {
                progress.has_come_further |= !answer.chunks.is_empty();
                partial.extend(answer.partial.then(|| Arc::clone(entry)));
                shared.catch_up(entry, Ok(answer));
            }
            Err(CallError::Failed(error)) => shared.catch_up(entry, Err(error)),
            lost @ Err(_) => outcome = answered(rpc, lost.map(drop)),
        }
    }
    outcome.map(|()| partial)
}

/// Asks for what every watch has missed. One that the server does not know any more is made anew, and one that cannot be is over.
async fn take_up_watches(shared: &Shared, rpc: &Arc<Rpc>) -> Result<(), ExecServerError> {
    let watches = shared.inbound.watches.recoverable();
    let mut calls = Vec::with_capacity(watches.len());
    for entry in &watches {
        calls.push(answered(rpc, rpc.begin(Method::FsWatch.name(), &entry.again(), Slot::Ordinary).await)?);
    }
    for (entry, call) in watches.iter().zip(calls) {
        let taken_up = match call.answer::<NoResult>().await {
            Err(CallError::Failed(error)) if watch::is_unknown(&error) => {
                entry.begins_anew();
                rpc.call::<NoResult>(Method::FsWatch.name(), &entry.anew(), Slot::Ordinary).await
            }
            other => other,
        };
        match taken_up {
            Ok(_) => {}
            Err(CallError::Failed(error)) => entry.fail(error),
            lost @ Err(_) => answered(rpc, lost.map(drop))?,
        }
    }
    Ok(())
}

/// A connection whose opening is given up does not stay open.
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
