//! HTTP requests that the environment (the machine of the server) makes for the client. The body of an answer can be
//! streamed. A streamed body ends when its connection to the server ends: it cannot be resumed over another
//! connection.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use protocol::{HttpRequestParams, HttpResponse, methods};

use crate::client::ExecServerClient;
use crate::client_core::{ClientCore, ClientHandle};
use crate::error::ExecServerError;
use crate::jobs::{BackgroundJob, Forgotten};
use crate::records::{BodyEnd, BodyNext, BodyRegistration};

/// A future that an [`HttpClient`] returns.
pub type HttpAnswering<'a, T> = Pin<Box<dyn Future<Output = Result<T, ExecServerError>> + Send + 'a>>;

/// Makes HTTP requests. [`ExecServerClient`] makes them from the machine of its server.
pub trait HttpClient: Send + Sync {
    /// Makes a request and returns the answer with its whole body.
    fn http_request(&self, params: HttpRequestParams) -> HttpAnswering<'_, HttpResponse>;

    /// Makes a request and returns the head of the answer, and a stream of its body.
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

/// The streamed body of an answer. If more than 4 MiB are unread, the client asks the server to pause the body, if
/// the server can do that. Dropping the value before the end of the body cancels the request; if the server cannot
/// cancel, the rest of the body is ignored.
pub struct HttpResponseBodyStream {
    registration: BodyRegistration,
    is_over: bool,
    /// Keeps the client open while the body is read.
    handle: Arc<ClientHandle>,
}

impl HttpResponseBodyStream {
    /// Waits for the next piece of the body. Returns `None` after the last piece. Cancel safe.
    pub async fn recv(&mut self) -> Option<Result<Bytes, ExecServerError>> {
        if self.is_over {
            return None;
        }
        let (next, to_resume) = self.registration.next().await;
        // So much of a paused body was read that the server can resume it.
        if let Some(backlog) = to_resume {
            self.handle.core.inbound.add_job(BackgroundJob::SendBodyFlow(backlog));
        }
        self.is_over = matches!(next, BodyNext::End(_));
        match next {
            BodyNext::Piece(bytes) => Some(Ok(bytes)),
            BodyNext::End(BodyEnd::Failed(text)) => Some(Err(ExecServerError::HttpRequest(text))),
            BodyNext::End(BodyEnd::Complete | BodyEnd::GivenUp) => None,
        }
    }

    /// Reads the rest of the body.
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
            cancel(&self.handle.core, self.registration.id().to_owned());
        }
    }
}

/// Cancels a request when this value is dropped, unless `id` was removed before.
struct CancelRequestOnDrop<'a> {
    core: &'a ClientCore,
    id: Option<String>,
}

impl Drop for CancelRequestOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            cancel(self.core, id);
        }
    }
}

/// Adds a job that asks the server to cancel the request.
fn cancel(core: &ClientCore, id: String) {
    core.inbound.add_job(BackgroundJob::Forget(Forgotten::Request(id)));
}

impl ExecServerClient {
    /// Makes an HTTP request from the environment and returns the answer with its whole body.
    pub async fn http_request(&self, mut params: HttpRequestParams) -> Result<HttpResponse, ExecServerError> {
        let core = &self.handle().core;
        // Cancelling the request may need a background job.
        core.wait_for_room_for_job().await?;
        params.stream_response = false;
        params.request_id = core.inbound.bodies.next_id();
        let mut pending = CancelRequestOnDrop { core, id: Some(params.request_id.clone()) };
        let answer = core.call_for_user::<methods::HttpRequest>(&params).await;
        pending.id = None;
        answer
    }

    /// Makes an HTTP request from the environment and returns the head of the answer, and a stream of its body.
    pub async fn http_request_stream(
        &self,
        mut params: HttpRequestParams,
    ) -> Result<(HttpResponse, HttpResponseBodyStream), ExecServerError> {
        let core = &self.handle().core;
        // Cancelling the request may need a background job.
        core.wait_for_room_for_job().await?;
        params.stream_response = true;
        // If the capabilities are not known, the server is treated as one that cannot pause a body.
        let can_pause = core.capabilities().await.is_ok_and(|capabilities| capabilities.http_limits);
        // The body is registered before the request is sent, because the first piece may come right after the answer.
        let registration = core.inbound.bodies.register(can_pause);
        params.request_id = registration.id().to_owned();
        let handle = Arc::clone(self.handle());
        let body = HttpResponseBodyStream { registration, is_over: false, handle };
        let answer = core.call_for_user::<methods::HttpRequest>(&params).await;
        if answer.is_err() {
            // The request has failed, so there is nothing to cancel when `body` is dropped.
            body.registration.give_up();
        }
        Ok((answer?, body))
    }
}
