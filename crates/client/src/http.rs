//! HTTP requests made from the environment. A streamed body belongs to its connection: it cannot be taken up over another one, so it
//! fails at once when the connection does.

mod backlog;
mod bodies;

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use protocol::{HttpRequestParams, HttpResponse, methods};
use tokio::sync::mpsc;

use crate::client::{ExecServerClient, Handle};
use crate::error::ExecServerError;
use crate::forget::Forgotten;
use crate::job::Job;
use crate::shared::Shared;

pub(crate) use backlog::Backlog;
pub(crate) use bodies::Bodies;
use bodies::{Piece, Registration};

/// A future that an [`HttpClient`] returns.
pub type HttpAnswering<'a, T> = Pin<Box<dyn Future<Output = Result<T, ExecServerError>> + Send + 'a>>;

/// Makes HTTP requests, from wherever it is.
pub trait HttpClient: Send + Sync {
    /// Makes a request and returns the whole answer.
    fn http_request(&self, params: HttpRequestParams) -> HttpAnswering<'_, HttpResponse>;

    /// Makes a request; the answer's body is read as it comes.
    fn http_request_stream(
        &self,
        params: HttpRequestParams,
    ) -> HttpAnswering<'_, (HttpResponse, HttpResponseBodyStream)>;
}

impl HttpClient for ExecServerClient {
    fn http_request(&self, params: HttpRequestParams) -> HttpAnswering<'_, HttpResponse> {
        Box::pin(Self::http_request(self, params))
    }

    fn http_request_stream(
        &self,
        params: HttpRequestParams,
    ) -> HttpAnswering<'_, (HttpResponse, HttpResponseBodyStream)> {
        Box::pin(Self::http_request_stream(self, params))
    }
}

/// The body of a streamed answer, piece by piece. A reader that lags makes the server wait, if it can; dropping the body ends the
/// request, or lets the rest go by.
pub struct HttpResponseBodyStream {
    pieces: mpsc::UnboundedReceiver<Piece>,
    registration: Registration,
    is_over: bool,
    /// The connection lives as long as somebody reads from it.
    handle: Arc<Handle>,
}

impl HttpResponseBodyStream {
    /// Waits for the next piece; none after the last. Cancel safe.
    pub async fn recv(&mut self) -> Option<Result<Bytes, ExecServerError>> {
        if self.is_over {
            return None;
        }
        match self.pieces.recv().await {
            Some(Piece::Bytes(bytes)) => {
                if let Some(backlog) = self.registration.taken(bytes.len()) {
                    self.handle.shared.inbound.job(Job::TellBodyFlow(backlog));
                }
                Some(Ok(bytes))
            }
            Some(Piece::Failed(text)) => {
                self.is_over = true;
                Some(Err(ExecServerError::HttpRequest(text)))
            }
            Some(Piece::End) | None => {
                self.is_over = true;
                None
            }
        }
    }

    /// Everything that is left.
    pub async fn collect(mut self) -> Result<Vec<u8>, ExecServerError> {
        let mut body = Vec::new();
        while let Some(piece) = self.recv().await {
            body.extend(piece?);
        }
        Ok(body)
    }
}

impl Drop for HttpResponseBodyStream {
    fn drop(&mut self) {
        if self.registration.give_up() {
            cancel(&self.handle.shared, self.registration.id().to_owned());
        }
        while let Ok(piece) = self.pieces.try_recv() {
            if let Piece::Bytes(bytes) = piece {
                self.registration.taken(bytes.len());
            }
        }
    }
}

/// A request that is cancelled if nobody waits for its answer any more.
struct Pending<'a> {
    shared: &'a Shared,
    id: Option<String>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            cancel(self.shared, id);
        }
    }
}

fn cancel(shared: &Shared, id: String) {
    shared.inbound.job(Job::Forget(Forgotten::Request(id)));
}

impl ExecServerClient {
    /// Makes an HTTP request from the environment and returns the whole answer.
    pub async fn http_request(&self, mut params: HttpRequestParams) -> Result<HttpResponse, ExecServerError> {
        let shared = &self.handle().shared;
        params.stream_response = false;
        params.request_id = shared.inbound.bodies.next_id();
        let mut pending = Pending { shared, id: Some(params.request_id.clone()) };
        let answer = shared.call_for_user::<methods::HttpRequest>(&params).await;
        pending.id = None;
        answer
    }

    /// Makes an HTTP request from the environment; the answer's body is read as it comes.
    pub async fn http_request_stream(
        &self,
        mut params: HttpRequestParams,
    ) -> Result<(HttpResponse, HttpResponseBodyStream), ExecServerError> {
        let shared = &self.handle().shared;
        params.stream_response = true;
        // A server that does not say what it can do can do little.
        let has_flow = shared.capabilities().await.is_ok_and(|capabilities| capabilities.http_limits);
        // Before it is sent: the first piece may come right behind the answer.
        let (registration, pieces) = shared.inbound.bodies.register(has_flow);
        params.request_id = registration.id().to_owned();
        let handle = Arc::clone(self.handle());
        let body = HttpResponseBodyStream { pieces, registration, is_over: false, handle };
        let answer = shared.call_for_user::<methods::HttpRequest>(&params).await;
        if answer.is_err() {
            // There is nothing to cancel.
            body.registration.give_up();
        }
        Ok((answer?, body))
    }
}
