//! One client, shared by its handles and its tasks: the current connection, and calls that outlive it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::{
    Capabilities, EnvironmentInfo, Method, ReadResult, RequestId, SessionId, SessionKeepParams, StartParams,
    TypedMethod, encode_request, methods,
};
use recovery::{CallAdmission, CallRefusal, Generation, Reconnection, WhenRecovering, WriteSize};
use tokio::sync::{Notify, OnceCell, watch};
use tokio_util::sync::CancellationToken;

use crate::connector::Connector;
use crate::error::ExecServerError;
use crate::file_calls::{FileCalls, Lane};
use crate::files::MetadataFlights;
use crate::inbound::Inbound;
use crate::options::ExecServerClientConnectOptions;
use crate::process::entry::Entry;
use crate::rpc::{CallError, Rpc, Slot};

/// How long a server that does not read may hold up the end.
const GOODBYE: Duration = Duration::from_secs(2);

/// The state of a client's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// Calls go through.
    Connected,
    /// The connection is lost, for this reason, and is being made again.
    Recovering(String),
    /// It cannot be made again: every call fails with these words.
    Failed(String),
}

pub(crate) struct Shared {
    pub(crate) connector: Box<dyn Connector>,
    pub(crate) options: ExecServerClientConnectOptions,
    pub(crate) inbound: Arc<Inbound>,
    pub(crate) link: Mutex<Linked>,
    pub(crate) state: watch::Sender<ConnectionState>,
    /// Wakes the supervisor up when the link may have something new to do.
    pub(crate) poke: Notify,
    pub(crate) session: OnceLock<SessionId>,
    capabilities: OnceCell<Capabilities>,
    pub(crate) metadata_flights: MetadataFlights,
    pub(crate) file_calls: FileCalls,
    last_number: AtomicU64,
    /// Nobody uses the client any more.
    pub(crate) closing: CancellationToken,
    /// Connections that broke before they had carried everything that was missed.
    pub(crate) broken_catch_ups: AtomicU32,
    /// How much of an input or of a file one message may carry.
    pub(crate) write_size: Mutex<WriteSize>,
    /// Somebody wants processes to outlive the client.
    pub(crate) leaves_processes: AtomicBool,
    /// Another client has taken the session for good.
    pub(crate) is_taken_over: AtomicBool,
    /// The last jobs are done and the connection is closed.
    pub(crate) stopped: CancellationToken,
}

/// The rules of the connection, and the connection they are about.
pub(crate) struct Linked {
    pub(crate) link: Reconnection,
    pub(crate) rpc: Arc<Rpc>,
}

/// What a call waits for before it is sent. Whether it may be sent twice stands in the method table.
#[derive(Clone, Copy)]
pub(crate) struct CallOptions {
    pub(crate) when_recovering: WhenRecovering,
    pub(crate) slot: Slot,
    pub(crate) lane: Lane,
}

/// What became of a request that was to be sent over one connection.
enum CallAttempt {
    Answered(Bytes),
    /// The connection ended before a byte of the request was sent.
    NotSent(Generation),
    /// The request was sent, and the connection ended before the answer.
    Lost(Generation, Arc<Rpc>),
}

impl CallOptions {
    /// Waits for the next connection while there is none.
    pub(crate) const WAIT: Self =
        Self { when_recovering: WhenRecovering::Wait, slot: Slot::Ordinary, lane: Lane::Free };
    /// The same for requests about files, which share a window.
    pub(crate) const WAIT_FILES: Self = Self { lane: Lane::Files, ..Self::WAIT };
}

impl Shared {
    pub(crate) fn new(
        connector: Box<dyn Connector>,
        options: ExecServerClientConnectOptions,
        inbound: Arc<Inbound>,
        linked: Linked,
        session: Option<SessionId>,
    ) -> Arc<Self> {
        // A session that somebody else began may have processes with small numbers.
        let is_resumed = options.resume_session_id.is_some();
        let last_number = if is_resumed { uuid::Uuid::new_v4().as_u64_pair().0 >> 24 } else { 0 };
        Arc::new(Self {
            connector,
            options,
            inbound,
            link: Mutex::new(linked),
            state: watch::Sender::new(ConnectionState::Connected),
            poke: Notify::new(),
            session: session.map(OnceLock::from).unwrap_or_default(),
            capabilities: OnceCell::new(),
            metadata_flights: MetadataFlights::default(),
            file_calls: FileCalls::default(),
            last_number: AtomicU64::new(last_number),
            closing: CancellationToken::new(),
            broken_catch_ups: AtomicU32::new(0),
            write_size: Mutex::default(),
            leaves_processes: AtomicBool::new(false),
            is_taken_over: AtomicBool::new(false),
            stopped: CancellationToken::new(),
        })
    }

    /// A connection that was alive a moment ago.
    pub(crate) async fn rpc(
        &self,
        when_recovering: WhenRecovering,
    ) -> Result<(Generation, Arc<Rpc>), ExecServerError> {
        if let Some(found) = self.rpc_now(when_recovering)? {
            return Ok(found);
        }
        let mut state = self.state.subscribe();
        loop {
            state.borrow_and_update();
            if let Some(found) = self.rpc_now(when_recovering)? {
                return Ok(found);
            }
            if state.changed().await.is_err() {
                return Err(ExecServerError::Closed);
            }
        }
    }

    fn rpc_now(&self, when_recovering: WhenRecovering) -> Result<Option<(Generation, Arc<Rpc>)>, ExecServerError> {
        let linked = self.link.lock();
        match linked.link.admit(when_recovering) {
            CallAdmission::Send(generation) if !linked.rpc.has_ended() => {
                Ok(Some((generation, Arc::clone(&linked.rpc))))
            }
            // The supervisor is about to find out.
            CallAdmission::Send(_) if when_recovering == WhenRecovering::FailFast => Err(ExecServerError::Recovering),
            CallAdmission::Send(_) | CallAdmission::Wait => Ok(None),
            CallAdmission::Refused(CallRefusal::Recovering) => Err(ExecServerError::Recovering),
            CallAdmission::Refused(CallRefusal::Failed(text)) => Err(self.failed(text)),
        }
    }

    fn failed(&self, text: String) -> ExecServerError {
        if self.closing.is_cancelled() { ExecServerError::Closed } else { ExecServerError::Disconnected(text) }
    }

    /// Calls a method as the user of the client asked for it, who may not want to wait for the next connection.
    pub(crate) async fn call_for_user<M: TypedMethod>(
        &self,
        params: &M::Params,
    ) -> Result<M::Result, ExecServerError> {
        self.call::<M>(params, self.user_options(CallOptions::WAIT)).await
    }

    /// These options with what the user has chosen for the time in which there is no connection.
    pub(crate) fn user_options(&self, options: CallOptions) -> CallOptions {
        CallOptions { when_recovering: self.options.when_recovering, ..options }
    }

    /// Calls a method, over as many connections as needed if the method table lets it be repeated.
    pub(crate) async fn call<M: TypedMethod>(
        &self,
        params: &M::Params,
        options: CallOptions,
    ) -> Result<M::Result, ExecServerError> {
        loop {
            match self.attempt(options, |id| encode_request(id, M::METHOD.name(), params)).await? {
                CallAttempt::Answered(result) => return Ok(serde_json::from_slice(&result)?),
                CallAttempt::Lost(_, rpc) if !M::may_repeat(params) => return Err(self.lost(&rpc)),
                CallAttempt::NotSent(generation) | CallAttempt::Lost(generation, _) => {
                    self.has_left(generation).await
                }
            }
        }
    }

    /// Calls a method over the current connection, or over the next one if there is none. Returns `None` if the request was sent and
    /// that connection was lost before the answer: the caller decides what to send next.
    pub(crate) async fn call_until_lost<M: TypedMethod>(
        &self,
        params: &M::Params,
        options: CallOptions,
    ) -> Result<Option<M::Result>, ExecServerError> {
        let result = self.call_encoded_until_lost(options, |id| encode_request(id, M::METHOD.name(), params)).await?;
        Ok(result.map(|result| serde_json::from_slice(&result)).transpose()?)
    }

    /// As [`call_until_lost`](Self::call_until_lost), for a request that the caller encodes and an answer that the caller decodes.
    pub(crate) async fn call_encoded_until_lost(
        &self,
        options: CallOptions,
        encode: impl Fn(&RequestId) -> Vec<u8>,
    ) -> Result<Option<Bytes>, ExecServerError> {
        loop {
            match self.attempt(options, &encode).await? {
                CallAttempt::Answered(result) => return Ok(Some(result)),
                CallAttempt::NotSent(generation) => self.has_left(generation).await,
                CallAttempt::Lost(generation, _) => {
                    self.has_left(generation).await;
                    return Ok(None);
                }
            }
        }
    }

    /// Sends a request over one connection and waits for its answer.
    async fn attempt(
        &self,
        options: CallOptions,
        encode: impl Fn(&RequestId) -> Vec<u8>,
    ) -> Result<CallAttempt, ExecServerError> {
        let mut place = self.file_calls.place(options.lane).await;
        let (generation, rpc) = self.rpc(options.when_recovering).await?;
        let answer = async { rpc.begin_encoded(options.slot, encode).await?.wait_encoded().await };
        match place.hold(answer).await {
            Ok(result) => {
                place.answered();
                Ok(CallAttempt::Answered(result))
            }
            Err(CallError::Failed(error)) => Err(error),
            Err(CallError::NotSent) => Ok(CallAttempt::NotSent(generation)),
            Err(CallError::Lost) => {
                place.lost();
                Ok(CallAttempt::Lost(generation, rpc))
            }
        }
    }

    /// The error of a call that was sent and not answered.
    pub(crate) fn lost(&self, rpc: &Rpc) -> ExecServerError {
        ExecServerError::Disconnected(rpc.disconnect_text())
    }

    /// Waits until this connection is no longer the current one.
    pub(crate) async fn has_left(&self, generation: Generation) {
        let mut state = self.state.subscribe();
        loop {
            state.borrow_and_update();
            if self.link.lock().link.current() != Some(generation) || state.changed().await.is_err() {
                return;
            }
        }
    }

    /// The next of the numbers that processes are named by.
    pub(crate) fn next_number(&self) -> u64 {
        self.last_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// What the server can do; asked once. A server that is too old to be asked can do nothing beyond the protocol's core.
    pub(crate) async fn capabilities(&self) -> Result<Capabilities, ExecServerError> {
        let ask = async { known_capabilities(self.call::<methods::EnvironmentInfo>(&(), CallOptions::WAIT).await) };
        self.capabilities.get_or_try_init(|| ask).await.cloned()
    }

    /// What the server can do, if somebody has asked it.
    pub(crate) fn capabilities_so_far(&self) -> Option<&Capabilities> {
        self.capabilities.get()
    }

    /// The server was asked what it can do, over a connection that is not the client's yet.
    pub(crate) fn learn_capabilities(&self, capabilities: &Capabilities) {
        // Somebody else may have asked at the same time and got the same answer.
        let _is_known = self.capabilities.set(capabilities.clone());
    }

    /// An attempt to reconnect has brought something of what was missed.
    pub(crate) fn attempt_progressed(&self, generation: Generation) {
        self.link.lock().link.attempt_progressed(generation, Instant::now());
        self.poke.notify_one();
    }

    /// Whether the server is known to let clients look at a session without taking it.
    pub(crate) fn server_knows_observers(&self) -> bool {
        self.capabilities.get().is_some_and(|capabilities| capabilities.session_observe)
    }

    /// A start with the paths of the environment.
    pub(crate) fn to_remote(&self, mut params: StartParams) -> Result<StartParams, ExecServerError> {
        if let Some(paths) = self.connector.paths() {
            params.cwd = paths.to_remote(&params.cwd);
            if let Some(sandbox) = &params.sandbox {
                let mapped = paths.map_sandbox(sandbox);
                params.sandbox = Some(mapped.map_err(|error| ExecServerError::Protocol(error.to_string()))?);
            }
        }
        Ok(params)
    }

    /// What the environment says of itself, with our paths.
    pub(crate) fn to_local(&self, mut info: EnvironmentInfo) -> EnvironmentInfo {
        if let Some(paths) = self.connector.paths() {
            let directories = info.temporary_directories.iter_mut().flatten();
            for path in info.cwd.iter_mut().chain(info.temp_dir.iter_mut()).chain(directories) {
                *path = paths.to_local(path);
            }
        }
        info
    }

    pub(crate) fn start_settled(&self) {
        self.link.lock().link.start_settled(Instant::now());
        self.poke.notify_one();
    }

    /// Brings a process up to date with what the server has retained, or fails that one process.
    pub(crate) fn catch_up(&self, entry: &Arc<Entry>, answer: Result<ReadResult, ExecServerError>) {
        let caught_up = answer
            .map_err(|error| error.to_string())
            .and_then(|answer| entry.catch_up(answer).map_err(|error| error.to_string()));
        match caught_up {
            Ok(consequence) => self.inbound.handle(entry, consequence),
            Err(error) => self.fail_process(entry, &error),
        }
    }

    /// What was missed of a process cannot be had. It is followed no further, and must not go on unseen.
    pub(crate) fn fail_process(&self, entry: &Arc<Entry>, reason: &str) {
        self.inbound.remove(entry);
        self.inbound.end_if_ours(entry);
        entry.fail(&format!("failed to recover process {}: {reason}", entry.id));
    }

    /// The very end: no more calls, the connection is closed.
    pub(crate) async fn stop(&self) {
        let rpc = {
            let mut linked = self.link.lock();
            linked.link.close("exec-server client is closed");
            Arc::clone(&linked.rpc)
        };
        self.poke.notify_one();
        let is_kept = self.options.keep_for.is_some() || self.options.resume_session_id.is_some();
        let goodbye = async {
            if !is_kept && !self.leaves_processes.load(Ordering::Relaxed) {
                // Nobody comes back: the server need not wait for it. One that does not know this waits as it always does.
                let params = SessionKeepParams { keep_for_ms: 0 };
                let _nobody_asks = rpc.begin(Method::SessionKeep.name(), &params, Slot::Cleanup).await;
            }
            rpc.say_goodbye().await;
        };
        if tokio::time::timeout(GOODBYE, goodbye).await.is_err() {
            rpc.close("exec-server client is closed");
        }
        self.stopped.cancel();
    }
}

/// The capabilities that a server tells of. One that does not know the question is older than all of them.
pub(crate) fn known_capabilities(
    answer: Result<EnvironmentInfo, ExecServerError>,
) -> Result<Capabilities, ExecServerError> {
    match answer {
        Ok(info) => Ok(info.capabilities),
        Err(error) if error.is_unknown_method() => Ok(Capabilities::default()),
        Err(error) => Err(error),
    }
}
