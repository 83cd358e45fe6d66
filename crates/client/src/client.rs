//! The client object.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use protocol::{
    Base64Bytes, Capabilities, EnvironmentInfo, EnvironmentStatus, ProcessFlowParams, ProcessId, ProcessIdParams,
    ProcessSummary, ReadParams, ReadResult, SessionId, SessionKeepParams, Signal, SignalParams, StartParams,
    StartResult, TerminateResult, TypedMethod, WriteId, WriteParams, WriteResult, methods,
};
use recovery::{ReconnectPolicy, Reconnection, WhenRecovering};
use tokio::sync::{mpsc, watch};

use crate::connector::Connector;
use crate::error::ExecServerError;
use crate::files::RemoteFileSystem;
use crate::inbound::Inbound;
use crate::options::{ExecServerClientConnectOptions, RemoteExecServerConnectArgs};
use crate::path_map::PathMap;
use crate::process::{self, ExecProcess};
use crate::shared::{ConnectionState, Linked, Shared};
use crate::{handshake, job, supervisor};

/// How long a server may think about itself.
const INFO_TIMEOUT: Duration = Duration::from_secs(30);
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

/// A client of one server. It stays the same while its connection changes underneath; clones share it.
///
/// When the last clone and the last handle to a process are gone, the connection is closed; processes that were not detached have been
/// ended before.
#[derive(Clone)]
pub struct ExecServerClient {
    handle: Arc<Handle>,
}

/// Held by everything through which the client can be used.
pub(crate) struct Handle {
    pub(crate) shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.closing.cancel();
    }
}

impl ExecServerClient {
    /// Connects to a server by its URL and opens a session.
    pub async fn connect_websocket(args: RemoteExecServerConnectArgs) -> Result<Self, ExecServerError> {
        let (connector, options) = args.into_parts();
        Self::connect(connector, options).await
    }

    /// Connects by any way there is and opens a session, or takes one up.
    pub async fn connect(
        connector: impl Connector,
        options: ExecServerClientConnectOptions,
    ) -> Result<Self, ExecServerError> {
        Self::connect_boxed(Box::new(connector), options).await
    }

    /// As [`connect`](Self::connect), for a way that was chosen at run time.
    pub async fn connect_boxed(
        connector: Box<dyn Connector>,
        mut options: ExecServerClientConnectOptions,
    ) -> Result<Self, ExecServerError> {
        let (jobs, to_do) = mpsc::unbounded_channel();
        let inbound = Inbound::new(jobs);
        let resume = options.resume_session_id.clone();
        let mut opened = handshake::open(&*connector, &options, &inbound, resume.as_ref(), options.takeover).await;
        if options.observe && matches!(&opened, Err(error) if error.is_still_attached()) {
            // The server does not know how to let us look beside whoever is attached.
            options.observe = false;
            opened = handshake::open(&*connector, &options, &inbound, resume.as_ref(), true).await;
        }
        let (rpc, session) = opened?;
        let policy = ReconnectPolicy {
            budget: options.recovery_budget,
            backoff: options.backoff,
            can_reconnect: connector.can_reconnect(),
            has_session: session.is_some(),
            ..ReconnectPolicy::default()
        };
        let linked = Linked { link: Reconnection::connected(policy, Instant::now()), rpc };
        let shared = Shared::new(connector, options, inbound, linked, session);
        tokio::spawn(supervisor::run(Arc::clone(&shared)));
        tokio::spawn(job::run(Arc::clone(&shared), to_do));
        Ok(Self { handle: Arc::new(Handle { shared }) })
    }

    /// Ends the processes that were not detached, waits for that, and closes the connection. Handles that are left fail.
    pub async fn close(self) {
        let shared = Arc::clone(&self.handle.shared);
        drop(self);
        shared.closing.cancel();
        shared.stopped.cancelled().await;
    }

    /// The same, and lets the server end the session with this connection, however long it was to be kept. Extension `sessionKeep`; a
    /// server without it keeps the session as long as every other one.
    pub async fn end_session(self) {
        let params = SessionKeepParams { keep_for_ms: 0 };
        if let Err(error) = self.call::<methods::SessionKeep>(&params).await {
            tracing::debug!(%error, "the session cannot be ended");
        }
        self.close().await;
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// The session, by which another client can take it up; none from an old server.
    pub fn session_id(&self) -> Option<&SessionId> {
        self.handle.shared.session.get()
    }

    /// Where the server is, for people.
    pub fn place(&self) -> String {
        self.handle.shared.connector.place()
    }

    /// Whether this client only looks at its session. False from a server that cannot do that, whatever was wished for.
    pub async fn observes(&self) -> Result<bool, ExecServerError> {
        Ok(self.handle.shared.options.observe && self.capabilities().await?.session_observe)
    }

    /// Whether this client has failed because another one has attached to its session.
    pub fn is_taken_over(&self) -> bool {
        self.handle.shared.is_taken_over.load(Ordering::Relaxed)
    }

    /// The state of the connection, and its changes.
    pub fn connection_state(&self) -> watch::Receiver<ConnectionState> {
        self.handle.shared.state.subscribe()
    }

    /// Ends the current connection; the client recovers over the next one.
    pub(crate) fn retire_connection(&self, reason: &str) {
        self.handle.shared.link.lock().rpc.close(reason);
    }

    /// A number for a process that none of this session has, as far as this client can tell.
    pub(crate) fn next_number(&self) -> u64 {
        self.handle.shared.next_number()
    }

    /// Starts a process. If the connection is lost before the answer, the start has failed and the process, if there is one, is ended.
    pub async fn start(&self, params: StartParams) -> Result<ExecProcess, ExecServerError> {
        process::start(&self.handle, params).await
    }

    /// Takes up a process of a resumed session from the oldest output that is retained. It is detached: dropping the handle leaves it
    /// running.
    pub async fn attach(&self, process_id: impl Into<ProcessId>) -> Result<ExecProcess, ExecServerError> {
        process::attach(&self.handle, process_id.into()).await
    }

    /// Starts a process that is followed by [`read`](Self::read) only and belongs to nobody's handle.
    pub async fn exec(&self, params: StartParams) -> Result<StartResult, ExecServerError> {
        let params = self.handle.shared.to_remote(params)?;
        self.handle.shared.leaves_processes.store(true, Ordering::Relaxed);
        self.call::<methods::ProcessStart>(&params).await
    }

    /// Reads retained output.
    pub async fn read(&self, params: ReadParams) -> Result<ReadResult, ExecServerError> {
        match self.handle.shared.options.when_recovering {
            WhenRecovering::Wait => process::read(&self.handle.shared, params).await,
            WhenRecovering::FailFast => self.call::<methods::ProcessRead>(&params).await,
        }
    }

    /// Lets the events of a process wait, or go on. Reads of a resumed process that waits do not count as receipts, so whoever takes the
    /// session up next still finds all of it. Extension `processFlow`.
    pub async fn pause(&self, process_id: &ProcessId, paused: bool) -> Result<(), ExecServerError> {
        let params = ProcessFlowParams { process_id: process_id.clone(), paused };
        self.call::<methods::ProcessFlow>(&params).await.map(drop)
    }

    /// Writes to the stdin of a process. With a write id it is repeated if the connection is lost; without one it is not.
    pub async fn write(
        &self,
        process_id: &ProcessId,
        bytes: Vec<u8>,
        write_id: Option<WriteId>,
    ) -> Result<WriteResult, ExecServerError> {
        let params = WriteParams { process_id: process_id.clone(), chunk: Base64Bytes(bytes), write_id };
        self.call::<methods::ProcessWrite>(&params).await
    }

    /// Sends a signal.
    pub async fn signal(&self, process_id: &ProcessId, signal: Signal) -> Result<(), ExecServerError> {
        let params = SignalParams { process_id: process_id.clone(), signal };
        self.call::<methods::ProcessSignal>(&params).await.map(drop)
    }

    /// Ends a process and everything it has started.
    pub async fn terminate(&self, process_id: &ProcessId) -> Result<TerminateResult, ExecServerError> {
        self.call::<methods::ProcessTerminate>(&ProcessIdParams { process_id: process_id.clone() }).await
    }

    /// Every process of the session. Extension `processList`.
    pub async fn processes(&self) -> Result<Vec<ProcessSummary>, ExecServerError> {
        Ok(self.call::<methods::ProcessList>(&()).await?.processes)
    }

    /// What the environment is like.
    pub async fn environment_info(&self) -> Result<EnvironmentInfo, ExecServerError> {
        let info = self.call_within::<methods::EnvironmentInfo>(INFO_TIMEOUT).await?;
        Ok(self.handle.shared.to_local(info))
    }

    /// Whether the environment is ready.
    pub async fn environment_status(&self) -> Result<EnvironmentStatus, ExecServerError> {
        self.call_within::<methods::EnvironmentStatus>(STATUS_TIMEOUT).await
    }

    /// The files of the environment.
    pub fn file_system(&self) -> RemoteFileSystem {
        RemoteFileSystem::new(Arc::clone(&self.handle))
    }

    /// What the server can do beyond the protocol's core; asked once. Nothing, if it is too old to be asked.
    pub async fn capabilities(&self) -> Result<Capabilities, ExecServerError> {
        self.handle.shared.capabilities().await
    }

    /// How paths here and paths of the environment belong together, if they differ.
    pub(crate) fn paths(&self) -> Option<&PathMap> {
        self.handle.shared.connector.paths()
    }

    pub(crate) async fn call<M: TypedMethod>(&self, params: &M::Params) -> Result<M::Result, ExecServerError> {
        self.handle.shared.call_for_user::<M>(params).await
    }

    async fn call_within<M: TypedMethod<Params = ()>>(&self, limit: Duration) -> Result<M::Result, ExecServerError> {
        tokio::time::timeout(limit, self.call::<M>(&())).await.unwrap_or_else(|_| {
            let method = M::METHOD.name();
            Err(ExecServerError::Protocol(format!("exec-server did not answer {method} within {limit:?}")))
        })
    }
}
