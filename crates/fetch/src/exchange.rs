//! One hop: a request and the headers of its response, over a connection from the pool or a new one. Decides when a request is sent again:
//! only if the server cannot have acted on it, or the method allows it. Knows no redirects. Start with [`FetcherState::exchange`].

use std::time::SystemTime;

use hyper::body::Incoming;

use crate::connect::{AlpnOffer, NegotiatedStream, RouteOpener};
use crate::error::{RequestFailure, http2_error};
use crate::fetcher::FetcherState;
use crate::http1::MAX_HEADERS;
use crate::lookup::LookupAllowance;
use crate::message::RequestMessage;
use crate::pool::{ConnectionLease, LeasedConnection};
use crate::proxy::Route;
use crate::validate::Hop;

/// A request is sent at most this often: over a connection that the server closes at that moment, over one on which the server refuses it,
/// and once more.
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
            let is_reused = pooled.is_some();
            let lease = match pooled {
                Some(lease) => lease,
                None => self.open(&route, offer, allowance).await?,
            };
            match attempt(&message, lease, is_reused).await {
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

async fn attempt(
    message: &RequestMessage<'_>,
    mut lease: ConnectionLease,
    is_reused: bool,
) -> Result<HopResponse, AttemptFailure> {
    let refused = |failure| AttemptFailure { failure, retry: None };
    let sent = match &mut lease.connection {
        LeasedConnection::Http1(connection) => connection.exchange(message.http1().map_err(refused)?).await,
        LeasedConnection::Http2(slot) => slot.exchange(message.http2().map_err(refused)?).await,
    };
    sent.map_err(|error| {
        let is_unsent = error.message().is_some();
        let retry = retry(message.hop, &lease.connection, is_reused, is_unsent, error.error());
        if let (LeasedConnection::Http2(slot), Some(_)) = (&lease.connection, retry) {
            slot.connection().retire();
        }
        AttemptFailure { failure: error.into_error().into(), retry }
    })
    .map(|response| (response, lease))
}

/// How a request that failed may be sent again over a new connection.
fn retry(
    hop: &Hop,
    connection: &LeasedConnection,
    is_reused: bool,
    is_unsent: bool,
    error: &hyper::Error,
) -> Option<AlpnOffer> {
    let is_http2 = matches!(connection, LeasedConnection::Http2(_));
    if let Some(cause) = http2_error(error).filter(|cause| cause.get_io().is_none()) {
        let is_refused = cause.is_go_away() || cause.reason() == Some(h2::Reason::REFUSED_STREAM);
        return match cause.reason() {
            Some(h2::Reason::HTTP_1_1_REQUIRED) if cause.is_remote() => Some(AlpnOffer::Http1),
            // A GOAWAY fails only streams on which the server has not acted.
            _ if cause.is_remote() && is_refused => Some(AlpnOffer::Http2AndHttp1),
            _ => None,
        };
    }
    // The server may have closed a connection of the pool at this moment.
    let is_lost = is_reused && hop.method.is_safe() && !error.is_parse() && !error.is_user();
    ((is_unsent && (is_reused || is_http2)) || is_lost).then_some(AlpnOffer::Http2AndHttp1)
}
