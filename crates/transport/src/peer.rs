//! A short name of the peer of a connection, for logs and error messages. It is no proof of identity, and it is not unique: every Unix
//! peer is called "unix".

use std::fmt;
use std::net::SocketAddr;

/// The kind of peer of a message stream, with its address if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerLabel {
    /// A TCP peer, with or without TLS.
    Tcp(SocketAddr),
    /// A process on this machine that is connected over a Unix socket.
    Unix,
    /// The process at the other end of our stdin and stdout.
    Stdio,
    /// A child process of ours, with its process id.
    Child(u32),
    /// The other stream of an in-memory pair.
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
    fn a_label_is_shown_as_an_address_or_a_kind() {
        let tcp = PeerLabel::Tcp("127.0.0.1:53112".parse().unwrap());
        let shown = [tcp, PeerLabel::Unix, PeerLabel::Stdio, PeerLabel::Child(7), PeerLabel::Memory];
        let shown: Vec<String> = shown.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["127.0.0.1:53112", "unix", "stdio", "child 7", "memory"]);
    }
}
