//! Listeners: binds addresses, decides which peers may connect, and accepts connections until the server shuts down.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderMap;
use parking_lot::Mutex;
use remote::DirectEntrance;
use session::LogRateLimit;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use transport::{
    AcceptError, AcceptWarning, Accepted, AcceptedStream, BindError, HttpSurface, ListenUrl, Listener, MessageLimits,
    MessageStream, PeerLabel, Principal, Reader, Socket, TlsAcceptor, accept_messages,
};

use crate::connection_task::serve;
use crate::handshakes::{Handshake, Handshakes};
use crate::limits::MAX_READ_AHEAD_BYTES;
use crate::metrics::{AuthenticationFailure, Metrics, Transport};
use crate::server::Server;
use crate::server_state::ServerState;
use crate::survive::survive;
use crate::tokens::{TokenRefusal, Tokens, bearer_token};

/// The addresses on which a server listens, and the clients that it accepts.
pub struct Listen {
    /// Addresses to bind. Stdio may be among them once.
    pub urls: Vec<ListenUrl>,
    /// Certificate and key for `wss://` addresses.
    pub tls: Option<TlsAcceptor>,
    /// If given, every WebSocket client must send one of these tokens. Addresses that other machines can reach need tokens.
    pub tokens: Option<Arc<Tokens>>,
    /// Permits addresses that other machines can reach although there are no tokens.
    pub insecure_no_auth: bool,
    /// Hosts that a `Host` header may name on a loopback listener, besides `localhost` and loopback addresses: names or IP addresses,
    /// without a port.
    pub allowed_hosts: Vec<String>,
}

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// An address cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Other machines can reach the address, and there are no tokens, so anybody on the network could run commands.
    #[error(
        "{0} can be reached from other machines; give --token-file with the tokens to accept, or --insecure-no-auth to let anybody in"
    )]
    NoTokens(ListenUrl),
    /// Stdio is among the addresses more than once.
    #[error("stdio can be given once only")]
    StdioTwice,
}

/// A listening server.
pub struct RunningServer {
    /// The bound addresses with their real ports, in the order of [`Listen::urls`], without stdio.
    pub addresses: Vec<String>,
    /// The task that serves stdio; it ends with the connection of the client. None if the server does not serve stdio.
    pub stdio: Option<tokio::task::JoinHandle<()>>,
}

impl Server {
    /// Binds all addresses, and then serves them. If one address cannot be bound, none is served.
    pub async fn listen(&self, listen: Listen) -> Result<RunningServer, ListenError> {
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
        let policy = Arc::new(AccessPolicy {
            tokens: listen.tokens,
            allowed_hosts: listen.allowed_hosts,
            refusal_log: Mutex::new(REFUSAL_LINES),
            shortage_log: Mutex::new(SHORTAGE_LINES),
        });
        let handshakes = Handshakes::new(self.shared.config.max_handshakes);
        let waiting = Arc::new(Semaphore::new(self.shared.config.max_handshakes));
        for (listener, transport) in listeners {
            let permits = ConnectionPermits {
                handshakes: Arc::clone(&handshakes),
                waiting: Arc::clone(&waiting),
                connections: Arc::clone(&self.shared.connection_permits),
            };
            let (shared, policy) = (Arc::clone(&self.shared), Arc::clone(&policy));
            self.shared.tasks.spawn(async move {
                // After a panic, for which `survive` returns None, the listener goes on.
                while survive(accept(&listener, transport, &shared, &policy, &permits)).await.is_none() {}
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
        Ok(RunningServer { addresses, stdio })
    }
}

fn limits(shared: &ServerState) -> MessageLimits {
    MessageLimits { message_bytes: shared.config.max_message_bytes }
}

/// The limits that a connection passes one after the other: as a handshake, as a client that waits if all connections are taken, and as a
/// connection.
#[derive(Clone)]
struct ConnectionPermits {
    handshakes: Arc<Handshakes>,
    /// Permits for clients that were admitted and wait until a connection ends. There are `--max-handshakes` of them, because a waiting client
    /// costs as much as a handshake: one socket.
    waiting: Arc<Semaphore>,
    connections: Arc<Semaphore>,
}

impl ConnectionPermits {
    /// Ends the handshake of a peer and waits for a permit for its connection (`--max-connections`). If too many
    /// clients wait already, the handshake goes on. While
    /// the client waits, its socket is read a little ahead, because only a read shows that the client has left.
    async fn admit(&self, handshake: &Handshake, metrics: &Metrics, reader: &mut Reader) -> Admission {
        let free = Arc::clone(&self.connections).try_acquire_owned().ok();
        let waiting = if free.is_none() { self.waiting.try_acquire().ok() } else { None };
        if free.is_none() && waiting.is_none() {
            return Admission::Full;
        }
        if !handshake.admit() {
            return Admission::Gone;
        }
        let permit = match free {
            Some(free) => Ok(free),
            None => {
                let _counted = metrics.connection_waits();
                tokio::select! {
                    permit = Arc::clone(&self.connections).acquire_owned() => permit,
                    () = reader.wait_for_end(MAX_READ_AHEAD_BYTES) => return Admission::Gone,
                }
            }
        };
        permit.map_or(Admission::Gone, Admission::Connected)
    }
}

/// The result of [`ConnectionPermits::admit`].
enum Admission {
    /// The peer may connect and holds this permit until its connection ends.
    Connected(OwnedSemaphorePermit),
    /// `--max-connections` are open, and `--max-handshakes` clients wait already.
    Full,
    /// The handshake was evicted in favour of a newer one, or the peer has left while it waited.
    Gone,
}

/// Accepts connections until the server shuts down or the listener fails.
async fn accept(
    listener: &Listener,
    transport: Transport,
    shared: &Arc<ServerState>,
    policy: &Arc<AccessPolicy>,
    permits: &ConnectionPermits,
) {
    let closing = shared.closing.clone();
    loop {
        let accepted = listener.accept(|warning| policy.note_warning(shared, listener, &warning));
        let socket = match closing.run_until_cancelled(accepted).await {
            Some(Ok(socket)) => socket,
            Some(Err(error)) => {
                tracing::error!("{} no longer accepts connections: {error}", listener.url());
                return;
            }
            None => return,
        };
        let handshake = permits.handshakes.enter(socket.address);
        let (shared, policy, permits) = (Arc::clone(shared), Arc::clone(policy), permits.clone());
        let present = shared.presence.enter();
        shared.clone().connections.spawn(async move {
            let _present = present;
            let surface = Arc::new(ConnectionSurface::new(Arc::clone(&shared), policy, socket.peer.clone()));
            let closing = shared.closing.clone();
            // A peer that is still in its handshake at shutdown is not waited for. Handshake and connection are boxed separately, because
            // the handshake needs much more memory, which is freed before the connection begins.
            let admitted = Box::pin(finish_handshake(socket, Arc::clone(&surface), limits(&shared), &handshake));
            let mut accepted = match closing.run_until_cancelled(admitted).await {
                Some(Some(Accepted::Client(accepted))) => accepted,
                Some(Some(Accepted::TicketHolder(stream))) => {
                    if let Some(entrance) = surface.take_entrance()
                        && handshake.admit()
                    {
                        Box::pin(entrance.serve(stream)).await;
                    }
                    return;
                }
                Some(None) | None => return,
            };
            let admission = permits.admit(&handshake, &shared.metrics, &mut accepted.stream.reader);
            let _permit = match closing.run_until_cancelled(admission).await {
                Some(Admission::Connected(permit)) => permit,
                Some(Admission::Full) => return refuse_for_load(accepted.stream, &handshake).await,
                Some(Admission::Gone) | None => return,
            };
            Box::pin(serve(accepted, transport, shared)).await;
        });
    }
}

/// Turns a socket into a stream of messages. None if the peer only asked for HTTP pages, was refused, or was evicted in favour of a newer
/// handshake.
async fn finish_handshake(
    socket: Socket,
    surface: Arc<ConnectionSurface>,
    limits: MessageLimits,
    handshake: &Handshake,
) -> Option<Accepted> {
    let peer = socket.peer.clone();
    tokio::select! {
        accepted = accept_messages(socket, surface, limits) => match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                log_refused(&peer, &error);
                None
            }
        },
        () = handshake.evicted() => {
            tracing::debug!(%peer, "closed a connection in its handshake in favour of a newer one (--max-handshakes)");
            None
        }
    }
}

/// WebSocket close code for a server that is too busy.
const TRY_AGAIN_LATER: u16 = 1013;

/// How long the server waits until a refused peer has read the close frame and closed its side.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(1);

/// Refuses a peer because there are too many connections. Its handshake is not ended, so that `--max-handshakes` limits the number of such
/// peers.
async fn refuse_for_load(mut stream: MessageStream, handshake: &Handshake) {
    let reason = "all connections are taken (--max-connections), and too many clients wait (--max-handshakes)";
    tracing::debug!(peer = %stream.peer, "connection refused: {reason}");
    let mut goodbye = Vec::new();
    stream.framing.close(&mut goodbye, TRY_AGAIN_LATER, reason);
    let closing = async {
        stream.writer.write_all(&goodbye).await?;
        stream.writer.shutdown().await;
        // The kernel resets a socket that is closed while bytes arrive, and then the peer may lose the close frame.
        while stream.reader.discard().await? > 0 {}
        Ok::<(), std::io::Error>(())
    };
    tokio::select! {
        _closed_or_timed_out = tokio::time::timeout(REFUSAL_PATIENCE, closing) => {}
        () = handshake.evicted() => {}
    }
}

fn log_refused(peer: &PeerLabel, error: &AcceptError) {
    tracing::debug!(%peer, "connection not accepted: {error}");
}

/// At most 20 log lines in 10 s about refused peers, so that a peer without a token cannot fill the log. `/metrics` counts every attempt.
const REFUSAL_LINES: LogRateLimit = LogRateLimit::new(20, Duration::from_secs(10));

/// At most one log line in 10 s about missing resources. While the server has no free descriptors, a listener fails twenty times a second.
const SHORTAGE_LINES: LogRateLimit = LogRateLimit::new(1, Duration::from_secs(10));

/// The tokens and host names with which peers may connect, and the rate limits of the log lines about peers. All
/// listeners share it.
struct AccessPolicy {
    tokens: Option<Arc<Tokens>>,
    allowed_hosts: Vec<String>,
    refusal_log: Mutex<LogRateLimit>,
    shortage_log: Mutex<LogRateLimit>,
}

impl AccessPolicy {
    /// Logs a problem of a listener. A peer of another user is also counted.
    fn note_warning(&self, shared: &ServerState, listener: &Listener, warning: &AcceptWarning) {
        let log = match warning {
            AcceptWarning::OutOfResources(_) => &self.shortage_log,
            AcceptWarning::OtherUser(_) => {
                shared.metrics.authentication_failed(AuthenticationFailure::other_user);
                &self.refusal_log
            }
        };
        let url = listener.url();
        match log.lock().handle_event(Instant::now()) {
            None => {}
            Some(0) => tracing::warn!(%url, "{warning}"),
            Some(unlogged) => {
                tracing::warn!(%url, "{warning}; {unlogged} earlier warnings of this kind were not logged");
            }
        }
    }
}

/// What the transport needs from the server to answer the HTTP requests of one connection: it checks the token and
/// the host name, and makes the page `/metrics`.
struct ConnectionSurface {
    shared: Arc<ServerState>,
    policy: Arc<AccessPolicy>,
    peer: PeerLabel,
    /// The stream of the ticket that the peer has sent.
    entrance: Mutex<Option<DirectEntrance>>,
}

impl ConnectionSurface {
    fn new(shared: Arc<ServerState>, policy: Arc<AccessPolicy>, peer: PeerLabel) -> Self {
        Self { shared, policy, peer, entrance: Mutex::default() }
    }

    fn take_entrance(&self) -> Option<DirectEntrance> {
        self.entrance.lock().take()
    }

    /// Logs and counts a refused request.
    fn note_refusal(&self, refusal: TokenRefusal) {
        self.shared.metrics.authentication_failed(match refusal {
            TokenRefusal::Missing => AuthenticationFailure::missing,
            TokenRefusal::Malformed => AuthenticationFailure::malformed,
            TokenRefusal::Wrong => AuthenticationFailure::wrong,
        });
        let peer = &self.peer;
        match self.policy.refusal_log.lock().handle_event(Instant::now()) {
            None => {}
            Some(0) => tracing::warn!(%peer, "authentication failed: {refusal}"),
            Some(unlogged) => {
                tracing::warn!(%peer, "authentication failed: {refusal}; {unlogged} earlier failures were not logged");
            }
        }
    }
}

impl HttpSurface for ConnectionSurface {
    fn authorize(&self, headers: &HeaderMap) -> Option<Principal> {
        let Some(tokens) = &self.policy.tokens else { return Some(Principal::Anybody) };
        tokens.check(headers).map(Principal::Token).map_err(|refusal| self.note_refusal(refusal)).ok()
    }

    fn take_ticket(&self, headers: &HeaderMap) -> Option<MessageLimits> {
        let doors = self.shared.direct_doors.lock().clone();
        if doors.is_empty() {
            return None;
        }
        let entrance = match bearer_token(headers) {
            Ok(ticket) => doors.iter().find_map(|door| door.take_ticket(ticket)).ok_or(TokenRefusal::Wrong),
            Err(refusal) => Err(refusal),
        };
        let entrance = entrance.map_err(|refusal| self.note_refusal(refusal)).ok()?;
        *self.entrance.lock() = Some(entrance);
        Some(DirectEntrance::LIMITS)
    }

    fn metrics(&self) -> String {
        self.shared.metrics.render()
    }

    fn serves_host(&self, host: &str) -> bool {
        self.policy.allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host))
    }
}
