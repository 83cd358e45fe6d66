//! HTTP requests made from the environment. A streamed body belongs to its connection: it cannot be taken up over another one, so it
//! fails at once when the connection does.

mod bodies;

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use protocol::{HTTP_REQUEST, HttpRequestParams, HttpResponse};
use tokio::sync::mpsc;

use crate::client::{ExecServerClient, Handle};
use crate::error::ExecServerError;

pub(crate) use bodies::Bodies;
use bodies::{Piece, Registration};

/// The body of a streamed answer, piece by piece. Dropping it lets the rest go by.
pub struct HttpResponseBodyStream {
    pieces: mpsc::Receiver<Piece>,
    registration: Registration,
    is_over: bool,
    /// The connection lives as long as somebody reads from it.
    _handle: Arc<Handle>,
}

impl HttpResponseBodyStream {
    /// Waits for the next piece; none after the last. Cancel safe.
    pub async fn recv(&mut self) -> Option<Result<Bytes, ExecServerError>> {
        if self.is_over {
            return None;
        }
        match poll_fn(|cx| self.pieces.poll_recv(cx)).await {
            Some(Piece::Bytes(bytes)) => {
                self.registration.taken(bytes.len());
                Some(Ok(bytes))
            }
            Some(Piece::End) => {
                self.is_over = true;
                None
            }
            Some(Piece::Failed(text)) => self.fail(text),
            None => {
                let text = self.registration.failure();
                self.fail(text)
            }
        }
    }

    fn fail(&mut self, text: String) -> Option<Result<Bytes, ExecServerError>> {
        self.is_over = true;
        Some(Err(ExecServerError::HttpRequest(text)))
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
        self.registration.give_up();
        while let Ok(piece) = self.pieces.try_recv() {
            if let Piece::Bytes(bytes) = piece {
                self.registration.taken(bytes.len());
            }
        }
    }
}

impl ExecServerClient {
    /// Makes an HTTP request from the environment and returns the whole answer.
    pub async fn http_request(&self, mut params: HttpRequestParams) -> Result<HttpResponse, ExecServerError> {
        let shared = &self.handle().shared;
        params.stream_response = false;
        params.request_id = shared.inbound.bodies.next_id();
        shared.call_once(HTTP_REQUEST, &params).await
    }

    /// Makes an HTTP request from the environment; the answer's body is read as it comes.
    pub async fn http_request_stream(
        &self,
        mut params: HttpRequestParams,
    ) -> Result<(HttpResponse, HttpResponseBodyStream), ExecServerError> {
        let shared = &self.handle().shared;
        params.stream_response = true;
        // Before it is sent: the first piece may come right behind the answer.
        let (registration, pieces) = shared.inbound.bodies.register();
        params.request_id = registration.id().to_owned();
        let handle = Arc::clone(self.handle());
        let body = HttpResponseBodyStream { pieces, registration, is_over: false, _handle: handle };
        let response: HttpResponse = shared.call_once(HTTP_REQUEST, &params).await?;
        Ok((response, body))
    }
}
