//! Who is at the other end of a connection: host, port, and whether TLS is spoken.

use std::fmt;

use url::{Host, Url};

/// A server or a proxy.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// A name in ASCII or an address without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) is_secure: bool,
}

impl Endpoint {
    /// `None` for schemes without a host or a port.
    pub(crate) fn of(url: &Url) -> Option<Self> {
        let host = match url.host()? {
            Host::Domain(name) => name.to_owned(),
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
        };
        Some(Self { host, port: url.port_or_known_default()?, is_secure: url.scheme() == "https" })
    }
}

/// Host and port, as an error names them and as CONNECT wants them.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, .. } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}
