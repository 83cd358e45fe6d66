//! The task that serves the sockets of a harness: it moves frames, and replaces a lost socket as long as the stream can be
//! resumed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use recovery::Backoff;
use relay::StreamFailure;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use transport::MessageStream;

use super::HarnessSettings;
use super::direct_search::DirectSearch;
use crate::chance::chance;
use crate::dial::{DialError, DialRemedy, dial};
use crate::direct::ConnectionPath;
use crate::outgoing::OutgoingFrames;
use crate::registry::ConnectBundle;
use crate::relay_socket;
use crate::relayed_stream::RelayedStream;
use crate::stream_timers::StreamTimers;

/// The waits between two attempts to replace a socket.
const WAITS: Backoff = Backoff { first: Duration::from_millis(20), longest: Duration::from_millis(80) };

/// The waits between two attempts to replace a socket while the stream uses a direct path and does not need the relay.
const WAITS_WHILE_DIRECT: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };

/// How long the registry may take to give a new URL for the stream.
const BUNDLE_TIMEOUT: Duration = Duration::from_secs(6);

/// A registry that refuses is not asked more often than this.
const BUNDLE_PAUSE: Duration = Duration::from_millis(500);

/// How long the last frames of a stream may take to leave after the stream was dropped.
const LAST_FRAMES_TIMEOUT: Duration = Duration::from_millis(300);

/// The reason of the reset that an end sends when it leaves.
const LEFT: &str = "closed";

/// Keeps a connection alive until it is dropped.
pub struct HarnessLink {
    closed: CancellationToken,
    end: watch::Receiver<Option<String>>,
    path: watch::Receiver<Option<ConnectionPath>>,
    _task: JoinHandle<()>,
}

/// What the task of a link works with.
pub(super) struct LinkParts {
    pub(super) settings: HarnessSettings,
    pub(super) bundle: ConnectBundle,
    pub(super) slot: Arc<RelayedStream>,
    pub(super) outgoing: Arc<OutgoingFrames>,
    pub(super) timers: Arc<StreamTimers>,
    /// Cancelled when the stream or the link is dropped.
    pub(super) closed: CancellationToken,
    pub(super) socket: MessageStream,
    /// None: the policy or the executor allows no direct path.
    pub(super) search: Option<DirectSearch>,
    pub(super) path: watch::Receiver<Option<ConnectionPath>>,
}

/// Tells the executor that the harness leaves, unless the stream is over already.
pub(super) fn leave(slot: &RelayedStream, closed: &CancellationToken) {
    if slot.end().is_none() {
        slot.push_named_reset(LEFT);
        slot.fail(StreamFailure::Reset);
    }
    closed.cancel();
}

impl HarnessLink {
    pub(super) fn start(parts: LinkParts) -> Self {
        let (closed, path) = (parts.closed.clone(), parts.path.clone());
        let (report, end) = watch::channel(None);
        // The task ends soon after `closed` is cancelled, which dropping the link does.
        let task = tokio::spawn(async move {
            let end = serve(parts).await;
            report.send_replace(Some(end));
        });
        Self { closed, end, path, _task: task }
    }

    /// The path that the connection uses now. `None` until the first search for a direct path has ended.
    pub fn path(&self) -> watch::Receiver<Option<ConnectionPath>> {
        self.path.clone()
    }

    /// Waits until the link has ended, and returns why.
    pub async fn ended(&mut self) -> String {
        match self.end.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or_default(),
            Err(_) => "the task of the relay connection has ended".to_owned(),
        }
    }
}

impl Drop for HarnessLink {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

/// Serves sockets until the stream has ended or was closed. Returns why.
async fn serve(parts: LinkParts) -> String {
    let LinkParts { settings, mut bundle, slot, outgoing, timers, closed, socket, search, path: _ } = parts;
    let sockets = async {
        let mut socket = socket;
        loop {
            let end = relay_socket::run(socket, &outgoing, relay_socket::SILENCE_TIMEOUT, |frame| {
                if let Ok(frame) = frame
                    && frame.stream_id == slot.id()
                {
                    slot.handle_frame(frame, Instant::now());
                }
            })
            .await;
            tracing::debug!(reason = end.as_str(), "the socket to the relay has ended");
            outgoing.clear();
            slot.handle_lost_socket(Instant::now());
            wait_while_direct(&slot, WAITS_WHILE_DIRECT.first).await;
            socket = match replace(&settings, &mut bundle, &slot).await {
                Some(socket) => socket,
                None => return,
            };
            slot.handle_new_socket(&outgoing, Instant::now());
        }
    };
    let stream_end = async {
        slot.wait_for_end().await;
        // Unless the stream was reset, the executor does not know that it has ended, for example after an altered
        // record.
        if slot.end() != Some(StreamFailure::Reset) {
            slot.push_named_reset(LEFT);
        }
        // The other end gets what waits for it, such as the reset.
        slot.wait_until_sent().await;
    };
    let direct_paths = async {
        match search {
            Some(search) => search.run(&slot).await,
            None => std::future::pending().await,
        }
    };
    let finished = async {
        closed.cancelled().await;
        tokio::time::sleep(LAST_FRAMES_TIMEOUT).await;
    };
    tokio::select! {
        () = sockets => {}
        () = stream_end => {}
        () = direct_paths => {}
        () = finished => {}
        () = timers.run() => {}
    }
    let end = slot.end().unwrap_or(StreamFailure::SocketLost);
    slot.fail(end.clone());
    end.to_string()
}

/// Connects to the relay again. None: the stream has ended meanwhile.
async fn replace(
    settings: &HarnessSettings,
    bundle: &mut ConnectBundle,
    slot: &Arc<RelayedStream>,
) -> Option<MessageStream> {
    let mut failed = 0;
    let mut is_renewed = false;
    while slot.end().is_none() {
        match dial(&bundle.url, &settings.tls_roots).await {
            Ok(socket) => return Some(socket),
            Err(error) => {
                tracing::debug!(%error, "cannot replace the socket to the relay");
                match (error.remedy(), error) {
                    (DialRemedy::SameUrl, _) => {}
                    (DialRemedy::Later(wait), _) => tokio::time::sleep(wait).await,
                    (DialRemedy::NewUrl, DialError::Refused { status: 400..500, .. }) => {
                        // If the relay refuses a new URL too, the registry is asked again only after a pause.
                        if is_renewed {
                            tokio::time::sleep(BUNDLE_PAUSE).await;
                        }
                        is_renewed = true;
                        renew_url(settings, bundle, slot).await;
                    }
                    (DialRemedy::NewUrl, _) => slot.fail_unless_direct(StreamFailure::SocketLost),
                }
            }
        }
        failed += 1;
        if slot.is_direct() {
            wait_while_direct(slot, WAITS_WHILE_DIRECT.after(failed, chance())).await;
        } else {
            tokio::time::sleep(WAITS.after(failed, chance())).await;
        }
    }
    None
}

/// Waits for this time, or until the stream uses the relay.
async fn wait_while_direct(slot: &RelayedStream, time: Duration) {
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        () = slot.wait_until_relayed() => {}
    }
}

/// The URL is not accepted any more. A new one serves as well, if it is for the same registration of the executor.
async fn renew_url(settings: &HarnessSettings, bundle: &mut ConnectBundle, slot: &RelayedStream) {
    let key = settings.identity.public_key();
    match settings.registry.connect(&key, BUNDLE_TIMEOUT).await {
        Ok(new) if new.executor_registration_id == bundle.executor_registration_id => *bundle = new,
        Ok(_) => slot.fail_unless_direct(StreamFailure::SocketLost),
        Err(error) if error.is_retryable() => {
            tokio::time::sleep(error.wait().unwrap_or_default().max(BUNDLE_PAUSE)).await;
        }
        Err(_) => slot.fail_unless_direct(StreamFailure::SocketLost),
    }
}
