//! The other end of a connection: host, port, and whether the connection uses TLS.

use std::fmt;

use http::Uri;
use url::{Host, Url};

use crate::error::{FailureKind, RequestFailure};

/// The default port of SOCKS proxies. The crates `url` and `http` do not know it.
const SOCKS_PORT: u16 = 1080;

/// A server or a proxy, as the other end of a connection.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// A name in ASCII, or an IP address without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The connection uses TLS.
    pub(crate) is_secure: bool,
}

impl Endpoint {
    /// The server that a URL names. `None` for a URL without a host or without a known port.
    pub(crate) fn from_url(url: &Url) -> Option<Self> {
        let host = match url.host()? {
            Host::Domain(name) => name.to_owned(),
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
        };
        Some(Self { host, port: url.port_or_known_default()?, is_secure: url.scheme() == "https" })
    }

    /// The proxy that a URI names. `None` for a URI without a scheme or without a host.
    pub(crate) fn from_proxy_uri(uri: &Uri) -> Option<Self> {
        let default_port = match uri.scheme_str()? {
            "http" => 80,
            "https" => 443,
            _ => SOCKS_PORT,
        };
        let host = uri.host()?.trim_start_matches('[').trim_end_matches(']').to_owned();
        Some(Self {
            host,
            port: uri.port_u16().unwrap_or(default_port),
            is_secure: uri.scheme_str() == Some("https"),
        })
    }

    /// The form in which the connectors of hyper-util take a destination.
    pub(crate) fn uri(&self) -> Result<Uri, RequestFailure> {
        let scheme = if self.is_secure { "https" } else { "http" };
        let uri = Uri::builder().scheme(scheme).authority(self.to_string()).path_and_query("/").build();
        uri.map_err(|error| RequestFailure::new(FailureKind::Other, format!("cannot connect to {self}: {error}")))
    }
}

/// Host and port, as error messages and CONNECT requests contain them.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, .. } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}
