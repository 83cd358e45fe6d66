//! Accepts the connections of a process and serves each in a task. The proxy owns these tasks: when it is stopped, all
//! of them end, and [`NetworkProxy::run`] returns after the last one.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::activity::Activity;
use crate::connect_failure::ConnectFailure;
use crate::dial::dial;
use crate::interfaces::Interfaces;
use crate::limits::ProxyLimits;
use crate::policy::{Decider, DecisionObserver, NameResolver};
use crate::request_gate::{RequestGate, TargetRequest};
use crate::rules::NetworkRules;
use crate::{http_requests, socks5};

/// Pause after a failed accept, which mostly means that no descriptor is left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The rules, collaborators and limits of a proxy.
pub struct ProxyConfig {
    /// Which targets may be reached.
    pub rules: NetworkRules,
    /// Decides about hosts that the rules do not know. None: such hosts are refused.
    pub decider: Option<Arc<dyn Decider>>,
    /// Is told about each decision.
    pub observer: Arc<dyn DecisionObserver>,
    /// Resolves host names.
    pub resolver: Arc<dyn NameResolver>,
    /// Each limits the connections of all proxies that share it. A connection takes a permit of each, in this order, and
    /// waits until it has them all.
    pub connection_permits: Vec<Arc<Semaphore>>,
    /// Timeouts, and the limit of concurrent connections of this proxy.
    pub limits: ProxyLimits,
}

/// A proxy that has a socket and does not run yet.
pub struct NetworkProxy {
    listener: TcpListener,
    gate: Arc<RequestGate>,
    connection_permits: Vec<Arc<Semaphore>>,
    limits: ProxyLimits,
}

/// Shared by the HTTP and the SOCKS5 code: the gate, the limits, the idle timer and the address of the program.
pub(crate) struct ConnectionContext {
    pub(crate) gate: Arc<RequestGate>,
    pub(crate) limits: ProxyLimits,
    pub(crate) activity: Activity,
    /// The address of the program's socket.
    pub(crate) client: IpAddr,
}

impl NetworkProxy {
    /// Makes a proxy that accepts on a listening socket. Connections to targets are made in the network of this
    /// program, even if the socket belongs to another network namespace.
    pub fn new(listener: TcpListener, config: ProxyConfig) -> Self {
        let ProxyConfig { rules, decider, observer, resolver, connection_permits, limits } = config;
        let gate = RequestGate {
            rules,
            decider,
            observer,
            resolver,
            interfaces: Interfaces::default(),
            lookup_timeout: limits.lookup_timeout,
        };
        let gate = Arc::new(gate);
        Self { listener, gate, connection_permits, limits }
    }

    /// As [`Self::new`], with the descriptor of a listening TCP socket that another process may have made. Must be
    /// called in a tokio runtime.
    pub fn from_descriptor(listener: OwnedFd, config: ProxyConfig) -> io::Result<Self> {
        let listener = StdListener::from(listener);
        listener.set_nonblocking(true)?;
        Ok(Self::new(TcpListener::from_std(listener)?, config))
    }

    /// The address that programs connect to.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves connections until `stop` is cancelled, then ends them all. Dropping the future ends them too.
    pub async fn run(self, stop: CancellationToken) {
        let mut connections = JoinSet::new();
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.accept_all(&mut connections) => {}
        }
        drop(self);
        connections.shutdown().await;
    }

    /// Runs until the future is dropped.
    async fn accept_all(&self, connections: &mut JoinSet<()>) {
        // At most one accepted connection waits for a permit. The others stay in the kernel's accept queue, where they
        // use no descriptor of this program.
        let mut waiting: Option<(TcpStream, SocketAddr)> = None;
        loop {
            let may_accept = waiting.is_none() && connections.len() < self.limits.connections;
            tokio::select! {
                Some(ended) = connections.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a connection of a network proxy has failed");
                    }
                }
                accepted = self.listener.accept(), if may_accept => match accepted {
                    Ok(accepted) => waiting = Some(accepted),
                    Err(error) => {
                        tracing::warn!(%error, "a network proxy cannot accept a connection");
                        tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                    }
                },
                permits = self.acquire_permits(), if waiting.is_some() => {
                    // The semaphores are never closed.
                    if let (Ok(permits), Some((stream, client))) = (permits, waiting.take()) {
                        let connection = self.context_of(client);
                        connections.spawn(async move {
                            serve(stream, &connection).await;
                            drop(permits);
                        });
                    }
                }
            }
        }
    }

    /// Waits for a permit of each semaphore.
    async fn acquire_permits(&self) -> Result<Vec<OwnedSemaphorePermit>, AcquireError> {
        let mut permits = Vec::with_capacity(self.connection_permits.len());
        for semaphore in &self.connection_permits {
            permits.push(Arc::clone(semaphore).acquire_owned().await?);
        }
        Ok(permits)
    }

    fn context_of(&self, client: SocketAddr) -> ConnectionContext {
        ConnectionContext {
            gate: Arc::clone(&self.gate),
            limits: self.limits,
            activity: Activity::new(),
            client: client.ip(),
        }
    }
}

impl ConnectionContext {
    /// Connects to a target if the gate allows it.
    pub(crate) async fn connect_if_allowed(&self, request: &TargetRequest) -> Result<TcpStream, ConnectFailure> {
        let addresses = self.gate.admit(request, &self.activity).await?;
        let (target, peer) = dial(&addresses, self.limits.connect_timeout).await?;
        let own = target.local_addr().map_err(|error| ConnectFailure::Unreachable(error.kind()))?;
        self.gate.check_connection(request, own.ip(), peer).await?;
        Ok(target)
    }
}

async fn serve(stream: TcpStream, connection: &ConnectionContext) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let serving = async {
        let mut first = [0];
        let seen = timeout(connection.limits.handshake_timeout, stream.peek(&mut first)).await;
        match (seen, first) {
            (Ok(Ok(1..)), [socks5::VERSION]) => socks5::serve(stream, connection).await,
            (Ok(Ok(1..)), _) => http_requests::serve(stream, connection).await,
            // The program has sent nothing.
            _ => {}
        }
    };
    tokio::select! {
        () = serving => {}
        () = connection.activity.idle_for(connection.limits.idle_timeout) => {}
    }
}
