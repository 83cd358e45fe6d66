//! What a user writes to forward a port: `[[BIND:]PORT:][HOST:]PORT`, as for `ssh -L` and `kubectl port-forward`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// The host of the environment that is meant if none is named.
const DEFAULT_HOST: &str = "localhost";

/// One port to forward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForwardSpec {
    /// Where to listen on this machine. Port 0 is a free port.
    pub(super) listen: SocketAddr,
    /// Host to connect to, as the environment knows it.
    pub(super) host: String,
    /// Port to connect to.
    pub(super) port: u16,
}

impl ForwardSpec {
    /// The address in the environment, as people write it.
    pub(super) fn target(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// Why a text is no [`ForwardSpec`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ForwardSpecError(String);

impl fmt::Display for ForwardSpecError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for ForwardSpecError {}

impl FromStr for ForwardSpec {
    type Err = ForwardSpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = parts(text)?;
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (bind, local, host, remote) = match parts[..] {
            [port] => (None, port, None, port),
            [local, remote] => (None, local, None, remote),
            [first, second, third] if is_number(first) => (None, first, Some(second), third),
            [bind, local, remote] => (Some(bind), local, None, remote),
            [bind, local, host, remote] => (Some(bind), local, Some(host), remote),
            _ => {
                return Err(ForwardSpecError(
                    "expected PORT, PORT:PORT, PORT:HOST:PORT or BIND:PORT:HOST:PORT".to_owned(),
                ));
            }
        };
        let bind = match bind {
            None | Some("localhost") => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Some(address) => address.parse().map_err(|_| {
                ForwardSpecError(format!(
                    "`{address}` is not an address of this machine; give an IP address or localhost"
                ))
            })?,
        };
        let host = host.unwrap_or(DEFAULT_HOST);
        if host.is_empty() {
            return Err(ForwardSpecError("the host is empty".to_owned()));
        }
        let port = port(remote)?;
        if port == 0 {
            let text = "port 0 (any free port) is only for this machine; name a port of the environment";
            return Err(ForwardSpecError(text.to_owned()));
        }
        Ok(Self { listen: SocketAddr::new(bind, self::port(local)?), host: host.to_owned(), port })
    }
}

/// Splits at colons that are not in brackets, and removes the brackets.
fn parts(text: &str) -> Result<Vec<String>, ForwardSpecError> {
    let (mut parts, mut rest) = (Vec::new(), text);
    loop {
        let (part, after) = match rest.strip_prefix('[') {
            Some(bracketed) => bracketed
                .split_once(']')
                .ok_or_else(|| ForwardSpecError("a bracket is not closed; write [::1]:8080:[::1]:80".to_owned()))?,
            None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
        };
        parts.push(part.to_owned());
        if after.is_empty() {
            return Ok(parts);
        }
        rest = after
            .strip_prefix(':')
            .ok_or_else(|| ForwardSpecError("a colon must follow the closing bracket".to_owned()))?;
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn port(text: &str) -> Result<u16, ForwardSpecError> {
    let parsed = if is_number(text) { text.parse().ok() } else { None };
    parsed.ok_or_else(|| ForwardSpecError(format!("`{text}` is not a port; a port is a number up to 65535")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_understood() {
        for (text, listen, target) in [
            ("8080", "127.0.0.1:8080", "localhost:8080"),
            ("8080:5432", "127.0.0.1:8080", "localhost:5432"),
            ("0:5432", "127.0.0.1:0", "localhost:5432"),
            ("8080:db:5432", "127.0.0.1:8080", "db:5432"),
            ("127.0.0.1:8080:5432", "127.0.0.1:8080", "localhost:5432"),
            ("localhost:8080:5432", "127.0.0.1:8080", "localhost:5432"),
            ("127.0.0.2:8080:db:5432", "127.0.0.2:8080", "db:5432"),
            ("[::1]:8080:5432", "[::1]:8080", "localhost:5432"),
            ("[::1]:8080:[fe80::1]:5432", "[::1]:8080", "[fe80::1]:5432"),
            ("8080:[::1]:80", "127.0.0.1:8080", "[::1]:80"),
        ] {
            let spec: ForwardSpec = text.parse().unwrap();
            assert_eq!((spec.listen.to_string().as_str(), spec.target().as_str()), (listen, target), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            ":",
            "0",
            "8080:0",
            "x",
            "65536",
            "+80",
            "-1",
            "8080:",
            ":8080",
            "8080::80",
            "db:80",
            "a:b:c",
            "1:2:3:4",
            "1:2:3:4:5",
            "[::1",
            "[::1]80",
            "::1:8080:80",
            "8080:db:",
            " 80",
        ] {
            assert!(text.parse::<ForwardSpec>().is_err(), "{text:?}");
        }
    }
}
