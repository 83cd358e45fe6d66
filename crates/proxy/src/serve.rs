//! Accepts the connections of a process and serves each in a task. The proxy owns these tasks: when it is stopped, all
//! of them end, and [`NetworkProxy::run`] returns after the last one.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::activity::Activity;
use crate::dial::dial;
use crate::limits::ProxyLimits;
use crate::policy::{Decider, DecisionObserver, NameResolver};
use crate::refusal::ProxyRefusal;
use crate::rules::NetworkRules;
use crate::target_policy::{TargetPolicy, TargetRequest};
use crate::{http_requests, socks5};

/// Pause after a failed accept, which mostly means that no descriptor is left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// What a proxy needs in addition to its socket.
pub struct ProxyParts {
    /// Which targets may be reached.
    pub rules: NetworkRules,
    /// Decides about hosts that the rules do not know. None: such hosts are refused.
    pub decider: Option<Arc<dyn Decider>>,
    /// Is told about each decision.
    pub observer: Arc<dyn DecisionObserver>,
    /// Resolves host names.
    pub resolver: Arc<dyn NameResolver>,
    /// One permit for each connection, which several proxies may share. While there is none, connections wait.
    pub room: Arc<Semaphore>,
    /// Times, and the number of connections.
    pub limits: ProxyLimits,
}

/// A proxy that has a socket and does not run yet.
pub struct NetworkProxy {
    listener: TcpListener,
    policy: Arc<TargetPolicy>,
    room: Arc<Semaphore>,
    limits: ProxyLimits,
}

/// What the code that serves a connection of a program needs.
pub(crate) struct ProgramConnection {
    pub(crate) policy: Arc<TargetPolicy>,
    pub(crate) limits: ProxyLimits,
    pub(crate) activity: Activity,
    /// The address of the program's socket.
    pub(crate) client: IpAddr,
}

impl NetworkProxy {
    /// Makes a proxy that accepts on a listening socket. Connections to targets are made in the network of this
    /// program, even if the socket belongs to another network namespace.
    pub fn new(listener: TcpListener, parts: ProxyParts) -> Self {
        let ProxyParts { rules, decider, observer, resolver, room, limits } = parts;
        let policy = Arc::new(TargetPolicy { rules, decider, observer, resolver });
        Self { listener, policy, room, limits }
    }

    /// As [`Self::new`], with the descriptor of a listening TCP socket that another process may have made. Must be
    /// called in a tokio runtime.
    pub fn from_descriptor(listener: OwnedFd, parts: ProxyParts) -> io::Result<Self> {
        let listener = StdListener::from(listener);
        listener.set_nonblocking(true)?;
        Ok(Self::new(TcpListener::from_std(listener)?, parts))
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

    /// Does not return.
    async fn accept_all(&self, connections: &mut JoinSet<()>) {
        // A connection that waits for a permit. Further connections wait in the queue of the socket, where they take
        // no descriptor of this program.
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
                permit = Arc::clone(&self.room).acquire_owned(), if waiting.is_some() => {
                    // The semaphore is never closed.
                    if let (Ok(permit), Some((stream, client))) = (permit, waiting.take()) {
                        let connection = self.connection_of(client);
                        connections.spawn(async move {
                            serve(stream, &connection).await;
                            drop(permit);
                        });
                    }
                }
            }
        }
    }

    fn connection_of(&self, client: SocketAddr) -> ProgramConnection {
        ProgramConnection {
            policy: Arc::clone(&self.policy),
            limits: self.limits,
            activity: Activity::new(),
            client: client.ip(),
        }
    }
}

impl ProgramConnection {
    /// Connects to a target if the policy allows it.
    pub(crate) async fn reach(&self, request: &TargetRequest) -> Result<TcpStream, ProxyRefusal> {
        let addresses = self.policy.admit(request, &self.activity).await?;
        dial(&addresses, self.limits.connect_timeout).await
    }
}

async fn serve(stream: TcpStream, connection: &ProgramConnection) {
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
