//! `http/request`, `http/cancel` and `http/flow`. A streamed body is read no faster than the client receives it. HTTP requests belong to the
//! connection: after a reconnection the client must send them again. Requests are not logged, because they may contain secrets.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fetch::{FetchError, FetchRequest, Fetcher, FetcherConfig, Header, Redirects};
use protocol::{
    Base64Bytes, BodyDelta, ErrorData, HttpCancelParams, HttpFlowParams, HttpHeader, HttpRequestParams, HttpResponse,
    NoResult, RedirectPolicy, WireError, encode_notification, encoded_len, notification,
};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::blocking::JobOwner;
use crate::budget::BudgetShare;
use crate::connection::{ActiveHttpRequest, Call, Connection};
use crate::server_state::ServerState;
use crate::session::Session;

/// Bytes of an answer that are reserved for everything but the body, mostly headers.
const AROUND_BODY_BYTES: usize = 64 << 10;

const TOO_LATE: &str = "failed to read http/request response body: the time given for the request is over";

/// The entry of an HTTP request in the requests of its connection. It is removed when this value is dropped.
struct HttpRegistration {
    connection: Arc<Connection>,
    id: String,
    request: ActiveHttpRequest,
    /// False for a request that is not streamed if another request had the same id already. Only streamed requests
    /// need unique ids. A streamed request replaces the entry of a request that is not streamed.
    is_registered: bool,
    /// One of the permits of `--max-http-requests`.
    _permit: OwnedSemaphorePermit,
}

impl HttpRegistration {
    fn begin(connection: &Arc<Connection>, id: String, is_streamed: bool) -> Result<Self, WireError> {
        let permit = Arc::clone(&connection.http_permits).try_acquire_owned().map_err(|_| {
            let limit = connection.shared.config.max_http_requests;
            WireError::invalid_request(format!(
                "connection has reached its limit of {limit} HTTP requests under way (--max-http-requests)"
            ))
        })?;
        let request = ActiveHttpRequest {
            cancel: CancellationToken::new(),
            paused: Arc::new(watch::Sender::new(false)),
            is_streamed,
        };
        let mut requests = connection.http.lock();
        let is_registered = match requests.get(&id) {
            Some(other) if is_streamed && other.is_streamed => {
                return Err(WireError::invalid_params(format!(
                    "http/request streamResponse requestId `{}` is already active",
                    protocol::shortened(&id)
                )));
            }
            Some(_) => is_streamed,
            None => true,
        };
        if is_registered {
            requests.insert(id.clone(), request.clone());
        }
        drop(requests);
        Ok(Self { connection: Arc::clone(connection), id, request, is_registered, _permit: permit })
    }
}

impl Drop for HttpRegistration {
    fn drop(&mut self) {
        let mut requests = self.connection.http.lock();
        let is_ours = |known: &ActiveHttpRequest| Arc::ptr_eq(&known.paused, &self.request.paused);
        if self.is_registered && requests.get(&self.id).is_some_and(is_ours) {
            requests.remove(&self.id);
        }
    }
}

pub(super) fn request(call: Call, params: HttpRequestParams, session: Arc<Session>) {
    let is_streamed = params.stream_response;
    let registration = match HttpRegistration::begin(&call.connection, params.request_id.clone(), is_streamed) {
        Ok(registration) => registration,
        Err(error) => return call.finish::<()>(Err(error)),
    };
    let connection = Arc::clone(&call.connection);
    connection.spawn(async move {
        if is_streamed {
            send_and_stream(call, params, &session, registration).await;
        } else {
            let cancel = registration.request.cancel.clone();
            // The memory for the body. It is held until the answer has been sent.
            let mut share = HttpShare::new(&session, &call.connection.shared);
            let answer = cancel.run_until_cancelled(send_and_collect(&call, params, &session, &mut share)).await;
            let answer = answer.unwrap_or_else(|| Err(cancelled()));
            let bytes = answer.as_ref().map_or(0, |answer| encoded_len(answer.body.0.len()));
            // Until the answer has its memory permits, the request counts against `--max-http-requests`.
            let Some(room) = call.connection.outbound.room_for_reply(bytes).await else { return };
            drop(registration);
            call.finish_in_room(answer, Some(room.with_http(vec![share.of_session, share.of_all])));
        }
    });
}

/// The memory of an answer that is collected and not streamed (`--max-buffered-http`). It counts against the budget
/// of its session and against the budget of all sessions.
struct HttpShare {
    of_session: BudgetShare,
    of_all: BudgetShare,
}

impl HttpShare {
    fn new(session: &Session, shared: &ServerState) -> Self {
        Self { of_session: session.http_budget.share(), of_all: shared.http_budget.share() }
    }

    /// Sets both shares to `bytes`, if both budgets allow it. Otherwise returns words that follow "the limit" in an
    /// error.
    fn try_set(&mut self, bytes: usize) -> Result<(), &'static str> {
        if !self.of_session.try_set(bytes) {
            return Err("of one session");
        }
        if self.of_all.try_set(bytes) { Ok(()) } else { Err("of all sessions") }
    }
}

/// Sends a request and collects the whole body of its answer.
async fn send_and_collect(
    call: &Call,
    params: HttpRequestParams,
    session: &Session,
    share: &mut HttpShare,
) -> Result<HttpResponse, WireError> {
    let shared = &call.connection.shared;
    let fitting_bytes = (shared.config.max_message_bytes.saturating_sub(AROUND_BODY_BYTES) / 4 * 3) as u64;
    let limit = params.max_body_bytes.map_or(fitting_bytes, |limit| limit.min(fitting_bytes));
    let response = send(shared, session, params).await?;
    let (status, headers) = (response.status, headers(response.headers));
    let mut exceeded = None;
    let may_hold = |bytes| {
        exceeded = share.try_set(bytes).err();
        exceeded.is_none()
    };
    let body = response.body.collect_while(limit, may_hold).await;
    let body = body.map_err(|error| failed(&error))?.ok_or_else(|| {
        let whose = exceeded.unwrap_or_default();
        let (own, all) = (session.http_budget.limit(), shared.http_budget.limit());
        WireError::internal(format!(
            "HTTP answers that are collected exceed the limit {whose}: {own} bytes for a session and {all} in all (--max-buffered-http); send the request with streamResponse"
        ))
    })?;
    Ok(HttpResponse { status, headers, body: Base64Bytes(body.into()) })
}

/// Sends a request and streams the body of its answer in notifications.
async fn send_and_stream(call: Call, params: HttpRequestParams, session: &Session, registration: HttpRegistration) {
    let cancel = registration.request.cancel.clone();
    let timeout = params.timeout_ms.map(Duration::from_millis);
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let sent = cancel.run_until_cancelled(send(&call.connection.shared, session, params)).await;
    let response = match sent.unwrap_or_else(|| Err(cancelled())) {
        Ok(response) => response,
        Err(error) => {
            drop(registration);
            return call.finish::<()>(Err(error));
        }
    };
    let connection = Arc::clone(&call.connection);
    let mut body = response.body;
    let mut deltas = BodyDeltas { connection, request_id: registration.id.clone(), seq: 0 };
    let answer =
        HttpResponse { status: response.status, headers: headers(response.headers), body: Base64Bytes::default() };
    // The pieces of the body go into the same queue, so they follow the answer.
    call.finish(Ok(answer));
    let mut paused = registration.request.paused.subscribe();
    let pieces = async {
        loop {
            // This cannot fail, because `registration` holds the sender.
            let _ = paused.wait_for(|paused| !paused).await.is_ok();
            match body.next().await {
                Ok(Some(piece)) => {
                    if deltas.send_piece(piece).await.is_break() {
                        return Some("the connection has ended".to_owned());
                    }
                }
                Ok(None) => return None,
                Err(error) => return Some(error.to_string()),
            }
        }
    };
    // The body notices its timeout only while it is read. So the timeout is checked here too, for a body that is paused or whose client does
    // not read.
    let pieces = async {
        match deadline {
            Some(deadline) => {
                tokio::time::timeout_at(deadline, pieces).await.unwrap_or_else(|_| Some(TOO_LATE.to_owned()))
            }
            None => pieces.await,
        }
    };
    let end = cancel.run_until_cancelled(pieces).await;
    // The id is free again before the client learns that the stream has ended.
    drop(registration);
    deltas.end(end.unwrap_or_else(|| Some("cancelled".to_owned())));
}

/// Sends the pieces of one body as notifications.
struct BodyDeltas {
    connection: Arc<Connection>,
    request_id: String,
    seq: u64,
}

impl BodyDeltas {
    /// Waits for memory permits, and then sends a piece. Returns `Break` if the connection has ended.
    async fn send_piece(&mut self, piece: Bytes) -> ControlFlow<()> {
        let Some(room) = self.connection.outbound.room_for_reply(piece.len()).await else {
            return ControlFlow::Break(());
        };
        let message = self.encode(piece.into(), false, None);
        self.connection.outbound.reply_in_room(message, room);
        ControlFlow::Continue(())
    }

    /// Sends the last notification, with an error if the body is incomplete.
    fn end(mut self, error: Option<String>) {
        let message = self.encode(Vec::new(), true, error.as_deref());
        self.connection.outbound.reply(message);
    }

    fn encode(&mut self, bytes: Vec<u8>, done: bool, error: Option<&str>) -> Vec<u8> {
        self.seq += 1;
        let delta = BodyDelta { request_id: &self.request_id, seq: self.seq, delta: Base64Bytes(bytes), done, error };
        encode_notification(notification::HTTP_BODY_DELTA, &delta)
    }
}

/// `http/cancel`. Succeeds also if there is no such request.
pub(super) fn cancel(call: Call, params: HttpCancelParams, _: Arc<Session>) {
    if let Some(request) = call.connection.http.lock().get(&params.request_id) {
        request.cancel.cancel();
    }
    call.finish(Ok(NoResult {}));
}

/// `http/flow`: pauses or continues the body of a streamed request.
pub(super) fn flow(call: Call, params: HttpFlowParams, _: Arc<Session>) {
    if let Some(request) = call.connection.http.lock().get(&params.request_id) {
        request.paused.send_replace(params.paused);
    }
    call.finish(Ok(NoResult {}));
}

/// Sends a request, and waits for the head of the response. The body can then be read.
async fn send(
    shared: &Arc<ServerState>,
    session: &Session,
    params: HttpRequestParams,
) -> Result<fetch::FetchResponse, WireError> {
    let fetcher = fetcher(shared).await?.for_owner(session.http_owner.clone());
    let request = FetchRequest {
        method: params.method,
        url: params.url,
        headers: params
            .headers
            .into_iter()
            .map(|header| Header { name: header.name, value: header.value, value_env_var: header.value_env_var })
            .collect(),
        body: params.body.map(|body| body.0.into()),
        timeout: params.timeout_ms.map(Duration::from_millis),
        redirects: match params.redirect_policy {
            RedirectPolicy::Follow => Redirects::Follow,
            RedirectPolicy::Stop => Redirects::Stop,
        },
        max_body_bytes: params.max_body_bytes,
    };
    fetcher.send(request).await.map_err(|error| failed(&error))
}

/// The fetcher, which makes the HTTP requests of all clients. It is created for the first request: reading the trusted certificates takes a
/// while, and most servers make no HTTP requests.
async fn fetcher(shared: &Arc<ServerState>) -> Result<&Fetcher, WireError> {
    shared
        .fetcher
        .get_or_try_init(|| async {
            let variables = shared.env.iter();
            let environment = variables
                .filter_map(|(name, value)| Some((name.to_str()?.to_owned(), value.to_str()?.to_owned())))
                .collect();
            let config = FetcherConfig { environment, lookups: Arc::clone(&shared.lookups) };
            let made = shared.threads.run(JobOwner::SERVER, || Fetcher::new(config)).await;
            made.ok_or_else(|| {
                WireError::internal(
                    "http/request failed: the server has failed to prepare HTTP requests; its log says why",
                )
            })?
            .map_err(|error| WireError::internal(format!("http/request failed: {error}")))
        })
        .await
}

fn headers(headers: Vec<(String, String)>) -> Vec<HttpHeader> {
    headers.into_iter().map(|(name, value)| HttpHeader { name, value, value_env_var: None }).collect()
}

fn failed(error: &FetchError) -> WireError {
    match error {
        FetchError::Invalid(text) => WireError::invalid_params(text),
        FetchError::Failed { kind, message } => {
            let data = ErrorData { errno: None, kind: kind.as_str().to_owned(), path: None };
            WireError::internal(message).with_data(data)
        }
    }
}

fn cancelled() -> WireError {
    let data = ErrorData { errno: None, kind: "cancelled".to_owned(), path: None };
    WireError::internal("http/request failed: cancelled").with_data(data)
}
