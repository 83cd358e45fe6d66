//! The harness: it asks the registry for a way to an executor, connects to the relay, makes the handshake, and keeps the
//! encrypted stream alive over lost sockets. Start with [`Harness::connect`].

mod bundle;
mod direct_search;
mod error;
mod handshake;
mod link;

use std::sync::Arc;
use std::time::{Duration, Instant};

use relay::{Features, RelayIdentity, RelayPublicKey};
use tokio_util::sync::CancellationToken;
use transport::{MessageLimits, MessageStream, PeerLabel, TlsRoots};

use crate::dial::{DialError, dial};
use crate::direct::DirectPolicy;
use crate::outgoing::OutgoingFrames;
use crate::registry::{ConnectBundle, Registry};
use crate::relayed_stream::RelayedStream;
use crate::stream_io::message_stream;
use crate::stream_timers::StreamTimers;
use bundle::BundleBudget;
use direct_search::DirectSearch;
pub use error::HarnessError;
pub use link::HarnessLink;

/// How often a handshake is tried that a lost socket or a reset has ended, for example because the executor was
/// registered again in between.
const HANDSHAKE_ATTEMPTS: u32 = 3;

/// How long [`Harness::named_key`] waits for the registry.
const NAMED_KEY_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the harness connects to, and who it is.
#[derive(Clone, Debug)]
pub struct HarnessSettings {
    /// The environment, in its registry.
    pub registry: Registry,
    /// The keys of this program. Sessions belong to them.
    pub identity: Arc<RelayIdentity>,
    /// The fingerprint that the executor must have. None: the registry is trusted to name the right executor.
    pub pinned_fingerprint: Option<String>,
    /// Root certificates for the relay.
    pub tls_roots: TlsRoots,
    /// Limits for the messages of the executor.
    pub limits: MessageLimits,
    /// Which addresses of the executor may be tried for a direct path.
    pub direct: DirectPolicy,
}

/// Makes connections to one environment.
#[derive(Clone, Debug)]
pub struct Harness {
    settings: HarnessSettings,
}

/// A connection to an executor.
pub struct HarnessConnection {
    /// Carries the messages in both directions.
    pub stream: MessageStream,
    /// Keeps the connection alive. The connection ends when this is dropped.
    pub link: HarnessLink,
    /// The key that the executor has proven to have.
    pub executor_key: RelayPublicKey,
}

impl Harness {
    /// Connects to nothing yet.
    pub fn new(settings: HarnessSettings) -> Self {
        Self { settings }
    }

    /// The environment and its service.
    pub fn registry(&self) -> &Registry {
        &self.settings.registry
    }

    /// Connects to the executor. Failures that may pass are retried for up to 14 s. Dropping the future cancels it.
    pub async fn connect(&self) -> Result<HarnessConnection, HarnessError> {
        let mut budget = BundleBudget::begin(Instant::now());
        let mut attempts = 1;
        loop {
            match self.try_to_connect(&mut budget).await {
                Err(error) if error.ended_the_handshake() && attempts < HANDSHAKE_ATTEMPTS => {
                    // The second attempt follows at once, because most reasons for a failed handshake do not last.
                    if attempts > 1 {
                        budget.pause(error).await?;
                    }
                    attempts += 1;
                }
                result => return result,
            }
        }
    }

    /// The key that the registry names for the executor. Sends one request to the registry, and does not connect to the
    /// relay.
    pub async fn named_key(&self) -> Result<RelayPublicKey, HarnessError> {
        let HarnessSettings { registry, identity, .. } = &self.settings;
        Ok(registry.connect(&identity.public_key(), NAMED_KEY_TIMEOUT).await?.executor_public_key)
    }

    async fn try_to_connect(&self, budget: &mut BundleBudget) -> Result<HarnessConnection, HarnessError> {
        let HarnessSettings { registry, identity, limits, .. } = &self.settings;
        let (bundle, mut socket) = self.dial_relay(budget).await?;
        let features = match self.settings.direct {
            DirectPolicy::Off => Features::OURS,
            DirectPolicy::Private | DirectPolicy::On => Features::OURS.with(Features::DIRECT_PATH),
        };
        let mut stream =
            handshake::shake_hands(&mut socket, identity, registry.environment_id(), &bundle, features).await?;
        let (search, on_offer, path) = DirectSearch::new(self.settings.direct);
        let search = if features.includes(Features::DIRECT_PATH) && stream.features.includes(features) {
            stream.on_control = Some(on_offer);
            Some(search)
        } else {
            search.give_up();
            None
        };
        let outgoing = Arc::<OutgoingFrames>::default();
        let timers = Arc::<StreamTimers>::default();
        let slot = RelayedStream::new(stream, Arc::clone(&outgoing), Arc::clone(&timers));
        let closed = CancellationToken::new();
        let peer = PeerLabel::new(format_args!("relay to {}", registry.environment_id()));
        let on_drop = {
            let closed = closed.clone();
            move |slot: &RelayedStream| link::leave(slot, &closed)
        };
        let stream = message_stream(Arc::clone(&slot), peer, *limits, on_drop);
        let executor_key = bundle.executor_public_key.clone();
        let link = HarnessLink::start(link::LinkParts {
            settings: self.settings.clone(),
            bundle,
            slot,
            outgoing,
            timers,
            closed,
            socket,
            search,
            path,
        });
        Ok(HarnessConnection { stream, link, executor_key })
    }

    /// Asks the registry for a bundle, and checks that the key in it is the pinned one, if there is a pinned one. A
    /// bundle with another key must not be used.
    async fn checked_bundle(&self, budget: &mut BundleBudget) -> Result<ConnectBundle, HarnessError> {
        let HarnessSettings { registry, identity, .. } = &self.settings;
        let bundle = budget.fetch(registry, &identity.public_key()).await?;
        self.check_pin(&bundle.executor_public_key)?;
        Ok(bundle)
    }

    /// A new socket to the relay, and the bundle that its URL is from.
    async fn dial_relay(&self, budget: &mut BundleBudget) -> Result<(ConnectBundle, MessageStream), HarnessError> {
        let mut is_renewed = false;
        loop {
            let bundle = self.checked_bundle(budget).await?;
            match dial(&bundle.url, &self.settings.tls_roots).await {
                Ok(socket) => return Ok((bundle, socket)),
                // The URL has expired, or the executor was registered again.
                Err(DialError::Refused { status: 401, .. }) if !is_renewed => {
                    is_renewed = true;
                    *budget = BundleBudget::begin(Instant::now());
                }
                Err(error) => budget.pause(error.into()).await?,
            }
        }
    }

    fn check_pin(&self, key: &RelayPublicKey) -> Result<(), HarnessError> {
        let found = key.fingerprint();
        match &self.settings.pinned_fingerprint {
            Some(pinned) if *pinned != found => {
                let environment = self.settings.registry.environment_id().to_owned();
                Err(HarnessError::KeyChanged { environment, pinned: pinned.clone(), found })
            }
            _ => Ok(()),
        }
    }
}
