//! Resolves host names. The resolver of the system blocks, cannot be cancelled, and waits up to half a minute for a
//! name server that does not answer. So the number of concurrent look-ups is limited, for each client of the
//! exec-server and in total. A look-up keeps its permits until the resolver returns, even if the request was
//! cancelled long before. hyper-util has a resolver too, but without limits, and on the threads that tokio keeps for
//! blocking work. Start with [`Lookups::addresses`].

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::vec;

use hyper_util::client::legacy::connect::dns::Name;
use tokio::sync::Semaphore;
use tower_service::Service;

use crate::own_thread::on_own_thread;
use crate::owner::RequestOwner;

/// Limit for the concurrent look-ups of all clients together. Each look-up occupies a thread.
pub const MAX_LOOKUPS: usize = 64;

/// Limit for the concurrent look-ups of one client. It is a quarter of [`MAX_LOOKUPS`], so that a client whose
/// look-ups all hang leaves three quarters to other clients.
pub const MAX_LOOKUPS_PER_CLIENT: usize = 16;

/// A blocking function that resolves a host name and returns its addresses with the given port.
type Resolve = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Permits for the concurrent look-ups of one client, 16 of them. Further look-ups wait. Clones share the permits.
#[derive(Clone, Debug)]
pub(crate) struct LookupAllowance(Arc<Semaphore>);

impl Default for LookupAllowance {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_LOOKUPS_PER_CLIENT)))
    }
}

/// Resolves names for all clients. The limits hold for everything that uses the same value.
pub struct Lookups {
    /// For the look-ups of all clients together.
    permits: Arc<Semaphore>,
    resolve: Arc<Resolve>,
}

impl Default for Lookups {
    fn default() -> Self {
        Self::with_resolver(Arc::new(|host: &str, port| Ok((host, port).to_socket_addrs()?.collect())))
    }
}

impl Lookups {
    fn with_resolver(resolve: Arc<Resolve>) -> Self {
        Self { permits: Arc::new(Semaphore::new(MAX_LOOKUPS)), resolve }
    }

    /// The addresses of a host name, for another use than HTTP requests. Counts towards the limits of the owner.
    pub async fn resolve(&self, name: &str, owner: &RequestOwner) -> io::Result<Vec<IpAddr>> {
        let addresses = self.addresses(name, 0, owner.lookup_allowance()).await?;
        Ok(addresses.into_iter().map(|address| address.ip()).collect())
    }

    /// Resolves a host. If the host is an IP address, no look-up is made.
    pub(crate) async fn addresses(
        &self,
        host: &str,
        port: u16,
        allowance: &LookupAllowance,
    ) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let closed = |_| io::Error::other("no look-ups are made any more");
        // The permit of the client is taken first. So a client with many look-ups waits for its own permits, and not
        // in the queue that all clients share.
        let client_permit = Arc::clone(&allowance.0).acquire_owned().await.map_err(closed)?;
        let total_permit = Arc::clone(&self.permits).acquire_owned().await.map_err(closed)?;
        let (resolve, name) = (Arc::clone(&self.resolve), host.to_owned());
        let look_up = move || {
            let addresses = resolve(&name, port);
            drop((client_permit, total_permit));
            addresses
        };
        on_own_thread("look-up", look_up).await?
    }
}

/// The look-ups of one client, in the form that the connector of hyper-util takes.
#[derive(Clone)]
pub(crate) struct Resolver {
    lookups: Arc<Lookups>,
    allowance: LookupAllowance,
}

/// The error of a [`Resolver`]. Its type tells a failed look-up apart from a failed connection.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct LookupError(pub(crate) io::Error);

impl Resolver {
    pub(crate) fn new(lookups: Arc<Lookups>, allowance: LookupAllowance) -> Self {
        Self { lookups, allowance }
    }
}

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = LookupError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, LookupError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), LookupError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let Self { lookups, allowance } = self.clone();
        // The connector sets the port of the addresses itself, so it is 0 here.
        Box::pin(async move {
            let addresses = lookups.addresses(name.as_str(), 0, &allowance).await;
            addresses.map(Vec::into_iter).map_err(LookupError)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use parking_lot::Mutex;
    use tokio::time::timeout;

    use super::*;

    /// Look-ups that hang until the returned sender is dropped.
    fn hanging_lookups() -> (Arc<Lookups>, mpsc::Sender<()>) {
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        let resolve = move |_: &str, port| {
            released.lock().recv().unwrap_or_default();
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
        };
        (Arc::new(Lookups::with_resolver(Arc::new(resolve))), release)
    }

    /// Starts a look-up and cancels it at once.
    async fn start_and_cancel(lookups: &Lookups, allowance: &LookupAllowance) {
        assert!(timeout(Duration::ZERO, lookups.addresses("silent.invalid", 1, allowance)).await.is_err());
    }

    #[tokio::test]
    async fn a_cancelled_lookup_keeps_its_permits_until_the_resolver_returns() {
        let (lookups, release) = hanging_lookups();
        let (client, other_client) = (LookupAllowance::default(), LookupAllowance::default());
        for _ in 0..MAX_LOOKUPS_PER_CLIENT * 10 {
            start_and_cancel(&lookups, &client).await;
        }
        assert_eq!(client.0.available_permits(), 0);
        assert_eq!(lookups.permits.available_permits(), MAX_LOOKUPS - MAX_LOOKUPS_PER_CLIENT);
        start_and_cancel(&lookups, &other_client).await;
        let other_permits = other_client.0.available_permits();
        assert_eq!(other_permits, MAX_LOOKUPS_PER_CLIENT - 1, "another client has its own permits");
        drop(release);
        let addresses = lookups.addresses("silent.invalid", 7, &client).await.unwrap();
        assert_eq!(addresses, [SocketAddr::from(([127, 0, 0, 1], 7))]);
    }

    #[tokio::test]
    async fn the_lookups_of_all_clients_together_are_limited() {
        let (lookups, release) = hanging_lookups();
        for _ in 0..10 {
            let allowance = LookupAllowance::default();
            for _ in 0..MAX_LOOKUPS_PER_CLIENT {
                start_and_cancel(&lookups, &allowance).await;
            }
        }
        assert_eq!(lookups.permits.available_permits(), 0);
        let allowance = LookupAllowance::default();
        start_and_cancel(&lookups, &allowance).await;
        assert_eq!(
            allowance.0.available_permits(),
            MAX_LOOKUPS_PER_CLIENT,
            "a cancelled wait returns the permit of the client"
        );
        let literal = lookups.addresses("::1", 7, &allowance).await.unwrap();
        assert_eq!(literal, ["[::1]:7".parse().unwrap()], "an address needs no look-up");
        drop(release);
    }
}
