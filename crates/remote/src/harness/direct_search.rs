//! Looks for a direct path while the stream runs, uses it as long as it holds, and looks again later. It never delays the
//! stream: until a path is proven, everything goes through the relay.

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

/// Most commands have ended after this time. They do without a direct path.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// The waits between two attempts.
const WAITS: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(300) };

/// A direct path that has held for this long counts as a success.
const HELD: Duration = Duration::from_secs(10);

/// How long the executor may take to make an offer.
const OFFER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long one address may take to connect, to upgrade and to show the answer. All addresses of an offer together take less
/// time than its ticket is valid.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(1);

/// Offers that were not looked at. An executor that sends more is ignored.
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
    /// A search, the handler that gets the offers, and the path that is in use: `None` until it was tried to find a direct one.
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

    /// The executor knows no direct paths, so the stream stays with the relay.
    pub(super) fn give_up(self) {
        self.path.send_replace(Some(ConnectionPath::Relay));
    }

    /// Runs as long as the stream. Does not end.
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

    /// Asks for an offer, and tries its addresses one after the other, because its ticket works once.
    async fn find(&mut self, stream: &Arc<RelayedStream>) -> Option<(SocketAddr, MessageStream)> {
        // An offer that came too late has an old ticket.
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

/// A socket to the program behind this address, which has proven that it is the executor.
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
