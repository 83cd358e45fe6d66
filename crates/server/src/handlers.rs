//! Request handlers. [`dispatch`] finds the method of a request, and `handle` decodes the params, checks the
//! handshake and calls the handler of the method. [`write_block`] is a shorter way for blocks of uploads. Handlers do
//! not know the socket: they answer through a [`Call`].

mod capability_roots;
mod capture_shell;
mod config;
mod flow;
mod fs;
mod http;
mod initialize;
mod legacy;
mod poll_once;
mod ports;
mod read;
mod refused_blocks;
mod request_root;
mod sandbox_lookup;
mod start;
mod stdin;
mod stop;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::fs::WriteBlockParams;
use protocol::{
    EnvironmentStatus, ErrorData, ListResult, Method, NoResult, ProcessId, ProcessIdParams, Request, RequestId,
    RequestOrder, ResizeParams, SessionKeepParams, Signal, SignalParams, WireError, decode, decode_params,
    encode_error, error_kind, shortened,
};
use serde::de::DeserializeOwned;

pub(crate) use fs::query::answer_file_metadata_requests;
pub(crate) use ports::{close_by_client as close_port, data as port_data, flow as port_flow};
pub(crate) use refused_blocks::note_refused_message;

use waiting::WaitingBytes;

use crate::config::Config;
use crate::connection::{Call, Connection, ConnectionRole, HandshakePhase, resumed_elsewhere};
use crate::environment::environment_info;
use crate::process::Process;
use crate::session::{DeferredRequest, Lookup, Session, StartOutcome};

/// Handles one request. Returns as soon as the next message may be handled; the request may still be unanswered then.
pub(crate) async fn dispatch(connection: &Arc<Connection>, request: Request<'_>, message: &Bytes) {
    let limit = connection.shared.config.max_id_bytes;
    if matches!(&request.id, RequestId::Text(text) if text.len() > limit) {
        let error = format!("request id exceeds the limit of {limit} bytes (--max-id-bytes)");
        // If the message was a block of an upload, the upload fails.
        note_refused_message(connection, message, &error);
        let error = WireError::invalid_request(error);
        return connection.outbound.reply(encode_error(&RequestId::UNKNOWN, &error));
    }
    let Some(method) = Method::from_name(&request.method) else {
        let error = WireError::new(
            protocol::ErrorCode::MethodNotFound,
            format!("exec-server stub does not implement `{}` yet", shortened(&request.method)),
        );
        return connection.outbound.reply(encode_error(&request.id, &error));
    };
    let Some(call) = Call::begin(connection, request.id.clone(), method) else {
        // `Call::begin` has answered that too many requests are unanswered.
        if method == Method::FsWriteBlock {
            note_refused_message(connection, message, TOO_MANY_REQUESTS);
        }
        return;
    };
    // `initialize` is the only `Inline` method.
    if method.order() == RequestOrder::Inline {
        return initialize::initialize(call, decode_params(request.params)).await;
    }
    handle(call, &request, message, None);
}

/// Handles a block of an upload. The caller has recognised the block without decoding the message as JSON.
pub(crate) fn write_block(connection: &Arc<Connection>, id: RequestId, params: WriteBlockParams) {
    let Some(call) = Call::begin(connection, id, Method::FsWriteBlock) else {
        return fail_upload_if_attached(connection, &params.handle_id, TOO_MANY_REQUESTS);
    };
    write_block_in_session(call, params);
}

/// Why a block was refused that arrived while too many requests were unanswered.
const TOO_MANY_REQUESTS: &str = "the connection had too many unanswered requests (--max-requests)";

fn write_block_in_session(call: Call, params: WriteBlockParams) {
    match session_for(&call.connection, call.method) {
        Ok(session) => fs::blocks::write_block(call, params, session),
        Err(error) => {
            fail_upload_if_attached(&call.connection, &params.handle_id, &error.message);
            call.finish::<()>(Err(error));
        }
    }
}

/// Makes the upload `handle_id` fail, because a block of it was refused. Does nothing if this connection is not
/// attached to a session.
fn fail_upload_if_attached(connection: &Connection, handle_id: &str, reason: &str) {
    if let Some(session) = connection.own_session() {
        refused_blocks::note_refused_block(&session, handle_id, reason);
    }
}

/// Turns a request into a function that handles it after the start of its process. If too many bytes of requests wait already, the request
/// is refused and None returned.
fn defer(call: Call, message: &Bytes) -> Option<DeferredRequest> {
    let waiting = match WaitingBytes::for_start(&call.connection, message.len()) {
        Ok(waiting) => waiting,
        Err(error) => {
            call.finish::<()>(Err(error));
            return None;
        }
    };
    let message = message.clone();
    Some(Box::new(move |outcome| {
        // The message was decoded once before it was deferred, so this cannot fail.
        if let Ok(protocol::Incoming::Request(request)) = decode(&message) {
            handle(call, &request, &message, Some(outcome));
        }
        drop(waiting);
    }))
}

/// Calls the handler of the request. `start` is the result of the start for which the request has waited; None if it has not waited.
fn handle(call: Call, request: &Request<'_>, message: &Bytes, start: Option<StartOutcome>) {
    match call.method {
        // `dispatch` has handled this method already.
        Method::Initialize => {}
        Method::EnvironmentInfo => with_session(call, request, |call, (), _| {
            let shared = Arc::clone(&call.connection.shared);
            call.finish(Ok(environment_info(&shared.env, &shared.shell, &shared.config)));
        }),
        Method::EnvironmentStatus => with_session(call, request, |call, (), _| {
            call.finish(Ok(EnvironmentStatus { status: "ready".to_owned() }));
        }),
        Method::EnvironmentConfigRead => with_session(call, request, config::read),
        Method::CapabilityRootsDiscover => with_session(call, request, capability_roots::discover),
        Method::ProcessList => with_session(call, request, |call, (), session| {
            call.finish(Ok(ListResult { processes: session.table.list() }));
        }),
        Method::SessionKeep => with_session(call, request, |call, params: SessionKeepParams, session| {
            let keep = Duration::from_millis(params.keep_for_ms).min(call.connection.shared.config.max_session_ttl);
            session.keep_for(keep);
            // The time for which closed processes are kept may have changed.
            let shared = &call.connection.shared;
            shared.janitor.forget_expired_processes(&session, &shared.metrics);
            call.finish(Ok(NoResult {}));
        }),
        Method::ProcessStart => with_session(call, request, |call, params, session| {
            start::start(call, params, &session);
        }),
        Method::LegacyExec => with_session(call, request, |call, params, session| {
            legacy::exec(call, params, &session);
        }),
        Method::ProcessRead => with_process(call, request, message, start, read::read),
        Method::ProcessWrite => with_process(call, request, message, start, stdin::write),
        Method::ProcessCloseStdin => with_process(call, request, message, start, stdin::close),
        Method::ProcessSignal => with_process(call, request, message, start, signal),
        Method::ProcessResize => with_process(call, request, message, start, resize),
        Method::ProcessFlow => with_process(call, request, message, start, flow::flow),
        Method::ProcessTerminate => with_process(call, request, message, start, stop::terminate),
        Method::LegacyWrite => with_process(call, request, message, start, legacy::write),
        Method::LegacyTerminate => with_process(call, request, message, start, legacy::terminate),
        Method::HttpRequest => with_session(call, request, http::request),
        Method::HttpCancel => with_session(call, request, http::cancel),
        Method::HttpFlow => with_session(call, request, http::flow),
        Method::TcpConnect => with_session(call, request, ports::connect),
        Method::FsReadFile => with_session(call, request, fs::query::read_file),
        Method::FsGetMetadata => with_session(call, request, fs::query::get_metadata),
        Method::FsCanonicalize => with_session(call, request, fs::query::canonicalize),
        Method::FsReadDirectory => with_session(call, request, fs::query::read_directory),
        Method::FsReadLink => with_session(call, request, fs::query::read_link),
        Method::FsWalk => with_session(call, request, fs::query::walk),
        Method::FsWriteFile => with_session(call, request, fs::change::write_file),
        Method::FsCreateDirectory => with_session(call, request, fs::change::create_directory),
        Method::FsSetMetadata => with_session(call, request, fs::change::set_metadata),
        Method::FsRemove => with_session(call, request, fs::change::remove),
        Method::FsCopy => with_session(call, request, fs::change::copy),
        Method::FsRename => with_session(call, request, fs::change::rename),
        Method::FsSymlink => with_session(call, request, fs::change::symlink),
        Method::FsOpen => with_session(call, request, fs::blocks::open),
        Method::FsReadBlock => with_session(call, request, fs::blocks::read_block),
        Method::FsExtents => with_session(call, request, fs::blocks::extents),
        Method::FsClose => with_session(call, request, fs::blocks::close),
        Method::FsCreate => with_session(call, request, fs::blocks::create),
        Method::FsWriteBlock => match decode_params(request.params) {
            Ok(params) => write_block_in_session(call, params),
            Err(error) => {
                note_refused_message(&call.connection, message, &error.message);
                call.finish::<()>(Err(error));
            }
        },
        Method::FsCommit => with_session(call, request, fs::blocks::commit),
        Method::FsWatch => with_session(call, request, fs::watch::watch),
        Method::FsUnwatch => with_session(call, request, fs::watch::unwatch),
        Method::FsSearch => with_session(call, request, fs::search::search),
        Method::FsCancelSearch => with_session(call, request, fs::search::cancel),
    }
}

/// Decodes the params, then checks that the connection has a session, and calls `handler`. Bad params are reported before a missing session.
fn with_session<P: DeserializeOwned>(call: Call, request: &Request<'_>, handler: impl FnOnce(Call, P, Arc<Session>)) {
    match decode_params(request.params) {
        Ok(params) => match session_for(&call.connection, call.method) {
            Ok(session) => handler(call, params, session),
            Err(error) => call.finish::<()>(Err(error)),
        },
        Err(error) => call.finish::<()>(Err(error)),
    }
}

/// As [`with_session`], and also finds the process that the params name. If the process is still being started, the request waits for the
/// end of the start.
fn with_process<P: DeserializeOwned + NamesProcess>(
    call: Call,
    request: &Request<'_>,
    message: &Bytes,
    start: Option<StartOutcome>,
    handler: impl FnOnce(Call, P, &Arc<Session>, NamedProcess),
) {
    debug_assert!(
        matches!(call.method.order(), RequestOrder::AfterStart | RequestOrder::Stdin),
        "the method table must say that this method waits for a start"
    );
    with_session(call, request, |call, params: P, session| {
        if let Err(error) = check_process_id(&call.connection.shared.config, params.process_id()) {
            return call.finish::<()>(Err(error));
        }
        let (call, named) = match start {
            Some(StartOutcome::Started(process)) => (call, NamedProcess::Started(process)),
            Some(StartOutcome::Cancelled(killed)) => (call, NamedProcess::NeverStarted(killed)),
            Some(StartOutcome::Failed) => (call, NamedProcess::Unknown),
            None => {
                let is_terminate = matches!(call.method, Method::ProcessTerminate | Method::LegacyTerminate);
                let shared = is_terminate.then(|| Arc::clone(&call.connection.shared));
                match session.table.find_or_defer(params.process_id(), call, |call| defer(call, message)) {
                    Lookup::Unknown(call) => (call, NamedProcess::Unknown),
                    Lookup::Found(call, process) => (call, NamedProcess::Started(process)),
                    Lookup::Deferred(reservation) => {
                        // A request to terminate does not wait long for the start; it cancels a slow start.
                        if let Some(shared) = shared {
                            stop::cancel_start_later(&shared, &session, reservation);
                        }
                        return;
                    }
                    // `defer` has answered with an error.
                    Lookup::Refused => return,
                }
            }
        };
        handler(call, params, &session, named);
    });
}

/// The process that a request names.
pub(crate) enum NamedProcess {
    /// No process has this id, or its start has failed.
    Unknown,
    /// The start was cancelled while the request waited for it. `Err` if the start had already made a process, and
    /// this process could not be killed.
    NeverStarted(Result<(), WireError>),
    /// The process was started. It may have exited since.
    Started(Arc<Process>),
}

impl NamedProcess {
    /// The process, if it was started.
    fn process(self) -> Option<Arc<Process>> {
        match self {
            Self::Started(process) => Some(process),
            Self::Unknown | Self::NeverStarted(_) => None,
        }
    }
}

/// Params that name a process.
pub(crate) trait NamesProcess {
    fn process_id(&self) -> &ProcessId;
}

macro_rules! names_process {
    ($($params:ty),*) => {
        $(impl NamesProcess for $params {
            fn process_id(&self) -> &ProcessId {
                &self.process_id
            }
        })*
    };
}

names_process!(
    protocol::ReadParams,
    protocol::WriteParams,
    SignalParams,
    ResizeParams,
    ProcessIdParams,
    protocol::ProcessFlowParams,
    protocol::LegacyWriteParams,
    protocol::LegacyTerminateParams
);

/// The session of a connection, which may be attached to the session or observe it. Fails if the handshake is not
/// done, if the connection may not use the method, or if it may no longer use the session ([`check_access`]).
fn session_for(connection: &Connection, method: Method) -> Result<Arc<Session>, WireError> {
    let family = method.family().name_in_errors();
    match connection.phase() {
        HandshakePhase::Fresh => {
            Err(WireError::invalid_request(format!("client must call initialize before using {family} methods")))
        }
        HandshakePhase::Greeted(..) => {
            Err(WireError::invalid_request(format!("client must send initialized before using {family} methods")))
        }
        HandshakePhase::Ready(_, ConnectionRole::Observing(_)) if !is_open_to_observers(method) => {
            Err(WireError::invalid_request(format!(
                "a connection that only observes cannot use {}; resume the session without observe",
                method.name()
            )))
        }
        HandshakePhase::Ready(session, _) => {
            check_access(connection, &session)?;
            Ok(session)
        }
    }
}

/// Returns true if a connection that only observes a session may use the method. Input, events, `fs/*` and `http/*`
/// are for the attached connection only, and so is everything else that is not listed here.
fn is_open_to_observers(method: Method) -> bool {
    matches!(
        method,
        Method::EnvironmentInfo
            | Method::EnvironmentStatus
            | Method::EnvironmentConfigRead
            | Method::CapabilityRootsDiscover
            | Method::ProcessList
            | Method::ProcessRead
            | Method::ProcessStart
            | Method::ProcessSignal
            | Method::ProcessTerminate
    )
}

/// Checks that a connection may still use its session. An observing connection may until the session ends, and the
/// attached connection until another connection resumes the session.
fn check_access(connection: &Connection, session: &Session) -> Result<(), WireError> {
    match connection.role() {
        Some(ConnectionRole::Observing(_)) if session.has_ended() => Err(initialize::unknown_session(&session.id)),
        Some(ConnectionRole::Observing(_)) => Ok(()),
        _ if session.is_attached_to(connection.number()) => Ok(()),
        // The client has closed its sending side and waits for the answers to its last requests.
        _ if session.is_detached() && !connection.outbound.is_displaced() => Ok(()),
        _ => Err(resumed_elsewhere()),
    }
}

fn check_process_id(config: &Config, id: &ProcessId) -> Result<(), WireError> {
    let limit = config.max_id_bytes;
    if id.as_str().len() <= limit {
        return Ok(());
    }
    Err(WireError::invalid_params(format!("processId exceeds the limit of {limit} bytes (--max-id-bytes)")))
}

fn unknown_process(id: &ProcessId) -> WireError {
    WireError::invalid_request(format!("unknown process id {id}"))
        .with_data(ErrorData::of_kind(error_kind::UNKNOWN_PROCESS))
}

/// `process/signal`. Signals go to the process group of the process. But if the process has a terminal, signals that
/// a keyboard can send go to the foreground job of that terminal. For an unknown process and for a process that has
/// ended, the request succeeds and does nothing.
fn signal(call: Call, params: SignalParams, _: &Arc<Session>, named: NamedProcess) {
    let Some(process) = named.process() else { return call.finish(Ok(NoResult {})) };
    let (signal, from_keyboard) = match params.signal {
        Signal::Interrupt => (spawn::Signal::INT, true),
        Signal::Quit => (spawn::Signal::QUIT, true),
        Signal::Hangup => (spawn::Signal::HUP, false),
        Signal::Terminate => (spawn::Signal::TERM, false),
        Signal::Kill => (spawn::Signal::KILL, false),
        Signal::User1 => (spawn::Signal::USR1, false),
        Signal::User2 => (spawn::Signal::USR2, false),
        Signal::Stop => (spawn::Signal::STOP, false),
        Signal::Continue => (spawn::Signal::CONT, false),
    };
    process.note_sent_signal(signal);
    let to_foreground = if from_keyboard { process.with_terminal(|pty| pty.signal_foreground(signal)) } else { None };
    let sent = to_foreground.or_else(|| process.child().map(|child| child.signal_group(signal))).unwrap_or(Ok(()));
    call.finish(
        sent.map(|()| NoResult {}).map_err(|error| WireError::internal(format!("failed to signal process: {error}"))),
    );
}

/// `process/resize`: sets the size of the terminal of a process.
fn resize(call: Call, params: ResizeParams, _: &Arc<Session>, named: NamedProcess) {
    let Some(process) = named.process() else {
        return call.finish::<()>(Err(unknown_process(&params.process_id)));
    };
    let size = spawn::TerminalSize { rows: params.size.rows, cols: params.size.cols };
    let result = match process.with_terminal(|pty| pty.resize(size)) {
        Some(Ok(())) => Ok(NoResult {}),
        Some(Err(error)) => Err(WireError::internal(format!("failed to resize the terminal: {error}"))),
        None => Err(WireError::invalid_request(format!("process {} has no terminal", params.process_id))),
    };
    call.finish(result);
}
