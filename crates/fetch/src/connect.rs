//! Opens the stream that a route needs: address, TCP, TLS, and a tunnel through a proxy.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::endpoint::Endpoint;
use crate::error::{FailureKind, RequestFailure};
use crate::lookup::{LookupAllowance, Lookups};
use crate::proxy::Route;
use crate::roots::Roots;
use crate::tunnel;

/// How long one address is alone before the next is tried beside it: long enough for most, short enough for a person.
const HEAD_START: Duration = Duration::from_millis(300);

/// Whatever bytes go over.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// What opening needs besides the route.
pub(crate) struct Means<'a> {
    pub(crate) roots: &'a Roots,
    pub(crate) lookups: &'a Lookups,
    pub(crate) allowance: &'a LookupAllowance,
}

/// Opens the stream for a route. There is no time limit here: the deadline of the request is around it.
pub(crate) async fn open(route: &Route, means: &Means<'_>) -> Result<Box<dyn ByteStream>, RequestFailure> {
    match route {
        Route::Direct(target) => reach(target, means).await,
        Route::Forward(proxy) => reach(&proxy.endpoint, means).await,
        Route::Tunnel(proxy, target) => {
            let mut stream = reach(&proxy.endpoint, means).await?;
            tunnel::open(&mut stream, proxy, target).await?;
            secure(stream, target, means.roots).await
        }
    }
}

async fn reach(endpoint: &Endpoint, means: &Means<'_>) -> Result<Box<dyn ByteStream>, RequestFailure> {
    let addresses = means.lookups.addresses(&endpoint.host, endpoint.port, means.allowance).await;
    let addresses = addresses.map_err(|error| {
        RequestFailure::new(FailureKind::Dns, format!("cannot find the address of {}: {error}", endpoint.host))
    })?;
    let refused = |error| RequestFailure::new(FailureKind::Connect, format!("cannot connect to {endpoint}: {error}"));
    let tcp = dial(alternating(addresses)).await.map_err(refused)?;
    // Requests are written in one piece, and waiting for more would only delay them.
    tcp.set_nodelay(true).map_err(refused)?;
    if endpoint.is_secure { secure(tcp, endpoint, means.roots).await } else { Ok(Box::new(tcp)) }
}

async fn secure(
    stream: impl ByteStream + 'static,
    endpoint: &Endpoint,
    roots: &Roots,
) -> Result<Box<dyn ByteStream>, RequestFailure> {
    let failed = |words: String| RequestFailure::new(FailureKind::Tls, format!("no TLS with {endpoint}: {words}"));
    let name = ServerName::try_from(endpoint.host.clone()).map_err(|error| failed(error.to_string()))?;
    let connector = TlsConnector::from(roots.client_config().await?);
    let stream = connector.connect(name, stream).await.map_err(|error| failed(error.to_string()))?;
    Ok(Box::new(stream))
}

/// The families take turns, the resolver's favourite first: when one of them leads nowhere, only one attempt is lost.
fn alternating(addresses: Vec<SocketAddr>) -> VecDeque<SocketAddr> {
    let first_is_v4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let (mut favourites, mut others): (VecDeque<_>, VecDeque<_>) =
        addresses.into_iter().partition(|address| address.is_ipv4() == first_is_v4);
    let mut ordered = VecDeque::new();
    while let Some(address) = favourites.pop_front() {
        ordered.push_back(address);
        ordered.extend(others.pop_front());
    }
    ordered.extend(others);
    ordered
}

/// The first address that answers. Each next one is tried when the one before failed or has had its head start.
async fn dial(mut addresses: VecDeque<SocketAddr>) -> io::Result<TcpStream> {
    let mut attempts = JoinSet::new();
    let mut last_error = io::Error::new(io::ErrorKind::NotFound, "it has no address");
    loop {
        match addresses.pop_front() {
            Some(address) => drop(attempts.spawn(TcpStream::connect(address))),
            None if attempts.is_empty() => return Err(last_error),
            None => {}
        }
        tokio::select! {
            Some(ended) = attempts.join_next() => match ended {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last_error = error,
                Err(error) => last_error = io::Error::other(error),
            },
            () = tokio::time::sleep(HEAD_START), if !addresses.is_empty() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(list: &[&str]) -> VecDeque<SocketAddr> {
        list.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[test]
    fn families_take_turns() {
        let given = addresses(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1"]);
        assert_eq!(alternating(given.into()), addresses(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"]));
    }

    #[tokio::test]
    async fn an_address_that_refuses_gives_way_to_the_next() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let open = listener.local_addr().unwrap();
        assert_eq!(dial([closed, open].into()).await.unwrap().peer_addr().unwrap(), open);
        assert_eq!(dial([closed].into()).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(dial(VecDeque::new()).await.unwrap_err().to_string(), "it has no address");
    }
}
