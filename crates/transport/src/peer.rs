//! The name of the other end, for logs and error messages. It identifies nobody: a Unix peer is just "unix".

use std::fmt;
use std::net::SocketAddr;

/// Who is at the other end of a message stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerLabel {
    /// A TCP peer, with or without TLS.
    Tcp(SocketAddr),
    /// A process of this machine, over a Unix socket.
    Unix,
    /// The process that holds the other ends of our stdin and stdout.
    Stdio,
    /// A process that we have started, by its number.
    Child(u32),
    /// The other half of an in-memory pair.
    Memory,
}

impl fmt::Display for PeerLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix => f.write_str("unix"),
            Self::Stdio => f.write_str("stdio"),
            Self::Child(pid) => write!(f, "child {pid}"),
            Self::Memory => f.write_str("memory"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_read_as_addresses_or_kinds() {
        let tcp = PeerLabel::Tcp("127.0.0.1:53112".parse().unwrap());
        let shown = [tcp, PeerLabel::Unix, PeerLabel::Stdio, PeerLabel::Child(7), PeerLabel::Memory];
        let shown: Vec<String> = shown.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["127.0.0.1:53112", "unix", "stdio", "child 7", "memory"]);
    }
}
