//! Sends the request of one hop, and returns the headers of its response. A hop is the request to one URL. The
//! connection comes from the pool or is a new one. A request that failed is sent again only if the server cannot have
//! acted on it, or if its method is safe and the connection was used before. This module does not know redirects.
//! Start with [`FetcherState::exchange`].

use std::time::SystemTime;

use hyper::body::Incoming;
use hyper::client::conn::TrySendError;

use crate::connect::{AlpnOffer, NegotiatedStream, RouteOpener};
use crate::error::{RequestFailure, http2_error};
use crate::fetcher::FetcherState;
use crate::http1::MAX_HEADERS;
use crate::message::RequestMessage;
use crate::owner::RequestOwner;
use crate::pool::{ConnectionAge, ConnectionLease, LeasedConnection, PoolKey};
use crate::validate::Hop;

/// How often one request is sent at most. The first attempt can fail because the server closes the pooled connection
/// just when the request is sent, and the second because the server refuses the request on the new connection.
const MAX_ATTEMPTS: usize = 3;

/// The headers of a response, its body, and the connection on which the body comes.
type HopResponse = (http::Response<Incoming>, ConnectionLease);

/// The failure of one attempt, and whether the request may be sent again.
struct AttemptFailure {
    failure: RequestFailure,
    /// The protocols to offer on the new connection. None if the request must not be sent again.
    retry: Option<AlpnOffer>,
}

impl FetcherState {
    /// Sends one request and returns its response.
    pub(crate) async fn exchange(&self, hop: &Hop, owner: &RequestOwner) -> Result<HopResponse, RequestFailure> {
        let key = PoolKey { owner: owner.clone(), route: self.proxies.route(&hop.url)? };
        let cookie = self.cookies.lock().header(&hop.url, SystemTime::now());
        let message = RequestMessage { hop, route: &key.route, cookie };
        let mut offer = AlpnOffer::Http2AndHttp1;
        let mut attempts = 1;
        loop {
            // A retry needs a new connection, because the server may have closed the others of the pool too.
            let pooled = if attempts == 1 { self.pool.lease(&key) } else { None };
            let lease = match pooled {
                Some(lease) => lease,
                None => self.open(&key, offer).await?,
            };
            match attempt(&message, lease).await {
                Ok((response, _)) if response.headers().len() > MAX_HEADERS => {
                    return Err(RequestFailure::too_many_headers());
                }
                Ok(response) => return Ok(response),
                Err(AttemptFailure { retry: Some(next), .. }) if attempts < MAX_ATTEMPTS => offer = next,
                Err(AttemptFailure { failure, .. }) => return Err(failure),
            }
            attempts += 1;
        }
    }

    /// Opens a new connection.
    async fn open(&self, key: &PoolKey, offer: AlpnOffer) -> Result<ConnectionLease, RequestFailure> {
        let allowance = key.owner.lookup_allowance();
        let opener = RouteOpener { roots: &self.roots, lookups: &self.lookups, allowance };
        match opener.open(&key.route, offer).await? {
            NegotiatedStream::Http1(stream) => self.pool.start_http1(key, stream).await,
            // If another request has opened an HTTP/2 connection meanwhile, this request uses that one, and the new
            // stream is closed.
            NegotiatedStream::Http2(stream) => match self.pool.lease_http2(key) {
                Some(lease) => Ok(lease),
                None => self.pool.start_http2(key, stream).await,
            },
        }
    }
}

/// Sends the request once, on the leased connection.
async fn attempt(message: &RequestMessage<'_>, mut lease: ConnectionLease) -> Result<HopResponse, AttemptFailure> {
    let without_retry = |failure| AttemptFailure { failure, retry: None };
    let sent = match &mut lease.connection {
        LeasedConnection::Http1(connection) => connection.exchange(message.http1().map_err(without_retry)?).await,
        LeasedConnection::Http2(slot) => slot.exchange(message.http2().map_err(without_retry)?).await,
    };
    sent.map_err(|error| {
        let retry = offer_for_retry(message.hop, &lease, &error);
        if let (LeasedConnection::Http2(slot), Some(_)) = (&lease.connection, retry) {
            // Later requests use another connection too. Requests that were sent already go on.
            slot.connection().retire();
        }
        AttemptFailure { failure: error.into_error().into(), retry }
    })
    .map(|response| (response, lease))
}

/// The protocols to offer on a new connection for a request that failed. `None` if it must not be sent again.
fn offer_for_retry<T>(hop: &Hop, lease: &ConnectionLease, error: &TrySendError<T>) -> Option<AlpnOffer> {
    let (is_unsent, error) = (error.message().is_some(), error.error());
    if let Some(cause) = http2_error(error).filter(|cause| cause.is_remote()) {
        return match cause.reason() {
            Some(h2::Reason::HTTP_1_1_REQUIRED) => Some(AlpnOffer::Http1),
            Some(h2::Reason::REFUSED_STREAM) => Some(AlpnOffer::Http2AndHttp1),
            // A GOAWAY fails only the streams on which the server has not acted.
            _ => cause.is_go_away().then_some(AlpnOffer::Http2AndHttp1),
        };
    }
    let is_reused = lease.age == ConnectionAge::Reused;
    let is_http2 = matches!(lease.connection, LeasedConnection::Http2(_));
    // The request or the response is invalid, so a second attempt would fail too.
    let is_invalid = error.is_parse() || error.is_user() || http2_error(error).is_some_and(|cause| !cause.is_io());
    // The server may have closed the reused connection just when the request was sent.
    let is_repeatable = is_reused && hop.method.is_safe() && !is_invalid;
    ((is_unsent && (is_reused || is_http2)) || is_repeatable).then_some(AlpnOffer::Http2AndHttp1)
}
