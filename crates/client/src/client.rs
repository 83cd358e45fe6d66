//! [`ExecServerClient`], the object that users of this crate hold. This module has its methods for the session, for
//! processes and for the environment (the machine of the server). Methods for files, HTTP requests, watches, searches
//! and discovery are in the modules `files`, `http`, `watch`, `search` and `discovery`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ::remote::ConnectionPath;
use protocol::{
    Base64Bytes, Capabilities, EnvironmentInfo, EnvironmentStatus, ProcessFlowParams, ProcessId, ProcessIdParams,
    ProcessSummary, ReadParams, ReadResult, SessionId, SessionKeepParams, Signal, SignalParams, StartParams,
    StartResult, TerminateResult, TypedMethod, WriteId, WriteParams, WriteResult, methods,
};
use recovery::{ReconnectPolicy, Reconnection, WhenRecovering};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use crate::client_core::{ClientCore, ClientHandle, ConnectionState, CurrentLink};
use crate::connector::ServerConnector;
use crate::error::ExecServerError;
use crate::files::RemoteFileSystem;
use crate::inbound::Inbound;
use crate::options::{ExecServerClientConnectOptions, RemoteExecServerConnectArgs};
use crate::path_map::PathMap;
use crate::process::{self, ExecProcess};
use crate::records::NetworkPolicyDecider;
use crate::{handshake, job_runner, supervisor};

/// How long the answer to `environment/info` may take.
const INFO_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the answer to `environment/status` may take.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

/// A client of one server. After a lost connection it reconnects and continues. Clones share one client.
///
/// When the last clone and the last handle (to a process, a file, a watch ...) are gone, the client kills the
/// processes that were not detached and closes the connection. The tasks of the client do this after the drop has
/// returned. [`close`](Self::close) does the same and returns when all tasks of the client have ended.
#[derive(Clone)]
pub struct ExecServerClient {
    handle: Arc<ClientHandle>,
}

impl ExecServerClient {
    /// Connects to a server by its URL and opens a session, or resumes the session that the arguments name. A session
    /// is the server's state of one client, which outlives a lost connection.
    pub async fn connect_websocket(args: RemoteExecServerConnectArgs) -> Result<Self, ExecServerError> {
        let (connector, options) = args.into_parts();
        Self::connect(connector, options).await
    }

    /// Connects with any connector and opens a session, or resumes the session that the options name.
    pub async fn connect(
        connector: impl ServerConnector,
        options: ExecServerClientConnectOptions,
    ) -> Result<Self, ExecServerError> {
        Self::connect_boxed(Box::new(connector), options).await
    }

    /// As [`connect`](Self::connect), for a connector that was chosen at run time.
    pub async fn connect_boxed(
        connector: Box<dyn ServerConnector>,
        mut options: ExecServerClientConnectOptions,
    ) -> Result<Self, ExecServerError> {
        let (inbound, tasks) = (Arc::new(Inbound::default()), TaskTracker::new());
        let resume = options.resume_session_id.clone();
        let takeover = options.takeover;
        let mut opened = handshake::open(&*connector, &options, &inbound, &tasks, resume.as_ref(), takeover).await;
        if options.observe && matches!(&opened, Err(error) if error.is_still_attached()) {
            // Another client is attached to the session, and a server that knows no observers then refuses. So this
            // client takes the session over instead.
            options.observe = false;
            opened = handshake::open(&*connector, &options, &inbound, &tasks, resume.as_ref(), true).await;
        }
        let (rpc, session) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                // Waits for the tasks of the connections that failed.
                tasks.close();
                tasks.wait().await;
                return Err(error);
            }
        };
        let policy = ReconnectPolicy {
            budget: options.recovery_budget,
            backoff: options.backoff,
            can_reconnect: connector.can_reconnect(),
            has_session: session.is_some(),
            ..ReconnectPolicy::default()
        };
        let linked = CurrentLink { reconnection: Reconnection::connected(policy, Instant::now()), rpc };
        let core = ClientCore::new(connector, options, inbound, linked, session, tasks);
        core.tasks.spawn(supervisor::run(Arc::clone(&core)));
        core.tasks.spawn(job_runner::run(Arc::clone(&core)));
        Ok(Self { handle: Arc::new(ClientHandle { core }) })
    }

    /// Kills the processes that were not detached, closes the connection, and returns when all tasks of the client
    /// have ended. Background jobs that are unfinished, such as these kills, get two seconds. The last messages to
    /// the server get two more. Handles that still exist fail from now on.
    pub async fn close(self) {
        let core = Arc::clone(&self.handle.core);
        drop(self);
        core.closing.cancel();
        core.tasks.close();
        core.tasks.wait().await;
    }

    /// As [`close`](Self::close), and the server ends the session when the connection closes, even if a client had
    /// asked to keep the session for longer. Needs the extension `sessionKeep`; a server without it keeps the session
    /// for its usual time.
    pub async fn end_session(self) {
        let params = SessionKeepParams { keep_for_ms: 0 };
        if let Err(error) = self.call::<methods::SessionKeep>(&params).await {
            tracing::debug!(%error, "the session cannot be ended");
        }
        self.close().await;
    }

    /// Owns tasks that use this client, so that [`close`](Self::close) waits for them.
    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.handle.core.tasks
    }

    pub(crate) fn handle(&self) -> &Arc<ClientHandle> {
        &self.handle
    }

    /// The id by which another client can resume the session. `None` from a server without sessions.
    pub fn session_id(&self) -> Option<&SessionId> {
        self.handle.core.session.get()
    }

    /// The address of the server as messages for people show it.
    pub fn address(&self) -> String {
        self.handle.core.connector.address()
    }

    /// Whether this client only observes its session, beside the client that is attached to it. False for a server
    /// that knows no observers, whatever the options say.
    pub async fn observes(&self) -> Result<bool, ExecServerError> {
        Ok(self.handle.core.options.observe && self.capabilities().await?.session_observe)
    }

    /// Whether this client has failed because another client took its session over.
    pub fn is_taken_over(&self) -> bool {
        self.handle.core.is_taken_over.load(Ordering::Relaxed)
    }

    /// The state of the connection. The receiver sees all later changes.
    pub fn connection_state(&self) -> watch::Receiver<ConnectionState> {
        self.handle.core.state.subscribe()
    }

    /// Ends the current connection. The client then reconnects, if it can.
    pub(crate) fn close_connection(&self, reason: &str) {
        self.handle.core.link.lock().rpc.close(reason);
    }

    /// A new number to build a process id from. This client has not used it before.
    pub(crate) fn next_number(&self) -> u64 {
        self.handle.core.next_number()
    }

    /// Starts a process. If the connection is lost before the answer, the start fails, and the client kills the
    /// process if there is one.
    pub async fn start(&self, params: StartParams) -> Result<ExecProcess, ExecServerError> {
        process::start(&self.handle, params, None).await
    }

    /// As [`start`](Self::start), for a process with a network proxy (`networkProxy`): `decider` decides about hosts
    /// that the proxy does not know, and hears about the decisions of the proxy. Without a decider, the client answers
    /// every question with no.
    pub async fn start_with_network_policy_decider(
        &self,
        params: StartParams,
        decider: Arc<dyn NetworkPolicyDecider>,
    ) -> Result<ExecProcess, ExecServerError> {
        process::start(&self.handle, params, Some(decider)).await
    }

    /// Follows a process of a resumed session, from the oldest output that the server retains. The process is
    /// detached: it keeps running when the handle is dropped.
    pub async fn attach(&self, process_id: impl Into<ProcessId>) -> Result<ExecProcess, ExecServerError> {
        process::attach(&self.handle, process_id.into()).await
    }

    /// Starts a process without a handle. Its output is read with [`read`](Self::read), and it outlives the client.
    pub async fn exec(&self, params: StartParams) -> Result<StartResult, ExecServerError> {
        let params = self.handle.core.map_paths_of_start(params)?;
        self.handle.core.leaves_processes.store(true, Ordering::Relaxed);
        self.call::<methods::ProcessStart>(&params).await
    }

    /// Reads output that the server retains.
    pub async fn read(&self, params: ReadParams) -> Result<ReadResult, ExecServerError> {
        match self.handle.core.options.when_recovering {
            WhenRecovering::Wait => process::read(&self.handle.core, params).await,
            WhenRecovering::FailFast => self.call::<methods::ProcessRead>(&params).await,
        }
    }

    /// Pauses or resumes the events of a process. While they are paused, a read acknowledges nothing, so the next
    /// client of the session still gets all output. Needs the extension `processFlow`.
    pub async fn pause(&self, process_id: &ProcessId, paused: bool) -> Result<(), ExecServerError> {
        let params = ProcessFlowParams { process_id: process_id.clone(), paused };
        self.call::<methods::ProcessFlow>(&params).await.map(drop)
    }

    /// Writes to the stdin of a process. A write with a write id is repeated after a lost connection; a write without
    /// an id fails.
    pub async fn write(
        &self,
        process_id: &ProcessId,
        bytes: Vec<u8>,
        write_id: Option<WriteId>,
    ) -> Result<WriteResult, ExecServerError> {
        let params = WriteParams { process_id: process_id.clone(), chunk: Base64Bytes(bytes), write_id };
        self.call::<methods::ProcessWrite>(&params).await
    }

    /// Sends a signal to the process group of a process. The request is not repeated after a lost connection.
    pub async fn signal(&self, process_id: &ProcessId, signal: Signal) -> Result<(), ExecServerError> {
        let params = SignalParams { process_id: process_id.clone(), signal };
        self.call::<methods::ProcessSignal>(&params).await.map(drop)
    }

    /// Kills a process and all its descendants. The request is not repeated after a lost connection.
    pub async fn terminate(&self, process_id: &ProcessId) -> Result<TerminateResult, ExecServerError> {
        self.call::<methods::ProcessTerminate>(&ProcessIdParams { process_id: process_id.clone() }).await
    }

    /// All processes of the session, including closed processes that the server still keeps. Needs the extension
    /// `processList`.
    pub async fn processes(&self) -> Result<Vec<ProcessSummary>, ExecServerError> {
        Ok(self.call::<methods::ProcessList>(&()).await?.processes)
    }

    /// The shell, directories and capabilities of the environment, with paths as they are on this machine.
    pub async fn environment_info(&self) -> Result<EnvironmentInfo, ExecServerError> {
        let info = self.call_within::<methods::EnvironmentInfo>(INFO_TIMEOUT).await?;
        Ok(self.handle.core.to_local(info))
    }

    /// Whether the environment is ready to run processes.
    pub async fn environment_status(&self) -> Result<EnvironmentStatus, ExecServerError> {
        self.call_within::<methods::EnvironmentStatus>(STATUS_TIMEOUT).await
    }

    /// Operations on the files of the environment.
    pub fn file_system(&self) -> RemoteFileSystem {
        RemoteFileSystem::new(Arc::clone(&self.handle))
    }

    /// The extensions that the server has. The client asks for them once. A server that does not know the request has
    /// no extension.
    pub async fn capabilities(&self) -> Result<Capabilities, ExecServerError> {
        self.handle.core.capabilities().await
    }

    /// The path that the connection uses: the relay, or a direct path. `None` if the server is not reached through a
    /// relay. While the first search for a direct path lasts, waits up to `patience`; after that, the answer is the
    /// relay.
    pub async fn connection_path(&self, patience: Duration) -> Option<ConnectionPath> {
        let mut path = self.handle.core.connector.connection_path()?;
        let settled = tokio::time::timeout(patience, path.wait_for(Option::is_some)).await;
        let known = settled.ok().and_then(Result::ok).and_then(|path| *path);
        Some(known.unwrap_or(ConnectionPath::Relay))
    }

    /// Maps paths of this machine to paths of the environment. `None` if they are the same.
    pub(crate) fn paths(&self) -> Option<&PathMap> {
        self.handle.core.connector.paths()
    }

    pub(crate) async fn call<M: TypedMethod>(&self, params: &M::Params) -> Result<M::Result, ExecServerError> {
        self.handle.core.call_for_user::<M>(params).await
    }

    async fn call_within<M: TypedMethod<Params = ()>>(&self, limit: Duration) -> Result<M::Result, ExecServerError> {
        tokio::time::timeout(limit, self.call::<M>(&())).await.unwrap_or_else(|_| {
            let method = M::METHOD.name();
            Err(ExecServerError::Protocol(format!("exec-server did not answer {method} within {limit:?}")))
        })
    }
}
