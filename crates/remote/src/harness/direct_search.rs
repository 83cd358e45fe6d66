//! Looks for a direct path while the stream runs, uses the path until it breaks, and looks again later. The search
//! never delays the stream: until a path is proven, all frames go through the relay.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use recovery::Backoff;
use tokio::sync::{mpsc, watch};
use transport::{ConnectError, ConnectOptions, DIRECT_PATH, MessageStream, ReadEvent};

use crate::chance::chance;
use crate::direct::{
    ConnectionPath, DIRECT_OFFER, DIRECT_REQUEST, DirectOffer, DirectPolicy, SOCKET_LIMITS, serve_route, this_machine,
};
use crate::relayed_stream::{ControlHandler, DirectRoute, RelayedStream};

/// The wait before the first search. Most commands have ended by then and need no direct path.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// The waits between two searches. They grow while searches fail or direct paths break early.
const WAITS: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(300) };

/// A direct path that was used for this long counts as a success.
const HELD: Duration = Duration::from_secs(10);

/// How long the executor may take to make an offer.
const OFFER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long one attempt may take, from connecting to an address until the answer of the offer has arrived. All
/// addresses of an offer together take less time than its ticket is valid.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(1);

/// The largest number of unread offers. Further ones are dropped.
const MAX_WAITING_OFFERS: usize = 4;

/// Why an address is not used.
#[derive(Debug, thiserror::Error)]
enum AddressFailure {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("it did not answer in time")]
    TimedOut,
    #[error("it is not the executor")]
    OtherProgram,
}

/// The search for direct paths of one stream.
pub(super) struct DirectSearch {
    policy: DirectPolicy,
    offers: mpsc::Receiver<DirectOffer>,
    path: watch::Sender<Option<ConnectionPath>>,
}

impl DirectSearch {
    /// A search, the handler that gets the offers, and the path that is in use: `None` until the first search has
    /// ended.
    pub(super) fn new(policy: DirectPolicy) -> (Self, ControlHandler, watch::Receiver<Option<ConnectionPath>>) {
        let (sender, offers) = mpsc::channel(MAX_WAITING_OFFERS);
        let (path, watched) = watch::channel(None);
        let handler: ControlHandler = Box::new(move |_, kind, payload| {
            if kind == DIRECT_OFFER
                && let Some(offer) = DirectOffer::decode(payload)
            {
                let _dropped_if_full = sender.try_send(offer);
            }
        });
        (Self { policy, offers, path }, handler, watched)
    }

    /// Ends the search, because the policy is `off` or the executor offers no direct path. The stream stays with the
    /// relay.
    pub(super) fn give_up(self) {
        self.path.send_replace(Some(ConnectionPath::Relay));
    }

    /// Searches again and again. Never returns; the caller drops the future when the stream ends.
    pub(super) async fn run(mut self, stream: &Arc<RelayedStream>) {
        let mut failed = 0;
        tokio::time::sleep(FIRST_WAIT).await;
        loop {
            if let Some((address, socket)) = self.find(stream).await {
                let began = Instant::now();
                let route = Arc::new(DirectRoute::default());
                stream.use_direct_route(&route, began);
                tracing::debug!(%address, "the stream uses a direct path");
                self.path.send_replace(Some(ConnectionPath::Direct(address)));
                serve_route(stream, &route, socket).await;
                failed = if began.elapsed() < HELD { failed } else { 0 };
            }
            self.path.send_replace(Some(ConnectionPath::Relay));
            failed += 1;
            tokio::time::sleep(WAITS.after(failed, chance())).await;
        }
    }

    /// Asks for an offer, and tries its addresses. One after the other, because its ticket works once.
    async fn find(&mut self, stream: &Arc<RelayedStream>) -> Option<(SocketAddr, MessageStream)> {
        // Offers that have arrived after their timeout are dropped, because their tickets are no longer valid.
        while self.offers.try_recv().is_ok() {}
        stream.send_control(DIRECT_REQUEST, b"");
        let offer = tokio::time::timeout(OFFER_TIMEOUT, self.offers.recv()).await.ok().flatten()?;
        for address in offer.addresses_to_try(self.policy, this_machine().as_deref()) {
            let opened = tokio::time::timeout(ADDRESS_TIMEOUT, open(address, &offer)).await;
            match opened.unwrap_or(Err(AddressFailure::TimedOut)) {
                Ok(socket) => return Some((address, socket)),
                Err(failure) => tracing::debug!(%address, %failure, "no direct path"),
            }
        }
        None
    }
}

/// Connects to this address. The socket is returned only if the program there has sent the answer of the offer, which
/// proves that it is the executor.
async fn open(address: SocketAddr, offer: &DirectOffer) -> Result<MessageStream, AddressFailure> {
    let options = ConnectOptions {
        bearer_token: Some(offer.ticket.clone()),
        limits: SOCKET_LIMITS,
        is_binary: true,
        ..ConnectOptions::default()
    };
    let mut socket = transport::connect(&format!("ws://{address}{DIRECT_PATH}"), options).await?;
    match socket.reader.next().await {
        Ok(ReadEvent::Message(answer)) if answer == offer.answer.as_bytes() => Ok(socket),
        _ => Err(AddressFailure::OtherProgram),
    }
}
