//! Looking up the addresses of a name. The resolver of the system blocks, cannot be interrupted, and waits for a silent name server
//! for half a minute. So the number of look-ups is bounded, for one client and for all, and each keeps its place until it has really
//! ended, also if the request that wanted it was given up long before.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::own_thread::on_own_thread;

/// Look-ups under way in all, each of which holds a thread.
const LOOKUPS_IN_ALL: usize = 64;

/// Look-ups under way for one client. A few clients that ask for names of a silent name server leave most threads to others.
const LOOKUPS_OF_A_CLIENT: usize = 16;

/// Asks the system for the addresses of a name, and blocks while it does.
type Resolve = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// The look-ups that one client may have under way at a time; more of them wait. Clones share it.
#[derive(Clone, Debug)]
pub struct LookupAllowance(Arc<Semaphore>);

impl Default for LookupAllowance {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LOOKUPS_OF_A_CLIENT)))
    }
}

/// The look-ups of all clients.
pub(crate) struct Lookups {
    places: Arc<Semaphore>,
    resolve: Arc<Resolve>,
}

impl Default for Lookups {
    fn default() -> Self {
        Self::with_resolver(Arc::new(|host: &str, port| Ok((host, port).to_socket_addrs()?.collect())))
    }
}

impl Lookups {
    fn with_resolver(resolve: Arc<Resolve>) -> Self {
        Self { places: Arc::new(Semaphore::new(LOOKUPS_IN_ALL)), resolve }
    }

    /// The addresses of a host, which may be an address itself.
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
        // First its own: a client with many look-ups waits among them and not among those of others.
        let own = Arc::clone(&allowance.0).acquire_owned().await.map_err(closed)?;
        let of_all = Arc::clone(&self.places).acquire_owned().await.map_err(closed)?;
        let (resolve, name) = (Arc::clone(&self.resolve), host.to_owned());
        let look_up = move || {
            let addresses = resolve(&name, port);
            drop((own, of_all));
            addresses
        };
        on_own_thread("look-up", look_up).await?
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use parking_lot::Mutex;
    use tokio::time::timeout;

    use super::*;

    /// Look-ups that hang until somebody lets them go on, and a way to do that.
    fn silent() -> (Arc<Lookups>, mpsc::Sender<()>) {
        let (go_on, goes_on) = mpsc::channel::<()>();
        let goes_on = Mutex::new(goes_on);
        let resolve = move |_: &str, port| {
            goes_on.lock().recv().unwrap_or_default();
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
        };
        (Arc::new(Lookups::with_resolver(Arc::new(resolve))), go_on)
    }

    /// Asks and gives up at once.
    async fn give_up(lookups: &Lookups, allowance: &LookupAllowance) {
        assert!(timeout(Duration::ZERO, lookups.addresses("silent.invalid", 1, allowance)).await.is_err());
    }

    #[tokio::test]
    async fn a_lookup_that_was_given_up_keeps_its_place() {
        let (lookups, go_on) = silent();
        let (one, other) = (LookupAllowance::default(), LookupAllowance::default());
        for _ in 0..LOOKUPS_OF_A_CLIENT * 10 {
            give_up(&lookups, &one).await;
        }
        assert_eq!(one.0.available_permits(), 0);
        assert_eq!(lookups.places.available_permits(), LOOKUPS_IN_ALL - LOOKUPS_OF_A_CLIENT);
        give_up(&lookups, &other).await;
        assert_eq!(other.0.available_permits(), LOOKUPS_OF_A_CLIENT - 1, "another client has its own");
        drop(go_on);
        let addresses = lookups.addresses("silent.invalid", 7, &one).await.unwrap();
        assert_eq!(addresses, [SocketAddr::from(([127, 0, 0, 1], 7))]);
    }

    #[tokio::test]
    async fn all_clients_together_have_a_bound() {
        let (lookups, go_on) = silent();
        for _ in 0..10 {
            let allowance = LookupAllowance::default();
            for _ in 0..LOOKUPS_OF_A_CLIENT {
                give_up(&lookups, &allowance).await;
            }
        }
        assert_eq!(lookups.places.available_permits(), 0);
        let allowance = LookupAllowance::default();
        give_up(&lookups, &allowance).await;
        assert_eq!(allowance.0.available_permits(), LOOKUPS_OF_A_CLIENT, "what waits in vain holds nothing");
        let literal = lookups.addresses("::1", 7, &allowance).await.unwrap();
        assert_eq!(literal, ["[::1]:7".parse().unwrap()], "an address needs no look-up");
        drop(go_on);
    }
}
