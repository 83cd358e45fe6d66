//! Listeners: binding them, deciding who may connect, and accepting until the server closes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderMap;
use parking_lot::Mutex;
use session::LogRateLimit;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use transport::{
    AcceptError, AcceptWarning, AcceptedStream, BindError, HttpSurface, ListenUrl, Listener, MessageLimits,
    MessageStream, PeerLabel, Principal, Socket, TlsAcceptor, accept_messages,
};

use crate::connection_task::serve;
use crate::handshakes::{Handshake, Handshakes};
use crate::metrics::{AuthenticationFailure, Metrics, Transport};
use crate::server::Server;
use crate::server_state::ServerState;
use crate::survive::survive;
use crate::tokens::{TokenRefusal, Tokens};

/// Where and for whom to listen.
pub struct Listen {
    /// The addresses.
    pub urls: Vec<ListenUrl>,
    /// For `wss://`.
    pub tls: Option<TlsAcceptor>,
    /// Who may connect from elsewhere.
    pub tokens: Option<Arc<Tokens>>,
    /// Anybody may connect from elsewhere.
    pub insecure_no_auth: bool,
    /// Hosts that a `Host` header may name on a loopback listener, besides `localhost` and loopback addresses: names or IP addresses,
    /// without a port.
    pub allowed_hosts: Vec<String>,
}

/// Why a server does not listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address cannot be had.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Anybody on the network could run commands.
    #[error(
        "{0} can be reached from other machines; give --token-file with the tokens to accept, or --insecure-no-auth to let anybody in"
    )]
    NoTokens(ListenUrl),
    /// The same twice.
    #[error("stdio can be given once only")]
    StdioTwice,
}

/// A listening server.
pub struct Running {
    /// The addresses with their real ports, in the order given; stdio has none.
    pub addresses: Vec<String>,
    /// Ends when the client on stdio is gone; none if the server does not serve stdio.
    pub stdio: Option<tokio::task::JoinHandle<()>>,
}

impl Server {
    /// Binds every address or none, then serves them.
    pub async fn listen(&self, listen: Listen) -> Result<Running, ListenError> {
        let mut listeners = Vec::new();
        for url in &listen.urls {
            if !url.is_local() && listen.tokens.is_none() && !listen.insecure_no_auth {
                return Err(ListenError::NoTokens(url.clone()));
            }
        }
        let stdio_count = listen.urls.iter().filter(|url| matches!(url, ListenUrl::Stdio)).count();
        if stdio_count > 1 {
            return Err(ListenError::StdioTwice);
        }
        for url in listen.urls.iter().filter(|url| !matches!(url, ListenUrl::Stdio)) {
            let tls = if matches!(url, ListenUrl::SecureWebSocket(_)) { listen.tls.clone() } else { None };
            let transport = if matches!(url, ListenUrl::Unix(_)) { Transport::unix } else { Transport::websocket };
            listeners.push((Listener::bind(url, tls).await?, transport));
        }
        let addresses = listeners.iter().map(|(listener, _)| listener.url()).collect();
        let door = Arc::new(Door {
            tokens: listen.tokens,
            allowed_hosts: listen.allowed_hosts,
            log: Mutex::new(REFUSAL_LINES),
            shortage_log: Mutex::new(SHORTAGE_LINES),
        });
        let handshakes = Handshakes::new(self.shared.config.max_handshakes);
        let connections = Arc::new(Semaphore::new(self.shared.config.max_connections));
        let waiting = Arc::new(Semaphore::new(self.shared.config.max_handshakes));
        for (listener, transport) in listeners {
            let places = ConnectionPlaces {
                handshakes: Arc::clone(&handshakes),
                waiting: Arc::clone(&waiting),
                connections: Arc::clone(&connections),
            };
            let (shared, door) = (Arc::clone(&self.shared), Arc::clone(&door));
            self.shared.tasks.spawn(async move {
                while survive(accept(&listener, transport, &shared, &door, &places)).await.is_none() {}
            });
        }
        let stdio = (stdio_count == 1).then(|| {
            let stream = transport::stdio(limits(&self.shared));
            let principal = Principal::User(rustix::process::geteuid().as_raw());
            let accepted = AcceptedStream { stream, principal };
            let present = self.shared.presence.enter();
            let shared = Arc::clone(&self.shared);
            self.shared.connections.spawn(async move {
                let _present = present;
                serve(accepted, Transport::stdio, shared).await;
            })
        });
        Ok(Running { addresses, stdio })
    }
}

fn limits(shared: &ServerState) -> MessageLimits {
    MessageLimits { message_bytes: shared.config.max_message_bytes }
}

/// The places that a connection takes one after the other: as a handshake, perhaps as a client that waits, and as a connection.
#[derive(Clone)]
struct ConnectionPlaces {
    handshakes: Arc<Handshakes>,
    /// Clients that were admitted and wait until a connection ends. As many as there may be handshakes: both hold a socket and
    /// nothing else, and neither may keep the listener from accepting.
    waiting: Arc<Semaphore>,
    connections: Arc<Semaphore>,
}

impl ConnectionPlaces {
    /// Takes a peer from its handshake to a place among the connections, for which it may have to wait.
    async fn admit(&self, handshake: &Handshake, metrics: &Metrics) -> Admission {
        let free = Arc::clone(&self.connections).try_acquire_owned().ok();
        let waiting = if free.is_none() { self.waiting.try_acquire().ok() } else { None };
        if free.is_none() && waiting.is_none() {
            return Admission::NoRoom;
        }
        if !handshake.admit() {
            return Admission::GaveWay;
        }
        let place = match free {
            Some(free) => Ok(free),
            None => {
                let _counted = metrics.connection_waits();
                Arc::clone(&self.connections).acquire_owned().await
            }
        };
        place.map_or(Admission::GaveWay, Admission::Connected)
    }
}

/// What becomes of a peer that may connect.
enum Admission {
    Connected(OwnedSemaphorePermit),
    /// All connections are taken, and too many clients wait already.
    NoRoom,
    /// It had to give way to another handshake a moment ago.
    GaveWay,
}

/// Accepts until the server closes.
async fn accept(
    listener: &Listener,
    transport: Transport,
    shared: &Arc<ServerState>,
    door: &Arc<Door>,
    places: &ConnectionPlaces,
) {
    let closing = shared.closing.clone();
    loop {
        let accepted = listener.accept(|trouble| door.note(shared, listener, &trouble));
        let socket = match closing.run_until_cancelled(accepted).await {
            Some(Ok(socket)) => socket,
            Some(Err(error)) => {
                tracing::error!("{} no longer accepts connections: {error}", listener.url());
                return;
            }
            None => return,
        };
        let handshake = places.handshakes.enter(socket.address);
        let (shared, door, places) = (Arc::clone(shared), Arc::clone(door), places.clone());
        let present = shared.presence.enter();
        shared.clone().connections.spawn(async move {
            let _present = present;
            let surface = Arc::new(Surface { shared: Arc::clone(&shared), door, peer: socket.peer.clone() });
            let closing = shared.closing.clone();
            // A peer that is still in its handshake when the server closes is not waited for. The handshake needs much
            // more memory than the connection that follows, so both have their own.
            let admitted = Box::pin(shake_hands(socket, surface, limits(&shared), &handshake));
            let Some(Some(accepted)) = closing.run_until_cancelled(admitted).await else { return };
            let _place = match closing.run_until_cancelled(places.admit(&handshake, &shared.metrics)).await {
                Some(Admission::Connected(place)) => place,
                Some(Admission::NoRoom) => return turn_away(accepted.stream, &handshake).await,
                Some(Admission::GaveWay) | None => return,
            };
            Box::pin(serve(accepted, transport, shared)).await;
        });
    }
}

/// From a socket to a stream of messages; none if the peer wanted only HTTP, was not admitted, or had to give way.
async fn shake_hands(
    socket: Socket,
    surface: Arc<dyn HttpSurface>,
    limits: MessageLimits,
    handshake: &Handshake,
) -> Option<AcceptedStream> {
    let peer = socket.peer.clone();
    tokio::select! {
        accepted = accept_messages(socket, surface, limits) => match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                log_refused(&peer, &error);
                None
            }
        },
        () = handshake.gives_way() => {
            tracing::debug!(%peer, "a connection in its handshake made room for another one (--max-handshakes)");
            None
        }
    }
}

/// WebSocket's code for a server that is too busy.
const TRY_AGAIN_LATER: u16 = 1013;

/// A peer that takes nothing of a few bytes for this long is not waited for.
const TURN_AWAY_PATIENCE: Duration = Duration::from_secs(1);

/// Tells a peer that there is no room for it. It keeps its place as a handshake, so that the number of such peers is bounded.
async fn turn_away(mut stream: MessageStream, handshake: &Handshake) {
    tracing::debug!(peer = %stream.peer, "connection refused: --max-connections are open, and --max-handshakes wait");
    let reason = "the server has its limit of connections (--max-connections), and too many wait (--max-handshakes)";
    let mut goodbye = Vec::new();
    stream.framing.close(&mut goodbye, TRY_AGAIN_LATER, reason);
    let said = async {
        stream.writer.write_all(&goodbye).await?;
        stream.writer.shutdown().await;
        // A socket that is closed while something arrives is reset, and the peer may never read the reason.
        while stream.reader.discard().await? > 0 {}
        Ok::<(), std::io::Error>(())
    };
    tokio::select! {
        _gone_or_told = tokio::time::timeout(TURN_AWAY_PATIENCE, said) => {}
        () = handshake.gives_way() => {}
    }
}

fn log_refused(peer: &PeerLabel, error: &AcceptError) {
    tracing::debug!(%peer, "connection not accepted: {error}");
}

/// Anybody who reaches the port can cause such a line, so that their number must not follow the number of attempts. The counter in
/// `/metrics` has all of them.
const REFUSAL_LINES: LogRateLimit = LogRateLimit::new(20, Duration::from_secs(10));

/// While descriptors are short, a listener fails twenty times a second.
const SHORTAGE_LINES: LogRateLimit = LogRateLimit::new(1, Duration::from_secs(10));

/// Who may come in, and what the log says of those who may not.
struct Door {
    tokens: Option<Arc<Tokens>>,
    allowed_hosts: Vec<String>,
    log: Mutex<LogRateLimit>,
    shortage_log: Mutex<LogRateLimit>,
}

impl Door {
    fn note(&self, shared: &ServerState, listener: &Listener, trouble: &AcceptWarning) {
        let log = match trouble {
            AcceptWarning::OutOfResources(_) => &self.shortage_log,
            AcceptWarning::OtherUser(_) => {
                shared.metrics.authentication_failed(AuthenticationFailure::other_user);
                &self.log
            }
        };
        let url = listener.url();
        match log.lock().handle_event(Instant::now()) {
            None => {}
            Some(0) => tracing::warn!(%url, "{trouble}"),
            Some(left_out) => tracing::warn!(%url, "{trouble}; {left_out} like it before are not in the log"),
        }
    }
}

/// The HTTP side of one connection.
struct Surface {
    shared: Arc<ServerState>,
    door: Arc<Door>,
    peer: PeerLabel,
}

impl Surface {
    fn refuse(&self, refusal: TokenRefusal) {
        self.shared.metrics.authentication_failed(match refusal {
            TokenRefusal::Missing => AuthenticationFailure::missing,
            TokenRefusal::Malformed => AuthenticationFailure::malformed,
            TokenRefusal::Wrong => AuthenticationFailure::wrong,
        });
        let peer = &self.peer;
        match self.door.log.lock().handle_event(Instant::now()) {
            None => {}
            Some(0) => tracing::warn!(%peer, "authentication failed: {refusal}"),
            Some(left_out) => {
                tracing::warn!(%peer, "authentication failed: {refusal}; {left_out} failures before this one are not in the log");
            }
        }
    }
}

impl HttpSurface for Surface {
    fn authorize(&self, headers: &HeaderMap) -> Option<Principal> {
        let Some(tokens) = &self.door.tokens else { return Some(Principal::Anybody) };
        tokens.check(headers).map(Principal::Token).map_err(|refusal| self.refuse(refusal)).ok()
    }

    fn metrics(&self) -> String {
        self.shared.metrics.render()
    }

    fn serves_host(&self, host: &str) -> bool {
        self.door.allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host))
    }
}
