//! The state that all handles and tasks of one client share: the current connection, and calls that continue over the
//! next connection. Handles hold a [`ClientHandle`], while tasks hold the [`ClientCore`] itself, so that the client
//! closes when the last handle is gone. Start with [`ClientCore::call`].

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::{
    Capabilities, EnvironmentInfo, Method, ReadResult, RequestId, SandboxContext, SessionId, SessionKeepParams,
    StartParams, TypedMethod, encode_request, methods,
};
use recovery::{CallAdmission, CallRefusal, Generation, Reconnection, WhenRecovering, WriteSize};
use tokio::sync::{Notify, OnceCell, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connector::ServerConnector;
use crate::error::ExecServerError;
use crate::file_calls::{FileCalls, FileLimit};
use crate::inbound::Inbound;
use crate::jobs::MAX_JOBS;
use crate::metadata_flights::MetadataFlights;
use crate::options::ExecServerClientConnectOptions;
use crate::records::ProcessRecord;
use crate::rpc::{CallError, CallSlot, Rpc};

/// How long a closing client tries to send its last messages to a server that does not read.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);

/// The state of a client's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// The client has a connection and its session.
    Connected,
    /// The connection was lost for this reason, and the client reconnects.
    Recovering(String),
    /// The client has given up for this reason, or its user has closed it. Every call fails.
    Failed(String),
}

/// Every value through which a user can use the client holds this handle. Dropping the last handle closes the client.
///
/// A `drop` cannot wait. The tasks of the client then end on their own: unfinished background jobs get two seconds,
/// and the goodbye to the server gets two more. `ExecServerClient::close` waits for the tasks.
pub(crate) struct ClientHandle {
    pub(crate) core: Arc<ClientCore>,
}

impl Drop for ClientHandle {
    fn drop(&mut self) {
        self.core.closing.cancel();
    }
}

pub(crate) struct ClientCore {
    /// The tasks that `ExecServerClient::close` waits for: the supervisor (keeps the client connected), the job
    /// runner (does background jobs), two tasks for each connection, and the tasks of the module `unified`.
    pub(crate) tasks: TaskTracker,
    pub(crate) connector: Box<dyn ServerConnector>,
    pub(crate) options: ExecServerClientConnectOptions,
    /// The state of every process, watch, search and HTTP body that the client follows, and the queue of background
    /// jobs.
    pub(crate) inbound: Arc<Inbound>,
    pub(crate) link: Mutex<CurrentLink>,
    pub(crate) state: watch::Sender<ConnectionState>,
    /// Wakes the supervisor after another task has changed `link`.
    pub(crate) poke: Notify,
    /// Empty if the server has no sessions.
    pub(crate) session: OnceLock<SessionId>,
    capabilities: OnceCell<Capabilities>,
    /// Requests for metadata that several callers share.
    pub(crate) metadata_flights: MetadataFlights,
    /// Limits how many requests about files are in flight.
    pub(crate) file_calls: FileCalls,
    /// The number that [`next_number`](Self::next_number) has returned last.
    last_number: AtomicU64,
    /// Cancelled when the last handle is gone, or `close` was called.
    pub(crate) closing: CancellationToken,
    /// Number of connections that were lost while the client read missed events (events of the time without a
    /// connection), before any output had come. After such a loss, the client reads missed events in small pages.
    pub(crate) broken_catch_ups: AtomicU32,
    /// Decides how many bytes one write to a process or a file, or one read from it, should carry.
    pub(crate) write_size: Mutex<WriteSize>,
    /// Whether a process is to outlive the client, so that the server has to keep the session.
    pub(crate) leaves_processes: AtomicBool,
    /// Whether a request had a sandbox. The server then has made things on its machine, which it removes when it ends.
    pub(crate) uses_sandboxes: AtomicBool,
    /// Whether the client has failed because another client took the session over.
    pub(crate) is_taken_over: AtomicBool,
}

/// The connection of the client, and the value that decides when to reconnect.
pub(crate) struct CurrentLink {
    pub(crate) reconnection: Reconnection,
    pub(crate) rpc: Arc<Rpc>,
}

/// The conditions under which a call is sent. Whether a call may be sent twice is not an option: the method table of
/// the `protocol` crate says so.
#[derive(Clone, Copy)]
pub(crate) struct CallOptions {
    /// Whether the call waits or fails while there is no connection.
    pub(crate) when_recovering: WhenRecovering,
    /// The limit of the connection that the call counts towards.
    pub(crate) slot: CallSlot,
    /// Whether the call counts towards the limit for requests about files.
    pub(crate) file_limit: FileLimit,
}

/// The result of an attempt to send a request over one connection.
enum CallAttempt {
    Answered(Bytes),
    /// The connection ended before a byte of the request was sent.
    NotSent(Generation),
    /// The request was sent, and the connection ended before the answer.
    Lost(Generation, Arc<Rpc>),
}

impl CallOptions {
    /// The call waits while there is no connection.
    pub(crate) const WAIT: Self =
        Self { when_recovering: WhenRecovering::Wait, slot: CallSlot::Ordinary, file_limit: FileLimit::DoesNotApply };
    /// As [`WAIT`](Self::WAIT), for requests about files. After a lost connection, few requests about files are sent
    /// at the same time.
    pub(crate) const FILE_REQUEST: Self = Self { file_limit: FileLimit::Applies, ..Self::WAIT };
}

impl ClientCore {
    pub(crate) fn new(
        connector: Box<dyn ServerConnector>,
        options: ExecServerClientConnectOptions,
        inbound: Arc<Inbound>,
        linked: CurrentLink,
        session: Option<SessionId>,
        tasks: TaskTracker,
    ) -> Arc<Self> {
        // Earlier clients of a resumed session have counted from one, and their processes may still exist. So the
        // numbers of this client begin at random.
        let is_resumed = options.resume_session_id.is_some();
        let last_number = if is_resumed { uuid::Uuid::new_v4().as_u64_pair().0 >> 24 } else { 0 };
        Arc::new(Self {
            tasks,
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
            uses_sandboxes: AtomicBool::new(false),
            is_taken_over: AtomicBool::new(false),
        })
    }

    /// The current connection and its generation, the number of the connection. While there is no connection, waits
    /// for the next connection or fails, as `when_recovering` says.
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

    /// As [`rpc`](Self::rpc), but returns `None` instead of waiting.
    fn rpc_now(&self, when_recovering: WhenRecovering) -> Result<Option<(Generation, Arc<Rpc>)>, ExecServerError> {
        let linked = self.link.lock();
        match linked.reconnection.admit(when_recovering) {
            CallAdmission::Send(generation) if !linked.rpc.has_ended() => {
                Ok(Some((generation, Arc::clone(&linked.rpc))))
            }
            // The connection has ended, and the supervisor has not noticed yet.
            CallAdmission::Send(_) if when_recovering == WhenRecovering::FailFast => Err(ExecServerError::Recovering),
            CallAdmission::Send(_) | CallAdmission::Wait => Ok(None),
            CallAdmission::Refused(CallRefusal::Recovering) => Err(ExecServerError::Recovering),
            CallAdmission::Refused(CallRefusal::Failed(text)) => Err(self.failed_client_error(text)),
        }
    }

    /// The error of a call to a client that has failed with this text, or that was closed.
    fn failed_client_error(&self, text: String) -> ExecServerError {
        if self.closing.is_cancelled() { ExecServerError::Closed } else { ExecServerError::Disconnected(text) }
    }

    /// Calls a method for the user of the client, who may have chosen not to wait for the next connection.
    pub(crate) async fn call_for_user<M: TypedMethod>(
        &self,
        params: &M::Params,
    ) -> Result<M::Result, ExecServerError> {
        self.call::<M>(params, self.user_options(CallOptions::WAIT)).await
    }

    /// `options` with the user's choice of what calls do while there is no connection.
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
                CallAttempt::Lost(_, rpc) if !M::may_repeat(params) => return Err(self.lost_call_error(&rpc)),
                CallAttempt::NotSent(generation) | CallAttempt::Lost(generation, _) => {
                    self.wait_while_current(generation).await;
                }
            }
        }
    }

    /// Calls a method over the current connection, or over the next connection if there is none. Returns `None` if
    /// the request was sent and its connection was lost before the answer: the caller decides what to send next.
    pub(crate) async fn call_until_lost<M: TypedMethod>(
        &self,
        params: &M::Params,
        options: CallOptions,
    ) -> Result<Option<M::Result>, ExecServerError> {
        let result = self.call_encoded_until_lost(options, |id| encode_request(id, M::METHOD.name(), params)).await?;
        Ok(result.map(|result| serde_json::from_slice(&result)).transpose()?)
    }

    /// As [`call_until_lost`](Self::call_until_lost), for a request that the caller encodes and an answer that the
    /// caller decodes.
    pub(crate) async fn call_encoded_until_lost(
        &self,
        options: CallOptions,
        encode: impl Fn(&RequestId) -> Vec<u8>,
    ) -> Result<Option<Bytes>, ExecServerError> {
        loop {
            match self.attempt(options, &encode).await? {
                CallAttempt::Answered(result) => return Ok(Some(result)),
                CallAttempt::NotSent(generation) => self.wait_while_current(generation).await,
                CallAttempt::Lost(generation, _) => {
                    self.wait_while_current(generation).await;
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
        let mut permit = self.file_calls.acquire(options.file_limit).await;
        let (generation, rpc) = self.rpc(options.when_recovering).await?;
        let answer = async { rpc.begin_encoded(options.slot, encode).await?.wait_encoded().await };
        match permit.run(answer).await {
            Ok(result) => {
                permit.note_answer();
                Ok(CallAttempt::Answered(result))
            }
            Err(CallError::Failed(error)) => Err(error),
            Err(CallError::NotSent) => Ok(CallAttempt::NotSent(generation)),
            Err(CallError::Lost) => {
                permit.note_connection_lost();
                Ok(CallAttempt::Lost(generation, rpc))
            }
        }
    }

    /// The error of a call whose request was sent over the connection `rpc`, which was lost before the
    /// answer.
    pub(crate) fn lost_call_error(&self, rpc: &Rpc) -> ExecServerError {
        ExecServerError::Disconnected(rpc.disconnect_text())
    }

    /// Waits until the connection of this generation is no longer the current one. There may be no newer connection
    /// yet.
    pub(crate) async fn wait_while_current(&self, generation: Generation) {
        let mut state = self.state.subscribe();
        loop {
            state.borrow_and_update();
            if self.link.lock().reconnection.current() != Some(generation) || state.changed().await.is_err() {
                return;
            }
        }
    }

    /// A new number to build an id from. This client has not used it before.
    pub(crate) fn next_number(&self) -> u64 {
        self.last_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The server's capabilities. The client asks for them once. A server that does not know the request has none.
    pub(crate) async fn capabilities(&self) -> Result<Capabilities, ExecServerError> {
        let ask = async { capabilities_in(self.call::<methods::EnvironmentInfo>(&(), CallOptions::WAIT).await) };
        self.capabilities.get_or_try_init(|| ask).await.cloned()
    }

    /// The server's capabilities, if they were requested before.
    pub(crate) fn known_capabilities(&self) -> Option<&Capabilities> {
        self.capabilities.get()
    }

    /// Remembers capabilities that were requested during a handshake.
    pub(crate) fn set_capabilities(&self, capabilities: &Capabilities) {
        // Another caller may have requested them at the same time and got the same answer.
        let _ignored = self.capabilities.set(capabilities.clone());
    }

    /// An attempt to reconnect has brought some of the missed output, so the recovery gets more time.
    pub(crate) fn attempt_progressed(&self, generation: Generation) {
        self.link.lock().reconnection.attempt_progressed(generation, Instant::now());
        self.poke.notify_one();
    }

    /// Whether the server is known to let clients observe a session without taking it over.
    pub(crate) fn server_knows_observers(&self) -> bool {
        self.capabilities.get().is_some_and(|capabilities| capabilities.session_observe)
    }

    /// Maps the paths of a start from this machine to the environment.
    pub(crate) fn map_paths_of_start(&self, mut params: StartParams) -> Result<StartParams, ExecServerError> {
        if let Some(paths) = self.connector.paths() {
            params.cwd = paths.to_remote(&params.cwd);
            if let Some(sandbox) = &params.sandbox {
                let mapped = paths.map_sandbox(sandbox);
                params.sandbox = Some(mapped.map_err(|error| ExecServerError::Protocol(error.to_string()))?);
            }
        }
        Ok(params)
    }

    /// Maps the paths of a sandbox from this machine to the environment.
    pub(crate) fn remote_sandbox(
        &self,
        sandbox: Option<&SandboxContext>,
    ) -> Result<Option<SandboxContext>, ExecServerError> {
        match (sandbox, self.connector.paths()) {
            (Some(sandbox), Some(paths)) => {
                paths.map_sandbox_context(sandbox).map(Some).map_err(ExecServerError::Protocol)
            }
            (sandbox, _) => Ok(sandbox.cloned()),
        }
    }

    /// Maps the paths in `info` from the environment to this machine.
    pub(crate) fn to_local(&self, mut info: EnvironmentInfo) -> EnvironmentInfo {
        if let Some(paths) = self.connector.paths() {
            let directories = info.temporary_directories.iter_mut().flatten();
            for path in info.cwd.iter_mut().chain(info.temp_dir.iter_mut()).chain(directories) {
                *path = paths.to_local(path);
            }
        }
        info
    }

    /// Waits while the queue of background jobs is full, or fails if the user has chosen `FailFast`. Called before
    /// the client creates a process, a watch or anything else whose end needs a job. So a user who creates and drops
    /// such things in a loop cannot fill the queue without bound.
    pub(crate) async fn wait_for_room_for_job(&self) -> Result<(), ExecServerError> {
        let jobs = self.inbound.jobs();
        if jobs.is_full() {
            if self.options.when_recovering == WhenRecovering::FailFast {
                return Err(ExecServerError::TooManyRequests(MAX_JOBS));
            }
            jobs.wait_for_room().await;
        }
        Ok(())
    }

    /// A process start was answered or given up. The supervisor waits for starts in flight before it reconnects.
    pub(crate) fn note_start_finished(&self) {
        self.link.lock().reconnection.note_start_finished(Instant::now());
        self.poke.notify_one();
    }

    /// Handles the answer to a read of missed events. If the answer is an error or cannot be used, only this process
    /// fails.
    pub(crate) fn catch_up(&self, record: &Arc<ProcessRecord>, answer: Result<ReadResult, ExecServerError>) {
        let caught_up = answer
            .map_err(|error| error.to_string())
            .and_then(|answer| record.catch_up(answer).map_err(|error| error.to_string()));
        match caught_up {
            Ok(consequence) => self.inbound.handle(record, consequence),
            Err(error) => self.fail_process(record, &error),
        }
    }

    /// The missed events of a process are lost. The client does not follow the process any longer, and kills it
    /// unless it is detached.
    pub(crate) fn fail_process(&self, record: &Arc<ProcessRecord>, reason: &str) {
        self.inbound.remove(record);
        self.inbound.terminate_unless_detached(record);
        record.fail(&format!("failed to recover process {}: {reason}", record.id));
    }

    /// Refuses further calls and closes the connection. This is the last step of closing a client.
    pub(crate) async fn stop(&self) {
        let rpc = {
            let mut linked = self.link.lock();
            linked.reconnection.close("exec-server client is closed");
            Arc::clone(&linked.rpc)
        };
        self.poke.notify_one();
        let is_kept = self.options.keep_for.is_some() || self.options.resume_session_id.is_some();
        let goodbye = async {
            if !is_kept && !self.leaves_processes.load(Ordering::Relaxed) {
                // The user has not asked to keep this session, so the server need not keep it. A server that does not
                // know the request keeps the session for its usual time.
                let params = SessionKeepParams { keep_for_ms: 0 };
                let _not_awaited = rpc.begin(Method::SessionKeep.name(), &params, CallSlot::Cleanup).await;
            }
            rpc.close_after_queue(self.uses_sandboxes.load(Ordering::Relaxed)).await;
        };
        if tokio::time::timeout(GOODBYE_TIMEOUT, goodbye).await.is_err() {
            rpc.close("exec-server client is closed");
        }
    }
}

/// The capabilities in an answer to `environment/info`. A server that does not know the request is older than all
/// capabilities.
pub(crate) fn capabilities_in(
    answer: Result<EnvironmentInfo, ExecServerError>,
) -> Result<Capabilities, ExecServerError> {
    match answer {
        Ok(info) => Ok(info.capabilities),
        Err(error) if error.is_unknown_method() => Ok(Capabilities::default()),
        Err(error) => Err(error),
    }
}
