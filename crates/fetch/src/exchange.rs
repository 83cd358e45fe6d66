//! One hop: a request and the headers of its response, over a connection from the pool or a new one. Decides when a request is sent again:
//! only if the server cannot have acted on it, or the method allows it. Knows no redirects. Start with [`FetcherState::exchange`].

use std::time::SystemTime;

use hyper::body::Incoming;
use hyper::client::conn::TrySendError;

use crate::connect::{AlpnOffer, NegotiatedStream, RouteOpener};
use crate::error::{RequestFailure, http2_error};
use crate::fetcher::FetcherState;
use crate::http1::MAX_HEADERS;
use crate::lookup::LookupAllowance;
use crate::message::RequestMessage;
use crate::pool::{ConnectionAge, ConnectionLease, LeasedConnection};
use crate::proxy::Route;
use crate::validate::Hop;

/// Attempts to send one request. The first can fail because the server closes the pooled connection at that moment, the second because the
/// server refuses the request on its connection. The third is the last.
const MAX_ATTEMPTS: usize = 3;

/// The headers of a response, its body, and the connection on which the body comes.
type HopResponse = (http::Response<Incoming>, ConnectionLease);

/// Why an attempt failed, and how the request may be sent again.
struct AttemptFailure {
    failure: RequestFailure,
    /// None if the request must not be sent again.
    retry: Option<AlpnOffer>,
}

impl FetcherState {
    /// Sends one request and returns its response. `allowance` limits the name look-ups that run at once for the session of the request.
    pub(crate) async fn exchange(
        &self,
        hop: &Hop,
        allowance: &LookupAllowance,
    ) -> Result<HopResponse, RequestFailure> {
        let route = self.proxies.route(&hop.url)?;
        let cookie = self.cookies.lock().header(&hop.url, SystemTime::now());
        let message = RequestMessage { hop, route: &route, cookie };
        let mut offer = AlpnOffer::Http2AndHttp1;
        let mut attempts = 1;
        loop {
            // Other connections of the pool may be as old as one that failed.
            let pooled = if attempts == 1 { self.pool.lease(&route) } else { None };
            let lease = match pooled {
                Some(lease) => lease,
                None => self.open(&route, offer, allowance).await?,
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

    async fn open(
        &self,
        route: &Route,
        offer: AlpnOffer,
        allowance: &LookupAllowance,
    ) -> Result<ConnectionLease, RequestFailure> {
        let opener = RouteOpener { roots: &self.roots, lookups: &self.lookups, allowance };
        match opener.open(route, offer).await? {
            NegotiatedStream::Http1(stream) => self.pool.start_http1(route, stream).await,
            // If another request has opened a connection meanwhile, one is enough for both.
            NegotiatedStream::Http2(stream) => match self.pool.lease_http2(route) {
                Some(lease) => Ok(lease),
                None => self.pool.start_http2(route, stream).await,
            },
        }
    }
}

async fn attempt(message: &RequestMessage<'_>, mut lease: ConnectionLease) -> Result<HopResponse, AttemptFailure> {
    let refused = |failure| AttemptFailure { failure, retry: None };
    let sent = match &mut lease.connection {
        LeasedConnection::Http1(connection) => connection.exchange(message.http1().map_err(refused)?).await,
        LeasedConnection::Http2(slot) => slot.exchange(message.http2().map_err(refused)?).await,
    };
    sent.map_err(|error| {
        let retry = retry(message.hop, &lease, &error);
        if let (LeasedConnection::Http2(slot), Some(_)) = (&lease.connection, retry) {
            slot.connection().retire();
        }
        AttemptFailure { failure: error.into_error().into(), retry }
    })
    .map(|response| (response, lease))
}

/// How a request that failed may be sent again over a new connection.
fn retry<T>(hop: &Hop, lease: &ConnectionLease, error: &TrySendError<T>) -> Option<AlpnOffer> {
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
    let is_invalid = error.is_parse() || error.is_user() || http2_error(error).is_some_and(|cause| !cause.is_io());
    // The server may have closed a connection of the pool at this moment.
    let is_safe = is_reused && hop.method.is_safe() && !is_invalid;
    ((is_unsent && (is_reused || is_http2)) || is_safe).then_some(AlpnOffer::Http2AndHttp1)
}
